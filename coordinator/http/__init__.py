"""The coordinator's HTTP server.

Owns: /healthz, /readyz, /metrics, the console. Does not own: the values that they report
(`rootline.coordinator.app`).
Invariants: read-only.
"""
