from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from rootline.schemas.identifiers import Version, WriterId
from rootline.schemas.parts.ledger import CommittedRun, RejectedSequence, WriterRecord
from rootline.tree.parts.ledger import (
    REJECTED_MAX,
    RUNS_MAX,
    VERSION_FORGOTTEN,
    LedgerDraft,
    OldestSeen,
    committed_version,
    rejection_of,
    with_committed,
    with_rejected,
)


def record_of(*commits: tuple[int, int]) -> WriterRecord:
    record = WriterRecord()
    for sequence, version in commits:
        record = with_committed(record, sequence, Version(version))
    return record


def test_sequences_of_one_root_are_one_run_of_stride_0() -> None:
    assert record_of((3, 7), (4, 7), (5, 7)).committed == (CommittedRun(3, 5, Version(7), 0),)


def test_sequences_of_consecutive_roots_are_one_run_of_stride_1() -> None:
    assert record_of((3, 7), (4, 8), (5, 9)).committed == (CommittedRun(3, 5, Version(7), 1),)


def test_a_gap_is_not_committed_and_can_be_filled() -> None:
    record = record_of((1, 1), (3, 3))
    assert committed_version((record,), 2) is None
    filled = with_committed(record, 2, Version(9))
    assert [committed_version((filled,), sequence) for sequence in (1, 2, 3)] == [1, 9, 3]


def test_the_gap_before_the_first_run_can_be_filled() -> None:
    record = with_committed(record_of((5, 1)), 2, Version(4))
    assert committed_version((record,), 2) == 4
    assert committed_version((record,), 3) is None


@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 2)), max_size=400),
    st.integers(0, 420),
)
def test_what_is_called_committed_was_and_names_its_version_or_none(steps: list[tuple[int, int]], probe: int) -> None:
    record, version, known = WriterRecord(), 0, {}
    for sequence, ahead in steps:
        version += ahead
        if committed_version((record,), sequence) is None:
            record = with_committed(record, sequence, Version(version))
            known[sequence] = version
    for sequence in {probe, *known}:
        found = committed_version((record,), sequence)
        assert (found is None) == (sequence not in known)
        assert found in (None, VERSION_FORGOTTEN, known.get(sequence))
    firsts = [run.first for run in record.committed]
    assert firsts == sorted(firsts)


def test_many_runs_without_gaps_stay_few_and_the_newest_keep_their_versions() -> None:
    record = WriterRecord()
    for sequence in range(1000):
        record = with_committed(record, sequence, Version(sequence * 3))
    assert len(record.committed) <= RUNS_MAX
    assert committed_version((record,), 999) == 2997
    assert committed_version((record,), 0) == VERSION_FORGOTTEN
    assert committed_version((record,), 1000) is None


def test_runs_with_gaps_between_them_are_never_merged() -> None:
    record = WriterRecord()
    for sequence in range(0, 400, 2):
        record = with_committed(record, sequence, Version(sequence))
    assert all(committed_version((record,), sequence) is None for sequence in range(1, 400, 2))


def test_the_newest_rejections_are_kept() -> None:
    record = WriterRecord()
    for sequence in range(REJECTED_MAX + 5):
        record = with_rejected(record, RejectedSequence(sequence, f"i{sequence}", "file-not-live", ""))
    assert rejection_of((record,), "i4") is None
    assert rejection_of((record,), f"i{REJECTED_MAX + 4}") is not None


def test_idle_process_writers_leave_and_named_ones_stay() -> None:
    old = WriterRecord(committed=(CommittedRun(0, 0, Version(0), 0),), last_seen_ms=1_000)
    draft = LedgerDraft({WriterId("process/1"): old, WriterId("process/2"): old, WriterId("ingest"): old})
    draft.put(WriterId("process/2"), draft.record_of(WriterId("process/2")))
    ledger = draft.finished(20_001, OldestSeen(1_001, 1_001))
    assert set(ledger) == {"process/2", "ingest"}
    assert ledger[WriterId("process/2")].last_seen_ms == 20_001


def test_the_writers_of_clients_leave_sooner_than_those_of_processes() -> None:
    old = WriterRecord(last_seen_ms=1_000)
    writers = ("process/1", "rest/7", "ingest", "rest/8")
    draft = LedgerDraft({WriterId(name): old for name in writers})
    draft.put(WriterId("rest/8"), draft.record_of(WriterId("rest/8")))
    assert set(draft.finished(20_000, OldestSeen(process_ms=500, client_ms=1_001))) == {"process/1", "ingest", "rest/8"}


def test_a_process_writer_stays_for_the_whole_retention() -> None:
    old = WriterRecord(last_seen_ms=1_000)
    assert "process/1" in LedgerDraft({WriterId("process/1"): old}).finished(20_000, OldestSeen(1_000, 1_000))
