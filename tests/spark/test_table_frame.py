"""`rootline.spark.table` shows the rows that a scan shows, whichever reader reads which file."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import rootline.spark
from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.schemas.errors import Invalid
from tests.spark.test_values import ROWS as VALUES
from tests.spark.test_values import SCHEMA as EVERY_TYPE

pytestmark = pytest.mark.spark
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("x", pa.float64()),
        ("name", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("moment", pa.timestamp("us", "UTC")),
        ("money", pa.decimal128(9, 2)),
        ("in", pa.struct([("side", pa.int32())])),
    ]
)
Open = Callable[..., DataFrame]


@pytest.fixture
def opened(spark: SparkSession, folder: Path) -> Open:
    return lambda **how: rootline.spark.table(spark, "demo.rows", warehouse=str(folder), **how)


@pytest.fixture
def rows(lake: Lake) -> TableHandle:
    """A file as it was written, one with a deleted row, one with NaN, one of before a column was renamed."""
    table = lake.create_table("demo.rows", SCHEMA, partition_by=["name"])
    table.append(some(range(3), "old"))
    with table.alter() as change:
        change.rename_column("name", "called").add_column("more", "int")
    for name, ids in (("a", range(3, 6)), ("b=/%", range(6, 9)), ("c", range(9, 12))):
        batch = some(ids, name).rename_columns([*SCHEMA.names[:2], "called", *SCHEMA.names[3:]])
        table.append(batch.append_column("more", pa.array([None, 1, 2], pa.int32())))
    table.append({"id": [12, 13], "x": [math.nan, None], "called": ["c", "c"]})
    table.delete_where("id = 7")
    return table


def some(ids: range, name: str) -> pa.Table:
    zeros = [-0.0 if id_ % 3 == 0 else float(id_) for id_ in ids]
    days = pa.array([100 * id_ for id_ in ids], pa.int32()).cast(pa.date32())
    moments = pa.array([id_ * 10**9 for id_ in ids], pa.int64())
    columns = [
        pa.array(ids, pa.int64()),
        pa.array(zeros),
        pa.array([name] * 3),
        days,
        moments.cast(pa.timestamp("us")),
        moments.cast(pa.timestamp("us", "UTC")),
        pa.array(ids, pa.int64()).cast(pa.decimal128(19, 0)).cast(pa.decimal128(9, 2)),
        pa.array([{"side": id_} for id_ in ids], pa.struct([("side", pa.int32())])),
    ]
    return pa.table(columns, SCHEMA)


def ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.select("id").collect())


WHERE = [
    "x = 0 and id > 3",
    "x > 4 or x is nan",
    "x != 4 and not (id in (3, 5, 99))",
    "called = 'a' or called like 'b%' and more is not null",
    "day > '0400-01-01' and day != '9999-12-31' and id > 3",
    "day >= '1972-01-01' and at < '1970-01-01T02:30:00'",
    "moment between '1970-01-01T01:00:00+00:00' and '1970-01-01T02:45:00+00:00'",
    "money >= 4.5 and more != 1",
    "in.side <= 9 and x is not nan",
    "called like '_%' and called not like '%b%'",
    "id = x",
    "id > 100",
]


def test_rows_are_those_of_a_scan_whichever_reader_reads_them(rows: TableHandle, opened: Open) -> None:
    frame = opened()
    shown = frame._jdf.queryExecution().toString()
    assert all(reader in shown for reader in ("FileScan parquet", "rootline")), "both readers"
    assert frame.columns == rows.scan().schema().names
    assert ids(frame) == sorted(rows.scan(columns=["id"]).to_arrow().column("id").to_pylist())
    for where in WHERE:
        expected = sorted(rows.scan(columns=["id"], where=where).to_arrow().column("id").to_pylist())
        assert ids(opened(where=where)) == expected, where
        assert ids(opened(where=where, columns=["id"])) == expected, where
    version = rows.head().version
    rows.delete_where("id < 9")
    assert ids(frame) == ids(opened(version=version)), "a DataFrame stays at its version"
    assert ids(opened(where="id < 9")) == []


def test_filters_of_spark_mean_what_they_mean_in_spark(rows: TableHandle, opened: Open) -> None:
    """Bounds and dictionaries of files leave NaN out and tell -0.0 from 0.0, which Spark's own reader believes."""
    frame = opened()
    assert ids(frame.where("x > 4")) == [5, 8, 10, 11, 12], "NaN is greater than every number"
    assert ids(frame.where("x = 0.0")) == [0, 3, 6, 9]
    assert ids(frame.where("x = double('nan')")) == [12]
    assert frame.where("called = 'c'").groupBy().sum("id").collect()[0][0] == 9 + 10 + 11 + 12 + 13
    assert ids(frame.where("id = 3").union(frame.where("id = 8"))) == [3, 8]
    assert frame.where("id = 3").count() == 1


def test_the_count_of_a_table_is_known_without_a_job(
    rows: TableHandle, opened: Open, spark: SparkSession, folder: Path
) -> None:
    frame, tracker = opened(), spark.sparkContext.statusTracker()
    spark.sparkContext.setJobGroup("count", "count")
    try:
        assert (frame.count(), opened(where="called = 'c'").count()) == (13, 5)
        assert list(tracker.getJobIdsForGroup("count")) == []
        assert frame.select("id").count() == 13
        assert opened(where="x > 100 or id = 4").count() == 1, "this one takes reading"
        assert len(tracker.getJobIdsForGroup("count")) > 0
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    assert opened(columns=["id", "_deleted"]).count() == 14
    assert [tuple(row) for row in opened(columns=["_pos", "id"], where="id = 8").collect()] == [(2, 8)]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"where": "plane = 1"}, "there is no column 'plane'"),
        ({"columns": ["plane"]}, "there is no column 'plane'"),
        ({"columns": ["id", "id"]}, "name each column once"),
        ({"columns": "id"}, "give a list"),
        ({"version": 99}, "version-unknown"),
        ({"version": 1, "tag": "a"}, "exclude each other"),
    ],
)
def test_what_cannot_be_read_is_refused_when_the_table_is_opened(
    rows: TableHandle, opened: Open, asked: dict[str, Any], said: str
) -> None:
    with pytest.raises(Invalid, match=said):
        opened(**asked)


def test_every_value_is_shown_alike_by_both_readers(spark: SparkSession, lake: Lake, folder: Path) -> None:
    lake.create_table("demo.values", EVERY_TYPE).append(pa.Table.from_pylist(VALUES, EVERY_TYPE))
    frame = rootline.spark.table(spark, "demo.values", warehouse=str(folder))
    assert "rootline" not in frame._jdf.queryExecution().toString()
    other = spark.read.format("rootline").option("warehouse", str(folder)).load("demo.values")
    assert frame.dtypes == other.dtypes
    back = frame.toArrow().select(EVERY_TYPE.names).cast(EVERY_TYPE)
    assert sorted(back.to_pylist(), key=str) == sorted(VALUES, key=str)
