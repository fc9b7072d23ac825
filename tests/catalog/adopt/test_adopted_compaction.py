"""Adopted Avro leaves become leaves in columns: what is read, exported, changed and restored stays the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import StaticTable

from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.schemas.content_entry import ContentType, EntryPlace, FileFormat, Status
from rootline.workers.jobs.job import JobOutcome, JobReport
from rootline.workers.kinds import COMPACT, COMPACT_DATA, CONVERT, FLUSH, MaintenanceKind
from tests.catalog.adopt.conftest import Once
from tests.catalog.adopt.test_adopted_deletes import version_2, version_3
from tests.catalog.adopt.test_adoption import _EVOLVED, arrow, evolved, written, written_in
from tests.catalog.adopted_lake import NAME, maintained
from tests.catalog.hand_written_table import HandWritten, into_folder, rows

Made = Callable[[Path], tuple[str, set[int]]]


def compacted(lake: Lake) -> JobReport:
    return maintained(lake, COMPACT)


def ids(table: TableHandle, **more: Any) -> set[int]:
    found = table.scan(**more).to_arrow().column("id").to_pylist()
    assert len(set(found)) == len(found)
    return set(found)


def exported(table: TableHandle, format_version: int) -> StaticTable:
    return StaticTable.from_metadata(table.export(format_version).metadata_location)


def exported_ids(table: TableHandle, format_version: int) -> set[int]:
    found = exported(table, format_version).scan().to_arrow().column("id").to_pylist()
    assert len(set(found)) == len(found)
    return set(found)


def data_manifests(table: TableHandle, format_version: int) -> set[str]:
    read = exported(table, format_version)
    snapshot = read.current_snapshot()
    assert snapshot is not None
    listed = snapshot.manifests(read.io)
    return {one.manifest_path for one in listed if one.content is ManifestContent.DATA}


def findings(table: TableHandle) -> list[Any]:
    return list(table.check())


def avro_leaves(table: TableHandle) -> list[ContentType]:
    rows = [row.entry for row in table.tree().state.root.rows]
    return [entry.content_type for entry in rows if entry.file_format is FileFormat.AVRO]


def live_entries(table: TableHandle) -> dict[EntryPlace, tuple[Any, ...]]:
    """All that the live entries say, but where they stand."""
    found = {}
    for live in table.tree().state.live.entries():
        entry = live.entry
        info = entry.version_info
        numbers = (info.snapshot_id, info.sequence_number, info.file_sequence_number, entry.first_row_id)
        shape = (entry.file_format, entry.partition_spec_id, entry.record_count, entry.file_size_in_bytes)
        rest = (entry.sort_order_id, entry.referenced_file, entry.split_offsets, entry.equality_ids)
        found[entry.place] = (numbers, shape, rest, entry.deletion_vector, dict(entry.content_stats))
    return found


def of_pyiceberg(version: int) -> Made:
    def made(folder: Path) -> tuple[str, set[int]]:
        table, model = written(folder / "old", version)
        return table.metadata_location, set(model)

    return made


def of_both_kinds(folder: Path) -> tuple[str, set[int]]:
    """V3 as an upgrade leaves it: position deletes of one file, a vector of another, equality deletes of both."""
    table = HandWritten((folder / "old").as_uri(), 3, into_folder)
    table.manifest("m1", [table.data("a", rows(0, "UA")), table.data("b", rows(10, "UA"))], 1)
    table.manifest("d1", [table.position_deletes("p", {"data/a.parquet": [1, 2]})], 2)
    table.manifest("d2", [table.vector("v", "data/b.parquet", [0, 9])], 3)
    table.manifest("d3", [table.equality_deletes("e", [*rows(5, "UA", 1), *rows(15, "UA", 1)])], 4)
    table.manifest("m2", [table.data("c", rows(15, "UA", 1))], 5)
    return table.finish(5), ({0, *range(3, 10)} | set(range(11, 19))) - {5} | {15}


def with_removed(version: int) -> Made:
    """Every kind of entry that a snapshot may list as DELETED beside a live one of its kind."""

    def made(folder: Path) -> tuple[str, set[int]]:
        table = HandWritten((folder / "old").as_uri(), version, into_folder)
        removed = {"status": Status.DELETED, "number": 1}
        files = [table.data("a", rows(0, "UA")), table.data("b", rows(10, "UA"))]
        table.manifest("m1", [*files, table.data("g", rows(90, "UA"), **removed)], 1)
        positions = [table.position_deletes("p", {"data/a.parquet": [1]})]
        if version == 3:
            positions = [table.vector("v", "data/a.parquet", [1]), table.vector("u", "data/a.parquet", [7], **removed)]
        table.manifest("d1", positions, 2)
        gone = table.equality_deletes("h", rows(8, "UA", 1), status=Status.DELETED, number=3)
        table.manifest("d2", [table.equality_deletes("e", rows(5, "UA", 1)), gone], 3)
        return table.finish(3), set(range(20)) - {1, 5}

    return made


ALL = [of_pyiceberg(1), of_pyiceberg(2), version_2, version_3, of_both_kinds, with_removed(2), with_removed(3)]


@pytest.mark.parametrize("made", ALL)
def test_nothing_but_the_form_of_the_data_leaves_changes(made: Made, lake: Lake, once: Once) -> None:
    location, model = once(made)
    lake.adopt(location, NAME)
    table = lake.table(NAME)
    before, deletes = live_entries(table), avro_leaves(table).count(ContentType.DELETE_MANIFEST)
    filters = ["carrier = 'UA'", "id >= 4 and id < 30", "carrier is null"]
    wanted = [ids(table, where=where) for where in filters]
    files = [len(table.scan(where=where).plan()) for where in filters]
    report = compacted(lake)
    assert report.outcome is JobOutcome.COMMITTED
    assert avro_leaves(table) == [ContentType.DELETE_MANIFEST] * deletes
    assert live_entries(table) == before
    assert ids(table) == model
    assert [ids(table, where=where) for where in filters] == wanted
    assert [len(table.scan(where=where).plan()) for where in filters] == files
    assert table.history(limit=1)[0].snapshot.operation == "replace"
    assert list(table.changes(from_version=0).records()) == []
    assert compacted(lake).outcome is JobOutcome.NOTHING_DUE
    assert findings(table) == []


@pytest.mark.parametrize("format_version", [2, 3])
@pytest.mark.parametrize("made", ALL)
def test_an_export_after_it_has_the_same_rows_from_the_new_leaves(
    made: Made, format_version: int, lake: Lake, once: Once
) -> None:
    location, model = once(made)
    lake.adopt(location, NAME)
    table = lake.table(NAME)
    assert exported_ids(table, format_version) == model
    first = data_manifests(table, format_version)
    compacted(lake)
    assert exported_ids(table, format_version) == model
    assert not first & data_manifests(table, format_version)
    table.delete_where("id = 4")
    assert exported_ids(table, format_version) == model - {4}
    assert findings(table) == []


@pytest.mark.parametrize("made", ALL)
def test_deletes_restores_and_changes_go_on_over_the_new_leaves(made: Made, lake: Lake, once: Once) -> None:
    location, model = once(made)
    lake.adopt(location, NAME)
    table = lake.table(NAME)
    table.delete_where("id = 3 or id = 8")  # vectors of files in Avro leaves, in the root
    compacted(lake)
    after = model - {3, 8}
    assert ids(table) == after
    table.delete_where("id = 4 or id = 9")  # replaces vectors whose data files have moved
    after -= {4, 9}
    assert ids(table) == after
    changed = list(table.changes(from_version=table.history()[1].version).records())
    assert {change["change"] for change in changed} <= {"rows-deleted", "removed"}
    for what in (FLUSH, COMPACT):
        maintained(lake, what)
        assert ids(table) == after
    assert ids(table, version=0) == model
    assert ids(table, version=1) == model - {3, 8}
    table.restore(version=0)
    assert ids(table) == model
    assert exported_ids(table, 3) == model
    table.delete_where("id is not null")
    assert ids(table) == set()
    table.restore(version=1)
    assert ids(table) == model - {3, 8}
    assert findings(table) == []


@pytest.mark.parametrize("kinds", [(CONVERT, COMPACT_DATA), (COMPACT_DATA, CONVERT), (COMPACT, COMPACT_DATA)])
@pytest.mark.parametrize("version", [2, 3])
def test_deletes_that_are_listed_as_removed_delete_nothing(
    version: int, kinds: tuple[MaintenanceKind, ...], lake: Lake, tmp_path: Path
) -> None:
    location, model = with_removed(version)(tmp_path)
    lake.adopt(location, NAME)
    table = lake.table(NAME)
    for kind in kinds:
        assert maintained(lake, kind).outcome is JobOutcome.COMMITTED
        assert ids(table) == model
        assert exported_ids(table, 3) == model
    assert findings(table) == []


def test_what_is_dead_in_an_adopted_leaf_does_not_move(lake: Lake, once: Once) -> None:
    table, model = once(written_in(2))
    lake.adopt(table.metadata_location, NAME)
    flights = lake.table(NAME)
    flights.overwrite(arrow(evolved(200, 2), _EVOLVED), where="carrier = 'DL'")
    left = {key for key, row in model.items() if row["carrier"] != "DL"} | {200, 201}
    assert ids(flights) == left
    before, in_root = live_entries(flights), len(flights.tree().state.live.rows)
    assert compacted(lake).entries == len(before) - in_root
    assert live_entries(flights) == before
    kinds = [row.entry.content_type for row in flights.tree().state.root.rows]
    assert ContentType.MANIFEST_DV not in kinds
    assert (ids(flights), avro_leaves(flights)) == (left, [])
    flights.restore(version=0)
    assert ids(flights) == set(model)
    assert findings(flights) == []


def test_many_entries_move_in_several_rounds(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = HandWritten((tmp_path / "old").as_uri(), 2, into_folder)
    for number in range(6):
        old.manifest(f"m{number}", [old.data(f"f{number}{at}", rows(20 * number + 10 * at, "UA")) for at in (0, 1)], 1)
    lake.adopt(old.finish(1), NAME)
    table = lake.table(NAME)
    monkeypatch.setattr("rootline.maintenance.leaf_compaction_plan.ENTRIES_MAX", 5)
    moved = []
    while avro_leaves(table):
        moved.append(compacted(lake).entries)
        assert ids(table) == set(range(120))
    assert moved == [4, 4, 4]
    assert findings(table) == []
