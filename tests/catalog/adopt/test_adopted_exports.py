"""Adopted, changed, exported again: PyIceberg reads the rows that we read; and an export may itself be adopted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from tests.catalog.adopt.conftest import Once
from tests.catalog.adopt.test_adopted_deletes import version_2, version_3
from tests.catalog.adopt.test_adoption import written
from tests.catalog.adopted_lake import NAME


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
