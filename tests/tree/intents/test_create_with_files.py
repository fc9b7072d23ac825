"""A `create` that brings the table's first files: one version, by the rules of an append to the empty table."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from rootline.schemas.errors import Invalid
from rootline.schemas.intent import AdoptedRoot, DataFile, Intent, IntentKind
from rootline.schemas.root_header import Operation
from rootline.tree.draft import draft
from tests.support.state_rules import state_violations
from tests.tree.intents.test_drop import SECOND, another, drop, purge
from tests.tree.intents.test_drop_and_sweep import with_something_condemned
from tests.tree.tables import (
    DEFINITION,
    UNPARTITIONED,
    Lake,
    append,
    codes,
    create,
    data_file,
    new_entry,
    new_lake,
    remove,
    removed,
)


def creating(*files: DataFile, **more: object) -> Intent:
    return create("ctas", add_data_files=files or (data_file("a"), data_file("b", rows=3)), **more)


def test_a_table_and_its_first_files_are_one_version() -> None:
    lake = Lake()
    [verdict] = lake.put(creating(summary={"engine": "spark"}))
    assert (verdict.code, verdict.version, verdict.sequence_number) == (None, 0, 1)
    header = lake.head.header
    assert header.snapshot.operation is Operation.APPEND
    assert header.snapshot.parent_id is None
    summary = header.snapshot.summary
    assert (summary["engine"], summary["added-data-files"], summary["added-records"]) == ("spark", "2", "13")
    assert [entry.first_row_id for entry in lake.root_entries()] == [0, 10]
    assert {entry.version_info.snapshot_id for entry in lake.root_entries()} == {verdict.snapshot_id}
    assert (header.row_ids.next, header.totals.data_files, header.totals.rows) == (13, 2, 13)
    assert state_violations(lake.head) == []
    assert state_violations(lake.reloaded()) == []


def test_it_leaves_the_table_that_a_create_and_an_append_leave() -> None:
    files = (data_file("a"), data_file("b", rows=3, carrier=None, partition_spec_id=UNPARTITIONED))
    together, apart = Lake(), Lake()
    together.put(creating(*files))
    apart.put(create("ctas"), append("more", *files))
    shown = [
        [
            (entry.location, entry.first_row_id, entry.partition_spec_id, entry.content_stats)
            for entry in lake.root_entries()
        ]
        for lake in (together, apart)
    ]
    assert shown[0] == shown[1]
    assert together.head.header.totals == apart.head.header.totals
    assert together.head.header.definition == apart.head.header.definition


def test_many_files_come_in_leaves() -> None:
    lake = Lake()
    leaf = lake.written_leaf(new_entry(data_file("a")), new_entry(data_file("b", rows=3)))
    [verdict] = lake.put(create("ctas", add_manifests=(leaf,), add_data_files=(data_file("c"),)))
    assert (verdict.code, verdict.version) == (None, 0)
    assert lake.head.header.totals.data_files == 3
    [row] = lake.head.live.leaf_rows.values()
    assert (row.entry.first_row_id, lake.head.header.row_ids.next) == (10, 23), (
        "files outside leaves are numbered first"
    )
    assert state_violations(lake.reloaded()) == []


def test_what_follows_in_the_batch_sees_the_files() -> None:
    lake = Lake()
    again = append("again", data_file("a"))
    batch = (creating(), again, append("c"), remove("r", removed("data/b.parquet")))
    assert codes(lake.put(*batch)) == [None, "file-already-live", None, None]
    assert [entry.location for entry in lake.root_entries()] == ["data/a.parquet", "data/c.parquet"]
    assert lake.head.header.version == 0


def test_sent_again_by_its_writer_it_is_a_duplicate() -> None:
    lake, first = Lake(), creating(writer_id="rest/1", writer_sequence=0)
    lake.put(first)
    [verdict] = lake.put(first)
    assert (verdict.kind, verdict.version) == ("duplicate", 0)
    assert codes(lake.put(creating())) == ["table-exists"]


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ((data_file("a"), data_file("a")), "file-named-twice"),
        ((data_file("a"), data_file("b", location="export/b.parquet")), "location-invalid"),
        ((data_file("a"), data_file("b", location="rest/b.parquet")), "location-invalid"),
        ((data_file("a", location="s3://other/a.parquet"),), "location-invalid"),
        ((data_file("a", location="../other/data/a.parquet"),), "location-invalid"),
        ((data_file("a", partition_spec_id=7, carrier=None),), "spec-unknown"),
        ((data_file("a", sort_order_id=7),), "intent-malformed"),
        ((data_file("a", content_stats=None, stats_schema=None),), "statistics-missing"),
        ((data_file("a", record_count=2**40),), "row-count-implausible"),
    ],
)
def test_a_file_that_no_append_may_bring_leaves_no_table(files: tuple[DataFile, ...], code: str) -> None:
    lake = Lake()
    assert codes(lake.put(creating(*files), append("after"))) == [code, "table-unknown"]
    assert lake.state is None
    assert lake.objects == {}


def test_a_leaf_that_nobody_stored_leaves_no_table() -> None:
    lake = Lake()
    leaf = lake.written_leaf(new_entry(data_file("a")))
    lake.leaves.clear()
    assert codes(lake.put(create("ctas", add_manifests=(leaf,)))) == ["leaf-missing"]
    assert lake.state is None


def test_its_files_are_of_its_own_schema() -> None:
    assert codes(Lake().put(creating(schema_id=0))) == [None]
    assert codes(Lake().put(creating(schema_id=3))) == ["schema-unknown"]


def test_more_files_than_a_root_has_room_for_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft, "ROWS_MAX", 1)
    lake = Lake()
    assert codes(lake.put(creating())) == ["root-full"]
    assert lake.state is None


def test_an_adopted_table_brings_its_own_files() -> None:
    adopted = AdoptedRoot(location=f"metadata/adopted/{'a' * 32}.avro", file_size_in_bytes=9, digest=b"d" * 32)
    lake = Lake()
    [verdict] = lake.put(creating(adopt=adopted))
    assert (verdict.code, lake.state) == ("intent-malformed", None)
    assert "append the files afterwards" in (verdict.message or "")


def again(*files: DataFile, **more: object) -> Intent:
    text = replace(DEFINITION, table_uuid=SECOND).to_json().decode()
    return create("again", text, add_data_files=files, table_uuid=SECOND, **more)


@pytest.mark.parametrize("ends", [drop, purge])
def test_under_a_name_whose_table_was_dropped_row_ids_go_on(ends: object) -> None:
    lake = new_lake(append("a"), append("old"))
    before = lake.head.header
    lake.put(ends())  # type: ignore[operator]
    [verdict] = lake.put(again(data_file("a"), data_file("new")))
    header = lake.head.header
    assert (verdict.code, header.table_uuid) == (None, SECOND)
    assert [(entry.location, entry.first_row_id) for entry in lake.root_entries()] == [
        ("data/a.parquet", before.row_ids.next),
        ("data/new.parquet", before.row_ids.next + 10),
    ]
    assert (header.snapshot.operation, header.snapshot.parent_id) == (Operation.APPEND, None)
    assert header.totals.data_files == 2
    assert state_violations(lake.head) == []
    assert state_violations(lake.reloaded()) == []


def test_a_refused_create_leaves_the_dropped_table_as_it_is() -> None:
    lake = new_lake(append("a"))
    lake.put(drop())
    before = lake.head.header
    assert codes(lake.put(again(data_file("b", partition_spec_id=7, carrier=None)))) == ["spec-unknown"]
    after = lake.head.header
    assert (after.name, after.totals, after.row_ids) == (before.name, before.totals, before.row_ids)
    assert codes(lake.put(another())) == [None]


def test_what_the_earlier_table_condemned_never_comes_with_the_next_one() -> None:
    lake = with_something_condemned()
    lake.put(drop())
    horizon_ms, now_ms = lake.head.header.locations.horizon_ms, lake.now_ms
    assert codes(lake.put_claiming(now_ms, again(data_file("x")))) == ["file-removed"]
    assert codes(lake.put_claiming(horizon_ms - 1, again(data_file("y")))) == ["expired"]
    assert codes(lake.put(again(data_file("absent")))) == ["file-missing"]
    lake.dates["data/old.parquet"] = horizon_ms - 1
    assert codes(lake.put(again(data_file("old")))) == ["expired"]
    assert lake.head.header.is_tombstone
    lake.dates["data/young.parquet"] = now_ms
    assert codes(lake.put(again(data_file("young")))) == [None]
    assert lake.head.header.locations.horizon_ms == horizon_ms
    assert state_violations(lake.head) == []


def test_a_table_uuid_of_an_earlier_table_is_refused_with_files_too() -> None:
    lake = new_lake(append("a"))
    lake.put(drop())
    assert codes(lake.put(creating())) == ["table-dropped"]
    assert codes(lake.put(creating(table_uuid=uuid.UUID(int=9)))) == ["table-uuid-mismatch"]


def test_no_other_content_makes_a_table() -> None:
    with pytest.raises(ValueError, match="create"):
        create("c", remove_files=(removed("data/a.parquet"),))
    with pytest.raises(Invalid, match="must carry definition"):
        Intent(intent_id="c", table="demo.t", kind=IntentKind.CREATE, add_data_files=(data_file("a"),))
