"""A batch of Spark's is one intent, one commit and one object; what does not fit is refused naming the column."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

import rootline.spark
from rootline.adapters.open import LAKE_FOLDER
from rootline.adapters.posix_files import LakeLock
from rootline.adapters.sqlite.undecided import FILE_NAME
from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.connect import connect
from rootline.schemas.errors import Invalid
from rootline.spark import register
from tests.spark.conftest import FLIGHTS

pytestmark = pytest.mark.spark
Save = Callable[..., None]
COLUMNS = "id long, carrier string, delay double"


def ids(table: TableHandle) -> list[int]:
    return sorted(table.scan(columns=["id"]).to_arrow().column("id").to_pylist())


def rows(spark: SparkSession, *found: int, partitions: int = 2) -> DataFrame:
    """Rows of four carriers."""
    made = [(at, ["UA", "AA", "DL", "B6"][at % 4], float(at) if at % 3 else None) for at in found]
    return spark.createDataFrame(made, COLUMNS).repartition(partitions)


def test_an_append_is_one_commit_of_one_object_whatever_the_tasks(
    spark: SparkSession, flights: TableHandle, save: Save, folder: Path
) -> None:
    metadata = folder / "demo" / "flights" / "metadata"
    before = {path for path in metadata.rglob("*") if path.is_file()}
    save(rows(spark, *range(40), partitions=4))
    after = {path for path in metadata.rglob("*") if path.is_file()}
    assert flights.head().version == 1
    assert len(after - before) == 1
    assert ids(flights) == list(range(40))
    assert flights.scan(where="delay is null").count() == 14
    assert list(flights.check()) == []


def test_a_batch_of_many_files_is_one_commit_of_a_leaf_that_the_driver_wrote(
    spark: SparkSession, lake: Lake, save: Save, folder: Path
) -> None:
    properties = {"rootline.append.leaf-files": "3"}
    flights = lake.create_table("demo.flights", FLIGHTS, partition_by=["carrier"], properties=properties)
    save(rows(spark, *range(40), partitions=1))
    assert flights.head().version == 1
    assert flights.head().totals.data_manifests == 1
    assert len(list((folder / "demo" / "flights" / "metadata" / "leaves").iterdir())) == 1
    assert ids(flights) == list(range(40))
    assert len(flights.scan(where="carrier = 'UA'").plan()) == 1
    assert list(flights.check()) == []


@pytest.mark.parametrize("leaf_files", ["3", "1000"])
def test_a_batch_says_when_the_first_of_its_files_was_uploaded(
    spark: SparkSession, lake: Lake, save: Save, folder: Path, leaf_files: str
) -> None:
    """A table that is swept asks for it, and looks a thousand files up itself at most."""
    properties = {"rootline.append.leaf-files": leaf_files}
    lake.create_table("demo.flights", FLIGHTS, partition_by=["carrier"], properties=properties)
    begun_ms = time.time_ns() // 1_000_000
    save(rows(spark, *range(40)))
    written = [path.stat().st_mtime_ns // 1_000_000 for path in (folder / "demo" / "flights" / "data").rglob("*.*")]
    (log,) = folder.rglob(FILE_NAME)
    with closing(sqlite3.connect(log)) as database:
        *_, (claim,) = database.execute("SELECT oldest_file_ms FROM intents ORDER BY log_offset")
    assert begun_ms <= claim <= min(written) + 20, "the clock that dates files is a tick behind"


def test_files_carry_statistics_and_partitions(spark: SparkSession, flights: TableHandle, save: Save) -> None:
    save(rows(spark, *range(40), partitions=1))
    assert len(flights.scan().plan()) == 4
    assert len(flights.scan(where="carrier = 'UA'").plan()) == 1
    assert len(flights.scan(where="id > 100").plan()) == 0


def test_small_target_sizes_make_several_files(spark: SparkSession, flights: TableHandle, save: Save) -> None:
    frame = spark.range(30_000).selectExpr("id", "'UA' as carrier", "rand() as delay").coalesce(1)
    save(frame, targetFileSizeBytes=100_000)
    assert len(flights.scan().plan()) > 1
    assert flights.scan().count() == 30_000


def test_an_empty_frame_makes_no_version(spark: SparkSession, flights: TableHandle, save: Save) -> None:
    save(rows(spark).limit(0))
    assert flights.head().version == 0


def test_an_overwrite_replaces_every_row_at_once_those_under_vectors_too(
    spark: SparkSession, flights: TableHandle, save: Save
) -> None:
    save(rows(spark, *range(20)))
    flights.delete_where("id < 5 and carrier = 'UA'")
    save(rows(spark, 100, 101), mode="overwrite")
    assert ids(flights) == [100, 101]
    assert flights.head().version == 3
    assert list(flights.check()) == []


def test_an_overwrite_by_nothing_empties_the_table(spark: SparkSession, flights: TableHandle, save: Save) -> None:
    save(rows(spark, 1, 2))
    save(rows(spark).limit(0), mode="overwrite")
    assert ids(flights) == []
    version = flights.head().version
    save(rows(spark).limit(0), mode="overwrite")
    assert flights.head().version == version


def test_a_job_that_makes_its_table_and_replaces_partitions_as_the_session_says(
    spark: SparkSession, lake: Lake, save: Save
) -> None:
    create = {"createTable": "true", "partitionedBy": "carrier", "sortedBy": "-id"}
    save(rows(spark, *range(8), partitions=1), table="demo.made", **create)
    flights = lake.table("demo.made")
    assert flights.scan(where="carrier = 'UA'").to_arrow().column("id").to_pylist() == [4, 0]
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        save(rows(spark, 100, 104), mode="overwrite", table="demo.made", **create)
        assert ids(flights) == [1, 2, 3, 5, 6, 7, 100, 104]
        save(rows(spark, 1).limit(0), mode="overwrite", table="demo.made")
        save(rows(spark, 9), mode="overwrite", table="demo.made", partitionOverwriteMode="static")
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert ids(flights) == [9]
    save(rows(spark, 10, 11), mode="overwrite", table="demo.made", replaceWhere="id >= 10")
    assert ids(flights) == [9, 10, 11]


def test_an_overwrite_of_an_empty_table_adds(spark: SparkSession, flights: TableHandle, save: Save) -> None:
    save(rows(spark, 7), mode="overwrite", isolationLevel="snapshot")
    assert ids(flights) == [7]


def test_a_named_batch_that_is_sent_again_lands_once(spark: SparkSession, flights: TableHandle, save: Save) -> None:
    for _ in range(2):
        save(rows(spark, 1, 2), writerId="ingest", writerSequence=7)
    save(rows(spark, 3), writerId="ingest", writerSequence=8)
    assert ids(flights) == [1, 2, 3]


def test_foreach_batch_is_replay_safe_with_a_writer_and_the_batch_id(
    spark: SparkSession, flights: TableHandle, save: Save
) -> None:
    def each(frame: DataFrame, batch_id: int) -> None:
        for _ in range(2):  # as Spark does after a failure behind this line
            save(frame, writerId="foreach", writerSequence=batch_id)

    for batch_id in (0, 1):
        each(rows(spark, batch_id), batch_id)
    assert ids(flights) == [0, 1]


def test_without_a_service_the_commit_hosts_the_coordinator_and_leaves_nothing_behind(
    spark: SparkSession, folder: Path, save: Save
) -> None:
    with connect(folder) as lake:
        table = lake.create_table("demo.flights", FLIGHTS)
    save(rows(spark, 1, 2))
    lock = LakeLock(folder / LAKE_FOLDER)
    assert lock.try_acquire(), "a worker of Spark's still hosts the coordinator"
    lock.release()
    with connect(folder, coordinator="elsewhere") as lake:
        table = lake.table("demo.flights")
        assert ids(table) == [1, 2]


def test_columns_are_found_by_name_and_absent_ones_are_null(
    spark: SparkSession, flights: TableHandle, save: Save
) -> None:
    save(spark.createDataFrame([("UA", 5)], "carrier string, id int"))
    assert flights.scan().to_arrow().to_pylist() == [{"id": 5, "carrier": "UA", "delay": None}]


@pytest.mark.parametrize(
    ("columns", "row", "said"),
    [
        ("id string, carrier string", ("x", "UA"), "column id is a long, not string"),
        ("id long, plane string", (1, "x"), "there is no column 'plane'"),
        ("id long, delay interval day to second", (1, None), "column delay is of type INTERVAL DAY TO SECOND"),
    ],
)
def test_rows_that_do_not_fit_are_refused_before_a_task_runs_naming_the_column(
    spark: SparkSession, flights: TableHandle, save: Save, columns: str, row: tuple[object, ...], said: str
) -> None:
    with pytest.raises(AnalysisException, match="rows-invalid") as failed:
        save(spark.createDataFrame([row], columns))
    assert said in str(failed.value)
    assert flights.head().version == 0


def test_names_are_compared_as_spark_compares_them(
    spark: SparkSession, flights: TableHandle, save: Save, folder: Path
) -> None:
    frame = spark.createDataFrame([(1, "UA")], "ID long, Carrier string")
    save(frame)
    save(frame, mode="overwrite", mergeSchema="true")
    rootline.spark.append(frame, "demo.flights", warehouse=str(folder))
    with pytest.raises(AnalysisException, match="there is no column 'ID'"):
        save(frame, caseSensitive="true")
    both = spark.createDataFrame([(1, 2)], "id long, plane long").toDF("plane", "PLANE")
    with pytest.raises(AnalysisException, match="columns plane and PLANE of the rows are one column"):
        save(both, mergeSchema="true")
    assert flights.definition().schema.column_names == ["id", "carrier", "delay"]
    assert flights.scan().to_arrow().to_pylist() == [{"id": 1, "carrier": "UA", "delay": None}] * 2


@pytest.mark.parametrize(
    "value", ["parse_json('{}')", "array(st_geomfromwkb(X'0101000000000000000000F03F0000000000000040'))"]
)
def test_a_type_that_no_table_stores_is_refused_before_there_is_a_table(
    spark: SparkSession, lake: Lake, save: Save, folder: Path, value: str
) -> None:
    frame = spark.sql(f"select 1L as id, {value} as payload")
    with pytest.raises(AnalysisException, match=r"column payload.* is of type .* which no table stores"):
        save(frame, table="demo.made", createTable="true")
    lake.create_table("demo.flights", pa.schema([("id", pa.int64())]))
    with pytest.raises(Invalid, match="which no table stores"):
        rootline.spark.append(frame, "demo.flights", warehouse=str(folder))
    assert lake.list_tables() == ["demo.flights"]


def test_a_null_in_a_required_column_fails_the_batch_naming_it(spark: SparkSession, lake: Lake, save: Save) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("carrier", pa.string())])
    lake.create_table("demo.strict", schema)
    with pytest.raises(Exception, match="column id is required, but 1 of 2 rows have none"):
        save(spark.createDataFrame([(1, "a"), (None, "b")], "id long, carrier string").coalesce(1), table="demo.strict")


@pytest.mark.parametrize(
    ("table", "options", "said"),
    [
        ("demo.nothing", {}, "table-unknown"),
        ("nothing", {}, "table-name-invalid"),
        ("demo.flights", {"writerid2": "x"}, "option 'writerid2' does not exist; write 'writerId'"),
        ("demo.flights", {"writerId": "x"}, "'writerId' and 'writerSequence' need each other"),
        ("demo.flights", {"versionAsOf": "1"}, "no meaning for a batch write"),
        ("demo.flights", {"writerId": "process/x", "writerSequence": "1"}, "process/ are made by"),
    ],
)
@pytest.mark.usefixtures("flights")
def test_what_cannot_be_written_is_refused_with_its_reason(
    spark: SparkSession, save: Save, table: str, options: dict[str, str], said: str
) -> None:
    with pytest.raises(Exception, match=said):
        save(rows(spark, 1), table=table, **options)


def test_a_thread_that_registers_writes_as_well(spark: SparkSession, flights: TableHandle, save: Save) -> None:
    """Spark looks for the source of a write in the session that is active in the thread; a new thread has none."""

    def write(number: int) -> None:
        register(spark)
        save(rows(spark, number))

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(write, range(4)))
    assert ids(flights) == [0, 1, 2, 3]
