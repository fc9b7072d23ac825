"""The workers keep metadata trees shallow by publishing intents of their own.

Owns: the service (settings, head watcher, kinds of maintenance, jobs). Does not own: what is due
(`rootline.maintenance`), what an intent does to a table (`rootline.tree`).
Invariants: a worker never writes a root; only `workers/app.py` may name an adapter.
"""
