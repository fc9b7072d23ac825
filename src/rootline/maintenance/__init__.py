"""Plans that keep the tree shallow and small: what to do, and when.

Owns: the choices, and what a plan writes. Does not own: storing and publishing it (`rootline.workers`), rebasing it
(`rootline.tree`).
Invariants: pure; a plan is made from one root, and changes nothing before its intent is committed.
"""
