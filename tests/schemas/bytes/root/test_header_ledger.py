"""The ledger in a header: advanced step by step it is what it would be made from nothing."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from rootline.schemas.identifiers import Version, WriterId
from rootline.schemas.parts.ledger import CommittedRun, HeaderLedger, RejectedSequence, WriterRecord

writers = st.sampled_from(["a", 'b"', "ü/ö", "process/1", "spark/q", "\\"]).map(WriterId)
record = st.builds(
    WriterRecord,
    st.lists(st.builds(CommittedRun, st.integers(0, 99), st.integers(0, 99), st.integers(-1, 9).map(Version),
                       st.integers(0, 1)), max_size=3).map(tuple),
    st.lists(st.builds(RejectedSequence, st.integers(0, 9), st.text(max_size=3), st.text(max_size=3),
                       st.text(max_size=9)), max_size=2).map(tuple),
    st.just(0),
)  # fmt: skip
step = st.tuples(st.dictionaries(writers, record, max_size=3), st.sets(writers, max_size=2))


def of_json(encoded: bytes) -> dict[str, WriterRecord]:
    return {
        writer: WriterRecord(
            tuple(CommittedRun(*run) for run in runs), tuple(RejectedSequence(*item) for item in rejected), seen
        )
        for writer, (runs, rejected, seen) in json.loads(encoded).items()
    }


@given(st.lists(step, max_size=8))
def test_a_ledger_that_was_advanced_is_what_it_would_be_made_again(
    taken: list[tuple[dict[WriterId, WriterRecord], set[WriterId]]],
) -> None:
    ledger, expected = HeaderLedger.of({}), {}
    for now_ms, (touched, gone) in enumerate(taken):
        stamped = {writer: WriterRecord(item.committed, item.rejected, now_ms) for writer, item in touched.items()}
        left = [writer for writer in gone if writer in ledger and writer not in stamped]
        expected = {writer: item for writer, item in expected.items() if writer not in left} | stamped
        ledger = ledger.advanced(stamped, left)
        again = HeaderLedger.of(dict(ledger))
        assert ledger == expected == again
        assert list(ledger) == list(again), "the coldest come first"
        assert ledger.encode() == again.encode()
        assert of_json(ledger.encode()) == expected
        assert ledger.size_in_bytes == len(ledger.encode())
        assert sum(map(ledger.size_of, ledger)) + 2 == ledger.size_in_bytes + (1 if ledger else 0)


def test_an_advanced_ledger_leaves_the_one_before_as_it_was() -> None:
    first = HeaderLedger.of({WriterId("a"): WriterRecord(last_seen_ms=1), WriterId("b"): WriterRecord(last_seen_ms=2)})
    before = first.encode()
    second = first.advanced({WriterId("a"): WriterRecord(last_seen_ms=3)}, [WriterId("b")])
    assert first.encode() == before
    assert list(second) == ["a"]


def test_records_of_a_root_of_before_are_put_in_order() -> None:
    ledger = HeaderLedger.of({WriterId("new"): WriterRecord(last_seen_ms=9), WriterId("old"): WriterRecord()})
    assert list(ledger) == ["old", "new"]
    assert HeaderLedger.of(ledger) is ledger
