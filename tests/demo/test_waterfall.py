"""The picture of one intent's way."""

from __future__ import annotations

from rootline.connect import RecordedSpan
from rootline.demo.quick_demo import typical_intent, waterfall

MS = 1_000_000
FACTS = {"rootline.table": "a.b", "rootline.version": 3}


def spans_of(trace_id: str, *lengths_ms: int) -> list[RecordedSpan]:
    names = ("rootline publish", "rootline decide", "rootline put root", "rootline tell verdict")
    found, at_ns = [], 1_000 * MS
    for name, length in zip(names, lengths_ms, strict=False):
        found.append(RecordedSpan(name, trace_id, at_ns, at_ns + length * MS, FACTS))
        at_ns += length * MS
    return found


def test_each_span_is_a_bar_on_one_scale() -> None:
    heading, *lines = waterfall(spans_of("t", 10, 10, 20, 0))
    assert heading == "version 3 of a.b in 40.0 ms"
    assert [line[:13].strip() for line in lines] == ["publish", "decide", "put root", "tell verdict"]
    bars = [line[13:53] for line in lines]
    assert [bar.count("█") for bar in bars] == [10, 10, 20, 1]
    assert [bar.index("█") for bar in bars] == [0, 10, 20, 39]
    assert [line[53:].strip() for line in lines] == ["10.0 ms", "10.0 ms", "20.0 ms", "0.0 ms"]


def test_the_intent_in_the_middle_is_shown_and_incomplete_ones_are_not() -> None:
    spans = [*spans_of("slow", 90, 1, 1, 1), *spans_of("half", 50, 1), *spans_of("fast", 1, 1, 1, 1)]
    spans += spans_of("middle", 5, 1, 1, 1)
    assert {span.trace_id for span in typical_intent(spans)} == {"middle"}
    assert typical_intent(spans_of("half", 50, 1)) == []


def test_without_spans_there_is_no_picture() -> None:
    assert waterfall([]) == []


def test_spans_that_overlap_stay_inside_the_picture() -> None:
    early, *rest = spans_of("t", 10, 10, 20, 5)
    late = RecordedSpan(early.name, "t", early.start_ns, rest[-1].end_ns + 500 * MS, FACTS)
    lines = waterfall([late, *rest])
    assert {len(line) for line in lines[1:]} == {13 + 40 + 1 + 7 + 3}
