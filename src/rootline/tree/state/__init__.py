"""One version of a table in memory: its root, its leaves, and the lookups of live entries."""
