"""Public fakes and faults, for Rootline's tests and for those of its users.

Owns: stores that fail, stores that lie, virtual time, a seeded environment. Does not own: real adapters, and the stores
and logs in memory (`rootline.adapters`).
Invariants: every fault is drawn from a script or a seed, so that a failing test fails again.
"""
