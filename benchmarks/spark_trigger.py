"""Goal 14: triggers of a stream into a table beside the same stream into Spark's own Parquet sink.

Owns: the source, the queries and their table. Does not own: the rows (`scan_speed`).
Invariants: queries that are compared read the same files, one a trigger, in one session, in turn; a trigger takes
what Spark itself reports of it; the first triggers of each query, which start workers, do not count.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow.parquet as pq

import rootline
import rootline.spark
from benchmarks.measure import Result, Spread, load_average
from benchmarks.scan_speed import flights
from benchmarks.spark_session import cpu_seconds, local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery


ROWS: Final = int(os.environ.get("ROOTLINE_BENCH_TRIGGER_ROWS", "50000"))
TRIGGERS: Final = int(os.environ.get("ROOTLINE_BENCH_TRIGGERS", "12"))
_ROUNDS: Final = int(os.environ.get("ROOTLINE_BENCH_TRIGGER_ROUNDS", "3"))
WARM_UP: Final = 2
_TABLE: Final = "demo.flights"
_FORMAT: Final = 'format("rootline")'
_APPENDER: Final = "rootline.spark.batch_appender"
_KINDS: Final = (_FORMAT, _APPENDER)


def measure() -> list[Result]:
    """Triggers of `ROWS` rows, with a coordinator in another process than Spark's workers."""
    with tempfile.TemporaryDirectory(prefix="rootline-bench-", dir=".") as name:
        folder = Path(name).resolve()
        write_source(folder / "source")
        spark = local_session(spark__sql__parquet__outputTimestampType="TIMESTAMP_MICROS")
        try:
            with rootline.connect(str(folder / "lake")) as lake:
                table = lake.create_table(_TABLE, flights(1, 0).schema)
                results = [_compared(spark, folder, kind) for kind in _KINDS]
                assert table.scan().count() == ROWS * (TRIGGERS + WARM_UP) * (_ROUNDS + 1) * len(_KINDS)
                return results
        finally:
            spark.stop()


def _compared(spark: SparkSession, folder: Path, kind: str) -> Result:
    seconds: tuple[list[float], list[float]] = ([], [])
    cpu = [0.0, 0.0]
    phases: list[dict[str, float]] = [{}, {}]
    for number in range(_ROUNDS + 1):
        for which, sink in enumerate((kind, "parquet")):
            began_cpu = cpu_seconds()
            found = _triggers(spark, folder, sink, f"{kind.split('.')[-1]}-{number}")
            if number:  # the first round warms up
                cpu[which] += cpu_seconds() - began_cpu
                for durations in found[WARM_UP:]:
                    seconds[which].append(durations["triggerExecution"] / 1000)
                    for phase, ms in durations.items():
                        phases[which][phase] = phases[which].get(phase, 0.0) + ms
    ours, theirs = Spread.of(seconds[0]), Spread.of(seconds[1])
    shown = [
        ", ".join(f"{phase} {total / len(seconds[0]):.0f}" for phase, total in sorted(found.items()))
        for found in phases
    ]
    note = (
        f"p99 {ours.p99 / theirs.p99:.2f} ×; by minimum {ours.minimum / theirs.minimum:.2f} ×; "
        f"CPU {cpu[0] / cpu[1]:.2f} ×; ms on average: {shown[0]}; of Parquet: {shown[1]}"
    )
    what = f"trigger of {ROWS:,} rows, {kind}"
    ratio = ours.median / theirs.median
    return Result("14", what, ours, theirs, 'writeStream.format("parquet")', ratio, "≤ 1.3", load_average(), note)


def _triggers(spark: SparkSession, folder: Path, sink: str, run: str) -> list[dict[str, int]]:
    """As `triggers_of`, of one query."""
    lake = str(folder / "lake")

    def start(writer: DataStreamWriter) -> StreamingQuery:
        if sink == _FORMAT:
            return writer.format("rootline").option("warehouse", lake).start(_TABLE)
        if sink == _APPENDER:
            return writer.foreachBatch(rootline.spark.batch_appender(_TABLE, warehouse=lake)).start()
        return writer.format(sink).start(str(folder / f"parquet-{run}"))

    return triggers_of(spark, folder / "source", folder / f"checkpoint-{sink}-{run}", start)


def write_source(folder: Path) -> None:
    """A file of `ROWS` rows for each trigger."""
    folder.mkdir()
    for at in range(TRIGGERS + WARM_UP):
        pq.write_table(flights(ROWS, at * ROWS), folder / f"{at:05d}.parquet")


def triggers_of(
    spark: SparkSession, source: Path, checkpoint: Path, start: Callable[[DataStreamWriter], StreamingQuery]
) -> list[dict[str, int]]:
    """What each trigger of a query took, phase by phase, in milliseconds; the first `WARM_UP` are to be left out."""
    schema = spark.read.parquet(str(source)).schema
    frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(source))
    query = start(frame.writeStream.trigger(availableNow=True).option("checkpointLocation", str(checkpoint)))
    query.awaitTermination()
    found = [progress["durationMs"] for progress in query.recentProgress if progress["numInputRows"]]
    assert len(found) == TRIGGERS + WARM_UP
    return found
