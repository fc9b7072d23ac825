"""Real services for the tests: brought up on 127.0.0.1, stopped by process id, cached between runs.

Owns: the harness. Does not own: what is tested with it.
Invariants: a service that cannot be installed fails its tests with one line that says what to install; nothing outlives
the session.
"""
