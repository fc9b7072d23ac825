"""Where spans go, if anyone records them: what happened to one intent, and for how long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rootline.schemas.bytes.record_headers import TraceContext

Facts = Mapping[str, str | int]


class Tracer(Protocol):
    """Records spans after the fact, so that nothing waits for it."""

    def record(self, name: str, parent: TraceContext, start_ns: int, end_ns: int, facts: Facts) -> None:
        """A span below `parent`, a span of another process; times in nanoseconds since the epoch."""
        ...
