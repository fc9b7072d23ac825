"""The process's clock, randomness and tracer, behind the ports of `rootline.ports.environment`.

Owns: reading the clock and drawing random numbers, the check whether traces are recorded, the span of a publication,
spans that are recorded after they have ended, a list of spans in memory for a demo. Does not own: which code may use
it, where spans are exported (the program's tracer provider, `rootline.cli.service_process` for services), the spans of
a coordinator.
Invariants: Only this module reads the clock. Ids are random 128-bit numbers. Without a tracer provider, nothing is
imported and no record gets a header. A failure to record a span fails nothing else.
"""

from __future__ import annotations

import contextlib
import random
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from rootline.ports.environment import Environment, Facts, Tracer

if TYPE_CHECKING:
    from opentelemetry import trace

    from rootline.schemas.bytes.record_headers import TraceContext


class SystemEnvironment(Environment):
    """The environment of a running service."""

    @override
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    @override
    def monotonic_s(self) -> float:
        return time.monotonic()

    @override
    def fresh_id(self) -> str:
        return uuid.uuid4().hex

    @override
    def jitter(self) -> float:
        return random.random()


_API: Final = "opentelemetry.trace"
_NAME: Final = "rootline"
_PUBLISH: Final = "rootline publish"


@dataclass(frozen=True, slots=True)
class RecordedSpan:
    """A span of `recording_spans`. Times are in nanoseconds since the epoch."""

    name: str
    trace_id: str
    start_ns: int
    end_ns: int
    facts: Facts


class SpanList(Tracer):
    """A tracer that keeps spans in memory."""

    def __init__(self) -> None:
        self.spans: list[RecordedSpan] = []

    @override
    def record(self, name: str, parent: TraceContext, start_ns: int, end_ns: int, facts: Facts) -> None:
        self.spans.append(RecordedSpan(name, parent.trace_id, start_ns, end_ns, dict(facts)))


_kept: SpanList | None = None


@contextlib.contextmanager
def recording_spans() -> Iterator[SpanList]:
    """Record the spans of this process in memory until the block ends.

    Only coordinators that start inside the block record spans.
    """
    global _kept
    before, _kept = _kept, SpanList()
    try:
        yield _kept
    finally:
        _kept = before


class OpenTelemetryTracer(Tracer):
    """A tracer over the tracer provider of the program."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    @override
    def record(self, name: str, parent: TraceContext, start_ns: int, end_ns: int, facts: Facts) -> None:
        from opentelemetry import trace

        flags = trace.TraceFlags(trace.TraceFlags.SAMPLED if parent.is_sampled else trace.TraceFlags.DEFAULT)
        remote = trace.SpanContext(int(parent.trace_id, 16), int(parent.span_id, 16), True, flags)
        around = trace.set_span_in_context(trace.NonRecordingSpan(remote))
        span = self._tracer.start_span(
            name, around, trace.SpanKind.CONSUMER, dict(facts), start_time=start_ns, record_exception=False
        )
        span.end(end_time=end_ns)


def active_tracer() -> Tracer | None:
    """The tracer of this process, or `None` if no spans are recorded."""
    if _kept is not None:
        return _kept
    tracer = _tracer()
    return None if tracer is None else OpenTelemetryTracer(tracer)


@contextlib.contextmanager
def publishing(key: bytes, records: int) -> Iterator[bytes | None]:
    """Open a span around a publication, below the caller's own span if there is one.

    Yields the value of the records' header `traceparent`, or `None` if no spans are recorded.
    """
    from rootline.schemas.bytes.record_headers import TraceContext

    if _kept is not None:
        named = TraceContext(uuid.uuid4().hex, uuid.uuid4().hex[:16], True)
        kept, began_ns = _kept, time.time_ns()
        yield named.header
        kept.record(_PUBLISH, named, began_ns, time.time_ns(), {"rootline.table": key.decode(errors="replace")})
        return
    tracer = _tracer()
    if tracer is None:
        yield None
        return
    from opentelemetry.trace import SpanKind

    table = key.decode(errors="replace")
    facts: dict[str, str | int] = {"rootline.table": table, "messaging.batch.message_count": records}
    with tracer.start_as_current_span(_PUBLISH, kind=SpanKind.PRODUCER, attributes=facts) as span:
        at = span.get_span_context()
        named = TraceContext(f"{at.trace_id:032x}", f"{at.span_id:016x}", at.trace_flags.sampled)
        yield named.header if at.is_valid else None


def _tracer() -> trace.Tracer | None:
    if _API not in sys.modules:
        return None  # the program has not set it up
    from opentelemetry import trace

    provider = trace.get_tracer_provider()
    if isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)):
        return None
    return provider.get_tracer(_NAME)
