"""Time, identity and chance, as parameters.

Owns: the port. Does not own: the system's clock and randomness (`rootline.adapters.system_environment`).
Invariants: nothing inside Rootline reads a clock or draws a number but through this port, so that a seeded test owns
them all.
"""

from __future__ import annotations

from typing import Protocol


class Environment(Protocol):
    """Where the edge gets what is not in its arguments."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since the epoch. It may jump either way; nothing's safety depends on it."""
        ...

    def monotonic_s(self) -> float:
        """Seconds on a clock that never steps back."""
        ...

    def fresh_id(self) -> str:
        """32 hex digits that nobody else ever gets."""
        ...

    def jitter(self) -> float:
        """A number in [0, 1) that spreads retries."""
        ...
