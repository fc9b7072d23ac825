"""What a program uses: a lake, its tables, producers.

Owns: the public classes' behaviour. Does not own: adapters (`rootline.connect` chooses them), what a commit does to a
table (`rootline.tree`), the commit itself (`rootline.coordinator`).
Invariants: every change goes through the log and waits for its verdict; nothing here writes a root.
"""
