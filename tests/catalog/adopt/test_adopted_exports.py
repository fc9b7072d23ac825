"""Adopted, changed, exported again: PyIceberg reads the rows that we read; and an export may itself be adopted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import FixedType, NestedField, StringType

from rootline import connect
from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.schemas.errors import Corrupt
from tests.catalog.adopt.conftest import Once
from tests.catalog.adopt.test_adopted_deletes import version_2, version_3
from tests.catalog.adopt.test_adoption import written
from tests.catalog.adopted_lake import NAME
from tests.catalog.iceberg_tables import FolderCatalog


def ids(data: pa.Table) -> list[int]:
    return sorted(data.column("id").to_pylist())


def of_pyiceberg(folder: Path) -> tuple[str, Any]:
    table, model = written(folder / "old", 1)
    return table.metadata_location, set(model)


def exported(table: TableHandle, format_version: int) -> StaticTable:
    return StaticTable.from_metadata(table.export(format_version).metadata_location)


@pytest.mark.parametrize("format_version", [2, 3])
@pytest.mark.parametrize("made", [version_2, version_3, of_pyiceberg])
def test_pyiceberg_reads_an_adopted_tables_export(
    made: Callable[[Path], tuple[str, set[int]]], format_version: int, lake: Lake, once: Once
) -> None:
    location, model = once(made)
    lake.adopt(location, NAME)
    table = lake.table(NAME)
    assert ids(exported(table, format_version).scan().to_arrow()) == sorted(model)
    table.delete_where("id = 4")
    model.discard(4)
    read = exported(table, format_version)
    assert ids(read.scan().to_arrow()) == sorted(model)
    assert ids(read.scan(row_filter="carrier = 'UA'").to_arrow()) == ids(table.scan(where="carrier = 'UA'").to_arrow())
    old = StaticTable.from_metadata(location).metadata
    assert read.metadata.table_uuid == old.table_uuid
    assert [spec.fields for spec in read.metadata.partition_specs] == [spec.fields for spec in old.partition_specs]


@pytest.mark.parametrize("format_version", [2, 3])
def test_an_export_of_ours_may_be_adopted(format_version: int, lake: Lake, once: Once) -> None:
    location, model = once(version_3)
    lake.adopt(location, NAME)
    table = lake.table(NAME)
    table.delete_where("id = 2")
    again = table.export(format_version).metadata_location
    lake.adopt(again, "other.flights")
    other = lake.table("other.flights")
    assert ids(other.scan().to_arrow()) == sorted(model - {2})
    other.delete_where("id = 3")
    assert ids(other.scan().to_arrow()) == sorted(model - {2, 3})
    assert ids(table.scan().to_arrow()) == sorted(model - {2})
    assert list(other.check()) == []


@pytest.mark.parametrize("by_others", [False, True])
def test_a_table_that_came_from_one_of_ours_uses_no_snapshot_id_again(
    by_others: bool, lake: Lake, tmp_path: Path
) -> None:
    """Whether the export is adopted as it is, or others made it their own, and changed its properties."""
    origin = lake.create_table("demo.origin", {"id": "long"})
    for key in range(4):
        origin.append([{"id": key}])
    location = origin.export(3).metadata_location
    if by_others:
        metadata = json.loads(Path(location.removeprefix("file://")).read_bytes())
        metadata["properties"] = {}
        (tmp_path / "theirs.metadata.json").write_text(json.dumps(metadata))
        location = (tmp_path / "theirs.metadata.json").as_uri()
    assert any("new uuid" in warning for warning in lake.adopt(location, NAME, dry_run=True).plan.warnings)
    for name in (NAME, "new.twin"):
        lake.adopt(location, name)
    table = lake.table(NAME)
    for key in range(100, 104):
        table.append([{"id": key}])
    read = exported(table, 3)
    listed = [snapshot.snapshot_id for snapshot in read.metadata.snapshots]
    assert len(set(listed)) == len(listed) == 9
    assert ids(read.scan().to_arrow()) == [0, 1, 2, 3, 100, 101, 102, 103]
    for version, header in enumerate(reversed(table.history())):
        snapshot_id = header.snapshot.snapshot_id
        ours = ids(table.scan(version=version).to_arrow())
        assert (
            ids(read.scan(snapshot_id=snapshot_id).to_arrow())
            == ids(table.scan(snapshot_id=snapshot_id).to_arrow())
            == ours
        )
    uuids = {lake.table(name).definition().table_uuid for name in (NAME, "new.twin", "demo.origin")}
    assert len(uuids) == 3
    assert list(table.check()) == []


def test_an_export_takes_no_snapshot_of_before_the_adoption_for_its_own(tmp_path: Path) -> None:
    """As in tables that older releases adopted (decision 0004): ids that the table gives later are in its history.

    Each commit is exported by an exporter that learns from the last export what is stored.
    """
    folder = tmp_path / "lake"
    with connect(folder) as lake:
        origin = lake.create_table("demo.origin", {"id": "long"})
        for key in range(4):
            origin.append([{"id": key}])
        metadata = json.loads(origin.export(3).metadata)
        metadata["properties"] = {}
        for snapshot in metadata["snapshots"]:
            del snapshot["summary"]["rootline.version"]
        (tmp_path / "theirs.metadata.json").write_text(json.dumps(metadata))
        lake.adopt((tmp_path / "theirs.metadata.json").as_uri(), NAME)
        assert lake.table(NAME).definition().table_uuid == origin.definition().table_uuid
    for key in range(100, 106):
        with connect(folder) as lake:
            table = lake.table(NAME)
            table.append([{"id": key}])
            assert ids(exported(table, 3).scan().to_arrow()) == ids(table.scan().to_arrow())
            assert list(table.check()) == []


def test_an_export_whose_head_is_a_snapshot_of_others_is_refused_and_the_next_one_is_made_anew(tmp_path: Path) -> None:
    """Older releases stored such ones (decision 0004)."""
    folder = tmp_path / "lake"
    with connect(folder) as lake:
        table = lake.create_table(NAME, {"id": "long"})
        table.append([{"id": 1}])
        found = table.export(3)
    body = json.loads(found.metadata)
    body["snapshots"][-1]["manifest-list"] = (tmp_path / "theirs.avro").as_uri()
    body["properties"]["rootline.export-digest"] = "0" * 64
    text = json.dumps(body, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    Path(found.metadata_location.removeprefix("file://")).write_text(text.replace("0" * 64, digest))
    with connect(folder) as lake:
        table = lake.table(NAME)
        with pytest.raises(Corrupt, match="before the table's adoption; delete this object"):
            table.export(3)
        table.append([{"id": 2}])
        assert ids(exported(table, 3).scan().to_arrow()) == [1, 2]


@pytest.mark.parametrize("format_version", [2, 3])
def test_history_with_partition_values_that_we_leave_out_is_pruned_by_its_own_spec(
    format_version: int, lake: Lake, tmp_path: Path
) -> None:
    """Its manifests have a value of each member: read by a spec without the first one, all others are out of place."""
    schema = Schema(
        NestedField(1, "id", FixedType(4), required=False), NestedField(2, "city", StringType(), required=False)
    )
    spec = PartitionSpec(
        *(PartitionField(1 + at, 1000 + at, IdentityTransform(), name) for at, name in enumerate(["id", "city"]))
    )
    old = FolderCatalog(tmp_path / "old").make("t", schema, format_version=2, spec=spec)
    for city in ("a", "b"):
        old.append(pa.table({"id": pa.array([city.encode() * 4], pa.binary(4)), "city": [city]}))
    lake.adopt(old.metadata_location, NAME)
    lake.table(NAME).append([{"id": b"cccc", "city": "b"}])
    read = exported(lake.table(NAME), format_version)
    assert read.specs()[0] == old.specs()[0]
    wanted = [[b"aaaa"], [b"aaaa", b"bbbb"], [b"aaaa", b"bbbb"], [b"aaaa", b"bbbb", b"cccc"]]
    for snapshot, keys in zip(read.snapshots(), wanted, strict=True):
        assert ids(read.scan(snapshot_id=snapshot.snapshot_id).to_arrow()) == keys
        for city in ("a", "b"):
            found = ids(read.scan(f"city = '{city}'", snapshot_id=snapshot.snapshot_id).to_arrow())
            assert found == [key for key in keys if (key == b"aaaa") is (city == "a")]
