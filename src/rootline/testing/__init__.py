"""Public fakes and fault injection, for Rootline's tests and for its users' tests.

Owns: stores that fail, stores that ignore preconditions, virtual time, a seeded environment. Does not own: real
adapters, the stores and logs in memory (`rootline.adapters`).
Invariants: Every fault is drawn from a script or a seed, so that a failing test fails again.
"""
