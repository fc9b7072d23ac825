"""Many small appends at once into one table: how long until all are there, and what it took.

Owns: the writers, which are threads of one driver; counting what failed and what was tried again. Does not own: how a
side appends (`sides`).
Invariants: all sides append the same rows, in turn, each round into a table of its own; a writer whose append failed
does it again until it has landed, as a job would; afterwards every side has the same rows.

Iceberg commits by writing new metadata on top of the version that it read, and swapping it in if that version is still
the newest; otherwise it tries again after a pause, `commit.retry.num-retries` (4) times, and then the append fails. So
it is measured as it is, with that setting raised, and with both the setting raised and the quickest catalog that there
can be: a map in the driver's own memory.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Barrier
from typing import TYPE_CHECKING, Final

import pyarrow.parquet as pq

from benchmarks.iceberg_runtime.places import Places
from benchmarks.iceberg_runtime.sides import IN_MEMORY, IcebergSide, RootlineSide, Side, SparkWriterSide, rows_of
from benchmarks.iceberg_runtime.turns import Times, cpu_of_all
from benchmarks.measure import Result, Spread
from benchmarks.scan_speed import flights

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WRITERS: Final = int(os.environ.get("ROOTLINE_BENCH_SPARK_WRITERS", "8"))
_APPENDS: Final = int(os.environ.get("ROOTLINE_BENCH_WRITER_APPENDS", "24"))
"""Of all writers together."""
_ROWS: Final = 1_000
_ROUNDS: Final = int(os.environ.get("ROOTLINE_BENCH_WRITER_ROUNDS", "2"))
_TRIES: Final = 50
_PATIENCE_S: Final = 120.0
_CONFLICT: Final = "CommitFailedException"
_RAISED: Final = {"commit.retry.num-retries": "100"}


@dataclass(slots=True)
class Course:
    """All rounds of one side with one number of writers."""

    whole: Times = field(default_factory=Times)
    appends: list[float] = field(default_factory=list)
    failed: int = 0
    """Appends that the format gave up."""
    retried: int = 0
    """Tries of Iceberg's commits beyond the first, of those that landed."""

    def told(self) -> str:
        """What its appends waited for and met."""
        each = Spread.of(self.appends)
        return (
            f"an append takes {1000 * each.median:.0f} ms, p99 {1000 * each.p99:.0f}; {len(self.appends)} "
            f"appends, {self.failed} tries of them failed and were done again"
        )


def compare_many_writers(spark: SparkSession, places: Places) -> list[Result]:
    """One writer, and `WRITERS`; as many appends either way."""
    folder = places.root / "small"
    folder.mkdir()
    for number in range(_APPENDS):
        pq.write_table(flights(_ROWS, number * _ROWS), folder / f"{number:03d}.parquet")
    frames = [spark.read.parquet(str(path)) for path in sorted(folder.iterdir())]
    expected = rows_of(spark.read.parquet(str(folder)))
    every: tuple[Side, ...] = (
        RootlineSide(spark, places),
        SparkWriterSide(spark, places),
        IcebergSide(spark, places),
        IcebergSide(spark, places, name="Iceberg, 100 retries", properties=_RAISED),
        IcebergSide(spark, places, IN_MEMORY, "Iceberg, 100 retries, catalog in memory", _RAISED),
    )
    results = []
    # alone no one has to try again, and settings of that change nothing
    for writers, sides in ((1, every[:3]), (WRITERS, every)):
        courses = {side.name: Course() for side in sides}
        for number in range(_ROUNDS + 1):
            for at, side in enumerate(sides):
                table = f"shared.side_{at}_of_{writers}_round_{number}"
                side.create(table)
                course = courses[side.name] if number else Course()  # the first round warms up
                _round(spark, side, table, frames, writers, course)
                found = rows_of(side.read(table))
                assert found == expected, (side.name, found, expected)
        results += _told(writers, sides, courses)
    return results


def _round(spark: SparkSession, side: Side, table: str, frames: list[DataFrame], writers: int, course: Course) -> None:
    begins: list[tuple[float, float]] = []
    together = Barrier(writers, lambda: begins.append((time.perf_counter(), cpu_of_all())))

    def write(mine: list[DataFrame]) -> tuple[list[float], int]:
        spark.createDataFrame([], "nothing int")  # else this thread has no session, which data sources belong to
        together.wait(_PATIENCE_S)
        seconds, failed = [], 0
        for frame in mine:
            began = time.perf_counter()
            failed += _landed(side, frame, table)
            seconds.append(time.perf_counter() - began)
        return seconds, failed

    with ThreadPoolExecutor(writers) as pool:
        found = list(pool.map(write, [frames[first::writers] for first in range(writers)]))
    [(began, began_cpu)] = begins
    course.whole.add([time.perf_counter() - began], cpu_of_all() - began_cpu)
    for seconds, failed in found:
        course.appends += seconds
        course.failed += failed
    if isinstance(side, IcebergSide):
        course.retried += sum(attempt - 1 for attempt in side.attempts(table))


def _landed(side: Side, frame: DataFrame, table: str) -> int:
    """Append until it is there; how often that failed for others' sake."""
    for failed in range(_TRIES):
        try:
            side.append(frame, table)
        except Exception as error:
            if _CONFLICT not in str(error):
                raise
        else:
            return failed
    raise RuntimeError(f"{side.name} did not commit an append in {_TRIES} tries")


def _told(writers: int, sides: tuple[Side, ...], courses: dict[str, Course]) -> list[Result]:
    who = "1 writer" if writers == 1 else f"{writers} writers at once"
    what = f"{_APPENDS} appends of {_ROWS:,} rows into one table, {who}"
    ours = [side.name for side in sides if not isinstance(side, IcebergSide)]
    theirs = [side.name for side in sides if isinstance(side, IcebergSide)]
    return [
        courses[mine].whole.beside(
            courses[other].whole,
            "–",
            f"{what}, {mine}",
            other,
            "–",
            courses[mine].told(),
            f"{other}: {courses[other].told()}, and commits were tried again {courses[other].retried} times",
        )
        for mine in ours
        for other in theirs
    ]
