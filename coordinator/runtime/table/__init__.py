"""The parts of one table: the task that owns it, its store requests, and the publication of its verdicts."""
