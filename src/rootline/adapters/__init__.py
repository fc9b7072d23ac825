"""The adapters, one file for each vendor and port, and `open`, which chooses an adapter for a URL.

Owns: files, sockets, SQLite, S3. Does not own: the meaning of an answer for a commit.
Invariants: Only composition roots (`connect`, `coordinator.app`, `workers.app`, `adapters.open`) name an adapter.
"""
