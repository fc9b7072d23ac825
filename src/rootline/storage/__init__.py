"""Storage reads and writes through ports, independent of vendors: finding heads, reading roots, leaves and vectors,
scans.

Owns: the objects that are read and written, and their order. Does not own: the requests of a store
(`rootline.adapters`), the meaning of a table's state (`rootline.tree`).
Invariants: bytes are verified before they are used. A missing or altered object is `Corrupt`, and the error names it.
"""
