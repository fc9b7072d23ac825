"""Time, identity, randomness and the tracer of spans, as parameters.

Owns: the ports. Does not own: the system's clock and randomness (`rootline.adapters.system_environment`).
Invariants: inside Rootline only `Environment` reads a clock or draws a random number, so that a seeded test controls
them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rootline.schemas.bytes.record_headers import TraceContext


class Environment(Protocol):
    """Clocks, ids and random numbers for the code at the edge."""

    def now_ms(self) -> int:
        """The wall clock, in milliseconds since the epoch.

        It may jump in either direction, and no safety depends on it.
        """
        ...

    def monotonic_s(self) -> float:
        """Seconds on a clock that never goes backwards."""
        ...

    def fresh_id(self) -> str:
        """A unique id of 32 hex digits."""
        ...

    def jitter(self) -> float:
        """A random number in [0, 1), to spread retries."""
        ...


Facts = Mapping[str, str | int]


class Tracer(Protocol):
    """Records spans after they have ended, so that no caller waits for tracing."""

    def record(self, name: str, parent: TraceContext, start_ns: int, end_ns: int, facts: Facts) -> None:
        """Record a span below `parent`, which is a span of another process.

        `start_ns` and `end_ns`: nanoseconds since the epoch.
        """
        ...
