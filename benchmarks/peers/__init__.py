"""Rootline and its peers in one run, each through its own public API: `python -m benchmarks.peers`."""
