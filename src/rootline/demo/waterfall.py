"""The way of one intent as a few lines of text: a bar for each span, below each other, on one scale of time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from rootline.connect import RecordedSpan

_STEPS: Final = ("rootline publish", "rootline decide", "rootline put root", "rootline tell verdict")
_WIDTH: Final = 40


def typical_intent(spans: Iterable[RecordedSpan]) -> list[RecordedSpan]:
    """The spans of the intent in the middle, by how long each took; only complete ones count, perhaps there is none."""
    by_trace: dict[str, dict[str, RecordedSpan]] = defaultdict(dict)
    for span in spans:
        by_trace[span.trace_id][span.name] = span
    complete = [[found[name] for name in _STEPS] for found in by_trace.values() if set(_STEPS) <= set(found)]
    complete.sort(key=_duration_ns)
    return complete[len(complete) // 2] if complete else []


def waterfall(spans: Sequence[RecordedSpan]) -> list[str]:
    """A heading, then a line for each span; empty without spans."""
    if not spans:
        return []
    began_ns, whole_ns = min(span.start_ns for span in spans), max(1, _duration_ns(spans))
    facts = spans[-1].facts
    lines = [f"version {facts.get('rootline.version')} of {facts.get('rootline.table')} in {whole_ns / 1e6:.1f} ms"]
    for span in spans:
        start = min(_WIDTH - 1, (span.start_ns - began_ns) * _WIDTH // whole_ns)
        length = max(1, min(_WIDTH - start, round((span.end_ns - span.start_ns) * _WIDTH / whole_ns)))
        bar = f"{' ' * start}{'█' * length}".ljust(_WIDTH)
        lines.append(f"{span.name.removeprefix('rootline '):<13}{bar} {(span.end_ns - span.start_ns) / 1e6:>7.1f} ms")
    return lines


def _duration_ns(spans: Sequence[RecordedSpan]) -> int:
    return max(span.end_ns for span in spans) - min(span.start_ns for span in spans)
