"""I/O through ports, without a vendor: finding heads, reading roots, leaves and vectors, carrying scans out.

Owns: what is read and written, in which order. Does not own: how a store does it (`rootline.adapters`), what a
table's state means (`rootline.tree`).
Invariants: bytes are verified before they are used; a missing or altered object is `Corrupt`, and the error names it.
"""
