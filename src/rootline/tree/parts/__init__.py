"""The parts of the header: how each follows from the parent's, moves to pages, and what the summary states."""
