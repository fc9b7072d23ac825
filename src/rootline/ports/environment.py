"""Time, identity, randomness and the tracer of spans, as parameters.

Owns: the ports. Does not own: the system's clock and randomness (`rootline.adapters.system_environment`).
Invariants: inside Rootline only `Environment` reads a clock or draws a random number, so that a seeded test controls
them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rootline.schemas.bytes.record_headers import TraceContext


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


Facts = Mapping[str, str | int]


class Tracer(Protocol):
    """Records spans after the fact, so that nothing waits for it."""

    def record(self, name: str, parent: TraceContext, start_ns: int, end_ns: int, facts: Facts) -> None:
        """A span below `parent`, a span of another process; times in nanoseconds since the epoch."""
        ...
