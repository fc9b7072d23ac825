"""The coordinator: turns the log's intents into roots, one conditional PUT each.

Owns: the service (settings, commit machine, its asyncio shell, HTTP). Does not own: what an intent does to a table
(`rootline.tree`), how bytes reach a store or log (`rootline.adapters`).
Invariants: only `coordinator/app.py` may name an adapter; `protocol/` does no I/O.
"""
