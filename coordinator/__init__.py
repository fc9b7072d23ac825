"""The coordinator: turns the log's intents into roots, one conditional PUT for each root.

Owns: the service (settings, commit machine, its asyncio shell, HTTP). Does not own: the effect of an intent on a
table (`rootline.tree`), the transport of bytes to a store or log (`rootline.adapters`).
Invariants: only `coordinator/app.py` may name an adapter. `protocol/` does no I/O.
"""
