"""Tables that PyIceberg wrote are adopted, read, changed and read again; a dictionary says what is in them."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV1
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import DateType, DoubleType, IntegerType, LongType, NestedField, StringType

from rootline.catalog import adoption_plan
from rootline.catalog import adoption_plan as adopted_manifests
from rootline.catalog.adopted_definition import ADOPTED_FROM
from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.schemas.content_entry import ContentType, FileFormat
from rootline.schemas.errors import Invalid
from rootline.tree.proof.adoption import ADOPTED_SNAPSHOT
from rootline.workers.kinds import COMPACT, FLUSH
from tests.catalog.adopt.conftest import Once
from tests.catalog.adopted_lake import NAME, findings, maintained
from tests.catalog.iceberg_tables import FolderCatalog, rows_of

FIRST = Schema(
    NestedField(1, "id", IntegerType(), required=False),
    NestedField(2, "carrier", StringType(), required=False),
    NestedField(3, "delay", DoubleType(), required=False),
)
_ARROW = {"id": pa.int32(), "carrier": pa.string(), "delay": pa.float64()}
_EVOLVED = {"id": pa.int64(), "carrier": pa.string(), "late": pa.float64(), "note": pa.string()}


def some(first: int, count: int, **more: Any) -> list[dict[str, Any]]:
    return [
        {"id": key, "carrier": ("UA", "DL", None)[key % 3], "delay": None if key % 5 == 0 else key / 2} | more
        for key in range(first, first + count)
    ]


def arrow(rows: list[dict[str, Any]], types: dict[str, pa.DataType]) -> pa.Table:
    return pa.Table.from_pylist(rows, pa.schema([pa.field(name, kind) for name, kind in types.items()]))


def evolved(first: int, count: int) -> list[dict[str, Any]]:
    return [
        {"id": key, "carrier": ("UA", "DL", None)[key % 3], "late": float(key), "note": f"n{key}"}
        for key in range(first, first + count)
    ]


def written(folder: Path, version: int) -> tuple[Table, dict[int, dict[str, Any]]]:
    """Columns renamed, added and promoted, a partition added, rows deleted and overwritten by copies of files."""
    table = FolderCatalog(folder).make("flights", FIRST, format_version=version, order=SortOrder(SortField(1)))
    table.append(arrow(some(0, 10), _ARROW))
    with table.update_schema() as schema:
        schema.rename_column("delay", "late")
        schema.add_column("note", StringType())
        schema.update_column("id", LongType())
    table.append(arrow(evolved(2**40, 5), _EVOLVED))
    with table.update_spec() as spec:
        spec.add_field("carrier", IdentityTransform(), "by_carrier")
    table.append(arrow(evolved(20, 9), _EVOLVED))
    table.delete("id < 3 or note = 'n22'")
    table.overwrite(arrow(evolved(40, 2), _EVOLVED), "id = 28")
    return table, rows_of(table.scan().to_arrow())


@cache
def written_in(version: int) -> Callable[[Path], tuple[Table, dict[int, dict[str, Any]]]]:
    """For the fixture `once`."""
    return lambda folder: written(folder / "old", version)


def rows_in(table: TableHandle, where: str | None = None, **more: Any) -> dict[int, dict[str, Any]]:
    return rows_of(table.scan(where=where, **more).to_arrow())


@pytest.mark.parametrize("version", [1, 2])
def test_rows_are_the_same_before_and_after_adoption_and_follow_every_change(
    version: int, lake: Lake, tmp_path: Path
) -> None:
    table, model = written(tmp_path / "old", version)
    before = sorted(path for path in (tmp_path / "old").rglob("*") if path.is_file())
    lake.adopt(table.metadata_location, NAME)
    flights = lake.table(NAME)
    assert rows_in(flights) == model

    flights.append(arrow(evolved(100, 6), _EVOLVED))
    model |= {row["id"]: row for row in evolved(100, 6)}
    assert rows_in(flights) == model
    flights.delete_where("id = 4 or id = 101")
    del model[4], model[101]
    assert rows_in(flights) == model
    flights.overwrite(arrow(evolved(200, 2), _EVOLVED), where="carrier = 'DL'")
    model = {key: row for key, row in model.items() if row["carrier"] != "DL"}
    model |= {row["id"]: row for row in evolved(200, 2)}
    assert rows_in(flights) == model
    assert rows_in(flights, "late >= 25 and carrier = 'UA'") == {
        key: row for key, row in model.items() if (row["late"] or 0) >= 25 and row["carrier"] == "UA"
    }
    assert findings(lake) == []
    assert sorted(path for path in (tmp_path / "old").rglob("*") if path.is_file()) == before
    assert rows_of(table.scan().to_arrow()) != model  # the old table is as it was, and goes its own way


@pytest.mark.parametrize("version", [1, 2])
def test_the_first_root_goes_on_from_the_old_tables_numbers(version: int, lake: Lake, once: Once) -> None:
    table, _ = once(written_in(version))
    adopted = lake.adopt(table.metadata_location, NAME)
    flights = lake.table(NAME)
    [first] = flights.history()
    old = table.metadata
    last = 0 if isinstance(old, TableMetadataV1) else old.last_sequence_number
    assert adopted.plan.sequence_number == last
    assert first.snapshot.sequence_number == last + 1
    assert first.snapshot.parent_id == old.current_snapshot_id
    assert first.snapshot.summary[ADOPTED_SNAPSHOT] == str(old.current_snapshot_id)
    assert first.table_uuid == old.table_uuid
    definition = flights.definition()
    assert definition.properties[ADOPTED_FROM] == table.metadata_location
    assert [spec.spec_id for spec in definition.partition_specs] == [spec.spec_id for spec in old.specs().values()]
    assert first.row_ids.next == sum(row["added_rows"] for row in _listed(table))
    live = flights.tree().state.live.entries()
    ranges = sorted((one.entry.first_row_id or 0, one.entry.record_count) for one in live)
    assert all(start + count <= later for (start, count), (later, _) in pairwise(ranges))
    flights.append(arrow(evolved(100, 1), _EVOLVED))
    assert flights.history()[0].snapshot.sequence_number == last + 2


def _listed(table: Table) -> list[dict[str, int]]:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    found = snapshot.manifests(table.io)
    return [{"added_rows": (one.added_rows_count or 0) + (one.existing_rows_count or 0)} for one in found]


def test_leaves_and_files_are_pruned_by_partition_and_by_statistics(lake: Lake, once: Once) -> None:
    table, _ = once(written_in(2))
    lake.adopt(table.metadata_location, NAME)
    flights = lake.table(NAME)
    everything = flights.scan().plan()
    by_bounds = flights.scan(where=f"id >= {2**40}").plan()
    assert len(by_bounds) < len(everything)
    assert by_bounds.leaves_pruned > 0
    carriers = {task.data.location for task in flights.scan(where="carrier = 'UA' and note is not null").plan()}
    assert carriers
    assert not any("by_carrier=DL" in location for location in carriers)


def test_restore_and_changes_work_over_adopted_leaves(lake: Lake, once: Once) -> None:
    table, model = once(written_in(2))
    lake.adopt(table.metadata_location, NAME)
    flights = lake.table(NAME)
    flights.append(arrow(evolved(100, 3), _EVOLVED))
    flights.delete_where("id = 24 or id = 100")
    changes = list(flights.changes(from_version=0).records())
    assert sum(change["rows"] for change in changes if change["change"] == "added") == 2
    assert [change["rows"] for change in changes if change["change"] == "rows-deleted"] == [1]
    flights.delete_where("id is not null")
    assert rows_in(flights) == {}
    flights.restore(version=0)
    assert rows_in(flights) == model
    assert rows_in(flights, version=1) == model | {row["id"]: row for row in evolved(100, 3)}
    assert findings(lake) == []


def test_rewrites_flushes_and_compactions_change_no_row(lake: Lake, once: Once) -> None:
    table, model = once(written_in(2))
    lake.adopt(table.metadata_location, NAME)
    flights, first = lake.table(NAME), dict(model)
    for key in (100, 110):
        flights.append(arrow(evolved(key, 3), _EVOLVED))
        model |= {row["id"]: row for row in evolved(key, 3)}
    flights.delete_where("id = 5")
    del model[5]
    assert flights.rewrite()
    assert rows_in(flights) == model
    for job in (FLUSH, COMPACT):
        maintained(lake, job)
        assert rows_in(flights) == model
    assert findings(lake) == []
    flights.delete_where("id is not null")
    flights.append(arrow(evolved(300, 1), _EVOLVED))
    maintained(lake, FLUSH)
    assert not any(row.entry.file_format is FileFormat.AVRO for row in flights.tree().state.root.rows)
    flights.restore(version=0)  # its leaves have left the table, and are read where they always were
    assert rows_in(flights) == rows_in(flights, version=0) == first
    assert findings(lake) == []


def test_a_dry_run_says_what_would_be_and_writes_nothing(lake: Lake, tmp_path: Path, once: Once) -> None:
    table, model = once(written_in(2))
    found = lake.adopt(table.metadata_location, NAME, dry_run=True)
    assert found.commit is None
    assert found.plan.totals.rows == len(model)
    assert found.plan.totals.data_files == len(list(table.scan().plan_files()))
    assert found.plan.snapshots_before == len(table.metadata.snapshots)
    assert {path.name for path in (tmp_path / "lake").glob("*")} <= {".rootline"}  # made if the program stays open
    assert lake.list_tables() == []


def test_a_table_of_that_name_is_never_replaced(lake: Lake, once: Once) -> None:
    table, model = once(written_in(2))
    lake.adopt(table.metadata_location, NAME)
    for dry_run in (True, False):
        with pytest.raises(Invalid) as caught:
            lake.adopt(table.metadata_location, NAME, dry_run=dry_run)
        assert caught.value.code == "table-exists"
    assert rows_in(lake.table(NAME)) == model


def test_one_table_may_be_adopted_twice_under_two_names(lake: Lake, once: Once) -> None:
    table, model = once(written_in(2))
    lake.adopt(table.metadata_location, NAME)
    lake.adopt(table.metadata_location, "new.other")
    lake.table(NAME).delete_where("id is not null")
    assert rows_in(lake.table("new.other")) == model


def test_an_empty_table_is_adopted_and_written_to(lake: Lake, tmp_path: Path) -> None:
    table = FolderCatalog(tmp_path).make("flights", FIRST, format_version=2)
    lake.adopt(table.metadata_location, NAME)
    flights = lake.table(NAME)
    assert rows_in(flights) == {}
    [first] = flights.history()
    assert first.snapshot.parent_id is None
    flights.append(arrow(some(0, 3), _ARROW))
    assert rows_in(flights) == {row["id"]: row for row in some(0, 3)}
    assert findings(lake) == []


def test_files_without_field_ids_are_read_by_the_tables_name_mapping(lake: Lake, tmp_path: Path) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=False), NestedField(2, "day", DateType(), required=False), schema_id=0
    )
    spec = PartitionSpec(PartitionField(2, 1000, DayTransform(), "day_day"))
    table = FolderCatalog(tmp_path / "old").make("flights", schema, format_version=2, spec=spec)
    plain = tmp_path / "plain.parquet"
    rows = [{"id": key, "day": dt.date(2024, 2, 29)} for key in range(5)]
    pq.write_table(arrow(rows, {"id": pa.int64(), "day": pa.date32()}), plain)
    table.add_files([plain.as_uri()])
    with table.update_schema() as update:
        update.rename_column("id", "number")
    lake.adopt(table.metadata_location, NAME)
    flights = lake.table(NAME)
    wanted = {row["id"]: {"number": row["id"], "day": row["day"]} for row in rows}
    assert rows_of(flights.scan().to_arrow(), "number") == wanted
    assert len(flights.scan(where="day = '2024-03-01'").plan()) == 0
    assert len(flights.scan(where="day = '2024-02-29'").plan()) == 1
    flights.delete_where("number = 2")
    del wanted[2]
    assert rows_of(flights.scan().to_arrow(), "number") == wanted


def unlisted(table: Table) -> str:
    """Where the table's metadata is stored again, its snapshot naming the manifests itself."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    paths = [one.manifest_path for one in snapshot.manifests(table.io)]
    place = Path(table.metadata_location.removeprefix("file://"))
    body = json.loads(place.read_text())
    for one in body["snapshots"]:
        if one["snapshot-id"] == snapshot.snapshot_id:
            del one["manifest-list"]
            one["manifests"] = paths
    other = place.with_name("unlisted.metadata.json")
    other.write_text(json.dumps(body))
    return str(other)


def test_manifests_that_a_snapshot_of_version_1_names_itself_are_adopted(lake: Lake, tmp_path: Path) -> None:
    table, model = written(tmp_path / "old", 1)
    lake.adopt(unlisted(table), NAME)
    assert rows_in(lake.table(NAME)) == model
    assert findings(lake) == []


@pytest.mark.parametrize("is_listed", [True, False])
def test_entries_are_gone_through_away_from_the_event_loop_which_hosts_a_coordinator_too(
    is_listed: bool, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, _ = written(tmp_path / "old", 1)
    location = table.metadata_location if is_listed else unlisted(table)
    asked: list[bool] = []

    def noted(work: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            asked.append(asyncio._get_running_loop() is None)
            return work(*given, **named)

        return call

    for name in ("aggregates_of", "decode_manifest", "tally_of_leaf", "adopted_state"):
        for module in (adopted_manifests, adoption_plan):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, noted(getattr(module, name)))
    lake.adopt(location, NAME, dry_run=True)
    assert len(asked) > 4
    assert all(asked)


def test_every_leaf_of_the_first_root_is_a_manifest_of_the_old_table(lake: Lake, once: Once) -> None:
    table, _ = once(written_in(2))
    lake.adopt(table.metadata_location, NAME)
    rows = [row.entry for row in lake.table(NAME).tree().state.root.rows]
    assert {entry.content_type for entry in rows} == {ContentType.DATA_MANIFEST}
    assert {entry.file_format for entry in rows} == {FileFormat.AVRO}
    assert all(entry.location.startswith("file:///") for entry in rows)


def test_a_partition_field_that_version_1_dropped_is_void_and_takes_new_rows(lake: Lake, tmp_path: Path) -> None:
    table = FolderCatalog(tmp_path / "old").make("flights", FIRST, format_version=1)
    with table.update_spec() as spec:
        spec.add_field("carrier", IdentityTransform(), "by_carrier")
    table.append(arrow(some(0, 6), _ARROW))
    with table.update_spec() as spec:
        spec.remove_field("by_carrier")
    model = rows_of(table.scan().to_arrow())
    lake.adopt(table.metadata_location, NAME)
    flights = lake.table(NAME)
    [void] = flights.definition().expressions
    assert (void.transform, void.source_ids) == ("void", (2,))
    flights.append(arrow(some(10, 4), _ARROW))
    model |= {row["id"]: row for row in some(10, 4)}
    assert rows_in(flights) == model
    assert rows_in(flights, "carrier = 'UA'") == {key: row for key, row in model.items() if row["carrier"] == "UA"}
    assert findings(lake) == []
