"""Chaos on real services: coordinators are killed, paused and cut off while many writers write; then all is judged.

Owns: the harness of `test_chaos` and of `python -m tests.kafka.chaos`. Does not own: the services.
Invariants: whom it kills it has started; safety is judged while faults last, liveness after they stop.
"""
