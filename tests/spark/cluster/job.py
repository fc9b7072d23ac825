"""What the test of a cluster submits: writes and reads a table, and says where its tasks ran, with which code.

Owns: also the deaths of executors in the middle of a write and of a compaction, tasks that run twice at a time, and
what is in the tables afterwards. Does not own: the cluster. Invariants: an executor dies when files of its task are
stored and no one was told of them; what runs on executors is in this file, which Spark sends along.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

import rootline
import rootline.spark
from rootline.spark import parquet_files
from rootline.spark import rewrite_jobs as group_jobs
from rootline.spark.data_source import RootlineDataSource
from rootline.spark.source_writers import BatchWriter

MORTAL = "demo.mortal"
ROWS = 3_000
APPENDED = "demo.appended"
PATIENCE_S = 240.0


def place(_: Iterator[int]) -> Iterator[tuple[str, str]]:
    """Of one task: where the library came from, and the folder of its executor."""
    import rootline

    yield str(rootline.__file__), str(Path.cwd())


def die_once(mark: Path, stored: Path, files: int) -> None:
    """Kill the executor of this task, if none has died yet and so many files are stored."""
    if not mark.exists() or len(list(stored.rglob("*.parquet"))) < files:
        return
    parent = os.getppid()
    while b"java" not in Path(f"/proc/{parent}/cmdline").read_bytes():
        parent = int(Path(f"/proc/{parent}/stat").read_text().rsplit(")", 1)[1].split()[1])
    mark.unlink()
    os.kill(parent, signal.SIGKILL)
    os._exit(9)


class DyingWriter(BatchWriter):
    """A writer one of whose tasks dies. `mark`, `stored`: as `die_once`."""

    mark: Path
    stored: Path

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """On an executor."""
        written = super().write(iterator)
        die_once(self.mark, self.stored, 3)
        return written


class DyingSource(RootlineDataSource):
    """`format("rootline")` with such a writer."""

    def writer(self, schema: StructType, overwrite: bool) -> DyingWriter:
        """For `mode("append")`."""
        super().writer(schema, overwrite)  # makes the table
        return DyingWriter(self._options, self._table.definition, overwrite)


def dying(write: Callable[..., Any], mark: Path, stored: Path, files: int) -> Callable[..., Any]:
    """`write` of a task that dies when so many files are stored."""

    def written(*given: object) -> Any:
        result = write(*given)
        die_once(mark, stored, files)
        return result

    return written


def under_fire(spark: SparkSession, warehouse: Path) -> dict[str, Any]:
    """Append and sort while executors die; the second one has rows that other tasks of the same job still want."""
    mark, stored = warehouse.with_name("mark"), warehouse / MORTAL.replace(".", "/")
    DyingWriter.mark, DyingWriter.stored = mark, stored
    spark.dataSource.register(type("DyingSource", (DyingSource,), {"defaults": {"warehouse": str(warehouse)}}))
    mark.touch()
    rows = spark.range(ROWS, numPartitions=6).selectExpr("id", "hash(id) AS number")
    rows.write.format("rootline").mode("append").option("createTable", True).save(MORTAL)
    with rootline.connect(warehouse, coordinator="elsewhere") as lake:
        table = lake.table(MORTAL)
        appended, died = table.scan(columns=["id", "_row_id"]).to_arrow().sort_by("id"), not mark.exists()
        files = len(table.scan().plan())
        mark.touch()
        group_jobs.write_part = dying(group_jobs.write_part, mark, stored, len(list(stored.rglob("*.parquet"))) + 4)
        done = rootline.spark.compact(spark, MORTAL, strategy="sort", sort_by=["number"], target_file_size_bytes=2_500)
        left = table.scan(columns=["id", "_row_id"]).to_arrow().sort_by("id")
        named = {task.location for task in table.scan().plan()}
    return {
        "ids": appended.column("id").to_pylist(),
        "files": [files, done.files_before, done.files_after, len(named)],
        "orphans": len(list(stored.rglob("*.parquet"))) - files - len(named),
        "same rows": left.equals(appended),
        "died": [died, not mark.exists()],
    }


def troubled(marks: Path) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Of a task: its rows. At their end, one task's executor dies, and another task waits for its twin."""

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        task: Any = TaskContext.get()
        if task.partitionId() == 0:
            die_once(marks / "write", marks, 0)
        if task.partitionId() == 1 and task.attemptNumber() > 0:
            (marks / "twin").touch()
        until_s = time.monotonic() + PATIENCE_S
        while task.partitionId() == 1 and not (marks / "twin").exists() and time.monotonic() < until_s:
            Event().wait(0.01)  # both want to commit then

    return rows


def appended_under_fire(spark: SparkSession, marks: Path, **at: str) -> list[str]:
    """Append by Spark's own writer while executors die, in its job and while files are described. Returns the marks."""
    marks.mkdir()
    for name in ("write", "description"):
        (marks / name).touch()
    rows = spark.range(ROWS, numPartitions=4).selectExpr("id", "array(hash(id)) AS list")
    describe = parquet_files._described
    parquet_files._described = dying(describe, marks / "description", marks, 0)
    vars(parquet_files).update(_DRIVER_BYTES=0, _DRIVER_BYTES_OF_BUCKET=0)  # so that executors describe the files
    rootline.spark.append(rows.mapInArrow(troubled(marks), rows.schema), APPENDED, **at)
    parquet_files._described = describe
    return sorted(mark.name for mark in marks.iterdir())


def main(warehouse: str, bucket: str, log: str) -> None:
    """Write, read by both ways, and print what came out."""
    spark = SparkSession.builder.appName("rootline on a cluster").getOrCreate()
    spark.conf.set("spark.rootline.warehouse", warehouse)
    rootline.spark.register(spark)
    rows = spark.range(1_000, numPartitions=4).selectExpr("id", "concat('C', id % 5) AS carrier")
    rows.write.format("rootline").mode("append").options(createTable=True, partitionedBy="carrier").save("demo.flights")
    read = spark.read.format("rootline").load("demo.flights")
    quick = rootline.spark.table(spark, "demo.flights", where="carrier = 'C2'")
    places = spark.sparkContext.parallelize(range(2), 2).barrier().mapPartitions(place).collect()  # both at a time
    said = {
        "carriers": {row["carrier"]: row["count"] for row in read.groupBy("carrier").count().collect()},
        "sum of C2": quick.selectExpr("sum(id) AS total").collect()[0]["total"],
        "driver": str(rootline.__file__),
        "code": sorted({code for code, _ in places}),
        "executors": sorted({folder for _, folder in places}),
        "under fire": under_fire(spark, Path(warehouse)),
        "marks": [
            appended_under_fire(spark, Path(warehouse).with_name("in-folder"), warehouse=warehouse),
            appended_under_fire(spark, Path(warehouse).with_name("in-bucket"), warehouse=bucket, log=log),
        ],
    }
    spark.stop()
    print("said: " + json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
