"""Plans that keep a table's metadata tree (root, leaves, data files) shallow and small.

Owns: the choice of work, and the objects and intent of a plan. Does not own: storing and publishing it
(`rootline.workers`), rebasing it (`rootline.tree`).
Invariants: pure. A plan is made from one root, and changes nothing before its intent is committed.
"""
