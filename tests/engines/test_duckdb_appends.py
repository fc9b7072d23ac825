"""DuckDB creates tables and inserts through Iceberg's REST protocol, and what it does with its files after an error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from rootline.client.lake import Lake
from rootline.connect import connect
from tests.catalog.served_catalog import served
from tests.engines.duckdb_reader import DuckDBReader, open_duckdb
from tests.rest.writing_catalog import writing_catalog

VERSION = "1.5.5"


@pytest.fixture
def lake(tmp_path: Path, duck: DuckDBReader) -> Iterator[Lake]:
    """A lake with the schema `demo`, which DuckDB has attached as `own`."""
    with writing_catalog(tmp_path / "lake") as catalog:
        duck.attach("own", catalog.url, "own", more="REMOVE_FILES_ON_DELETE false")
        yield catalog.lake


@pytest.fixture
def duck() -> Iterator[DuckDBReader]:
    with open_duckdb() as opened:
        yield opened


def ids(rows: pa.Table) -> list[int]:
    found: list[int] = sorted(rows.column("id").to_pylist())
    return found


def test_inserted_rows_have_their_partitions_and_row_ids(lake: Lake, duck: DuckDBReader) -> None:
    duck.query("CREATE TABLE own.demo.flights (id BIGINT, carrier VARCHAR) PARTITIONED BY (carrier)")
    table = lake.table("demo.flights")
    duck.query("INSERT INTO own.demo.flights VALUES (1, 'UA'), (2, 'AA')")
    table.append({"id": [3], "carrier": ["UA"]})
    duck.query("INSERT INTO own.demo.flights SELECT 4 + range, 'DL' FROM range(3)")
    assert (len(table.scan().plan()), len(table.scan("carrier = 'DL'").plan())) == (4, 1)
    found = table.scan(columns=["id", "_row_id"]).to_arrow()
    assert sorted(found.column("_row_id").to_pylist()) == list(range(6))


def test_inserts_of_one_transaction_are_one_version(lake: Lake, duck: DuckDBReader) -> None:
    duck.query("CREATE TABLE own.demo.flights (id BIGINT)")
    table = lake.table("demo.flights")
    before = table.head().version
    duck.run("BEGIN", "INSERT INTO own.demo.flights VALUES (1)", "INSERT INTO own.demo.flights VALUES (2)", "COMMIT")
    assert table.head().version == before + 1
    assert ids(table.scan().to_arrow()) == [1, 2]


def test_rows_are_inserted_into_a_table_that_was_made_natively(lake: Lake, duck: DuckDBReader) -> None:
    table = lake.create_table("demo.native", pa.schema([("id", pa.int64())]))
    duck.query("INSERT INTO own.demo.native VALUES (1)")
    table.append({"id": [2]})
    duck.query("INSERT INTO own.demo.native VALUES (3)")
    assert ids(table.scan().to_arrow()) == [1, 2, 3]
    assert ids(duck.query("SELECT id FROM own.demo.native")) == [1, 2, 3]


def test_partition_values_with_characters_of_a_url_are_read_back(lake: Lake, duck: DuckDBReader) -> None:
    odd = ["x?", "a b", "a/b", "ü", "100%", "http://host/?a=b#c"]
    duck.query("CREATE TABLE own.demo.odd (id BIGINT, carrier VARCHAR) PARTITIONED BY (carrier)")
    values = ", ".join(f"({number}, '{value}')" for number, value in enumerate(odd))
    duck.query(f"INSERT INTO own.demo.odd VALUES {values}")
    expected = [{"id": number, "carrier": value} for number, value in enumerate(odd)]
    assert lake.table("demo.odd").scan().to_arrow().sort_by("id").to_pylist() == expected
    assert duck.query("SELECT id, carrier FROM own.demo.odd ORDER BY id").to_pylist() == expected


@pytest.mark.slow
@pytest.mark.parametrize("removes", [False, True])
def test_files_of_an_insert_with_an_unknown_outcome_are_kept_only_without_their_removal(
    tmp_path: Path, duck: DuckDBReader, removes: bool
) -> None:
    """The reason why users must set REMOVE_FILES_ON_DELETE false. If this DuckDB keeps its files, drop the advice."""
    assert duckdb.__version__ == VERSION
    folder = tmp_path / "lake"
    with writing_catalog(folder) as catalog:
        duck.attach("first", catalog.url, "own")
        duck.query("CREATE TABLE first.demo.flights (id BIGINT)")
    with served(folder, log="", commit_timeout_s=1.5) as url:  # no coordinator runs
        duck.attach("own", url, "own", more=f"REMOVE_FILES_ON_DELETE {removes}")
        with pytest.raises(duckdb.TransactionException):
            duck.query("INSERT INTO own.demo.flights VALUES (1)")
    files = sorted((folder / "demo/flights/data").rglob("*.parquet"))
    assert len(files) == (0 if removes else 1)
    with connect(folder) as lake:
        table = lake.table("demo.flights")
        table.append({"id": [2]})
        if removes:
            with pytest.raises(Exception, match="parquet"):
                table.scan().to_arrow()
        else:
            assert ids(table.scan().to_arrow()) == [1, 2]
