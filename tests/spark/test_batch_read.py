"""Spark reads one version of a table: the columns that are asked for, of the files that may match."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import EqualTo, GreaterThan
from pyspark.sql.types import StructType

from rootline.client.lake import Lake
from rootline.client.session import Session
from rootline.client.table_handle import TableHandle
from rootline.spark.batch_reader import BatchReader, ScanPartition, packed, partition_bytes
from rootline.spark.data_source import RootlineDataSource, register, session_defaults
from rootline.workers.app import WorkerService
from tests.spark.conftest import FLIGHTS

pytestmark = pytest.mark.spark
Load = Callable[..., DataFrame]
PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def table(flights: TableHandle) -> TableHandle:
    """Three files of rows 0 to 8 in versions 1 to 3; row 4 is deleted in version 4."""
    for at, carrier in enumerate(["UA", "AA", "DL"]):
        found = range(3 * at, 3 * at + 3)
        flights.append({"id": list(found), "carrier": [carrier] * 3, "delay": [float(id_) for id_ in found]})
    flights.delete_where("id = 4")
    return flights


def ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.select("id").collect())


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        assert before is not None
        spark.conf.set(name, before)


@pytest.mark.usefixtures("table")
def test_all_live_rows_are_read_and_counted(load: Load) -> None:
    assert ids(load()) == [0, 1, 2, 3, 5, 6, 7, 8]
    assert load().count() == 8
    assert load().columns == ["id", "carrier", "delay"]


@pytest.mark.usefixtures("flights")
def test_an_empty_table_has_no_rows(load: Load) -> None:
    assert load().count() == 0
    assert load().where("id = 1").collect() == []


@pytest.mark.usefixtures("table")
def test_columns_are_picked_by_option_in_its_order_or_by_a_schema(
    load: Load, spark: SparkSession, folder: Path
) -> None:
    assert load(columns="delay, id").columns == ["delay", "id"]
    assert [tuple(row) for row in load(columns="delay,id").where("id = 8").collect()] == [(8.0, 8)]
    reader = spark.read.format("rootline").option("warehouse", str(folder)).schema("carrier string, id bigint")
    assert [tuple(row) for row in reader.load("demo.flights").where("id = 0").collect()] == [("UA", 0)]


@pytest.mark.usefixtures("table")
def test_metadata_columns_are_read_where_they_are_named(load: Load, spark: SparkSession, folder: Path) -> None:
    frame = load(columns="id,_pos,_deleted,_spec_id,_partition,_file")
    row = frame.where("id = 4").collect()[0]
    assert (row._pos, row._deleted, row._spec_id, row._partition.carrier) == (1, True, 0, "AA")
    assert row._file.startswith("data/")
    reader = spark.read.format("rootline").option("warehouse", str(folder)).schema("id bigint, _pos bigint")
    assert [tuple(row) for row in reader.load("demo.flights").where("id > 3").sort("id").collect()] == [
        (5, 2),
        (6, 0),
        (7, 1),
        (8, 2),
    ]


@pytest.mark.usefixtures("table")
def test_rows_are_counted_by_a_metadata_column_without_a_data_file(load: Load, folder: Path) -> None:
    frame = load(columns="_spec_id")
    for path in (folder / "demo" / "flights" / "data").rglob("*.parquet"):
        path.unlink()
    assert frame.count() == 8
    assert load(columns="_pos,_file").where("_pos = 1").count() == 2


FILTERS = {
    "carrier = 'AA'": [3, 5],
    "id > 2 and delay <= 6": [3, 5, 6],
    "carrier in ('UA', 'DL') and not id = 1": [0, 2, 6, 7, 8],
    "carrier like 'D%'": [6, 7, 8],
    "id + 1 = 3": [2],
    "delay is null": [],
    "carrier <=> 'AA'": [3, 5],
}


@pytest.mark.usefixtures("table")
def test_filters_mean_the_same_with_and_without_push_down(load: Load, spark: SparkSession) -> None:
    for where, expected in FILTERS.items():
        assert ids(load().where(where)) == expected, where
        with setting(spark, PUSH_DOWN, "true"):
            assert ids(load(pushFilters="true").where(where)) == expected, where


@pytest.mark.usefixtures("table")
def test_a_frame_that_was_filtered_has_all_its_rows_when_it_is_used_again(load: Load, spark: SparkSession) -> None:
    for switched_on in ("false", "true"):
        with setting(spark, PUSH_DOWN, switched_on):
            frame = load()
            assert frame.where("carrier = 'AA'").count() == 2
            assert frame.count() == 8
            assert frame.where("id = 0").union(frame.where("id = 8")).count() == 2


@pytest.mark.usefixtures("table")
def test_spark_still_keeps_a_pushed_filter_on_the_frame_which_is_why_filters_are_pushed_on_request_only(
    load: Load, spark: SparkSession
) -> None:
    with setting(spark, PUSH_DOWN, "true"):
        frame = load(pushFilters="true")
        assert frame.where("carrier = 'AA'").count() == 2
        assert frame.count() == 2, "it is 8 now: push filters by default for this Spark (decision 0092)"


@pytest.mark.usefixtures("table")
def test_spark_refuses_push_down_while_its_own_setting_is_off(load: Load) -> None:
    with pytest.raises(Exception, match="DATA_SOURCE_PUSHDOWN_DISABLED"):
        load(pushFilters="true").count()


@pytest.mark.usefixtures("table")
def test_option_where_reads_the_rows_that_match_and_no_other_file(load: Load, folder: Path) -> None:
    assert ids(load(where="carrier = 'AA' and id < 5")) == [3]
    assert [tuple(row) for row in load(where="id >= 7", columns="carrier").collect()] == [("DL",), ("DL",)]
    assert ids(load(where="id > 1").where("carrier = 'UA'")) == [2]
    assert files_planned(reader_of(folder, where="carrier = 'AA'")) == 1
    with pytest.raises(Exception, match="there is no column 'plane'"):
        load(where="plane = 1").collect()


def reader_of(folder: Path, **options: str) -> BatchReader:
    source = RootlineDataSource({"path": "demo.flights", "warehouse": str(folder), **options})
    schema = source.schema()
    assert isinstance(schema, StructType)
    reader = source.reader(schema)
    assert isinstance(reader, BatchReader)
    return reader


def files_planned(reader: BatchReader) -> int:
    partitions = [partition for partition in reader.partitions() if isinstance(partition, ScanPartition)]
    return sum(len(partition.tasks) for partition in partitions)


@pytest.mark.usefixtures("table")
def test_a_pushed_filter_prunes_files(folder: Path) -> None:
    assert files_planned(reader_of(folder)) == 3
    for filters, files in (
        ([EqualTo(("carrier",), "AA")], 1),
        ([GreaterThan(("id",), 2)], 2),
        ([GreaterThan(("id",), 2), EqualTo(("carrier",), "UA")], 0),
    ):
        reader = reader_of(folder, pushFilters="true")
        assert list(reader.pushFilters(filters)) == filters, "Spark is to check every filter again"
        assert files_planned(reader) == files


@pytest.mark.usefixtures("table")
def test_files_are_packed_into_partitions_by_size(folder: Path) -> None:
    (partition,) = reader_of(folder).partitions()
    assert isinstance(partition, ScanPartition)
    assert [len(group) for group in packed(partition.tasks, 8 * 1024 * 1024)] == [2, 1]


@pytest.mark.parametrize(
    ("total_mb", "processors", "count"), [(0, 8, 0), (12, 8, 1), (60, 2, 2), (60, 8, 4), (500, 2, 4), (500, 8, 8)]
)
def test_every_processor_has_as_many_partitions_as_the_others_unless_these_would_be_small(
    total_mb: int, processors: int, count: int
) -> None:
    size = partition_bytes(total_mb * 1024 * 1024, processors)
    assert -(-total_mb * 1024 * 1024 // size) == count


def test_older_versions_are_read_by_version_snapshot_tag_or_moment(load: Load, table: TableHandle) -> None:
    older = table.history()[2]
    assert older.version == 2
    timestamp_ms = older.snapshot.timestamp_ms
    moment = dt.datetime.fromtimestamp(timestamp_ms / 1000, dt.UTC).isoformat()
    table.tag("older", version=2)
    for options in (
        {"versionAsOf": 2},
        {"tag": "older"},
        {"snapshotId": older.snapshot.snapshot_id},
        {"timestampAsOf": timestamp_ms},
        {"timestampAsOf": moment},
    ):
        assert ids(load(**options)) == [0, 1, 2, 3, 4, 5], options


def test_a_frame_stays_at_the_version_that_it_was_loaded_at(load: Load, table: TableHandle) -> None:
    frame = load()
    table.delete_where("id > 2")
    assert frame.count() == 8
    assert frame.join(frame.withColumnRenamed("delay", "other"), "id").count() == 8
    assert load().count() == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"version": 1}, "option 'version' does not exist; write 'versionAsOf'"),
        ({"versionAsOf": 99}, "version-unknown"),
        ({"tag": "nightly"}, "tag-unknown"),
        ({"snapshotId": 99}, "no addressable version has snapshot id 99"),
        ({"columns": "plane"}, "has no column plane"),
        ({"timestampAsOf": "2001-01-01T00:00:00Z"}, "version-unknown"),
        ({"table": "demo.nothing"}, "no table has this name"),
        ({"writerId": "a"}, "no meaning for a read"),
    ],
)
@pytest.mark.usefixtures("table")
def test_what_cannot_be_read_is_refused_with_its_reason(load: Load, options: dict[str, Any], said: str) -> None:
    with pytest.raises(Exception, match=said):
        load(**options).collect()


def test_a_folder_that_is_not_there_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="there is no such folder"):
        spark.read.format("rootline").option("warehouse", str(tmp_path / "nowhere")).load("demo.flights")


@pytest.mark.usefixtures("table")
def test_the_sessions_settings_stand_behind_the_options(spark: SparkSession, folder: Path) -> None:
    spark.conf.set("spark.rootline.warehouse", str(folder))
    try:
        register(spark)
        assert spark.read.format("rootline").load("demo.flights").count() == 8
    finally:
        spark.conf.unset("spark.rootline.warehouse")
        register(spark)


async def flush(session: Session) -> int:
    """What `rootline worker` does all day, once; the number of entries that moved."""
    worker = WorkerService(store=session.store, log=session.log)
    await worker.look_once()
    report = await worker.carry_out_one()
    return 0 if report is None else report.entries


def test_rows_whose_files_and_vectors_are_in_leaves_are_read_pruned_and_replaced(
    lake: Lake, load: Load, save: Callable[..., None], spark: SparkSession, folder: Path
) -> None:
    properties = {"rootline.flush.data-files": "2"}
    table = lake.create_table("demo.flights", FLIGHTS, partition_by=["carrier"], properties=properties)
    table.append({"id": [1, 2, 3], "carrier": ["UA", "UA", "AA"], "delay": [1.0, 2.0, None]})
    table.delete_where("id = 2")
    assert lake.holder.run(flush) == 3
    table.append({"id": [4], "carrier": ["UA"], "delay": [4.0]})
    assert ids(load()) == [1, 3, 4]
    assert files_planned(reader_of(folder, where="carrier = 'AA'")) == 1
    save(spark.createDataFrame([(9, "DL", 9.0)], "id long, carrier string, delay double"), mode="overwrite")
    assert ids(load()) == [9]
    assert list(table.check()) == []


def test_sql_reads_and_writes_temporary_views_and_tables_of_sparks_catalog_are_refused(
    spark: SparkSession, table: TableHandle, folder: Path
) -> None:
    using = f"USING rootline OPTIONS (path 'demo.flights', warehouse '{folder}')"
    view = f"CREATE OR REPLACE TEMPORARY VIEW flown {using}"
    try:
        spark.sql(view)
        spark.sql("INSERT INTO flown VALUES (9L, 'B6', null)")
        assert ids(spark.table("flown")) == [0, 1, 2, 3, 5, 6, 7, 8], "a view stays at its version"
        spark.sql(view)
        spark.sql("INSERT OVERWRITE flown SELECT id + 100, carrier, delay FROM flown WHERE id > 7")
        spark.sql(view)
        assert ids(spark.sql("SELECT id FROM flown")) == [108, 109]
    finally:
        spark.catalog.dropTempView("flown")
    row = spark.createDataFrame([(1,)], "id long")
    for refused in (
        lambda: spark.sql(f"CREATE TABLE made {using}"),
        lambda: spark.sql(f"CREATE TABLE made {using} AS SELECT 1L AS id"),
        lambda: row.write.format("rootline").saveAsTable("made"),
        lambda: row.writeTo("made").using("rootline").create(),
    ):
        with pytest.raises(AnalysisException, match="create a temporary view"):
            refused()
        assert not spark.catalog.tableExists("made")
    spark.sql(f"CREATE TABLE made (id long) {using}")  # with columns Spark does not ask the source
    try:
        for refused in (lambda: spark.table("made").collect(), lambda: spark.sql("INSERT INTO made VALUES (1L)")):
            with pytest.raises(AnalysisException, match="create a temporary view"):
                refused()
    finally:
        spark.sql("DROP TABLE made")
    assert ids(spark.read.format("rootline").option("warehouse", str(folder)).load("demo.flights")) == [108, 109]


def test_a_relative_warehouse_of_a_session_is_the_folder_of_its_first_use(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spark.conf.set("spark.rootline.warehouse", "./lake")
    try:
        first = session_defaults(spark)
        monkeypatch.chdir("/")
        assert session_defaults(spark) == first
        assert first["warehouse"] == str(tmp_path / "lake")
    finally:
        spark.conf.unset("spark.rootline.warehouse")
