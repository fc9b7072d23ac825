"""Time, identity and randomness, as parameters.

Owns: the port. Does not own: the system's clock and randomness (`rootline.adapters.system_environment`).
Invariants: inside Rootline only this port reads a clock or draws a random number, so that a seeded test controls them
all.
"""

from __future__ import annotations

from typing import Protocol


class Environment(Protocol):
    """Clocks, ids and random numbers for the code at the edge."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since the epoch. It may jump either way; no safety depends on it."""
        ...

    def monotonic_s(self) -> float:
        """Seconds on a clock that never steps back."""
        ...

    def fresh_id(self) -> str:
        """32 hex digits that are never given again, here or elsewhere."""
        ...

    def jitter(self) -> float:
        """A number in [0, 1) that spreads retries."""
        ...
