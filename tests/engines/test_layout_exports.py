"""Exports of tables whose spec and order changed: engines see every spec, prune by each, and read the same rows."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest
from pyiceberg.table import StaticTable

from rootline import connect
from rootline.client.table_handle import TableHandle
from tests.catalog.served_catalog import served
from tests.engines.duckdb_reader import open_duckdb
from tests.engines.iceberg_spark import IcebergSpark
from tests.engines.pyiceberg_reader import pyiceberg_rows
from tests.engines.same_rows import plain

FIRST = "first"
WHERES = ("id = 3", "city = 'a'", "ts >= timestamp '2024-01-02 00:00:00'", "city = 'b' and id > 1")


@pytest.fixture
def table(tmp_path: Path) -> Iterator[TableHandle]:
    """Files of three specs, two of which are over a column that has been dropped; deletes in each.

    The first version has a tag, and was exported while the column was there.
    """
    with connect(tmp_path / "lake") as lake:
        columns = {"id": "int not null", "city": "string", "ts": "timestamp", "gone": "string"}
        table = lake.create_table("demo.t", columns, partition_by=["city", "gone"], sort_by=["-ts"])
        day = dt.datetime(2024, 1, 1)
        rows = [
            {"id": number, "city": "ab"[number % 2], "ts": day + dt.timedelta(hours=11 * number), "gone": "x"}
            for number in range(6)
        ]
        table.append(rows)
        table.tag(FIRST)
        for version in (2, 3):
            table.export(version)
        with table.alter() as change:
            change.drop_partition_field("city").add_partition_field("ts", "day").set_sort_order(["city", "id"])
        table.append(rows)
        with table.alter() as change:
            change.drop_partition_field("gone").drop_column("gone").add_partition_field("bucket(2, id)")
        table.append([{name: value for name, value in row.items() if name != "gone"} for row in rows])
        table.delete_where("id = 4")
        yield table


def wanted(table: TableHandle, where: str, tag: str | None = None) -> object:
    text = where.replace("timestamp '2024-01-02 00:00:00'", "'2024-01-02T00:00:00'")
    return plain(table.scan(text, tag=tag).to_arrow())


def specs_of(table: TableHandle, version: str | int) -> dict[int, list[tuple[int, str]]]:
    """Spec id → (field id, name) of each field, in an export."""
    found = json.loads(table.export(version).metadata)["partition-specs"]
    return {spec["spec-id"]: [(field["field-id"], field["name"]) for field in spec["fields"]] for spec in found}


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_metadata_names_every_spec_and_order_and_ids_never_fall(table: TableHandle, version: str) -> None:
    location = table.export(version).metadata_location
    found = json.loads(Path(url2pathname(urlsplit(location).path)).read_text())
    specs = specs_of(table, version)
    assert specs.pop(2) == [(1002, "ts_day"), (1003, "id_bucket")]
    assert sorted(specs.values()) == [[(1000, "city")], [(1002, "ts_day")]], (
        "without the dropped column they are others"
    )
    assert not specs.keys() & {0, 1}, "these had two fields"
    assert (found["last-partition-id"], found["default-spec-id"]) == (1003, 2)
    assert [order["order-id"] for order in found["sort-orders"]] == [0, 1, 2]
    assert found["default-sort-order-id"] == 2
    opened = StaticTable.from_metadata(location)
    assert {task.file.spec_id for task in opened.scan().plan_files()} == {2, *specs}
    assert sorted({task.file.sort_order_id for task in opened.scan().plan_files()}) == [1, 2]


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_pyiceberg_reads_and_prunes_files_of_every_spec(table: TableHandle, version: str) -> None:
    location = table.export(version).metadata_location
    assert plain(pyiceberg_rows(location)) == plain(table.scan().to_arrow())
    opened = StaticTable.from_metadata(location)
    for where in ("id = 3", "city = 'a'", "ts >= '2024-01-02T00:00:00'"):
        assert plain(opened.scan(where).to_arrow()) == plain(table.scan(where).to_arrow()), where
    first = opened.refs()[FIRST].snapshot_id
    for where in ("id = 3", "city = 'a'"):
        assert plain(opened.scan(where, snapshot_id=first).to_arrow()) == wanted(table, where, FIRST), where
    everything = len(list(opened.scan().plan_files()))
    assert len(list(opened.scan("ts >= '2024-01-03T00:00:00'").plan_files())) < everything


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_duckdb_reads_files_of_every_spec(table: TableHandle, version: str) -> None:
    location = table.export(version).metadata_location
    with open_duckdb() as reader:
        assert plain(reader.rows(location)) == plain(table.scan().to_arrow())
        for where in WHERES:
            assert plain(reader.rows(location, where=where)) == wanted(table, where), where
        first = StaticTable.from_metadata(location).refs()[FIRST].snapshot_id
        for where in WHERES:
            assert plain(reader.rows(location, where=where, snapshot_id=first)) == wanted(table, where, FIRST), where


@pytest.mark.spark
@pytest.mark.services
@pytest.mark.slow
@pytest.mark.parametrize("version", [2, 3])
def test_spark_reads_files_of_every_spec(
    table: TableHandle, tmp_path: Path, iceberg_spark: IcebergSpark, version: int
) -> None:
    with served(tmp_path / "lake") as address:
        iceberg_spark.rest_catalog(f"layouts_v{version}", address, warehouse=f"v{version}")
        name = f"layouts_v{version}.demo.t"
        assert plain(iceberg_spark.rows(f"select * from {name}")) == plain(table.scan().to_arrow())
        for where in WHERES:
            found = iceberg_spark.rows(f"select * from {name} where {where}")
            assert plain(found) == wanted(table, where), where
            found = iceberg_spark.rows(f"select * from {name} version as of '{FIRST}' where {where}")
            assert plain(found) == wanted(table, where, FIRST), where
        specs = iceberg_spark.rows(f"select distinct spec_id from {name}.files order by spec_id").to_pydict()
        assert specs == {"spec_id": sorted(specs_of(table, version))}
        assert iceberg_spark.rows(f"select partition from {name}.partitions").num_rows > 0
