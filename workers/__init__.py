"""The workers keep tables small and fast to read by publishing maintenance intents.

Owns: the service (settings, head watcher, kinds of maintenance, jobs). Does not own: the choice of work
(`rootline.maintenance`), the effect of an intent on a table (`rootline.tree`).
Invariants: a worker never writes a root. Only `workers/app.py` may name an adapter.
"""
