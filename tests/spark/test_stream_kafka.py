"""A stream to a lake on Kafka and S3, whose coordinator is a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from rootline.client.lake import Lake
from rootline.spark.data_source import register
from tests.kafka.kafka_lake import KafkaLake
from tests.kafka.rootline_process import RootlineProcess, ending
from tests.services.kafka_service import KafkaService
from tests.services.s3_service import S3Service
from tests.spark.conftest import FLIGHTS
from tests.spark.file_stream import Stream, ids

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
