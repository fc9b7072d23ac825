"""Public classes of the client: a lake, its tables, producers.

Owns: the public classes' behaviour. Does not own: adapters (`rootline.connect` chooses them), the effect of a commit on
a table (`rootline.tree`), the commit itself (`rootline.coordinator`).
Invariants: every change is published to the log and waits for its verdict. No code here writes a root.
"""
