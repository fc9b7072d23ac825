"""DuckDB creates, alters and drops schemas and tables of a lake through Iceberg's REST protocol."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from rootline.client.lake import Lake
from tests.engines.duckdb_reader import DuckDBReader, open_duckdb
from tests.rest.writing_catalog import writing_catalog


@pytest.fixture
def lake(tmp_path: Path, duck: DuckDBReader) -> Iterator[Lake]:
    """A lake with the schema `demo`, which DuckDB has attached as `own`."""
    with writing_catalog(tmp_path / "lake") as catalog:
        duck.attach("own", catalog.url, "own")
        yield catalog.lake


@pytest.fixture
def duck() -> Iterator[DuckDBReader]:
    with open_duckdb() as opened:
        yield opened


def columns(lake: Lake, table: str) -> list[tuple[int, str, str]]:
    fields = lake.table(table).definition().schema.fields
    return [(field.field_id, field.name, str(field.field_type)) for field in fields]


def test_a_table_is_created_altered_and_dropped_between_appends(lake: Lake, duck: DuckDBReader) -> None:
    duck.query("CREATE SCHEMA own.air")
    assert "air" in lake.namespaces()
    duck.query(
        "CREATE TABLE own.air.flights (id BIGINT NOT NULL, carrier VARCHAR, ts TIMESTAMP, plane STRUCT(tail VARCHAR), "
        "legs VARCHAR[]) WITH ('format-version' = 3, 'owner' = 'me')"
    )
    table = lake.table("air.flights")
    assert [name for _, name, _ in columns(lake, "air.flights")] == ["id", "carrier", "ts", "plane", "legs"]
    assert {"owner": "me", "rootline.export.format": "3"}.items() <= table.definition().properties.items()
    plane = {"tail": "N1"}
    table.append(pa.table({"id": [1], "carrier": ["UA"], "ts": [None], "plane": [plane], "legs": [["SFO"]]}))

    duck.query("ALTER TABLE own.air.flights ADD COLUMN delay INTEGER")
    duck.query("ALTER TABLE own.air.flights RENAME COLUMN carrier TO airline")
    duck.query("ALTER TABLE own.air.flights ALTER COLUMN delay TYPE BIGINT")
    duck.query("ALTER TABLE own.air.flights DROP COLUMN ts")
    duck.query("ALTER TABLE own.air.flights ALTER COLUMN id DROP NOT NULL")
    duck.query("ALTER TABLE own.air.flights SET PARTITIONED BY (bucket(4, id))")
    duck.query("ALTER TABLE own.air.flights SET ('owner' = 'you')")
    assert [(found, name) for found, name, _ in columns(lake, "air.flights")] == [
        (1, "id"),
        (2, "airline"),
        (4, "plane"),
        (5, "legs"),
        (8, "delay"),
    ]
    definition = table.definition()
    assert str(definition.schema.find_field("delay").field_type) == "long"
    assert not definition.schema.find_field("id").required
    assert definition.default_spec_id == 1
    assert definition.properties["owner"] == "you"
    table.append(pa.table({"id": [2], "airline": ["AA"], "plane": [plane], "legs": [["LAX"]], "delay": [2**40]}))
    rows = duck.query("SELECT id, airline, delay FROM own.air.flights ORDER BY id")
    assert rows.to_pylist() == [
        {"id": 1, "airline": "UA", "delay": None},
        {"id": 2, "airline": "AA", "delay": 2**40},
    ]
    with pytest.raises(duckdb.TransactionException, match=r"Namespace is not empty: air"):
        duck.query("DROP SCHEMA own.air")
    duck.query("DROP TABLE own.air.flights")
    duck.query("DROP SCHEMA own.air")
    assert (lake.list_tables(), lake.namespaces()) == ([], ["demo"])


def test_a_column_that_gets_its_old_name_back_uses_the_old_schema(lake: Lake, duck: DuckDBReader) -> None:
    duck.query("CREATE TABLE own.demo.flights (id BIGINT, carrier VARCHAR) PARTITIONED BY (carrier)")
    [spec] = lake.table("demo.flights").definition().partition_specs
    assert spec.expr_ids == (2,)
    duck.query("ALTER TABLE own.demo.flights RENAME COLUMN carrier TO airline")
    duck.query("ALTER TABLE own.demo.flights RENAME COLUMN airline TO carrier")
    definition = lake.table("demo.flights").definition()
    assert (definition.current_schema_id, len(definition.schemas)) == (0, 2)


@pytest.mark.parametrize("version", [2, 3])
def test_rows_are_inserted_beside_those_of_other_writers(lake: Lake, duck: DuckDBReader, version: int) -> None:
    duck.query(f"CREATE TABLE own.demo.flights (id BIGINT, carrier VARCHAR) WITH ('format-version' = {version})")
    table = lake.table("demo.flights")
    duck.query("INSERT INTO own.demo.flights VALUES (1, 'UA'), (2, 'AA')")
    table.append({"id": [3], "carrier": ["DL"]})
    duck.query("INSERT INTO own.demo.flights VALUES (4, 'B6')")
    assert sorted(table.scan().to_arrow().column("id").to_pylist()) == [1, 2, 3, 4]
    assert table.scan("carrier = 'B6'").to_arrow().to_pylist() == [{"id": 4, "carrier": "B6"}]
    assert duck.query("SELECT count(*) AS n FROM own.demo.flights").to_pylist() == [{"n": 4}]


def test_a_table_is_created_from_a_query(lake: Lake, duck: DuckDBReader) -> None:
    duck.query("CREATE TABLE own.demo.filled AS SELECT 1::BIGINT AS id")
    assert lake.table("demo.filled").scan().to_arrow().to_pylist() == [{"id": 1}]


def test_removed_rows_and_renames_of_tables_are_refused_by_the_catalog(lake: Lake, duck: DuckDBReader) -> None:
    duck.query("CREATE TABLE own.demo.flights (id BIGINT)")
    duck.query("INSERT INTO own.demo.flights VALUES (1)")
    before = lake.table("demo.flights").head()
    with pytest.raises(duckdb.TransactionException, match="this catalog does not take"):
        duck.query("DELETE FROM own.demo.flights WHERE id = 1")
    with pytest.raises(duckdb.TransactionException, match="a table cannot be renamed"):
        duck.query("ALTER TABLE own.demo.flights RENAME TO other")
    after = lake.table("demo.flights").head()
    assert (after.totals, after.definition) == (before.totals, before.definition)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("CREATE OR REPLACE TABLE own.demo.flights (id BIGINT)", "CREATE OR REPLACE not supported"),
        ("CREATE VIEW own.demo.seen AS SELECT 1", "Create View"),
        ("COMMENT ON TABLE own.demo.flights IS 'x'", "Only ALTER TABLE is supported"),
    ],
)
def test_what_duckdb_cannot_is_refused_by_duckdb(lake: Lake, duck: DuckDBReader, statement: str, words: str) -> None:
    duck.query("CREATE TABLE own.demo.flights (id BIGINT)")
    with pytest.raises(duckdb.NotImplementedException, match=words):
        duck.query(statement)
