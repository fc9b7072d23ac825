"""Plans that keep the tree shallow and small: what to flush, and when.

Owns: the choices. Does not own: carrying them out (`rootline.workers`), rebasing them (`rootline.tree`).
Invariants: pure; a plan names rows of one root and never removes anything by itself.
"""
