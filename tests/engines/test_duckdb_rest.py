"""DuckDB attaches a lake through Iceberg's REST protocol and reads it right after each commit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from rootline.client.lake import Lake
from tests.catalog.served_catalog import served
from tests.engines.duckdb_reader import DuckDBReader, open_duckdb

SCHEMA = pa.schema([("id", pa.int64()), ("carrier", pa.string()), ("delay", pa.float64())])
BOTH = pytest.mark.parametrize("warehouse", ["v2", "v3"])


@pytest.fixture
def address(lake: Lake, tmp_path: Path) -> Iterator[str]:
    with served(tmp_path / "lake") as found:
        yield found


@pytest.fixture
def duck() -> Iterator[DuckDBReader]:
    with open_duckdb() as opened:
        yield opened


def flights(*ids: int) -> pa.Table:
    carriers = [None if i % 5 == 0 else ("UA", "AA")[i % 2] for i in ids]
    return pa.table({"id": list(ids), "carrier": carriers, "delay": [i / 2 for i in ids]}, SCHEMA)


@BOTH
def test_rows_are_there_right_after_each_commit(lake: Lake, address: str, duck: DuckDBReader, warehouse: str) -> None:
    table = lake.create_table("demo.flights", SCHEMA, partition_by=["carrier"])
    duck.attach("rootline", address, warehouse)

    def same() -> int:
        theirs = duck.query("SELECT id, carrier, delay FROM rootline.demo.flights ORDER BY id")
        ours = table.scan().to_arrow().sort_by("id")
        assert theirs.to_pylist() == ours.to_pylist()
        return theirs.num_rows

    assert same() == 0
    table.append(flights(*range(20)))
    assert same() == 20
    table.append(flights(*range(20, 30)))
    assert same() == 30
    table.delete_where("id >= 3 and id < 6")
    assert same() == 27
    table.overwrite(flights(100, 101), where="carrier = 'UA' and id < 20")
    assert same() == len(table.scan().to_arrow())
    table.restore(version=2)
    assert same() == 30


@BOTH
def test_filters_and_counts_go_through_partitions_and_statistics(
    lake: Lake, address: str, duck: DuckDBReader, warehouse: str
) -> None:
    table = lake.create_table("demo.flights", SCHEMA, partition_by=["carrier"])
    for start in (0, 100, 200):
        table.append(flights(*range(start, start + 20)))
    table.delete_where("id = 101 or id = 7 or id = 210")
    duck.attach("rootline", address, warehouse)
    for where in ("carrier = 'UA'", "carrier is null", "id = 107", "delay > 100 and carrier = 'AA'", "id < 0"):
        theirs = duck.query(f"SELECT id FROM rootline.demo.flights WHERE {where} ORDER BY id")
        assert theirs.column("id").to_pylist() == sorted(table.scan(where).to_arrow().column("id").to_pylist()), where
    assert duck.query("SELECT count(*) AS n FROM rootline.demo.flights").to_pylist() == [{"n": 57}]


def test_an_earlier_version_is_read_by_its_snapshot_id(lake: Lake, address: str, duck: DuckDBReader) -> None:
    table = lake.create_table("demo.flights", SCHEMA)
    table.append(flights(1, 2))
    before = table.head().snapshot.snapshot_id
    table.delete_where("id = 1")
    duck.attach("rootline", address)
    assert duck.query("SELECT id FROM rootline.demo.flights").column("id").to_pylist() == [2]
    then = duck.query(f"SELECT id FROM rootline.demo.flights AT (VERSION => {before}) ORDER BY id")
    assert then.column("id").to_pylist() == [1, 2]


def test_a_table_that_is_not_there_is_said_not_to_exist(lake: Lake, address: str, duck: DuckDBReader) -> None:
    lake.create_table("demo.flights", SCHEMA)
    duck.attach("rootline", address)
    with pytest.raises(duckdb.CatalogException, match="absent"):
        duck.query("SELECT * FROM rootline.demo.absent")
    named = duck.query("SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = 'rootline'")
    assert named.to_pylist() == [{"schema_name": "demo", "table_name": "flights"}]
