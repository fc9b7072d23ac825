"""Spark reads a table as a stream: what the reader promises, through Spark's own engine and its checkpoint."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from rootline.client.lake import Lake
from tests.spark.file_stream import PATIENCE_S

pytestmark = pytest.mark.spark
Batches = list[list[tuple[Any, ...]]]


@pytest.fixture
def run(spark: SparkSession, folder: Path, tmp_path: Path) -> Callable[..., Batches]:
    """`run("a", changes="true")`: the query with the checkpoint `a`, until it has read what there is."""

    def all_there_is(checkpoint: str, *columns: str, **options: Any) -> Batches:
        found: Batches = []

        def keep(frame: DataFrame, _: int) -> None:
            found.append(sorted(tuple(row) for row in frame.select(*columns).collect()))

        stream = spark.readStream.format("rootline").option("warehouse", str(folder)).options(**options)
        writer = stream.load("demo.flights").writeStream.foreachBatch(keep).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / checkpoint)).start()
        try:
            assert query.awaitTermination(PATIENCE_S)
        finally:
            query.stop()
        return [rows for rows in found if rows]

    return all_there_is


def test_a_query_reads_each_commit_once_whenever_it_is_started(lake: Lake, run: Callable[..., Batches]) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("at", pa.timestamp("us", "UTC"))])
    table = lake.create_table("demo.flights", schema)
    with table.alter() as change:
        change.set_identifier_fields("id")
    for number in range(3):
        table.append({"id": [number], "at": [None]})
    assert run("a", "id", maxFilesPerTrigger=2) == [[(0,), (1,)], [(2,)]]
    assert run("a", "id", maxFilesPerTrigger=2) == []
    table.append({"id": [3], "at": [None]})
    table.overwrite({"id": [2, 4], "at": [dt.datetime(2013, 1, 1, tzinfo=dt.UTC), None]}, where="id = 2")
    shown = ("id", "_change_type")
    assert run("b", *shown, changes="true", startingVersion="latest") == []
    assert run("c", *shown, changes="true", startingVersion=table.head().version) == [
        [(2, "update_postimage"), (2, "update_preimage"), (4, "insert")]
    ]
    with pytest.raises(Exception, match="stream-rows-deleted"):
        run("a", "id")
    assert run("a", "id", onDeletedRows="skip") == [[(2,), (3,), (4,)]]
