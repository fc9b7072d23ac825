"""The commit protocol as a pure state machine: events in, effects out.

Owns: the commit machine and its rules. Does not own: I/O (`coordinator/runtime` carries effects out).
Invariants: Time, fresh ids and random numbers arrive in a `Tick`.
"""
