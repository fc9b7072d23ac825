"""Every rule that is checked before a PUT notices when it is broken."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from rootline.schemas.content_entry import ContentType, EntryPlace
from rootline.schemas.identifiers import SequenceNumber, SnapshotId, Version, WriterId
from rootline.schemas.intent import IntentKind
from rootline.schemas.root_header import PartitionOffset, RootHeader, Totals, WriterRecord
from rootline.tree.invariants import broken, broken_thoroughly
from rootline.tree.table_state import TableState
from tests.tree.tables import Lake, append, intent, new_lake, remove, removed

Change = Callable[[RootHeader], RootHeader]


def with_header(state: TableState, change: Change) -> TableState:
    root = dataclasses.replace(state.root, header=change(state.header))
    return dataclasses.replace(state, root=root)


def of_snapshot(**members: object) -> Change:
    def change(header: RootHeader) -> RootHeader:
        return dataclasses.replace(header, snapshot=dataclasses.replace(header.snapshot, **members))  # type: ignore[arg-type]

    return change


def of_header(**members: object) -> Change:
    return lambda header: dataclasses.replace(header, **members)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (of_header(version=Version(9)), "version"),
        (of_header(parent_digest=b"x" * 32), "parent's digest"),
        (of_header(table="demo.other"), "table"),
        (of_snapshot(parent_id=SnapshotId(1)), "parent's snapshot"),
        (of_snapshot(sequence_number=SequenceNumber(1)), "sequence number"),
        (of_snapshot(timestamp_ms=1), "timestamp"),
        (of_snapshot(snapshot_id=SnapshotId(1)), "snapshot id"),
        (of_header(next_row_id=0), "next row id"),
        (of_header(oldest_version=Version(0), tags={"new": 1}), "tag"),
        (of_header(offsets=()), "offset"),
        (of_header(ledger={}), "ledger"),
        (of_header(totals=Totals()), "total"),
    ],
)
def test_a_header_that_breaks_a_rule_is_noticed(change: Change, word: str) -> None:
    lake = new_lake(append("a", writer_id="w", writer_sequence=1), append("b"))
    old, new = lake.states[-2:]
    assert broken(old, new) == []
    assert any(word in sentence for sentence in broken(old, with_header(new, change)))


def test_an_idle_process_writer_may_leave_the_ledger() -> None:
    lake = new_lake(append("a"), append("b"))
    old, new = lake.states[-2:]
    gone = of_header(ledger={WriterId("process/1"): WriterRecord()})
    assert broken(with_header(old, gone), dataclasses.replace(new, root=dataclasses.replace(
        new.root, header=dataclasses.replace(new.header, ledger={})))) == []  # fmt: skip


def test_an_offset_that_goes_back_is_noticed() -> None:
    lake = new_lake(append("a"), append("b"))
    old, new = lake.states[-2:]
    [offset] = new.header.offsets
    back = of_header(offsets=(PartitionOffset(offset.log, offset.partition, 1),))
    assert any("offset" in sentence for sentence in broken(old, with_header(new, back)))


def test_a_lost_row_is_noticed() -> None:
    lake = new_lake(append("a"), append("b"))
    old, new = lake.states[-2:]
    new.live.rows.pop(EntryPlace(ContentType.DATA, "data/a.parquet"))
    assert any("live" in sentence for sentence in broken(old, new))


def test_a_vector_whose_file_is_gone_is_noticed() -> None:
    lake = new_lake(append("a"))
    vector = lake.vector("v", "data/a.parquet", [1])
    lake.put(intent(IntentKind.ROW_DELTA, "d", add_vectors=(vector,)))
    old, new = lake.states[-2:]
    new.live.rows.pop(EntryPlace(ContentType.DATA, "data/a.parquet"))
    assert any("a vector of data/a.parquet" in sentence for sentence in broken(old, new))


def test_a_manifest_vector_that_lost_a_bit_is_noticed() -> None:
    lake = flushed()
    lake.put(remove("r1", removed("data/a.parquet")))
    lake.put(remove("r2", removed("data/b.parquet")))
    old, new = lake.states[-2:]
    [location] = new.live.dead
    new.live.dead[location].remove(0)
    assert any("went back" in sentence for sentence in broken(old, new))


def test_an_entry_that_does_not_exist_cannot_be_masked() -> None:
    lake = flushed()
    lake.put(remove("r1", removed("data/a.parquet")))
    old, new = lake.states[-2:]
    [location] = new.live.dead
    new.live.dead[location].add(99)
    assert any("does not have" in sentence for sentence in broken(old, new))


def flushed() -> Lake:
    lake = new_lake(append("a"), append("b"))
    lake.put(lake.flush("f", lake.leaf(lake.root_entries())))
    return lake


def test_wrong_aggregates_of_a_leaf_are_noticed_by_the_thorough_check() -> None:
    lake = flushed()
    [(location, row)] = lake.head.live.leaf_rows.items()
    wrong = dataclasses.replace(row.entry, content_stats={})
    lake.head.live.leaf_rows[location] = dataclasses.replace(row, entry=wrong)
    assert any("statistics" in sentence for sentence in broken_thoroughly(lake.head))


def test_a_wrong_summary_is_noticed_by_the_thorough_check() -> None:
    lake = new_lake(append("a"))
    wrong = with_header(lake.head, of_snapshot(summary={"added-data-files": "2"}))
    assert any("summary" in sentence for sentence in broken_thoroughly(wrong))


def test_a_wrong_total_is_noticed_by_the_thorough_check() -> None:
    lake = new_lake(append("a"))
    wrong = with_header(lake.head, of_header(totals=Totals(data_files=1, rows=11, data_bytes=1000)))
    assert any("totals" in sentence for sentence in broken_thoroughly(wrong))
