"""What a worker shows over HTTP: health, readiness, metrics.

Owns: those routes. Does not own: what they report (`rootline.workers.app`).
"""
