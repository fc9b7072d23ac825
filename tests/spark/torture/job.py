"""What a driver does, as a program of its own: its streams, then its changes of rows, again and again.

Owns: the loop, both ways to write a stream. Does not own: the sources, when it dies. Invariants: it ends by itself only
after a round that began when it was told that this is the last one; a change of rows has a number, which is noted once
it is done; what a stream's batch adds follows from its rows alone, so a replayed one adds the same.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import rootline.spark
from rootline.spark.hadoop_bucket import why_unreached
from tests.spark.machine.s3a_software import add_s3a, s3a_jars
from tests.spark.torture.killing_source import (
    GROUP_VARIABLE,
    KillingSource,
    Phase,
    die_at,
    is_next,
    losing_executor,
    make_mortal,
)

COUNTERS: Final = "torture.counters"
MERGED: Final = "torture.merged"
MERGED_KEYS: Final = 30
MERGED_ROWS: Final = 10
ROWS_OF_LEVEL: Final = 120
"""A stream whose rows grow has one more column after so many rows."""
_PATIENCE_S: Final = 180
PATIENCE: Final[dict[str, Any]] = {"verdictTimeoutMs": str(1000 * _PATIENCE_S)}


class Lane(StrEnum):
    """How a driver writes its streams. `SINK`: by `format("rootline")`. `APPENDER`: by `batch_appender`, whose files
    Spark's own writer uploads through S3A.
    """

    SINK = "sink"
    APPENDER = "appender"


@dataclass(frozen=True)
class StreamJob:
    """A stream from a folder to a table, by its name. `options`: of the sink. `grows`: its rows get columns."""

    name: str
    source: str
    columns: str
    checkpoint: str
    table: str
    options: dict[str, str]
    grows: bool = False


@dataclass(frozen=True)
class Job:
    """`name` also names the writer of its changes of rows; their numbers are in `done`. `…_mark`: files that talk."""

    name: str
    number: int
    lane: Lane
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
        streams = tuple(StreamJob(**stream) for stream in given["streams"])
        return Job(**{**given, "streams": streams, "lane": Lane(given["lane"])})


def session(master: str, lane: Lane) -> SparkSession:
    """A driver's own, as small as can be."""
    os.environ[GROUP_VARIABLE] = str(os.getpgid(0))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "ui.enabled": "false",
        "ui.showConsoleProgress": "false",
        "driver.host": "127.0.0.1",
        "driver.bindAddress": "127.0.0.1",
        "python.daemon.module": "rootline.spark.daemon",
        "sql.shuffle.partitions": "1",
        "executor.memory": "512m",
        "executor.extraJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", ""),
        "sql.codegen.wholeStage": "false",
        "sql.codegen.factoryMode": "NO_CODEGEN",
    }
    if lane is Lane.APPENDER:
        settings["executor.extraClassPath"] = os.pathsep.join(map(str, s3a_jars()))
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(f"spark.{name}", value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    rootline.spark.register(spark)
    if lane is Lane.APPENDER:
        add_s3a(spark)
        reason = why_unreached(spark, os.environ["ROOTLINE_WAREHOUSE"], to_write=True)
        assert reason is None, reason
    spark.dataSource.register(KillingSource)  # in the place of the one that `register` knows
    return spark


def started(spark: SparkSession, stream: StreamJob, lane: Lane) -> StreamingQuery:
    """Until all that is in the source is in the table."""
    rows = spark.readStream.schema(stream.columns).option("maxFilesPerTrigger", 1).json(stream.source)
    writer = rows.writeStream.queryName(stream.name).option("checkpointLocation", stream.checkpoint)
    writer = writer.trigger(availableNow=True)
    if lane is Lane.SINK:
        return writer.format("rootline").options(**PATIENCE, **stream.options).start(stream.table)
    return writer.foreachBatch(appender(stream)).start()


def appender(stream: StreamJob) -> Callable[[DataFrame, int], None]:
    """`batch_appender` under the stream's name, of batches that may not come to their end."""
    append = rootline.spark.batch_appender(
        stream.table, writer_id=stream.name, timeout_s=_PATIENCE_S, merge_schema=stream.grows
    )

    def append_batch(frame: DataFrame, number: int) -> None:
        die_at(Phase.BEFORE_FILES)
        rows = grown(frame) if stream.grows else frame
        append(rows.mapInArrow(losing_executor, rows.schema) if is_next(Phase.EXECUTOR) else rows, number)

    return append_batch


def grown(frame: DataFrame) -> DataFrame:
    """Rows with a column for each level that they have reached; the newest is an int, and a long from the next on."""
    [row] = frame.selectExpr(f"coalesce(max(number), 0) div {ROWS_OF_LEVEL} AS level").collect()
    kinds = ["BIGINT"] * (row.level - 1) + ["INT"]
    return frame.selectExpr("*", *(f"CAST(number + {at} AS {kinds[at]}) AS g{at}" for at in range(row.level)))


def change_rows(spark: SparkSession, job: Job) -> None:
    """One more change of its own rows, and what is doomed goes; both do harm if they land twice or are lost."""
    done = Path(job.done)
    number = int(done.read_text()) if done.exists() else 0
    mode: Any = "copy-on-write" if number % 2 else "merge-on-read"
    named: dict[str, Any] = {"writerId": job.name, "writerSequence": number, "isolationLevel": "snapshot", **PATIENCE}
    if job.lane is Lane.SINK:
        rootline.spark.update_where(spark, COUNTERS, "true", {"n": "n + 1"}, mode=mode, **named)
    else:
        source = spark.range(MERGED_ROWS).selectExpr(
            f"{1000 * job.number} + (7 * {number} + id) % {MERGED_KEYS} AS key",
            f"100 * {number} + id AS value",
            f"({number} + id) % 4 = 0 AS doomed",
        )
        merge = rootline.spark.merge(spark, MERGED, source, on=["key"], mode=mode, **named)
        merge = merge.when_matched("source.doomed").delete()
        merge = merge.when_matched().update({"value": "source.value", "times": "target.times + 1"})
        new = {"key": "source.key", "value": "source.value", "times": "1L"}
        merge.when_not_matched("NOT source.doomed").insert(new).execute()
    hidden = done.with_suffix(".next")
    hidden.write_text(str(number + 1))
    hidden.rename(done)
    rootline.spark.delete_where(spark, job.deletes_from, job.doomed, isolationLevel="snapshot", **PATIENCE)


def main(text: str) -> None:
    """Rounds until the last one."""
    job = Job.parse(text)
    spark = session(job.master, job.lane)
    make_mortal()
    is_last = False
    while not is_last:
        is_last = Path(job.last_mark).exists()
        queries = [started(spark, stream, job.lane) for stream in job.streams]
        Path(job.begun_mark).touch()
        for query in queries:
            query.awaitTermination()
        change_rows(spark, job)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
