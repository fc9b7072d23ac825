"""SQL through `format("rootline")`: what docs/spark.md states of views, and of entries in Spark's own catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

import rootline.spark
from rootline.client.table_handle import TableHandle

pytestmark = pytest.mark.spark
COLUMNS = "id long, carrier string, delay double"
Sql = Callable[[str], list[tuple[object, ...]]]


@pytest.fixture
def sql(spark: SparkSession, flights: TableHandle, folder: Path) -> Iterator[Sql]:
    """Runs a statement in a session that has the view `flown` of a table with row 1."""
    flights.append([{"id": 1, "carrier": "UA"}])
    spark.conf.set("spark.rootline.warehouse", str(folder))
    rootline.spark.register(spark)
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW flown USING rootline OPTIONS (path 'demo.flights')")
    yield lambda statement: [tuple(row) for row in spark.sql(statement).collect()]
    spark.catalog.dropTempView("flown")
    spark.sql("DROP TABLE IF EXISTS made")
    spark.conf.unset("spark.rootline.warehouse")
    rootline.spark.register(spark)


def ids(table: TableHandle) -> list[int]:
    return sorted(table.scan(columns=["id"]).to_arrow().column("id").to_pylist())


def test_rows_are_inserted_into_a_view_by_position_or_by_name_and_each_insert_is_a_commit(
    spark: SparkSession, flights: TableHandle, sql: Sql
) -> None:
    before = flights.head().version
    sql("INSERT INTO flown VALUES (2L, 'AA', 1.5)")
    sql("INSERT INTO flown (delay, id) VALUES (2.5, 3L)")
    spark.createDataFrame([(4, "DL", 0.5)], COLUMNS).write.insertInto("flown")
    assert flights.head().version == before + 3
    rows = {row["id"]: (row["carrier"], row["delay"]) for row in flights.scan().to_arrow().to_pylist()}
    assert rows == {1: ("UA", None), 2: ("AA", 1.5), 3: (None, 2.5), 4: ("DL", 0.5)}


def test_a_view_keeps_the_version_of_its_creation_and_a_frame_in_a_statement_is_the_newest(
    spark: SparkSession, flights: TableHandle, sql: Sql
) -> None:
    flights.append([{"id": 2}])
    assert sql("SELECT id FROM flown") == [(1,)]
    flights.append([{"id": 3}])
    sql("REFRESH TABLE flown")
    assert sql("SELECT id FROM flown") == [(1,)]
    for expected in (3, 4):
        found = spark.sql("SELECT count(*) FROM {t}", t=rootline.spark.table(spark, "demo.flights"))
        assert found.collect()[0][0] == expected
        flights.append([{"id": 4}])


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM flown WHERE id = 1",
        "UPDATE flown SET delay = 1 WHERE id = 1",
        "MERGE INTO flown AS t USING (SELECT 1L AS id) AS s ON t.id = s.id WHEN MATCHED THEN DELETE",
        "TRUNCATE TABLE flown",
        "ALTER TABLE flown ADD COLUMN more INT",
        "SELECT * FROM rootline.`demo.flights`",
    ],
)
def test_a_statement_that_python_data_sources_do_not_have_is_refused_and_changes_nothing(
    statement: str, flights: TableHandle, sql: Sql
) -> None:
    before = flights.head()
    with pytest.raises(PySparkException):
        sql(statement)
    assert flights.head() == before


def test_an_entry_that_spark_makes_for_a_stream_cannot_be_used_and_is_dropped_without_the_table(
    spark: SparkSession, flights: TableHandle, sql: Sql, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "1.json").write_text('{"id": 2}')
    writer = spark.readStream.schema(COLUMNS).json(str(source)).writeStream.format("rootline")
    one = writer.option("checkpointLocation", str(tmp_path / "one")).trigger(availableNow=True).toTable("made")
    with pytest.raises(PySparkException, match="create a temporary view"):
        one.awaitTermination()
    for refused in ("SELECT * FROM made", "INSERT INTO made VALUES (1L, 'x', 1.0)"):
        with pytest.raises(AnalysisException, match="create a temporary view"):
            sql(refused)
    sql("DROP TABLE made")
    assert ids(flights) == [1]
    two = writer.option("path", "demo.flights").option("checkpointLocation", str(tmp_path / "two")).toTable("made")
    two.awaitTermination()
    assert ids(flights) == [1, 2]
    assert spark.catalog.tableExists("made")
    sql("DROP TABLE made")
    assert ids(flights) == [1, 2]


def test_a_saved_table_with_a_path_is_written_and_leaves_an_entry(
    spark: SparkSession, flights: TableHandle, sql: Sql
) -> None:
    row = spark.createDataFrame([(2, "AA", 1.0)], COLUMNS)
    row.write.format("rootline").mode("append").option("path", "demo.flights").saveAsTable("made")
    assert ids(flights) == [1, 2]
    assert spark.catalog.tableExists("made")
    sql("DROP TABLE made")
    assert ids(flights) == [1, 2]
