"""The coordinator's HTTP face.

Owns: /healthz, /readyz, /metrics. Does not own: what they report (`rootline.coordinator.app`).
Invariants: read-only.
"""
