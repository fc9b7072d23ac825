"""The trace that a record belongs to, as its writer names it: the header `traceparent` of W3C Trace Context.

Owns: the header's name, reading and making its value. Does not own: spans and where they go
(`rootline.adapters.tracing`), how logs carry headers.
Invariants: a value that is not well-formed is none, whatever a writer sends; nothing is decided by it.

Source: https://www.w3.org/TR/trace-context/, section 3.2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from rootline.schemas.log_position import Headers

TRACE_HEADER: Final = "traceparent"
_LONGEST: Final = 512
_VALUE: Final = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_SAMPLED: Final = 1


class TraceContext(NamedTuple):
    """One span of one trace, both in hexadecimal; `is_sampled`: the writer records its own spans."""

    trace_id: str
    span_id: str
    is_sampled: bool

    @property
    def header(self) -> bytes:
        """As a header's value."""
        return f"00-{self.trace_id}-{self.span_id}-{self.is_sampled:02x}".encode()


def trace_headers(value: bytes | None) -> Headers:
    """The headers of a record that belongs to this trace; none without one."""
    return ((TRACE_HEADER, value),) if value else ()


def trace_of(headers: Headers) -> TraceContext | None:
    """The trace that a record's headers name; of several the last one that says anything."""
    if not any(name == TRACE_HEADER for name, _ in headers):
        return None  # nearly always
    values = [value or b"" for name, value in headers if name == TRACE_HEADER]
    return next((found for value in reversed(values) if (found := _read(value)) is not None), None)


def distinct_traces(contexts: Iterable[TraceContext | None], at_most: int) -> tuple[str, ...]:
    """The ids of the first few traces among them."""
    found: dict[str, None] = {}
    for context in contexts:
        if context is not None:
            found[context.trace_id] = None
            if len(found) == at_most:
                break
    return tuple(found)


def _read(value: bytes) -> TraceContext | None:
    match = _VALUE.fullmatch(value) if len(value) <= _LONGEST else None
    if match is None:
        return None
    version, trace, span, flags, more = match.groups()
    if version == b"ff" or (version == b"00" and more) or not trace.strip(b"0") or not span.strip(b"0"):
        return None
    return TraceContext(trace.decode(), span.decode(), bool(int(flags, 16) & _SAMPLED))
