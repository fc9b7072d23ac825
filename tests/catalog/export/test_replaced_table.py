"""Exports of a table that was replaced: PyIceberg reads what is there, and what was there before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

from rootline.connect import connect


def rows_of(table: StaticTable, snapshot_id: int | None = None) -> list[dict[str, Any]]:
    scan = table.scan(snapshot_id=snapshot_id)
    return sorted(scan.to_arrow().to_pylist(), key=lambda row: int(row["id"]))


@pytest.mark.parametrize("version", [2, 3])
def test_a_table_with_other_columns_under_its_name_is_read_before_and_after(tmp_path: Path, version: int) -> None:
    with connect(tmp_path / "lake") as lake:
        table = lake.create_table("demo.t", {"id": "long", "gate": "int"}, partition_by=["bucket(4, id)"])
        table.append(pa.table({"id": [1, 2], "gate": pa.array([5, None], pa.int32())}))
        first = table.export(version)
        table.replace(
            {"id": [7], "gate": ["A"]}, schema={"id": "long", "gate": "string not null"}, partition_by=["gate"]
        )
        second = table.export(version)
        table.append({"id": [8], "gate": ["B"]})
        table.restore(version=1)
        third = table.export(version)
        ids = {head.version: head.snapshot.snapshot_id for head in table.history()}
    before = [{"id": 1, "gate": 5}, {"id": 2, "gate": None}]
    assert rows_of(StaticTable.from_metadata(first.metadata_location)) == before
    now = StaticTable.from_metadata(second.metadata_location)
    assert rows_of(now) == [{"id": 7, "gate": "A"}]
    assert rows_of(now, ids[1]) == before
    assert rows_of(StaticTable.from_metadata(third.metadata_location)) == before
