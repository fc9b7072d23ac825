"""A table that Iceberg wrote, adopted and changed: its export has its rows, and the time before."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable, Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from rootline.adapters.open import open_store
from rootline.catalog.adoption_plan import NO_HISTORY, history_of
from rootline.catalog.export_keys import FormatVersion
from rootline.catalog.exporter import ExportedTable, TableExporter
from rootline.client.lake import Lake
from rootline.schemas.identifiers import TableName, Version
from rootline.workers.kinds import FLUSH
from tests.catalog.adopt.conftest import Once
from tests.catalog.adopt.test_adoption import _EVOLVED, arrow, evolved, written, written_in
from tests.catalog.adopted_lake import NAME, maintained
from tests.catalog.exported_lake import V2, V3, metadata_of
from tests.catalog.iceberg_tables import FolderCatalog, rows_of
from tests.engines.duckdb_reader import open_duckdb


def exporter_of(tmp_path: Path) -> TableExporter:
    folder = tmp_path / "lake"
    return TableExporter(open_store(str(folder)), f"file://{folder}")


def export(exporter: TableExporter, format_version: FormatVersion, version: int | None = None) -> ExportedTable:
    wanted = None if version is None else Version(version)
    return asyncio.run(exporter.export(TableName(NAME), format_version, wanted))


def rows_in(exported: ExportedTable, **more: Any) -> dict[Any, dict[str, Any]]:
    return rows_of(StaticTable.from_metadata(exported.metadata_location).scan(**more).to_arrow())


@pytest.mark.parametrize("format_version", [V2, V3])
@pytest.mark.parametrize("written_as", [1, 2])
def test_rows_are_the_same_at_every_version(
    lake: Lake, tmp_path: Path, once: Once, written_as: int, format_version: FormatVersion
) -> None:
    table, model = once(written_in(written_as))
    lake.adopt(table.metadata_location, NAME)
    flights, exporter = lake.table(NAME), exporter_of(tmp_path)
    assert rows_in(export(exporter, format_version)) == model
    flights.append(arrow(evolved(100, 6), _EVOLVED))
    flights.delete_where("id = 4 or id = 101")
    flights.overwrite(arrow(evolved(200, 2), _EVOLVED), where="carrier = 'DL'")
    maintained(lake, FLUSH)
    flights.delete_where("id = 25")
    for version in range(flights.head().version + 1):
        ours = rows_of(flights.scan(version=version).to_arrow())
        assert rows_in(export(exporter, format_version, version)) == ours, version


def _snapshots(table: Table) -> list[int]:
    return [snapshot.snapshot_id for snapshot in table.metadata.snapshots]


@pytest.mark.parametrize("written_as", [1, 2])
def test_the_time_before_the_adoption_is_in_the_export_word_for_word(
    lake: Lake, tmp_path: Path, once: Once, written_as: int
) -> None:
    table, _ = once(written_in(written_as))
    lake.adopt(table.metadata_location, NAME)
    flights = lake.table(NAME)
    flights.append(arrow(evolved(100, 6), _EVOLVED))
    found = export(exporter_of(tmp_path), V3)
    opened = StaticTable.from_metadata(found.metadata_location)
    ours = [header.snapshot.snapshot_id for header in reversed(flights.history())]
    assert [snapshot.snapshot_id for snapshot in opened.snapshots()] == [*_snapshots(table), *ours]
    assert opened.snapshots()[-2].parent_snapshot_id == table.metadata.current_snapshot_id
    assert [entry.snapshot_id for entry in opened.history()][-2:] == ours
    for snapshot_id in _snapshots(table):
        theirs = rows_of(table.scan(snapshot_id=snapshot_id).to_arrow())
        assert rows_in(found, snapshot_id=snapshot_id) == theirs
    again = export(exporter_of(tmp_path), V3)
    assert again.metadata == found.metadata


def test_metadata_that_is_gone_leaves_the_time_before_out(lake: Lake, tmp_path: Path) -> None:
    table, model = written(tmp_path / "old", 2)
    lake.adopt(table.metadata_location, NAME)
    Path(table.metadata_location.removeprefix("file://")).unlink()
    found = export(exporter_of(tmp_path), V3)
    assert rows_in(found) == model
    assert len(metadata_of(found)["snapshots"]) == 1


def test_a_newer_formats_snapshots_are_not_in_an_older_formats_export() -> None:
    metadata = {
        "format-version": 3,
        "next-row-id": 70,
        "snapshots": [{"snapshot-id": 1, "timestamp-ms": 5, "manifest-list": "s3://b/l.avro"}],
        "snapshot-log": [{"snapshot-id": 1, "timestamp-ms": 5}, {"snapshot-id": 9, "timestamp-ms": 6}],
    }
    kept = history_of(metadata, V3)
    assert [snapshot["snapshot-id"] for snapshot in kept.snapshots] == [1]
    assert [entry["snapshot-id"] for entry in kept.log] == [1]
    left_out = history_of(metadata, V2)
    assert (left_out.snapshots, left_out.log, left_out.next_row_id) == ((), (), 70)
    assert history_of({"format-version": 2, "snapshots": [{"manifests": ["a"], "snapshot-id": 1}]}, V2).snapshots == ()
    assert history_of({"snapshots": [{}]}, V2) == NO_HISTORY


def test_the_time_before_the_adoption_is_not_repeated_for_the_next_table_of_the_name(
    lake: Lake, tmp_path: Path, once: Once
) -> None:
    table, _ = once(written_in(2))
    lake.adopt(table.metadata_location, NAME)
    exporter = exporter_of(tmp_path)
    assert len(metadata_of(export(exporter, V3))["snapshots"]) > 1
    lake.drop_table(NAME)
    lake.create_table(NAME, {"id": "long"}).append({"id": [1]})
    found = metadata_of(export(exporter, V3))
    ours = [header.snapshot.snapshot_id for header in lake.table(NAME).history()]
    assert {snapshot["snapshot-id"] for snapshot in found["snapshots"]} <= set(ours)
    assert found["metadata-log"] == []


@pytest.mark.parametrize("format_version", [2, 3])
def test_the_time_before_the_adoption_is_read_after_a_column_of_its_spec_is_dropped(
    lake: Lake, tmp_path: Path, format_version: int
) -> None:
    schema = Schema(
        NestedField(1, "id", LongType()), NestedField(2, "g", StringType()), NestedField(3, "h", LongType())
    )
    spec = PartitionSpec(
        PartitionField(2, 1000, IdentityTransform(), "g"), PartitionField(3, 1001, IdentityTransform(), "h")
    )
    old = FolderCatalog(tmp_path).make("old", schema, format_version=2, spec=spec)
    for key in range(3):
        old.append(pa.table({"id": [key], "g": [f"g{key}"], "h": [key % 2]}))
    lake.adopt(old.metadata_location, NAME)
    table = lake.table(NAME)
    with table.alter() as change:
        change.drop_partition_field("g").drop_column("g")
    table.append([{"id": 9, "h": 1}])
    location = table.export(format_version).metadata_location
    opened = StaticTable.from_metadata(location)
    wanted = dict(zip(_snapshots(old), [{0}, {0, 1}, {0, 1, 2}], strict=True))
    wanted[opened.metadata.current_snapshot_id] = {0, 1, 2, 9}
    with open_duckdb() as duckdb:
        for snapshot_id, keys in wanted.items():
            for where, seen in (("id >= 0", keys), ("h = 1", keys & {1, 9})):
                theirs = opened.scan(where, snapshot_id=snapshot_id).to_arrow()
                assert set(theirs.column("id").to_pylist()) == seen, (where, snapshot_id)
                found = duckdb.rows(location, where=where, snapshot_id=snapshot_id)
                assert set(found.column("id").to_pylist()) == seen, (where, snapshot_id)
