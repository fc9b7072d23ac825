"""A table in a bucket: Spark's own reader and writer use it through S3A, and what they lack is handed to them."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import tempfile
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyspark.sql import DataFrame, SparkSession
from structlog.testing import capture_logs

import rootline.spark
from rootline.adapters.memory import MemoryIntentLog
from rootline.adapters.s3_object_store import s3_client
from rootline.adapters.system_environment import SystemEnvironment
from rootline.client.lake import Lake
from rootline.client.session import Session
from rootline.client.table_handle import TableHandle
from rootline.connect import connect
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import ObjectKey, TableName
from rootline.schemas.object_keys import OwnKind, own_kind
from rootline.spark import connection, hadoop_bucket, parquet_files
from rootline.spark.options import parse_options
from tests.services.recording_proxy import Fate, recording_proxy
from tests.services.s3_service import SECRET, S3Service
from tests.spark.conftest import FLIGHTS
from tests.spark.file_stream import PATIENCE_S
from tests.spark.test_append import comparable
from tests.spark.test_append_kinds import NESTED, NESTED_DDL, drawn, frame_of
from tests.support.opened_sessions import nothing_known

pytestmark = [pytest.mark.spark, pytest.mark.services]
COLUMNS = "id long, carrier string, delay double"
TABLE = TableName("demo.flights")


class Bucket:
    """A lake in a bucket whose log is in a folder of this test. This process hosts its coordinator."""

    def __init__(self, service: S3Service, folder: Path) -> None:
        self.service, self.prefix = service, folder.name
        self.warehouse, self.log = f"s3://{service.bucket}/{self.prefix}", f"sqlite://{folder / 'log'}"
        self.at = {"warehouse": self.warehouse, "log": self.log}
        self.lake: Lake = connect(self.warehouse, log=self.log)

    def append(self, frame: DataFrame, **how: Any) -> str | None:
        """Append; returns the reason why Spark's own writer did not write, if there is one."""
        with capture_logs() as logs:
            rootline.spark.append(frame, TABLE, **self.at, **how)
        [line] = [line for line in logs if line.get("action") == "spark-append"]
        return line.get("reason")

    def table(self, spark: SparkSession, **how: Any) -> DataFrame:
        return rootline.spark.table(spark, TABLE, **self.at, **how)

    def download(self, location: str, folder: Path) -> Path:
        """A data file of the table, in a folder."""

        async def read(session: Session) -> bytes:
            found = await session.store.get(ObjectKey(f"demo/flights/{location}"))
            assert found is not None
            return found.body

        (file := folder / Path(location).name).write_bytes(self.lake.holder.run(read))
        return file

    def keys(self) -> list[str]:
        """The locations of all objects of the table that Spark's writes left."""

        async def listed(session: Session) -> list[str]:
            found = await session.store.list("demo/flights/data/")
            return [key.removeprefix("demo/flights/") for key in found.keys]

        return self.lake.holder.run(listed)

    async def rest(self) -> tuple[list[str], int]:
        """The names of all objects below `data`, S3A's marks of folders too, and the number of open uploads."""
        place = {"Bucket": self.service.bucket, "Prefix": f"{self.prefix}/demo/flights/data/"}
        async with s3_client(self.service.settings()) as client:
            found = (await client.list_objects_v2(**place)).get("Contents", ())
            uploads = (await client.list_multipart_uploads(**place)).get("Uploads", ())
            names = (item["Key"].removeprefix(place["Prefix"]) for item in found)
            return [name for name in names if name], len(uploads)


@pytest.fixture
def bucket(
    s3_service: S3Service, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bucket]:
    for name, value in s3_service.environment().items():
        monkeypatch.setenv(name, value)
    with monkeypatch.context() as patch:
        for name, value in s3_service.environment().items():
            patch.setitem(spark.sparkContext.environment, name, value)
        rootline.spark.register(spark)  # its Python workers have the settings from now on
        found = Bucket(s3_service, tmp_path)
        with found.lake:
            yield found
            connection.guest_lake(parse_options({"path": TABLE, **found.at})).close()
            connection._guest.cache_clear()
    rootline.spark.register(spark)


@pytest.fixture
def flights(bucket: Bucket) -> TableHandle:
    """An empty table."""
    return bucket.lake.create_table(TABLE, FLIGHTS)


def some(spark: SparkSession, start: int = 0, partitions: int = 2) -> DataFrame:
    rows = [(at, ["UA", "AA", None][at % 3], float(at)) for at in range(start, start + 12)]
    return spark.createDataFrame(rows, COLUMNS).repartition(partitions)


def ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.select("id").collect())


def test_without_s3a_python_reads_and_writes_and_a_line_says_what_is_missing(
    spark: SparkSession, bucket: Bucket, flights: TableHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hadoop_bucket, "_S3A", "org.apache.hadoop.fs.absent.S3A")
    monkeypatch.setattr(hadoop_bucket, "_reached", {})
    reason = bucket.append(some(spark))
    assert reason is not None
    assert "hadoop-aws 3." in reason
    with capture_logs() as logs:
        assert ids(bucket.table(spark)) == list(range(12))
    assert [line["reason"] for line in logs if line.get("action") == "spark-table"] == [reason]


def test_sparks_own_writer_and_reader_use_a_bucket_and_no_plan_shows_a_key(
    s3a: SparkSession, bucket: Bucket, flights: TableHandle
) -> None:
    assert bucket.append(some(s3a)) is None
    places = {task.location for task in flights.scan().plan()}
    assert set(bucket.keys()) == places, "nothing else remains in the bucket"
    assert all(own_kind(place) is OwnKind.DATA_FILE for place in places)
    assert list(flights.check(data_files="all")) == []

    frame = bucket.table(s3a, where="id >= 3")
    shown = frame._jdf.queryExecution().toString()
    assert "FileScan parquet" in shown
    assert "BatchScan" not in shown
    assert ids(frame) == list(range(3, 12))
    assert frame.where("carrier = 'UA'").count() == 3
    assert (bucket.table(s3a).count(), frame.select("id").count()) == (12, 9)
    assert SECRET not in shown


@pytest.mark.parametrize("terms", [["carrier"], ["truncate(5, id)", "carrier"]])
def test_each_file_of_a_partitioned_table_has_a_name_of_its_own(s3a: SparkSession, bucket: Bucket, terms: Any) -> None:
    flights = bucket.lake.create_table(TABLE, FLIGHTS, partition_by=terms)
    assert bucket.append(some(s3a)) is None
    places = [task.location for task in flights.scan().plan()]
    assert sorted(bucket.keys()) == sorted(places)
    assert len({Path(place).name for place in places}) == len(places) > 3
    assert all(own_kind(place) is OwnKind.DATA_FILE for place in places)
    assert list(flights.check(data_files="all")) == []
    assert ids(bucket.table(s3a)) == list(range(12))


@pytest.fixture
def micros(s3a: SparkSession) -> Iterator[None]:
    """A session whose moments Spark's writer may write."""
    s3a.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    yield
    s3a.conf.unset("spark.sql.parquet.outputTimestampType")


@pytest.mark.parametrize("terms", [[], ["truncate(50, id)"]])
def test_lists_and_maps_are_written_with_the_ids_statistics_and_rows_of_our_own_writer(
    s3a: SparkSession, bucket: Bucket, tmp_path: Path, micros: None, terms: Any
) -> None:
    draw = random.Random(7)
    made = [{"id": at, **{field.name: drawn(draw, field.type) for field in list(NESTED)[1:]}} for at in range(120)]
    made += [{"id": 120}, {"id": 121, "stops": [], "grid": [[], None], "codes": [], "by_code": [(1, []), (2, None)]}]
    rows = pa.Table.from_pylist(made, NESTED)
    flights = bucket.lake.create_table(TABLE, NESTED, partition_by=terms)
    ours = bucket.lake.create_table("demo.ours", NESTED, partition_by=terms)
    assert bucket.append(frame_of(s3a, rows, NESTED_DDL)) is None
    ours.append(rows)

    tasks = list(flights.scan().plan())
    assert set(bucket.keys()) == {task.location for task in tasks}, "nothing else remains in the bucket"
    assert len(tasks) == (3 if terms else 1)
    assert comparable(flights.scan().to_arrow()) == comparable(rows)
    statistics = [
        sorted(repr(dict(task.data.content_stats)) for task in table.scan().plan()) for table in (flights, ours)
    ]
    assert statistics[0] == statistics[1]
    assert list(flights.check(data_files="all")) == []
    files = [bucket.download(task.location, tmp_path) for task in tasks]
    for file in files:
        stored = pyarrow_to_schema(pq.read_schema(file))  # every field has an id
        assert stored.as_struct() == flights.definition().schema.as_struct()
    assert comparable(pa.concat_tables(map(pq.read_table, files))) == comparable(rows)
    pq.write_table(rows, tmp_path / "rows.parquet")
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        spark_rows = f"from read_parquet({[*map(str, files)]})"
        own_rows = f"from read_parquet('{tmp_path / 'rows.parquet'}')"
        for one, other in ((spark_rows, own_rows), (own_rows, spark_rows)):
            assert database.sql(f"{one} except all {other}").fetchall() == []
    frame = bucket.table(s3a)
    assert "FileScan parquet" in frame._jdf.queryExecution().toString()
    assert comparable(frame.toArrow().cast(NESTED)) == comparable(rows)


def test_the_store_copies_what_is_long_and_only_the_footer_is_new(
    s3a: SparkSession, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pa.schema([("id", pa.int64()), ("list", pa.list_(pa.float64()))])
    flights = bucket.lake.create_table(TABLE, schema)
    frame = s3a.range(600_000).coalesce(1).selectExpr("id", "array(rand(1), rand(2)) list")
    described, seen, temporary = parquet_files._file, list[list[Path]](), tmp_path / "temporary"

    def watched(*given: Any) -> Any:
        seen.append(list(temporary.iterdir()))
        return described(*given)

    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(parquet_files, "_file", watched)
    assert bucket.append(frame) is None
    assert seen == [[]], "the copy on the disk has no name, so it does not outlive its process"
    [task] = flights.scan().plan()
    assert (task.data.file_size_in_bytes or 0) > 8 * 1024 * 1024
    assert list(flights.check(data_files="all")) == []
    assert bucket.keys() == [task.location]
    sums = ["sum(id)", "sum(bigint(1e9 * (list[0] - list[1])))"]
    assert bucket.table(s3a).selectExpr(*sums).first() == frame.selectExpr(*sums).first()


@pytest.mark.parametrize("place", ["parquet_files.remove_uploads", "parquet_append.commit_append"])
def test_a_driver_that_is_killed_after_the_copies_adds_nothing_and_a_sweep_knows_what_it_left(
    s3a: SparkSession, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    flights = bucket.lake.create_table(TABLE, pa.schema([("id", pa.int64()), ("list", pa.list_(pa.int64()))]))
    frame = s3a.range(12).selectExpr("id", "array(id, 7L) list").repartition(2)

    def killed(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"rootline.spark.{place}", killed)
        with pytest.raises(KeyboardInterrupt):
            bucket.append(frame)
    kept = bucket.keys()
    copies = [key for key in kept if Path(key).parent.name.startswith("spark-write=")]
    assert len(copies) == 2
    assert (len(kept) > len(copies)) is (place == "parquet_files.remove_uploads"), "with the originals"
    assert {own_kind(key) for key in kept} == {OwnKind.DATA_FILE}
    assert flights.head().version == 0
    assert bucket.append(frame) is None
    assert ids(bucket.table(s3a)) == list(range(12))
    assert not {task.location for task in flights.scan().plan()} & set(kept)


async def new_bucket(service: S3Service, name: str) -> S3Service:
    async with s3_client(service.settings()) as client:
        await client.create_bucket(Bucket=name)
    return replace(service, bucket=name)


def test_checksums_that_s3a_sends_are_those_with_which_its_uploads_are_completed(
    s3a: SparkSession, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, conf = f"checksums-{uuid.uuid4()}", s3a.sparkContext._jsc.hadoopConfiguration()
    setting = f"fs.s3a.bucket.{name}.create.checksum.algorithm"
    conf.set(setting, "CRC32C")
    (folder := tmp_path / "with-checksums").mkdir()
    other = Bucket(asyncio.run(new_bucket(bucket.service, name)), folder)
    with other.lake:
        flights = other.lake.create_table(TABLE, FLIGHTS)
        assert other.append(some(s3a)) is None
        assert ids(other.table(s3a)) == list(range(12))
        assert list(flights.check(data_files="all")) == []
        monkeypatch.setattr(hadoop_bucket, "_reached", {})
        conf.set(setting, "CRC64NVME")
        reason = hadoop_bucket.why_unreached(s3a, other.warehouse, to_write=True)
        assert "checksum.algorithm=CRC64NVME" in (reason or "")
        connection.guest_lake(parse_options({"path": TABLE, **other.at})).close()
    conf.unset(setting)


def test_each_batch_of_a_stream_lands_once(
    s3a: SparkSession, bucket: Bucket, flights: TableHandle, tmp_path: Path
) -> None:
    appender = rootline.spark.batch_appender(TABLE, **bucket.at)
    checkpoint = tmp_path / "checkpoint"

    def run() -> None:
        stream = s3a.readStream.schema(COLUMNS).parquet(str(tmp_path / "source")).writeStream.foreachBatch(appender)
        query = stream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        assert query.awaitTermination(PATIENCE_S)

    for number in range(2):
        some(s3a, 12 * number, 1).write.mode("append").parquet(str(tmp_path / "source"))
        run()
        (checkpoint / "commits" / f"{number}").unlink()  # Spark crashed before it noted the end of the batch
        (checkpoint / "commits" / f".{number}.crc").unlink(missing_ok=True)
        run()
        assert ids(bucket.table(s3a)) == list(range(12 * number + 12))


def test_a_job_that_fails_or_is_killed_adds_nothing_and_a_sweep_knows_what_it_left(
    s3a: SparkSession, bucket: Bucket, flights: TableHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = some(s3a).selectExpr("id", "carrier", "if(id = 11, double(raise_error('no such delay')), delay) delay")
    with pytest.raises(Exception, match="no such delay"):
        bucket.append(failing)
    assert asyncio.run(bucket.rest()) == ([], 0), "a job that failed leaves neither objects nor parts"

    def killed(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("rootline.spark.parquet_files.completed_files", killed)
        with pytest.raises(KeyboardInterrupt):
            bucket.append(some(s3a))
    kept = bucket.keys()
    assert [key for key in kept if key.endswith(".pending")], "uploads that were never completed"
    assert {own_kind(key) for key in kept} == {OwnKind.DATA_FILE}
    assert flights.head().version == 0
    assert bucket.append(some(s3a)) is None
    assert ids(bucket.table(s3a)) == list(range(12))


def test_rows_change_and_files_are_compacted_beside_sparks_own_files(
    s3a: SparkSession, bucket: Bucket, flights: TableHandle
) -> None:
    for start in (0, 12):
        assert bucket.append(some(s3a, start)) is None
    assert rootline.spark.delete_where(s3a, TABLE, "id in (3, 20)", **bucket.at).deleted == 2
    assert ids(bucket.table(s3a)) == [at for at in range(24) if at not in (3, 20)]
    packed = rootline.spark.compact(s3a, TABLE, **bucket.at)
    assert (packed.files_before, packed.files_after, packed.rows) == (4, 1, 22)
    frame = bucket.table(s3a)
    assert "FileScan parquet" in frame._jdf.queryExecution().toString()
    values = {"delay": "delay + 1000"}
    changed = rootline.spark.update_where(s3a, TABLE, "id < 2", values, mode="copy-on-write", **bucket.at)
    assert changed.updated == 2
    source = s3a.createDataFrame([(2, 5.0), (99, 7.0)], "id long, delay double")
    merged = rootline.spark.merge_into(s3a, TABLE, source, on=["id"], **bucket.at)
    assert (merged.updated, merged.inserted) == (1, 1)
    rows = {row.id: row.delay for row in bucket.table(s3a, where="id < 3 or id = 99").collect()}
    assert rows == {0: 1000.0, 1: 1001.0, 2: 5.0, 99: 7.0}
    assert list(flights.check(data_files="all")) == []


def test_uploads_of_two_attempts_of_one_task_are_refused(bucket: Bucket) -> None:
    """The first attempt died while it committed, and the second one has other partitions."""
    folder = "demo/flights/data/spark-write=1/__magic_job-rootline/__base"

    def pending(attempt: int, group: int) -> tuple[ObjectKey, bytes]:
        name = f"partition_group={group}/part-00000-a.c000.snappy.parquet"
        own = f"_temporary/0/_temporary/attempt_202611290230_0001_m_000000_{attempt}/{name}"
        stated = {
            "uri": f"s3a://{bucket.service.bucket}/{bucket.prefix}/{folder}/{own}",
            "bucket": bucket.service.bucket,
            "destinationKey": f"{bucket.prefix}/demo/flights/data/spark-write=1/{own}",
            "uploadId": "1",
            "etags": ["a", {"etag": "b"}],
            "length": 4,
        }
        return ObjectKey(f"{folder}/{name}.pending"), json.dumps(stated).encode()

    async def attempted(session: Session) -> None:
        for attempt in (7, 8):
            await session.store.put_if_absent(*pending(attempt, attempt))
        await hadoop_bucket._completed(session, TABLE, "data/spark-write=1")

    with pytest.raises(Invalid, match="next attempt wrote other ones"):
        bucket.lake.holder.run(attempted)


async def test_a_store_that_does_not_answer_some_requests_costs_no_job(s3_service: S3Service) -> None:
    """Each kind of request of the driver fails once, and one upload is completed without an answer."""
    store, place = s3_service.store(), "data/spark-write=1"
    folder, key = f"demo/flights/{place}", ObjectKey(f"demo/flights/{place}/part-0.parquet")
    own = store.url_of(key).removeprefix(f"s3://{s3_service.bucket}/")
    at: dict[str, Any] = {"Bucket": s3_service.bucket, "Key": own}
    client = await store._opened()
    upload = (await client.create_multipart_upload(**at))["UploadId"]
    part = await client.upload_part(**at, UploadId=upload, PartNumber=1, Body=b"rows")
    stated = {
        "uri": "/attempt_202611290230_0001_m_000000_0/",
        "bucket": s3_service.bucket,
        "destinationKey": own,
        "uploadId": upload,
        "etags": [part["ETag"]],
        "length": 4,
    }
    pending = ObjectKey(f"{folder}/__magic_job-rootline/part-0.parquet.pending")
    await store.put_if_absent(pending, json.dumps(stated).encode())
    once = (Fate.ANSWERED_503, Fate.RELAYED)  # LIST, GET, then POST and the HEAD after it
    async with recording_proxy(s3_service.address, *once, *once, *once, Fate.REPLY_LOST) as proxy:
        failing = s3_service.store(own.removesuffix(f"/{key}"), endpoint=proxy.endpoint)
        session = Session(failing, MemoryIntentLog(), SystemEnvironment(), failing.close, nothing_known)
        [file] = await hadoop_bucket._completed(session, TABLE, place)
        await failing.close()
    assert (file.location, file.length) == (f"{place}/part-0.parquet", 4)
    found = await store.get(key)
    await store.close()
    assert found is not None
    assert found.body == b"rows"
    assert " ".join(request.method for request in proxy.requests) == "GET GET GET GET POST HEAD POST HEAD"


def test_a_setting_of_the_session_is_kept_and_what_it_lacks_is_handed_over_without_a_log_line(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    ours = {
        "s3.endpoint": "http://127.0.0.1:1",
        "s3.region": "auto",
        "s3.path-style-access": "true",
        "s3.access-key-id": "a",
        "s3.secret-access-key": SECRET,
    }
    conf.set("fs.s3a.bucket.theirs.endpoint", "http://127.0.0.1:2")
    caplog.set_level(logging.DEBUG)
    for bucket in ("theirs", "ours"):
        hadoop_bucket._hand_over(spark, bucket, ours)
    assert SECRET not in caplog.text, "py4j logs each command at this level"
    caplog.set_level(logging.WARNING)
    try:
        assert conf.get("fs.s3a.bucket.theirs.endpoint") == "http://127.0.0.1:2"
        assert conf.get("fs.s3a.bucket.theirs.path.style.access") is None
        assert conf.get("fs.s3a.bucket.theirs.access.key") == "a"
        assert conf.get("fs.s3a.bucket.ours.endpoint") == "http://127.0.0.1:1"
        assert conf.get("fs.s3a.bucket.ours.endpoint.region") == "auto"
        assert conf.get("fs.s3a.bucket.ours.secret.key") == SECRET
        assert conf.get("fs.s3a.secret.key") != SECRET, "it is for one bucket alone"
        assert conf.get("fs.s3a.bucket.ours.session.token") == "", "or these keys would go with AWS_SESSION_TOKEN"
    finally:
        for setting in (*hadoop_bucket._PLACE, *hadoop_bucket._KEYS):
            for bucket in ("theirs", "ours"):
                conf.unset(f"fs.s3a.bucket.{bucket}.{setting}")


def test_a_thread_that_hands_over_keys_is_quiet_though_another_one_ends(caplog: pytest.LogCaptureFixture) -> None:
    """Many threads append at a time, and each of them may be the first to use the bucket."""
    logger, found = logging.getLogger("py4j.clientserver"), list[bool]()
    begun, ended = Event(), Event()
    caplog.set_level(logging.DEBUG, logger.name)

    def other() -> None:
        with hadoop_bucket._py4j_is_quiet():
            begun.set()
            ended.wait(PATIENCE_S)
            found.append(logger.isEnabledFor(logging.DEBUG))

    with ThreadPoolExecutor(1) as thread:
        with hadoop_bucket._py4j_is_quiet():
            running = thread.submit(other)
            begun.wait(0.5)  # in vain, as the other one waits
        ended.set()
        running.result(PATIENCE_S)
    assert (found, logger.isEnabledFor(logging.DEBUG)) == ([False], True)
