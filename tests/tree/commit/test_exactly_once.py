"""Ledger, offsets and outcomes through whole batches: what is decided stays decided."""

from __future__ import annotations

import dataclasses

import pytest

from rootline.schemas.bytes.record_headers import content_headers
from rootline.schemas.errors import Internal
from rootline.schemas.identifiers import LogId, LogPosition, SequenceNumber, Version, snapshot_id_of
from rootline.schemas.parts.log import PartitionOffset
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.tree.commit.verdicts import answer, next_offset
from rootline.tree.draft.batch import Record
from rootline.tree.parts.ledger import CONTENTS_MAX
from tests.tree.tables import LOG, TABLE_UUID, Lake, append, codes, data_file, kinds, new_lake, remove, removed

COMMITTED, DUPLICATE, REJECTED = VerdictKind.COMMITTED, VerdictKind.DUPLICATE, VerdictKind.REJECTED


def test_the_same_sequence_again_is_a_duplicate_that_names_its_commit() -> None:
    lake = new_lake(append("a", writer_id="w", writer_sequence=1), append("b", writer_id="w", writer_sequence=2))
    [verdict] = lake.put(append("again", writer_id="w", writer_sequence=1))
    assert verdict.kind is DUPLICATE
    assert (verdict.version, verdict.snapshot_id) == (1, snapshot_id_of(TABLE_UUID, Version(1)))


def test_two_intents_of_one_sequence_in_one_batch_commit_once() -> None:
    lake = new_lake()
    first, second = lake.put(
        append("a", writer_id="w", writer_sequence=1), append("b", writer_id="w", writer_sequence=1)
    )
    assert (first.kind, second.kind, second.version) == (COMMITTED, DUPLICATE, first.version)
    assert lake.head.header.totals.data_files == 1


def test_a_rejected_intent_sent_again_is_rejected_again_even_when_it_would_pass_now() -> None:
    intent = remove("r", removed("data/later.parquet"), writer_id="w", writer_sequence=1)
    lake = new_lake()
    [first] = lake.put(intent)
    lake.put(append("later"))
    [again] = lake.put(intent)
    assert (again.kind, again.code, again.message) == (REJECTED, first.code, first.message)


def test_another_intent_at_a_rejected_sequence_is_validated_afresh() -> None:
    lake = new_lake()
    lake.put(remove("r1", removed("data/later.parquet"), writer_id="w", writer_sequence=1), append("later"))
    [verdict] = lake.put(remove("r2", removed("data/later.parquet"), writer_id="w", writer_sequence=1))
    assert verdict.kind is COMMITTED
    [late] = lake.put(remove("r1", removed("data/later.parquet"), writer_id="w", writer_sequence=1))
    assert (late.kind, late.code) == (REJECTED, "file-not-live")


def test_a_sequence_before_the_first_one_seen_can_still_commit() -> None:
    lake = new_lake(append("b", writer_id="w", writer_sequence=9))
    assert kinds(lake.put(append("a", writer_id="w", writer_sequence=1))) == [COMMITTED]


def test_an_intent_without_a_writer_is_deduplicated_by_its_files() -> None:
    lake = new_lake(append("a"))
    assert codes(lake.put(append("a"))) == ["file-already-live"]


def test_a_batch_of_rejections_makes_a_root_and_takes_one_sequence_number() -> None:
    lake = new_lake(append("a"))
    before = lake.head.header.snapshot
    lake.put(append("a"), append("a"))
    after = lake.head.header.snapshot
    assert after.sequence_number == before.sequence_number + 1
    assert after.operation == "replace"
    assert lake.head.header.version == 2


def test_one_bad_intent_does_not_fail_its_neighbours() -> None:
    lake = new_lake()
    assert kinds(lake.put(append("a"), remove("r", removed("data/none.parquet")), append("b"))) == [
        COMMITTED,
        REJECTED,
        COMMITTED,
    ]


def test_accepted_intents_get_consecutive_sequence_numbers_and_the_snapshot_the_last() -> None:
    lake = new_lake()
    verdicts = lake.put(append("a"), append("a"), append("b"), append("c"))
    assert [verdict.sequence_number for verdict in verdicts] == [2, None, 3, 4]
    assert lake.head.header.snapshot.sequence_number == 4
    assert {entry.location: entry.version_info.sequence_number for entry in lake.root_entries()} == {
        "data/a.parquet": 2,
        "data/b.parquet": 3,
        "data/c.parquet": 4,
    }


def test_timestamps_increase_even_when_the_clock_steps_back() -> None:
    lake = new_lake()
    lake.now_ms = 5
    lake.put(append("a"))
    lake.put(append("b"))
    stamps = [state.header.snapshot.timestamp_ms for state in lake.states]
    assert stamps == sorted(set(stamps))


def test_offsets_advance_past_rejections_and_never_decrease() -> None:
    lake = new_lake()
    lake.put(append("a"))
    lake.put(append("a"))
    assert lake.head.header.log.offsets == (PartitionOffset(LOG, 0, 3),)


def test_offsets_of_several_partitions_and_logs_stand_side_by_side() -> None:
    lake = new_lake()
    other = LogId("cluster/topic")
    records = [
        Record(LogPosition(other, 4, 100), append("a"), 1),
        Record(LogPosition(LOG, 0, 9), append("b"), 1),
        Record(LogPosition(other, 1, 3), append("c"), 1),
    ]
    lake.put_records(records)
    header = lake.head.header
    assert [next_offset(header, *place) for place in ((other, 4), (LOG, 0), (other, 1), (other, 0))] == [101, 10, 4, 0]


def test_a_record_below_the_offset_is_never_applied() -> None:
    lake = new_lake(append("a"))
    with pytest.raises(Internal, match="already decided"):
        lake.try_records([Record(LogPosition(LOG, 0, 1), append("b"), 1)])


def test_a_record_twice_in_one_batch_is_never_applied() -> None:
    lake = new_lake()
    record = Record(LogPosition(LOG, 0, 7), append("a"), 1)
    with pytest.raises(Internal, match="already decided"):
        lake.try_records([record, record])


def test_what_a_root_answers_is_what_its_verdicts_said() -> None:
    lake = new_lake()
    intents = [
        append("a", writer_id="w", writer_sequence=1),
        append("b"),
        remove("r", removed("data/none.parquet")),
        append("c", writer_id="w", writer_sequence=1),
        append("d"),
    ]
    records = lake.records(intents)
    verdicts = lake.put_records(records)
    assert [answer(lake.head, record) for record in records] == verdicts
    lake.put(append("e"))
    assert [answer(lake.head, record) for record in records] == verdicts
    assert [answer(lake.reloaded(), record) for record in records] == verdicts


def test_outcomes_stay_until_their_verdicts_are_acknowledged_and_no_longer() -> None:
    lake = new_lake()
    records = lake.records([append("a"), append("a"), append("b")])
    verdicts = lake.put_records(records)
    lake.put(append("c"), acknowledged={(LOG, 0): records[1].position.offset})
    assert [answer(lake.head, record) for record in records] == [None, verdicts[1], verdicts[2]]
    lake.put(append("d"), acknowledged={(LOG, 0): lake.offset})
    assert [answer(lake.head, record) for record in records] == [None, None, None]


def test_consecutive_commits_are_one_run_of_outcomes() -> None:
    lake = new_lake()
    lake.put(append("a"), append("b"), append("c"))
    [_, run] = lake.head.header.outcomes.newest.runs
    assert (run.first_offset, run.last_offset, run.version, run.first_sequence_number) == (1, 3, 1, SequenceNumber(2))


def test_a_record_that_is_not_decided_has_no_answer() -> None:
    lake = new_lake()
    assert answer(lake.head, Record(LogPosition(LOG, 0, 99), append("x"), 1)) is None


def test_a_long_reason_is_cut() -> None:
    lake = new_lake()
    [verdict] = lake.put(remove("r", removed(f"data/{'x' * 900}.parquet")))
    assert verdict.message is not None
    assert len(verdict.message) <= 300


def test_the_same_batch_and_stamp_give_the_same_bytes() -> None:
    one, two = new_lake(), new_lake()
    for lake in (one, two):
        lake.put(append("a"), append("b", data_file("b"), data_file("c")))
    assert one.bodies == two.bodies


def test_a_batch_without_a_table_makes_no_root() -> None:
    lake = Lake()
    verdicts: list[Verdict] = lake.put(append("a"))
    assert codes(verdicts) == ["table-unknown"]
    assert lake.state is None


def _said(lake: Lake, name: str, content: bytes | None, sequence: int = 1, writer: str = "w") -> Verdict:
    """The verdict on an append of one file whose record says `content`."""
    [record] = lake.records([append(name, writer_id=writer, writer_sequence=sequence)])
    headers = (("other", b"x"), *content_headers(content))
    return lake.put_records([dataclasses.replace(record, headers=headers)])[0]


def test_a_sequence_used_again_for_other_content_is_rejected_and_stays_so() -> None:
    lake = new_lake()
    assert _said(lake, "a", b"one").kind is COMMITTED
    other = _said(lake, "b", b"two")
    assert (other.kind, other.code) == (REJECTED, "sequence-reused")
    assert "sequence 1 of writer 'w' was committed in version 1 with other content" in (other.message or "")
    assert _said(lake, "b", b"one").code == "sequence-reused"
    """The same intent got its rejection already."""
    assert _said(lake, "c", b"one").kind is DUPLICATE
    assert _said(lake, "d", b"two", sequence=2).kind is COMMITTED
    assert _said(lake, "e", b"two", writer="v").kind is COMMITTED


@pytest.mark.parametrize(("first", "again"), [(None, b"two"), (b"one", None), (b"one", b""), (b"", b"two")])
def test_where_one_of_two_says_nothing_the_second_is_a_duplicate(first: bytes | None, again: bytes | None) -> None:
    lake = new_lake()
    assert _said(lake, "a", first).kind is COMMITTED
    assert _said(lake, "b", again).kind is DUPLICATE


def test_the_newest_contents_are_remembered_and_older_ones_forgotten() -> None:
    lake = new_lake()
    for number in range(CONTENTS_MAX + 1):
        assert _said(lake, f"a-{number}", b"one", number).kind is COMMITTED
    assert len(lake.head.header.ledger.contents) == CONTENTS_MAX
    assert _said(lake, "b", b"two", 0).kind is DUPLICATE
    assert _said(lake, "c", b"two", 1).code == "sequence-reused"
    lake.put(append("silent", writer_id="w", writer_sequence=1_000))
    assert len(lake.head.header.ledger.contents) == CONTENTS_MAX


def test_a_root_of_a_table_whose_writers_say_nothing_has_no_contents() -> None:
    lake = new_lake(append("a", writer_id="w", writer_sequence=1))
    assert b"rootline.contents" not in lake.bodies[-1]
