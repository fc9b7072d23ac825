"""`rootline.spark.append`: by Spark's own writer or by ours, the table has the same rows and knows as much of them."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark_types

import rootline.spark
from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.schemas.errors import Invalid
from rootline.schemas.object_keys import OwnKind, own_kind
from rootline.spark import parquet_append as append_module
from tests.spark.conftest import FLIGHTS

pytestmark = pytest.mark.spark
Append = Callable[..., None]
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int32()),
        ("x", pa.float64()),
        ("y", pa.float32()),
        ("name", pa.string()),
        ("bytes", pa.binary()),
        ("yes", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("moment", pa.timestamp("us", "UTC")),
        ("money", pa.decimal128(9, 2)),
        ("much", pa.decimal128(38, 10)),
    ]
)
UTC = dt.UTC
ROWS: list[tuple[Any, ...]] = [
    (1, -5, 0.0, 1.5, "a" * 40, b"\xff" * 20, True, dt.date(1969, 12, 31), dt.datetime(1969, 12, 31, 23, 59, 59, 999),
     dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), Decimal("-1.25"), Decimal("1e20")),
    (2, -10, -0.0, math.nan, "", b"", False, dt.date(1582, 1, 2), dt.datetime(2024, 2, 29, 12, 30),
     dt.datetime(2024, 2, 29, 3, 30, tzinfo=UTC), Decimal("0.00"), Decimal("-0.0000000001")),
    (3, None, math.nan, None, "é\U0001f600", None, None, None, None, None, None, None),
    (4, 7, -2.5, -1.5, None, b"\x00", True, dt.date(2024, 3, 1), dt.datetime(1, 1, 1),
     dt.datetime(2024, 3, 1, tzinfo=UTC), Decimal("9999999.99"), None),
]  # fmt: skip


@pytest.fixture
def append(spark: SparkSession, folder: Path) -> Iterator[Append]:
    """`append(frame)`: into `demo.flights`, in a session whose moments Spark's writer may write."""
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    yield lambda frame, **how: rootline.spark.append(frame, "demo.flights", warehouse=str(folder), **how)
    spark.conf.unset("spark.sql.parquet.outputTimestampType")


def frame_of(spark: SparkSession, columns: str = "id long, carrier string, delay double", **how: Any) -> DataFrame:
    rows = how.get("rows", [(at, ["UA", "AA", None][at % 3], float(at)) for at in range(12)])
    return spark.createDataFrame(rows, columns).repartition(how.get("partitions", 2))


def every_type(spark: SparkSession) -> DataFrame:
    columns = "id long, small int, x double, y float, name string, bytes binary, yes boolean, day date, "
    columns += "at timestamp_ntz, moment timestamp, money decimal(9,2), much decimal(38,10)"
    return spark.createDataFrame(ROWS, columns)


def writers_of(table: TableHandle, folder: Path) -> set[str]:
    """Who wrote the table's files: `spark` or `us`."""
    files = [folder / "demo" / "flights" / task.location for task in table.scan().plan()]
    return {"spark" if "parquet-mr" in pq.read_metadata(file).created_by else "us" for file in files}


def comparable(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


def test_sparks_writer_leaves_the_same_rows_and_statistics_as_ours(
    spark: SparkSession, lake: Lake, append: Append, folder: Path
) -> None:
    flights, ours = lake.create_table("demo.flights", SCHEMA), lake.create_table("demo.ours", SCHEMA)
    frame = every_type(spark).coalesce(1)
    append(frame)
    frame.write.format("rootline").option("warehouse", str(folder)).mode("append").save("demo.ours")

    assert writers_of(flights, folder) == {"spark"}
    assert comparable(flights.scan().to_arrow()) == comparable(ours.scan().to_arrow())
    (mine,), (theirs,) = flights.scan().plan(), ours.scan().plan()
    assert repr(dict(mine.data.content_stats)) == repr(dict(theirs.data.content_stats))
    assert list(flights.check(data_files="all")) == []
    assert [path.name for path in (folder / "demo" / "flights" / "data").rglob("[._]*")] == []


TERMS = [
    "name", "truncate(2, name)", "truncate(10, small)", "year(day)", "month(day)", "day", "day(at)", "hour(at)",
    "year(at)", "hour(moment)", "day(moment)", "month(moment)", "money", "yes",
]  # fmt: skip


@pytest.mark.parametrize("terms", [TERMS[:5], TERMS[5:10], TERMS[10:]])
def test_each_file_is_of_one_partition_whatever_the_transform(
    spark: SparkSession, lake: Lake, append: Append, folder: Path, terms: list[str]
) -> None:
    """Rows on both sides of the epoch, of midnight in another time zone, with nulls and an empty text."""
    by_python = lake.create_table("demo.ours", SCHEMA, partition_by=terms)
    flights = lake.create_table("demo.flights", SCHEMA, partition_by=terms)
    frame = every_type(spark).union(every_type(spark)).coalesce(1)
    append(frame)
    frame.write.format("rootline").option("warehouse", str(folder)).mode("append").save("demo.ours")

    assert writers_of(flights, folder) == {"spark"}
    locations = [task.location for task in flights.scan().plan()]
    assert len(locations) == len(by_python.scan().plan())
    assert {own_kind(location) for location in locations} == {OwnKind.DATA_FILE}  # a sweep deletes nothing else,
    assert len({Path(location).name for location in locations}) == len(locations)  # and tells files by their names
    assert comparable(flights.scan().to_arrow()) == comparable(by_python.scan().to_arrow())
    assert list(flights.check(data_files="all")) == []


BY_CASE: Any = {"properties": {"rootline.names.case-sensitive": "true"}}


@pytest.mark.parametrize(
    ("column", "how", "given"),
    [
        (("money", pa.decimal128(9, 2)), {"sort_by": ["truncate(5, money)"]}, "cast(1 as decimal(9, 2))"),
        (("money", pa.decimal128(9, 2)), {"partition_by": ["bucket(4, money)"]}, "cast(1 as decimal(9, 2))"),
        (("name", pa.string()), {"sort_by": ["bucket(4, name)"]}, "'a'"),
        (("plane", pa.uuid()), {}, "uuid()"),
        (("keys", pa.map_(pa.int32(), pa.string())), {}, "map(1L, 'a')"),
        (("in", pa.struct([("a", pa.int64()), ("A", pa.int64())])), BY_CASE, "named_struct('a', 1L, 'A', 2L)"),
    ],
    ids=["an order of decimals", "buckets of decimals", "an order of hashes", "uuids", "keys to cast", "names by case"],
)
def test_what_sparks_writer_cannot_write_alike_is_written_by_ours(
    spark: SparkSession, lake: Lake, append: Append, folder: Path, column: Any, how: Any, given: str
) -> None:
    flights = lake.create_table("demo.flights", FLIGHTS.append(pa.field(*column)), **how)
    with ThreadPoolExecutor(1) as thread:  # one that knows no session, as far as Spark is concerned
        thread.submit(append, frame_of(spark).selectExpr("*", f"{given} {column[0]}")).result()
    assert writers_of(flights, folder) == {"us"}
    assert sorted(flights.scan(columns=["id"]).to_arrow().column("id").to_pylist()) == list(range(12))


def test_moments_are_left_to_ours_where_the_session_writes_them_as_int96(
    spark: SparkSession, lake: Lake, append: Append, folder: Path
) -> None:
    flights = lake.create_table("demo.flights", SCHEMA)
    spark.conf.unset("spark.sql.parquet.outputTimestampType")
    append(every_type(spark))
    assert writers_of(flights, folder) == {"us"}


def test_a_null_in_a_required_column_is_refused_and_nothing_is_in_the_table_or_its_folder(
    spark: SparkSession, lake: Lake, append: Append, folder: Path
) -> None:
    required = pa.schema([pa.field("id", pa.int64(), nullable=False), *list(FLIGHTS)[1:]])
    flights = lake.create_table("demo.flights", required)
    with pytest.raises(Invalid, match="id is required") as caught:
        append(frame_of(spark, rows=[(1, "UA", 1.0), (None, "AA", 2.0)]))
    assert caught.value.code == "rows-invalid"
    assert flights.head().version == 0
    assert list(folder.rglob("*.parquet")) == []


def test_a_named_batch_lands_once_and_no_rows_are_no_commit(
    spark: SparkSession, flights: TableHandle, append: Append
) -> None:
    for _ in range(2):
        append(frame_of(spark), writer_id="nightly", writer_sequence=7)
    append(frame_of(spark, rows=[]))
    assert flights.scan().count() == 12
    assert [root.version for root in flights.history()] == [1, 0]


def test_a_job_that_fails_leaves_nothing_in_the_table(
    spark: SparkSession, flights: TableHandle, append: Append
) -> None:
    failing = frame_of(spark).selectExpr(
        "id", "carrier", "if(id = 11, double(raise_error('no such delay')), delay) delay"
    )
    with pytest.raises(Exception, match="no such delay"):
        append(failing)
    assert flights.head().version == 0


def test_files_that_the_driver_does_not_see_are_not_forgotten(
    spark: SparkSession, flights: TableHandle, append: Append, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors that do not share the warehouse's folder write elsewhere, and Spark says that all is well."""
    written = append_module.written_files

    def some_of_them(*how: Any) -> Any:
        found = written(*how)
        return type(found)(found.files[:1], found.oldest_ms)

    monkeypatch.setattr(append_module, "written_files", some_of_them)
    with pytest.raises(Invalid, match="Spark wrote 12 rows"):
        append(frame_of(spark))
    assert flights.head().version == 0


def test_many_files_go_into_a_leaf_and_say_when_they_were_written(
    spark: SparkSession, lake: Lake, append: Append, folder: Path
) -> None:
    properties = {"rootline.append.leaf-files": "3"}
    flights = lake.create_table("demo.flights", FLIGHTS, partition_by=["carrier"], properties=properties)
    append(frame_of(spark))
    assert flights.head().totals.data_manifests == 1
    assert flights.scan(where="carrier = 'UA'").count() == 4


def test_each_batch_of_a_stream_is_appended_once(
    spark: SparkSession, flights: TableHandle, append: Append, folder: Path, tmp_path: Path
) -> None:
    """Also one whose end Spark forgot, and when the query changes to `format("rootline")` and back."""
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    schema = spark_types.StructType.fromDDL("id long, carrier string, delay double")
    appender = rootline.spark.batch_appender("demo.flights", warehouse=str(folder))

    def run(how: Callable[[Any], Any]) -> None:
        stream = spark.readStream.schema(schema).parquet(str(source)).writeStream
        how(stream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)).awaitTermination()

    def by_append(stream: Any) -> Any:
        return stream.foreachBatch(appender).start()

    def by_format(stream: Any) -> Any:
        return stream.format("rootline").option("warehouse", str(folder)).start("demo.flights")

    for number, how in enumerate((by_append, by_append, by_format, by_append)):
        frame_of(spark, partitions=1).write.mode("append").parquet(str(source))
        run(how)
        assert flights.scan().count() == 12 * (number + 1)
        (checkpoint / "commits" / f"{number}").unlink()
        (checkpoint / "commits" / f".{number}.crc").unlink(missing_ok=True)
        run(by_format if how is by_append else by_append)
        assert flights.scan().count() == 12 * (number + 1), "the batch was sent again"
    with pytest.raises(Invalid, match="foreachBatch"):
        append(spark.readStream.schema(schema).parquet(str(source)))
    with pytest.raises(Invalid, match="writer_id"):
        appender(frame_of(spark), 1)


def test_a_query_that_appends_a_batch_in_parts_fails_and_loses_none(
    spark: SparkSession, flights: TableHandle, folder: Path, tmp_path: Path
) -> None:
    """Both parts have the name of the batch, so the second one would be taken for a replay of the first."""
    first, second = (rootline.spark.batch_appender("demo.flights", warehouse=str(folder)) for _ in range(2))
    named = rootline.spark.batch_appender("demo.flights", warehouse=str(folder), writer_id="the late ones")
    frame_of(spark, partitions=1).write.parquet(str(tmp_path / "source"))

    def run(each: Callable[[DataFrame, int], None]) -> None:
        stream = spark.readStream.schema("id long, carrier string, delay double").parquet(str(tmp_path / "source"))
        stream = stream.writeStream.foreachBatch(each).option("checkpointLocation", str(tmp_path / "checkpoint"))
        stream.trigger(availableNow=True).start().awaitTermination()

    def in_parts(batch: DataFrame, number: int) -> None:
        first(batch.where("delay < 4"), number)
        for other in range(1_000):  # as fast queries append beside a slow one
            append_module._check_whole(batch, other, str(folder), "demo.fast", "another writer")
        second(batch.where("delay >= 4"), number)

    def again_and_named(batch: DataFrame, number: int) -> None:
        for _ in range(2):  # as a function does that tries again
            first(batch.where("delay < 4"), number)
        named(batch.where("delay >= 4"), number)

    with pytest.raises(Exception, match="batch 0 was appended already, with another DataFrame"):
        run(in_parts)
    assert flights.scan().count() == 4
    run(again_and_named)
    assert flights.scan().count() == 12
