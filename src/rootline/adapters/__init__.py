"""The vendors behind the ports, one file per vendor and port, and `open`, the one place that goes from URL to adapter.

Owns: files, sockets, SQLite, S3. Does not own: what an answer means for a commit.
Invariants: only composition roots (`connect`, `coordinator.app`, `workers.app`, `adapters.open`) name an adapter.
"""
