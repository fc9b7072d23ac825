"""What a driver does, as a program of its own: its streams, then its changes of rows, again and again.

Owns: the loop. Does not own: the sources, when it dies. Invariants: it ends by itself only after a round that began
when it was told that this is the last one; a change of rows has a number, which is noted once it is done.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import rootline.spark
from tests.spark.torture.killing_source import GROUP_VARIABLE, KillingSource

COUNTERS: Final = "torture.counters"
PATIENCE: Final[dict[str, Any]] = {"verdictTimeoutMs": "180000"}


@dataclass(frozen=True)
class StreamJob:
    """A stream from a folder to a table. `options`: of the write."""

    source: str
    columns: str
    checkpoint: str
    table: str
    options: dict[str, str]


@dataclass(frozen=True)
class Job:
    """`name` also names the writer of its changes of rows; their numbers are in `done`. `…_mark`: files that talk."""

    name: str
    streams: tuple[StreamJob, ...]
    deletes_from: str
    doomed: str
    done: str
    begun_mark: str
    last_mark: str
    master: str

    def to_json(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))

    @staticmethod
    def parse(text: str) -> Job:
        """What `to_json` gave."""
        given = json.loads(text)
        return Job(**{**given, "streams": tuple(StreamJob(**stream) for stream in given["streams"])})


def session(master: str) -> SparkSession:
    """A driver's own, as small as can be."""
    os.environ[GROUP_VARIABLE] = str(os.getpgid(0))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "ui.enabled": "false",
        "ui.showConsoleProgress": "false",
        "driver.host": "127.0.0.1",
        "driver.bindAddress": "127.0.0.1",
        "sql.shuffle.partitions": "1",
        "executor.memory": "512m",
        "sql.codegen.wholeStage": "false",
        "sql.codegen.factoryMode": "NO_CODEGEN",
    }
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(f"spark.{name}", value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    rootline.spark.register(spark)
    spark.dataSource.register(KillingSource)  # in the place of the one that `register` knows
    return spark


def started(spark: SparkSession, stream: StreamJob) -> StreamingQuery:
    """Until all that is in the source is in the table."""
    rows = spark.readStream.schema(stream.columns).option("maxFilesPerTrigger", 1).json(stream.source)
    writer = rows.writeStream.format("rootline").options(**PATIENCE, **stream.options)
    return writer.option("checkpointLocation", stream.checkpoint).trigger(availableNow=True).start(stream.table)


def change_rows(spark: SparkSession, job: Job) -> None:
    """One more for each counter, and what is doomed goes; both would do harm if they landed twice or were lost."""
    done = Path(job.done)
    number = int(done.read_text()) if done.exists() else 0
    named: dict[str, Any] = {"writerId": job.name, "writerSequence": number, "isolationLevel": "snapshot", **PATIENCE}
    rootline.spark.update_where(
        spark,
        COUNTERS,
        "true",
        {"n": "n + 1"},
        mode="copy-on-write" if number % 2 else "merge-on-read",
        **named,
    )
    hidden = done.with_suffix(".next")
    hidden.write_text(str(number + 1))
    hidden.rename(done)
    rootline.spark.delete_where(spark, job.deletes_from, job.doomed, isolationLevel="snapshot", **PATIENCE)


def main(text: str) -> None:
    """Rounds until the last one."""
    job = Job.parse(text)
    spark = session(job.master)
    is_last = False
    while not is_last:
        is_last = Path(job.last_mark).exists()
        queries = [started(spark, stream) for stream in job.streams]
        Path(job.begun_mark).touch()
        for query in queries:
            query.awaitTermination()
        change_rows(spark, job)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
