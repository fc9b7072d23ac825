"""The algebra of the metadata tree: apply a batch of intents, fold, prune, plan a scan, diff a root, check invariants.

Owns: what intents mean. Does not own: bytes (`rootline.schemas`), any I/O, when a root is written (the coordinator).
Invariants: pure functions over values; the same state, batch and stamp give the same bytes.
"""
