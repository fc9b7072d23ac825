"""The vendors behind the ports, one file for each vendor and port, and `open`, which chooses an adapter for a URL.

Owns: files, sockets, SQLite, S3. Does not own: what an answer means for a commit.
Invariants: only composition roots (`connect`, `coordinator.app`, `workers.app`, `adapters.open`) name an adapter.
"""
