"""Goal 14: triggers of a stream into a table beside the same stream into Spark's own Parquet sink.

Owns: the source, the queries and their table. Does not own: the rows (`scan_speed`).
Invariants: queries that are compared read the same files, one a trigger, in one session, in turn; a trigger takes
what Spark itself reports of it; the first triggers of each query, which start workers, do not count.
"""

from __future__ import annotations

import os
import tempfile
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


ROWS: Final = int(os.environ.get("ROOTLINE_BENCH_TRIGGER_ROWS", "50000"))
_TRIGGERS: Final = int(os.environ.get("ROOTLINE_BENCH_TRIGGERS", "12"))
_ROUNDS: Final = int(os.environ.get("ROOTLINE_BENCH_TRIGGER_ROUNDS", "3"))
_WARM_UP: Final = 2
_TABLE: Final = "demo.flights"
_FORMAT: Final = 'format("rootline")'
_APPENDER: Final = "rootline.spark.batch_appender"
_KINDS: Final = (_FORMAT, _APPENDER)


def measure() -> list[Result]:
    """Triggers of `ROWS` rows, with a coordinator in another process than Spark's workers."""
    with tempfile.TemporaryDirectory(prefix="rootline-bench-", dir=".") as name:
        folder = Path(name).resolve()
        (folder / "source").mkdir()
        for at in range(_TRIGGERS + _WARM_UP):
            pq.write_table(flights(ROWS, at * ROWS), folder / "source" / f"{at:05d}.parquet")
        spark = local_session(spark__sql__parquet__outputTimestampType="TIMESTAMP_MICROS")
        try:
            with rootline.connect(str(folder / "lake")) as lake:
                table = lake.create_table(_TABLE, flights(1, 0).schema)
                results = [_compared(spark, folder, kind) for kind in _KINDS]
                assert table.scan().count() == ROWS * (_TRIGGERS + _WARM_UP) * (_ROUNDS + 1) * len(_KINDS)
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
                for durations in found[_WARM_UP:]:
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
    """What each trigger of one query took, phase by phase, in milliseconds."""
    source = folder / "source"
    schema = spark.read.parquet(str(source)).schema
    frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(source))
    writer = frame.writeStream.trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(folder / f"checkpoint-{sink}-{run}"))
    lake = str(folder / "lake")
    if sink == _FORMAT:
        query = writer.format("rootline").option("warehouse", lake).start(_TABLE)
    elif sink == _APPENDER:
        query = writer.foreachBatch(rootline.spark.batch_appender(_TABLE, warehouse=lake)).start()
    else:
        query = writer.format(sink).start(str(folder / f"parquet-{run}"))
    query.awaitTermination()
    found = [progress["durationMs"] for progress in query.recentProgress if progress["numInputRows"]]
    assert len(found) == _TRIGGERS + _WARM_UP
    return found
