"""The interfaces of all I/O, one capability each.

Owns: `typing.Protocol`s and the values they exchange. Does not own: any vendor (`rootline.adapters`).
Invariants: Pure declarations. Every adapter of a port, and its fake, pass that port's contract suite in the tests.
"""
