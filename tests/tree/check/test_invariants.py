"""Every rule that is checked before a PUT notices when it is broken."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

import pytest

from rootline.schemas.bytes.root.ledger_page import LEDGER_PAGES, LedgerRows, encode_ledger_row
from rootline.schemas.bytes.root.outcome_page import OUTCOME_PAGES
from rootline.schemas.bytes.root.page_codec import Page, PageKind
from rootline.schemas.bytes.root.root_codec import Row, seal
from rootline.schemas.content_entry import ContentType, EntryPlace, Status
from rootline.schemas.identifiers import SequenceNumber, SnapshotId, Version, WriterId
from rootline.schemas.intent import IntentKind
from rootline.schemas.parts.ledger import CommittedRun, WriterLedger, WriterRecord
from rootline.schemas.parts.log import PartitionOffset
from rootline.schemas.parts.progress import ClientSnapshot, JobProgress
from rootline.schemas.parts.versions import ReadableVersions
from rootline.schemas.root_header import Totals
from rootline.tree.check.invariants import violations
from rootline.tree.parts.header_limits import HEADER_LIMITS, HeaderLimits
from rootline.tree.state.table_state import NO_PAGES, TableState
from tests.support.changed_headers import HeaderChange, of_header, of_part
from tests.support.state_rules import state_violations
from tests.tree.tables import LOG, Lake, append, intent, new_lake, remove, removed


def with_header(state: TableState, change: HeaderChange) -> TableState:
    root = dataclasses.replace(state.root, header=change(state.header))
    return dataclasses.replace(state, root=root)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (of_header(version=Version(9)), "version"),
        (of_header(parent_digest=b"x" * 32), "parent digest"),
        (of_header(table="demo.other"), "table"),
        (of_part("snapshot", parent_id=SnapshotId(1)), "parent snapshot"),
        (of_part("snapshot", sequence_number=SequenceNumber(1)), "sequence number"),
        (of_part("snapshot", timestamp_ms=1), "timestamp"),
        (of_part("snapshot", snapshot_id=SnapshotId(1)), "snapshot id"),
        (of_part("row_ids", next=0), "next row id"),
        (of_header(versions=ReadableVersions(), tags={"new": 1}), "tag"),
        (of_part("log", offsets=()), "offset"),
        (of_part("ledger", writers={}), "ledger"),
        (of_header(totals=Totals()), "total"),
    ],
)
def test_a_header_that_breaks_a_rule_is_noticed(change: HeaderChange, word: str) -> None:
    lake = new_lake(append("a", writer_id="w", writer_sequence=1), append("b"))
    old, new = lake.states[-2:]
    assert violations(old, new) == []
    assert any(word in sentence for sentence in violations(old, with_header(new, change)))


def job(identity: str, number: int, word: str = "1") -> JobProgress:
    return JobProgress(identity, SequenceNumber(number), ClientSnapshot(7, "append"), {"step": word})


@pytest.mark.parametrize(
    ("after", "word"),
    [
        ((job("a", 1), job("b", 2)), None),
        ((job("b", 2), job("a", 4)), None),
        ((job("b", 2), job("a", 4), job("c", 4)), None),
        ((job("b", 2),), None),
        ((), None),
        ((job("a", 1), job("b", 1)), "changed from sequence number 2 to 1"),
        ((job("a", 1, "2"), job("b", 2)), "changed from sequence number 1 to 1"),
        ((job("a", 1), job("b", 2), job("c", 2)), "changed from sequence number None to 2"),
        ((job("a", 4), job("b", 2)), "not in the order"),
        ((job("a", 1), job("b", 2), job("b", 4)), "not in the order"),
        ((job("a", 1),), "was dropped before a job that was idle longer"),
        ((job("b", 2), job("a", 5)), "after the snapshot's"),
        (tuple(job(str(number), 4) for number in range(65)), "the progress of 65 jobs"),
        ((job("a", 1), job("b", 2), job("c", 4, "x" * 65_536)), "65536 bytes are allowed"),
    ],
)
def test_progress_that_goes_back_or_is_dropped_too_early_is_noticed(
    after: tuple[JobProgress, ...], word: str | None
) -> None:
    lake = new_lake(append("a"), append("b"), append("c"))
    old, new = lake.states[-2:]
    assert (old.header.snapshot.sequence_number, new.header.snapshot.sequence_number) == (3, 4)
    before = with_header(old, of_header(progress=(job("a", 1), job("b", 2))))
    found = violations(before, with_header(new, of_header(progress=after)))
    assert found == [] if word is None else any(word in sentence for sentence in found)


def test_an_idle_process_writer_may_leave_the_ledger() -> None:
    lake = new_lake(append("a"), append("b"))
    old, new = lake.states[-2:]
    gone = of_part("ledger", writers={WriterId("process/1"): WriterRecord()})
    assert violations(with_header(old, gone), dataclasses.replace(new, root=dataclasses.replace(
        new.root, header=dataclasses.replace(new.header, ledger=WriterLedger())))) == []  # fmt: skip


def test_an_offset_that_goes_back_is_noticed() -> None:
    lake = new_lake(append("a"), append("b"))
    old, new = lake.states[-2:]
    [offset] = new.header.log.offsets
    back = of_part("log", offsets=(PartitionOffset(offset.log, offset.partition, 1),))
    assert any("offset" in sentence for sentence in violations(old, with_header(new, back)))


def test_a_lost_row_is_noticed() -> None:
    lake = new_lake(append("a"), append("b"))
    old, new = lake.states[-2:]
    new.live.rows.pop(EntryPlace(ContentType.DATA, "data/a.parquet"))
    assert any("live" in sentence for sentence in violations(old, new))


def test_a_vector_whose_file_is_gone_is_noticed() -> None:
    lake = new_lake(append("a"))
    vector = lake.vector("v", "data/a.parquet", [1])
    lake.put(intent(IntentKind.ROW_DELTA, "d", add_vectors=(vector,)))
    old, new = lake.states[-2:]
    new.live.rows.pop(EntryPlace(ContentType.DATA, "data/a.parquet"))
    assert any("a vector of data/a.parquet" in sentence for sentence in violations(old, new))


def test_a_manifest_vector_that_lost_a_bit_is_noticed() -> None:
    lake = incoming()
    lake.put(remove("r1", removed("data/a.parquet")))
    lake.put(remove("r2", removed("data/b.parquet")))
    old, new = lake.states[-2:]
    [location] = new.live.dead
    new.live.dead[location].remove(0)
    assert any("were cleared" in sentence for sentence in violations(old, new))


def test_an_entry_that_does_not_exist_cannot_be_masked() -> None:
    lake = incoming()
    lake.put(remove("r1", removed("data/a.parquet")))
    old, new = lake.states[-2:]
    [location] = new.live.dead
    new.live.dead[location].add(99)
    assert any("does not have" in sentence for sentence in violations(old, new))


def incoming() -> Lake:
    lake = new_lake(append("a"), append("b"))
    lake.put(lake.flush("f", lake.leaf(lake.root_entries())))
    return lake


def test_wrong_aggregates_of_a_leaf_are_noticed_by_the_thorough_check() -> None:
    lake = incoming()
    [(location, row)] = lake.head.live.leaf_rows.items()
    wrong = dataclasses.replace(row.entry, content_stats={})
    lake.head.live.leaf_rows[location] = dataclasses.replace(row, entry=wrong)
    assert any("statistics" in sentence for sentence in state_violations(lake.head))


def test_a_deleted_leaf_which_other_writers_may_show_is_noticed_in_a_root_of_ours() -> None:
    state = incoming().head
    root = state.root
    [row] = root.rows
    gone = dataclasses.replace(
        row.entry, version_info=dataclasses.replace(row.entry.version_info, status=Status.DELETED)
    )
    block = seal([Row.of(gone, root.codec)], root.codec, root.sync)
    wrong = dataclasses.replace(state, root=dataclasses.replace(root, blocks=(block,)))
    assert any("no commit of Rootline writes" in sentence for sentence in state_violations(wrong))


def test_a_wrong_summary_is_noticed_by_the_thorough_check() -> None:
    lake = new_lake(append("a"))
    wrong = with_header(lake.head, of_part("snapshot", summary={"added-data-files": "2"}))
    assert any("summary" in sentence for sentence in state_violations(wrong))


def test_a_wrong_total_is_noticed_by_the_thorough_check() -> None:
    lake = new_lake(append("a"))
    wrong = with_header(lake.head, of_header(totals=Totals(data_files=1, rows=11, data_bytes=1000)))
    assert any("totals" in sentence for sentence in state_violations(wrong))


def paged() -> Lake:
    """The last root moved ledger and outcomes to pages."""
    lake = new_lake(append("a", writer_id="w", writer_sequence=1), append("b", writer_id="v", writer_sequence=1))
    lake.limits = HeaderLimits(ledger_bytes=60, outcome_bytes=250)
    lake.put(append("c", writer_id="u", writer_sequence=1), remove("r", removed("data/no"), **WRITER))
    return lake


T = TypeVar("T")
WRITER = {"writer_id": "x", "writer_sequence": 3}


def with_pages(state: TableState, kind: PageKind[T], *members: Page[T]) -> TableState:
    """A state with other pages of a kind, which its header names."""
    pages = state.pages.having(kind, members)
    of_ledger = of_part("ledger", pages=tuple(page.reference for page in pages.of(LEDGER_PAGES)))
    of_outcomes = of_part("outcomes", pages=tuple(page.reference for page in pages.of(OUTCOME_PAGES)))
    named = with_header(with_header(state, of_ledger), of_outcomes)
    return dataclasses.replace(named, pages=pages)


def complaints(old: TableState, new: TableState) -> str:
    return "; ".join(violations(old, new))


def test_pages_that_are_not_loaded_are_noticed() -> None:
    lake = paged()
    old, new = lake.states[-2:]
    assert (len(new.pages.of(LEDGER_PAGES)), len(new.pages.of(OUTCOME_PAGES))) == (1, 1)
    assert complaints(old, dataclasses.replace(new, pages=NO_PAGES)).startswith("the pages are not those")


def test_a_page_that_was_not_made_is_noticed() -> None:
    lake = paged()
    old, new = lake.states[-2:]
    assert complaints(old, new) == ""
    lost = complaints(old, with_pages(new, LEDGER_PAGES))
    assert "writer w is lost" in lost
    assert "writer v is lost" in lost
    assert "the outcomes of offsets" in complaints(old, with_pages(new, OUTCOME_PAGES))


def test_a_page_that_goes_with_something_in_it_is_noticed() -> None:
    lake = paged()
    old = lake.head
    lake.limits = HEADER_LIMITS
    lake.put(append("d"))
    new = lake.head
    assert "writer w is lost" in complaints(old, with_pages(new, LEDGER_PAGES))
    gone = with_pages(new, OUTCOME_PAGES)
    assert "the outcomes of offsets 0 to 0" in complaints(old, gone)
    assert violations(old, gone, acknowledged={(LOG, 0): old.header.log.offsets[0].next_offset}) == []


@pytest.mark.parametrize(
    "record",
    [
        WriterRecord(),
        WriterRecord((CommittedRun(2, 2, Version(1), 0),)),
        WriterRecord((CommittedRun(1, 1, Version(2), 0),)),
        WriterRecord((CommittedRun(0, 1, Version(0), 0),)),
    ],
)
def test_a_record_that_changed_on_its_way_to_a_page_is_noticed(record: WriterRecord) -> None:
    lake = paged()
    old, new = lake.states[-2:]
    [known] = new.pages.of(LEDGER_PAGES)
    rows = {**known.content.rows, WriterId("w"): encode_ledger_row(WriterId("w"), record)}
    page, _ = LEDGER_PAGES.encode(new.header.table_uuid, LedgerRows(rows))
    assert "the ledger of w loses sequences 1 to 1" in complaints(old, with_pages(new, LEDGER_PAGES, page))


def test_a_run_in_the_header_that_shrinks_is_noticed() -> None:
    lake = new_lake(*[append(f"f{number}", writer_id="w", writer_sequence=number) for number in range(3)])
    old, new = lake.states[-2:]
    shrunk = of_part("ledger", writers={WriterId("w"): WriterRecord((CommittedRun(0, 0, Version(1), 0),), (), 1)})
    assert "the ledger of w loses sequences 0 to 1" in complaints(old, with_header(new, shrunk))


def test_a_rejection_that_is_lost_is_noticed() -> None:
    lake = new_lake()
    lake.put(remove("r", removed("data/no"), **WRITER))
    lake.put(append("a", writer_id="x", writer_sequence=9))
    old, new = lake.states[-2:]
    record = new.header.ledger.writers[WriterId("x")]
    forgot = of_part("ledger", writers={WriterId("x"): dataclasses.replace(record, rejected=())})
    assert "the rejection of intent r" in complaints(old, with_header(new, forgot))


def test_a_header_over_its_limits_is_noticed() -> None:
    lake = new_lake(append("a", writer_id="w", writer_sequence=1))
    lake.put(*[remove(f"r{number}", removed(f"data/{'x' * 280}")) for number in range(9)])
    old, new = lake.states[-2:]
    found = violations(old, new, limits=HeaderLimits(ledger_bytes=20, outcome_bytes=900))
    assert found == [
        "the header has more than 20 bytes of the ledger",
        "the header has more than 900 bytes of outcomes",
    ]


def test_outcomes_that_are_dropped_before_they_are_acknowledged_are_noticed() -> None:
    lake = new_lake(append("a"))
    offset = lake.offset
    lake.put(append("b"), acknowledged={(LOG, 0): offset})
    old, new = lake.states[-2:]
    assert violations(old, new, acknowledged={(LOG, 0): offset}) == []
    assert "the outcomes of offsets 1 to 1" in complaints(old, new)
