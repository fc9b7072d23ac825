"""Nested columns, buckets, sort orders and casts are written by Spark's own writer, into files that equal ours.

PyArrow, PyIceberg and DuckDB read the files without Rootline.
"""

from __future__ import annotations

import datetime as dt
import math
import random
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everyone calls it
from pyspark.sql.types import StructType

import rootline.spark
from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.schemas.errors import Invalid
from tests.spark.test_append import Append, append, comparable, writers_of

pytestmark = pytest.mark.spark
__all__ = ["append"]
UTC = dt.UTC
STOP = pa.struct([("at", pa.timestamp("us", "UTC")), ("gate", pa.string()), ("delays", pa.list_(pa.float64()))])
NESTED = pa.schema(
    [
        ("id", pa.int64()),
        ("plane", pa.struct([("seats", pa.int32()), ("in", pa.struct([("day", pa.date32()), ("x", pa.float64())]))])),
        ("stops", pa.list_(STOP)),
        ("grid", pa.list_(pa.list_(pa.int32()))),
        ("codes", pa.map_(pa.string(), STOP)),
        ("by_code", pa.map_(pa.int64(), pa.map_(pa.string(), pa.decimal128(9, 2)))),
    ]
)
NESTED_DDL = (
    "id bigint, plane struct<seats: int, in: struct<day: date, x: double>>, "
    "stops array<struct<at: timestamp, gate: string, delays: array<double>>>, grid array<array<int>>, "
    "codes map<string, struct<at: timestamp, gate: string, delays: array<double>>>, "
    "by_code map<bigint, map<string, decimal(9, 2)>>"
)


def drawn(draw: random.Random, kind: pa.DataType) -> Any:
    """A random value, which may be null at every depth."""
    if draw.random() < 0.15:
        return None
    if pa.types.is_struct(kind):
        return {kind.field(at).name: drawn(draw, kind.field(at).type) for at in range(kind.num_fields)}
    if pa.types.is_list(kind):
        return [drawn(draw, kind.value_type) for _ in range(draw.randrange(4))]
    if pa.types.is_map(kind):
        keys = {drawn(draw, kind.key_type) for _ in range(draw.randrange(4))} - {None}
        return [(key, drawn(draw, kind.item_type)) for key in sorted(keys)]
    if pa.types.is_string(kind):
        return draw.choice(["", "UA", "é\U0001f600", "a" * 40])
    if pa.types.is_floating(kind):
        return draw.choice([0.0, -0.0, math.inf, 0.1, math.nan])
    if pa.types.is_decimal(kind):
        return Decimal(draw.randrange(-999_999_999, 10**9)) / 100
    if pa.types.is_date(kind):
        return dt.date(2024, 1, 1) + dt.timedelta(days=draw.randrange(-200_000, 1000))
    if pa.types.is_timestamp(kind):
        return dt.datetime(2024, 1, 1, tzinfo=UTC) + dt.timedelta(microseconds=draw.randrange(-5 * 10**16, 10**15))
    return draw.randrange(-(2**31), 2**31)


def frame_of(spark: SparkSession, rows: pa.Table, ddl: str) -> DataFrame:
    return spark.createDataFrame(rows, spark.createDataFrame([], ddl).schema).coalesce(1)


def by_format(frame: DataFrame, folder: Path, table: str = "demo.ours") -> None:
    frame.write.format("rootline").option("warehouse", str(folder)).mode("append").save(table)


def files_of(table: TableHandle, folder: Path) -> list[Path]:
    return [folder / "demo" / "flights" / task.location for task in table.scan().plan()]


@pytest.mark.parametrize("seed", [1, 2])
def test_nested_values_are_written_with_the_ids_statistics_and_rows_of_our_own_writer(
    spark: SparkSession, lake: Lake, append: Append, folder: Path, seed: int
) -> None:
    draw = random.Random(seed)
    made = [{"id": at, **{field.name: drawn(draw, field.type) for field in list(NESTED)[1:]}} for at in range(120)]
    rows = pa.Table.from_pylist(made, NESTED)
    flights, ours = lake.create_table("demo.flights", NESTED), lake.create_table("demo.ours", NESTED)
    frame = frame_of(spark, rows, NESTED_DDL)
    append(frame)
    by_format(frame, folder)

    assert writers_of(flights, folder) == {"spark"}
    assert comparable(flights.scan().to_arrow()) == comparable(ours.scan().to_arrow()) == comparable(rows)
    (mine,), (theirs,) = flights.scan().plan(), ours.scan().plan()
    assert repr(dict(mine.data.content_stats)) == repr(dict(theirs.data.content_stats))
    assert list(flights.check(data_files="all")) == []
    (file,) = files_of(flights, folder)
    assert comparable(pq.read_table(file)) == comparable(rows)
    stored = pyarrow_to_schema(pq.read_schema(file))  # every field has an id
    assert stored.as_struct() == flights.definition().schema.as_struct()
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        (path, own) = (
            f"'{at}', hive_partitioning = false" for at in (file, folder / "demo" / "ours" / theirs.location)
        )
        for one, other in ((path, own), (own, path)):
            assert database.sql(f"from read_parquet({one}) except all from read_parquet({other})").fetchall() == []
        assert database.sql(f"select count(*) from read_parquet({path})").fetchone() == (120,)


def test_spark_reads_back_what_it_wrote_with_its_own_reader(
    spark: SparkSession, lake: Lake, append: Append, folder: Path
) -> None:
    lake.create_table("demo.flights", NESTED)
    draw = random.Random(3)
    made = [{"id": at, **{field.name: drawn(draw, field.type) for field in list(NESTED)[1:]}} for at in range(20)]
    rows = pa.Table.from_pylist(made, NESTED)
    append(frame_of(spark, rows, NESTED_DDL))
    read = rootline.spark.table(spark, "demo.flights", warehouse=str(folder))
    assert "parquet" in read._jdf.queryExecution().executedPlan().toString().lower()
    assert comparable(read.toArrow().cast(NESTED)) == comparable(rows)


def test_lists_and_maps_that_spark_knows_to_be_without_nulls_are_written_too(
    spark: SparkSession, lake: Lake, append: Append, folder: Path
) -> None:
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("list", pa.list_(pa.int64())),
            ("map", pa.map_(pa.string(), pa.struct([("a", pa.int32())]))),
        ]
    )
    flights = lake.create_table("demo.flights", schema)
    append(spark.range(6).selectExpr("id", "array(id, 7L) list", "map('k', named_struct('a', 1)) map"))
    append(spark.range(6).groupBy((F.col("id") % 2).alias("id")).agg(F.collect_list("id").alias("list")))
    append(spark.range(2).selectExpr("id", "array() list", "null map"))
    append(spark.range(1).selectExpr("id", "null list", "null map"))
    assert writers_of(flights, folder) == {"spark"}
    found = flights.scan().to_arrow().to_pylist()
    assert [row["list"] for row in found].count([]) == 2
    assert {"id": 3, "list": [3, 7], "map": [("k", {"a": 1})]} in found
    assert {"id": 0, "list": None, "map": None} in found
    assert sorted(len(row["list"] or ()) for row in found if row["map"] is None) == [0, 0, 0, 3, 3]


WORDS = ["", "a", "ab", "abc", "abcd", "abcde", "é", "\U0001f600", "日本語", "x" * 31, "\0", "\0\0\0\0", None]
BUCKETED = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int32()),
        ("name", pa.string()),
        ("bytes", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("moment", pa.timestamp("us", "UTC")),
        ("in", pa.struct([("side", pa.string())])),
    ]
)
BUCKETED_DDL = (
    "id bigint, small int, name string, bytes binary, day date, at timestamp_ntz, moment timestamp, "
    "in struct<side: string>"
)


def bucketed(count: int) -> pa.Table:
    draw = random.Random(count)
    made = []
    for at in range(count):
        text = draw.choice([*WORDS, "".join(draw.choices("abcé日\U0001f600", k=draw.randrange(12)))])
        moment = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=draw.randrange(-(10**16), 10**16))
        row = {
            "id": draw.choice([None, 0, -1, 2**63 - 1, -(2**63), at]),
            "small": draw.choice([None, -(2**31), 2**31 - 1, at]),
            "name": text,
            "bytes": draw.choice([None, bytes(draw.choices(range(256), k=draw.randrange(12)))]),
            "day": draw.choice([None, moment.date()]),
            "at": draw.choice([None, moment]),
            "moment": draw.choice([None, moment.replace(tzinfo=UTC)]),
            "in": draw.choice([None, {"side": text}]),
        }
        made.append(row)
    return pa.Table.from_pylist(made, BUCKETED)


@pytest.mark.parametrize(
    "terms",
    [
        ["bucket(4, name)", "bucket(3, in.side)"],
        ["bucket(5, bytes)"],
        ["bucket(4, id)", "bucket(3, small)"],
        ["bucket(3, day)", "bucket(3, at)"],
        ["bucket(4, moment)", "truncate(1, bytes)", "bucket(2, name)"],
        ["bucket(7, id, name)"],
        ["in.side"],
    ],
)
def test_a_bucket_is_computed_in_spark_as_the_specification_has_it(
    spark: SparkSession, lake: Lake, append: Append, folder: Path, terms: list[str]
) -> None:
    """A file with rows of two buckets would be refused, and a bucket in two files would be one file more than ours."""
    flights = lake.create_table("demo.flights", BUCKETED, partition_by=terms)
    ours = lake.create_table("demo.ours", BUCKETED, partition_by=terms)
    rows = bucketed(300)
    append(frame_of(spark, rows, BUCKETED_DDL))
    ours.append(rows)
    assert writers_of(flights, folder) == {"spark"}
    assert len(flights.scan().plan()) == len(ours.scan().plan())
    assert comparable(flights.scan().to_arrow()) == comparable(rows)
    assert list(flights.check(data_files="all")) == []


SORTED = pa.schema(
    [
        ("id", pa.int64()),
        ("x", pa.float64()),
        ("y", pa.float32()),
        ("name", pa.string()),
        ("in", pa.struct([("day", pa.date32())])),
    ]
)
SORTED_DDL = "id bigint, x double, y float, name string, in struct<day: date>"


@pytest.mark.parametrize(
    ("sort_by", "partition_by"),
    [
        (["x", "-y", "id"], []),
        (["-name", "month(in.day)", "-id"], ["truncate(1, name)"]),
        (["bucket(3, id)", "-x nulls first", "id"], ["bucket(2, name)"]),
    ],
)
def test_rows_are_in_the_tables_sort_order_as_our_own_writer_sorts_them(
    spark: SparkSession, lake: Lake, append: Append, folder: Path, sort_by: list[str], partition_by: list[str]
) -> None:
    how: Any = {"sort_by": sort_by, "partition_by": partition_by}
    flights, ours = lake.create_table("demo.flights", SORTED, **how), lake.create_table("demo.ours", SORTED, **how)
    draw = random.Random(5)
    numbers = [None, 0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan]
    made = [
        {
            "id": at,
            "x": draw.choice(numbers),
            "y": draw.choice(numbers),
            "name": draw.choice(["", "Z", "a", "é", "\U0001f600", "\uffff", None]),
            "in": draw.choice(
                [None, {"day": None}, {"day": dt.date(1969, 1, 1) + dt.timedelta(days=draw.randrange(900))}]
            ),
        }
        for at in range(400)
    ]
    rows = pa.Table.from_pylist(draw.sample(made, len(made)), SORTED)
    append(frame_of(spark, rows, SORTED_DDL))
    ours.append(rows)
    assert writers_of(flights, folder) == {"spark"}
    tasks = list(flights.scan().plan())
    assert {task.data.sort_order_id for task in tasks} == {flights.definition().default_sort_order_id} != {0}
    assert in_files(flights, folder / "demo" / "flights") == in_files(ours, folder / "demo" / "ours")
    assert list(flights.check(data_files="all")) == []


def in_files(table: TableHandle, place: Path) -> list[list[str]]:
    """The rows of each file in their order, the files in the order of their first rows."""
    files = [pq.ParquetFile(place / task.location).read() for task in table.scan().plan()]
    return sorted([repr(row) for row in file.to_pylist()] for file in files)


def test_a_file_is_not_labelled_as_sorted_if_its_rows_are_not(
    spark: SparkSession, lake: Lake, append: Append, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flights = lake.create_table("demo.flights", SORTED, sort_by=["-id"])
    monkeypatch.setattr("rootline.spark.parquet_append.sort_columns", lambda _: [])
    append(
        spark.range(10)
        .selectExpr("id", "1d x", "1f y", "'' name", "named_struct('day', current_date()) in")
        .coalesce(1)
    )
    (task,) = flights.scan().plan()
    assert (writers_of(flights, folder), task.data.sort_order_id) == ({"spark"}, None)


CAST = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int32()),
        ("x", pa.float64()),
        ("y", pa.float32()),
        ("money", pa.decimal128(9, 2)),
        ("day", pa.date32()),
        ("in", pa.struct([("a", pa.int32()), ("b", pa.string()), ("more", pa.int64())])),
        ("list", pa.list_(pa.struct([("a", pa.int32()), ("b", pa.string())]))),
        ("codes", pa.map_(pa.string(), pa.int32())),
    ]
)
CASTS: list[tuple[str, str, list[str]]] = [
    ("id", "bigint", ["cast(7 as tinyint)", "cast(-7 as int)", "2d", "-3f", "cast(4 as decimal(20, 3))", "null"]),
    ("small", "int", ["-2147483648L", "cast(7 as smallint)", "16777216f", "cast(1.00 as decimal(5, 2))"]),
    ("x", "double", ["1.5f", "cast(7 as int)", "9007199254740992L", "cast('NaN' as float)"]),
    ("y", "float", ["1.5d", "cast('NaN' as double)", "-cast('Infinity' as double)", "16777216", "cast(7 as smallint)"]),
    ("money", "decimal(9, 2)", ["7", "9999999L", "cast(1.5 as decimal(3, 1))", "cast(1.5000 as decimal(20, 4))"]),
    ("day", "date", ["timestamp_ntz'2024-02-29 00:00:00'"]),
    ("in", "", ["named_struct('b', 'x', 'a', 7L)", "named_struct('A', 7, 'b', 'x')", "named_struct('a', 1L)"]),
    ("list", "", ["array(named_struct('a', 7L, 'b', 'x'), null)", "array(named_struct('b', 'x'))", "array()"]),
    ("codes", "", ["map('k', 7L, 'n', null)", "map('k', cast(7 as tinyint))"]),
]
CHANGING: list[tuple[str, str]] = [
    ("id", "2.5d"),
    ("id", "cast('NaN' as double)"),
    ("id", "9007199254740994d"),
    ("id", "cast(1.5 as decimal(3, 1))"),
    ("small", "2147483648L"),
    ("small", "-1e30d"),
    ("x", "9007199254740993L"),
    ("x", "9007199254740994L"),
    ("y", "0.1d"),
    ("y", "1e300d"),
    ("y", "16777217"),
    ("money", "10000000"),
    ("money", "cast(1.555 as decimal(9, 3))"),
    ("day", "timestamp_ntz'2024-02-29 00:00:01'"),
    ("in", "named_struct('a', 2147483648L, 'b', 'x', 'more', 1L)"),
    ("list", "array(named_struct('a', 2147483648L, 'b', 'x'))"),
    ("codes", "map('k', 2147483648L)"),
]


def test_values_of_other_types_are_cast_where_the_cast_changes_none(
    spark: SparkSession, lake: Lake, append: Append, folder: Path
) -> None:
    """Absent columns, absent members, members in another order and spelling: as our own writer has them."""
    flights, ours = lake.create_table("demo.flights", CAST), lake.create_table("demo.ours", CAST)
    for values in zip_longest(*(values for _, _, values in CASTS)):
        columns = [
            f"if(id = 0, {value}, null) {name}" for (name, _, _), value in zip(CASTS, values, strict=True) if value
        ]
        frame = spark.range(2).coalesce(1).selectExpr(*columns)
        append(frame)
        by_format(frame, folder)
    assert writers_of(flights, folder) == {"spark"}
    assert comparable(flights.scan().to_arrow()) == comparable(ours.scan().to_arrow())
    assert list(flights.check(data_files="all")) == []


@pytest.mark.parametrize("is_ansi", ["true", "false"])
def test_a_value_that_a_cast_would_change_fails_the_batch_as_in_our_own_writer(
    spark: SparkSession, lake: Lake, append: Append, folder: Path, is_ansi: str
) -> None:
    flights, ours = lake.create_table("demo.flights", CAST), lake.create_table("demo.ours", CAST)
    before = spark.conf.get("spark.sql.ansi.enabled")
    try:
        for name, value in CHANGING:
            frame = spark.range(1).selectExpr(f"{value} {name}")
            spark.conf.set("spark.sql.ansi.enabled", is_ansi)
            for write in (append, lambda frame: by_format(frame, folder)):
                with pytest.raises(Exception, match=rf"(?s)column {name}\b.*fit"):
                    write(frame)
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before or "true")
    assert (flights.head().version, ours.head().version) == (0, 0)


def test_a_column_that_the_rows_lack_gets_its_default(
    spark: SparkSession, lake: Lake, append: Append, folder: Path
) -> None:
    flights = lake.create_table("demo.flights", {"id": "long"})
    with flights.alter() as change:
        change.add_column("seats", "int", default=180).add_column("money", "decimal(9,2)", default=Decimal("1.50"))
        change.add_column("day", "date", default=dt.date(2024, 2, 29)).add_column("note", "string")
    append(spark.range(1))
    assert writers_of(flights, folder) == {"spark"}
    assert flights.scan().to_arrow().to_pylist() == [
        {"id": 0, "seats": 180, "money": Decimal("1.50"), "day": dt.date(2024, 2, 29), "note": None}
    ]


def test_rows_bring_their_columns_in_the_commit_of_an_append(
    spark: SparkSession, flights: TableHandle, append: Append, folder: Path
) -> None:
    append(spark.createDataFrame([(1, "UA", 0.5)], "id int, carrier string, delay float"))
    more = "id long, carrier string, delay double, gate string, at struct<lat: double, tags: array<string>>"
    frame = spark.createDataFrame([(2, "AA", 1.5, "B1", (3.5, ["a"]))], more)
    with pytest.raises(Invalid, match="gate"):
        append(frame)
    append(frame, merge_schema=True, writer_id="nightly", writer_sequence=1)
    append(frame, merge_schema=True, writer_id="nightly", writer_sequence=1)
    assert writers_of(flights, folder) == {"spark"}
    assert flights.scan(version=2).count() == 2  # rows and columns are one commit
    found = sorted(flights.scan().to_arrow().to_pylist(), key=lambda row: row["id"])
    assert found[0] == {"id": 1, "carrier": "UA", "delay": 0.5, "gate": None, "at": None}
    assert found[1] == {"id": 2, "carrier": "AA", "delay": 1.5, "gate": "B1", "at": {"lat": 3.5, "tags": ["a"]}}
    append(spark.createDataFrame([(3, (4.5,))], "id long, at struct<lat: double>"), merge_schema=True)
    assert flights.scan(where="id = 3", columns=["at"]).to_arrow().to_pylist() == [{"at": {"lat": 4.5, "tags": None}}]
    assert list(flights.check(data_files="all")) == []


def test_what_our_own_writer_must_write_brings_its_columns_too(
    spark: SparkSession, lake: Lake, append: Append, folder: Path
) -> None:
    flights = lake.create_table("demo.flights", pa.schema([("id", pa.int64()), ("plane", pa.uuid())]))
    append(spark.range(1).selectExpr("id", "uuid() plane", "'B1' gate"), merge_schema=True)
    assert writers_of(flights, folder) == {"us"}
    assert flights.scan(columns=["id", "gate"]).to_arrow().to_pylist() == [{"id": 0, "gate": "B1"}]
    assert flights.head().version == 1


def test_columns_that_others_changed_while_the_rows_were_written_are_noticed(
    spark: SparkSession, flights: TableHandle, append: Append, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rootline.spark import parquet_append as append_module

    written = append_module.written_files

    def meanwhile(*how: Any) -> Any:
        with flights.alter() as change:
            change.add_column("seat", "string")
        return written(*how)

    monkeypatch.setattr(append_module, "written_files", meanwhile)
    frame = spark.createDataFrame([(2, "AA", 1.5, "B1")], "id long, carrier string, delay double, gate string")
    with pytest.raises(Invalid, match="run the write again") as caught:
        append(frame, merge_schema=True)
    assert caught.value.code == "definition-changed"
    monkeypatch.undo()
    append(frame, merge_schema=True)
    assert flights.scan().to_arrow().to_pylist() == [
        {"id": 2, "carrier": "AA", "delay": 1.5, "seat": None, "gate": "B1"}
    ]


def test_a_stream_of_batches_brings_a_column_once(
    spark: SparkSession, flights: TableHandle, folder: Path, tmp_path: Path
) -> None:
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    frame = spark.createDataFrame([(1, "UA", 1.5, "B1")], "id long, carrier string, delay double, gate string")
    appender = rootline.spark.batch_appender("demo.flights", warehouse=str(folder), merge_schema=True)

    def run() -> None:
        frame.write.mode("append").parquet(str(source))
        stream = spark.readStream.schema(StructType(frame.schema.fields)).parquet(str(source)).writeStream
        stream = stream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        stream.foreachBatch(appender).start().awaitTermination()

    for number in range(3):
        run()
        if number == 1:  # Spark forgets that the batch ended, and sends it again
            (checkpoint / "commits" / "1").unlink()
            (checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    assert flights.scan(columns=["gate"]).to_arrow().column("gate").to_pylist() == ["B1"] * 3
    assert len(flights.definition().schemas) == 2
    assert writers_of(flights, folder) == {"spark"}
