"""The operating system's clock and randomness behind the `Environment` port.

Owns: the one place that reads them. Does not own: which code may ask for them.
Invariants: ids are random 128-bit numbers.
"""

from __future__ import annotations

import random
import time
import uuid


class SystemEnvironment:
    """What a running service uses."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds since some fixed point."""
        return time.monotonic()

    def fresh_id(self) -> str:
        """32 random hex digits."""
        return uuid.uuid4().hex

    def jitter(self) -> float:
        """Uniform in [0, 1)."""
        return random.random()
