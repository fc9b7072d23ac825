"""Time, ids and randomness from a seed.

Owns: an `Environment` for tests and the simulation. Does not own: virtual time (`virtual_loop`).
Invariants: The same seed gives the same ids and numbers. Tests may skew the wall clock, or let it jump.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

_EPOCH_MS = 1_700_000_000_000


@dataclass(slots=True)
class SeededEnvironment:
    """An environment from a seed. `skew_ms` shifts this process's wall clock relative to the others'."""

    seed: int | str
    skew_ms: int = 0
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def now_ms(self) -> int:
        """The running loop's time as a wall clock, skewed."""
        return _EPOCH_MS + self.skew_ms + int(self.monotonic_s() * 1000)

    def monotonic_s(self) -> float:
        """The running loop's time."""
        return asyncio.get_running_loop().time()

    def fresh_id(self) -> str:
        """32 hex digits."""
        return f"{self._random.getrandbits(128):032x}"

    def jitter(self) -> float:
        """Uniform in [0, 1)."""
        return self._random.random()
