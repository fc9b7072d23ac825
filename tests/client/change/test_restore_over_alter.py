"""`table.restore` over changes of columns: rows and columns are those of then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rootline import Invalid, connect
from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with connect(tmp_path / "lake") as found:
        yield found


@pytest.fixture
def table(lake: Lake) -> TableHandle:
    return lake.create_table("demo.t", {"id": "int", "name": "string", "at": {"x": "int"}}, partition_by=["id"])


def rows(table: TableHandle, **options: Any) -> list[dict[str, Any]]:
    return sorted(table.scan(**options).to_arrow().to_pylist(), key=lambda row: row["id"])


def test_rows_and_columns_are_those_of_then_and_can_be_taken_back(table: TableHandle) -> None:
    first = table.append([{"id": 1, "name": "a", "at": {"x": 1}}]).version
    with table.alter() as change:
        change.rename_column("name", "title").drop_column("at").add_column("gate", "string")
    second = table.append([{"id": 2, "title": "b", "gate": "B1"}]).version
    then = {version: rows(table, version=version) for version in (first, second)}
    for version in (first, second, first):
        assert not table.preview_restore(version=table.head().version)
        preview = list(table.preview_restore(version=version).records())
        assert (rows(table) == then[version]) == (preview == [])
        if preview:
            table.restore(version=version)
        assert rows(table) == then[version]
        assert table.scan().to_arrow().schema.names == table.scan(version=version).to_arrow().schema.names
    assert rows(table, where="at.x = 1") == then[first]
    table.append([{"id": 3, "name": "c", "at": {"x": 3}}])
    assert [row["name"] for row in rows(table)] == ["a", "c"]
    assert list(table.check()) == []


def test_a_handle_that_still_has_the_dropped_column_goes_on_writing(lake: Lake, table: TableHandle) -> None:
    first = table.append([{"id": 1, "name": "a"}]).version
    with table.alter() as change:
        change.add_column("gate", "string").update_column("id", "long")
    other = lake.table("demo.t")
    other.append([{"id": 2, "gate": "B1"}])
    table.restore(version=first)
    other.append(pa.table({"id": [2**40], "gate": ["B2"]}))
    assert rows(table) == [{"id": 1, "name": "a", "at": None}, {"id": 2**40, "name": None, "at": None}]
    with table.alter() as change:
        change.add_column("gate", "int")
    table.append([{"id": 4, "gate": 4}])
    assert [row["gate"] for row in rows(table)] == [None, 4, None]
    assert list(table.check()) == []


def test_many_files_in_leaves_come_back_over_a_change(lake: Lake) -> None:
    table = lake.create_table("demo.many", {"id": "int"}, properties={"rootline.append.leaf-files": "2"})
    first = table.append(pa.table({"id": pa.array(range(3000), pa.int32())}), target_file_size_bytes=1).version
    before = table.scan().to_arrow().sort_by("id")
    table.overwrite(pa.table({"id": pa.array([2**40], pa.int64()), "gate": ["x"]}), merge_schema=True)
    table.restore(version=first)
    assert table.scan().to_arrow().sort_by("id").to_pylist() == before.to_pylist()
    assert table.scan(where="id >= 2998").count() == 2
    assert list(table.check()) == []


def test_a_definition_that_is_gone_rejects_the_restore(tmp_path: Path, table: TableHandle) -> None:
    first = table.append([{"id": 1}]).version
    named = table.head().definition.location
    with table.alter() as change:
        change.add_column("gate", "string")
    (found,) = (tmp_path / "lake").rglob(Path(named).name)
    found.write_bytes(b"{}")
    with pytest.raises(Invalid, match="its definition") as refused:
        table.restore(version=first)
    assert refused.value.code == "restore-impossible"
    assert "gate" in table.scan().to_arrow().schema.names
