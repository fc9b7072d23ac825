"""The commit protocol as values: events in, effects out.

Owns: the commit machine and its rules. Does not own: any I/O (`coordinator/runtime` carries effects out).
Invariants: pure; time, ids and chance arrive in a `Tick`.
"""
