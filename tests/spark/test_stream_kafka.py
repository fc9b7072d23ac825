"""Streams, changes of rows and compactions on a lake on Kafka and S3, whose coordinator is a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import rootline.spark
from rootline.client.lake import Lake
from rootline.spark import connection
from rootline.spark.data_source import register
from rootline.spark.options import parse_options
from tests.kafka.kafka_lake import KafkaLake
from tests.kafka.rootline_process import RootlineProcess, ending
from tests.services.kafka_service import KafkaService
from tests.services.s3_service import S3Service
from tests.spark.conftest import FLIGHTS
from tests.spark.file_stream import PATIENCE_S, Stream, ids

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.slow]


@pytest.fixture
def address(kafka_service: KafkaService, s3_service: S3Service) -> KafkaLake:
    """A lake of this test."""
    return KafkaLake(s3_service, kafka_service.with_topics(partitions=2))


@pytest.fixture
def lake(address: KafkaLake, spark: SparkSession) -> Iterator[Lake]:
    """The lake for this process; and Spark's Python workers have its settings in their environment."""
    variables = spark.sparkContext.environment
    before = dict(variables)
    variables.update(address.environment())
    register(spark)
    with address.client() as opened:
        yield opened
    variables.clear()
    variables.update(before)
    register(spark)


@pytest.fixture
def coordinator(address: KafkaLake, tmp_path: Path) -> Iterator[RootlineProcess]:
    """One that was not started yet."""
    process = RootlineProcess("coordinator", ("coordinator", "--http-port", "0"), address.environment(), tmp_path)
    with ending(process):
        yield process


@pytest.fixture
def driver(address: KafkaLake, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The settings are the driver's own too; what it opens by them ends before its broker does."""
    for name, value in address.environment().items():
        monkeypatch.setenv(name, value)
    yield
    connection.guest_lake(parse_options({"path": "demo.flights"})).close()
    connection._guest.cache_clear()


@pytest.fixture
def stream(spark: SparkSession, address: KafkaLake, tmp_path: Path) -> Stream:
    """A stream with nothing in its source yet."""
    return Stream(spark, address.warehouse, tmp_path / "stream")


def test_batches_over_kafka_and_s3_land_once_however_often_they_are_sent(
    lake: Lake, address: KafkaLake, coordinator: RootlineProcess, stream: Stream, spark: SparkSession
) -> None:
    log = address.kafka.url
    coordinator.start()
    coordinator.wait_ready()
    table = lake.create_table("demo.flights", FLIGHTS, partition_by=["carrier"])
    stream.drop(1)
    stream.drop(2)
    stream.run(log=log)
    stream.forget_last_commit()  # Spark crashed before it noted that batch 1 was done
    stream.drop(3)
    stream.run(log=log)
    assert (ids(table), table.head().totals.data_files) == ([1, 2, 3], 3)

    coordinator.kill()
    stream.drop(4)
    with pytest.raises(StreamingQueryException, match="verdict-timeout"):
        stream.run(log=log, verdictTimeoutMs=1000)  # published, and nobody there to decide it
    coordinator.start()
    coordinator.wait_ready()
    stream.run(log=log)
    assert (ids(table), table.head().totals.data_files) == ([1, 2, 3, 4], 4)
    assert list(table.check()) == []

    rows = spark.createDataFrame([(9, "AA", None)], "id long, carrier string, delay double")
    rows.write.format("rootline").mode("overwrite").save("demo.flights")  # warehouse and log by the environment
    assert spark.read.format("rootline").load("demo.flights").count() == 1


def test_rows_change_and_files_are_compacted_on_kafka_and_s3_and_a_stream_of_changes_tells_the_rows(
    lake: Lake,
    address: KafkaLake,
    coordinator: RootlineProcess,
    spark: SparkSession,
    tmp_path: Path,
    driver: None,
) -> None:
    coordinator.start()
    coordinator.wait_ready()
    table = lake.create_table("demo.flights", FLIGHTS)
    for at in range(4):
        table.append([{"id": at, "carrier": "UA", "delay": float(at)}, {"id": 10 + at, "carrier": "AA", "delay": 0.0}])
    start = table.head().version
    assert rootline.spark.delete_where(spark, "demo.flights", "id = 13").deleted == 1
    packed = rootline.spark.compact(spark, "demo.flights")
    assert (packed.files_before, packed.files_after, packed.rows) == (4, 1, 7)
    values = {"delay": "delay + 1"}
    assert rootline.spark.update_where(spark, "demo.flights", "id < 2", values, mode="copy-on-write").updated == 2
    source = spark.createDataFrame([(2, 5.0), (7, 7.0)], "id long, delay double")
    merged = rootline.spark.merge_into(spark, "demo.flights", source, on=["id"])
    assert (merged.updated, merged.inserted) == (1, 1)
    assert rootline.spark.table(spark, "demo.flights", where="carrier = 'UA'", columns=["id", "delay"]).count() == 4

    reader = spark.readStream.format("rootline").options(changes=True, startingVersion=start + 1)
    writer = reader.load("demo.flights").writeStream.format("json").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(tmp_path / "changes"))
    assert query.awaitTermination(PATIENCE_S)
    told = spark.read.json(str(tmp_path / "changes")).selectExpr("_change_type", "id", "delay").collect()
    assert sorted(map(tuple, told)) == [
        ("delete", 0, 0.0),
        ("delete", 1, 1.0),
        ("delete", 2, 2.0),
        ("delete", 13, 0.0),
        ("insert", 0, 1.0),
        ("insert", 1, 2.0),
        ("insert", 2, 5.0),
        ("insert", 7, 7.0),
    ]
    assert list(table.check()) == []
