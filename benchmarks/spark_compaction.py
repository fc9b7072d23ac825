"""Compaction on Spark of a table of many small files while it is written to.

Owns: the table, what is written meanwhile, the figures. Does not own: interleaving (`measure`), Spark (`spark_read`),
what a compaction does (`rootline.spark.compact`).
Invariants: every row that was written and not deleted is there afterwards, once; both scans are of the rows of the
many files, at the versions before and after the compaction, in turn.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import rootline
import rootline.spark
from benchmarks.measure import Result, Spread, interleaved, load_average
from benchmarks.spark_session import cpu_seconds, local_session
from rootline.client.data_file_writer import write_files
from rootline.client.table_handle import TableHandle
from rootline.schemas.intent import DataFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rootline.spark import Compaction

FILES: Final = int(os.environ.get("ROOTLINE_BENCH_COMPACT_FILES", "2000"))
_ROWS: Final = 500
_AT_ONCE: Final = 10_000
"""Files that an intent adds: they come in leaves."""
_GROUPS: Final = 16
"""At least: a group has no more than a thousand files."""
_SAMPLES: Final = 5 if FILES <= 5_000 else 1
_YARDSTICK_FILES: Final = 2_000
"""Spark's driver looks at every path that it is given."""
_APPENDS_FOR_EACH_DELETE: Final = 10
_PAUSE_S: Final = float(os.environ.get("ROOTLINE_BENCH_COMPACT_PAUSE_S", "0.25"))
_TABLE: Final = "demo.events"
_SCANNED_FILES: Final = min(FILES, 10_000)
_OLD_ROWS: Final = f"id < {_SCANNED_FILES * _ROWS}"
_FEW_ROWS: Final = f"id >= {FILES // 2 * _ROWS} and id < {(FILES // 2 + 1) * _ROWS}"


def measure() -> list[Result]:
    """One compaction under ingest, and what it does to scans."""
    with tempfile.TemporaryDirectory(prefix="rootline-bench-", dir=".") as name:
        folder = Path(name).resolve()
        with rootline.connect(str(folder)) as lake:
            table = lake.create_table(_TABLE, _rows(0, 0).schema)
            began = time.perf_counter()
            _fill(table, folder)
            print(f"  a table of {FILES:,} files in {time.perf_counter() - began:.1f} s", flush=True)
            spark = local_session()
            try:
                return _measured(spark, table, folder)
            finally:
                spark.stop()


def _measured(spark: SparkSession, table: TableHandle, folder: Path) -> list[Result]:
    before = table.head().version
    files = [str(folder / "demo" / "events" / task.location) for task in table.scan().plan()]
    target = sum(task.data.file_size_in_bytes or 0 for task in table.scan().plan()) // _GROUPS
    spark.range(0, 2, 1, 2).mapInArrow(lambda batches: batches, "id long").count()  # Spark's workers are warm
    with _ingest(table) as written:
        ours = _Cost.begin()
        done = rootline.spark.compact(spark, _TABLE, warehouse=str(folder), target_file_size_bytes=target)
        ours = ours.ended()
    print(f"  compacted in {ours.seconds:.1f} s, {ours.cpu_seconds:.1f} s of CPU: {done}", flush=True)
    _check(table, written)
    theirs = _Cost.begin()
    spark.read.parquet(*files[:_YARDSTICK_FILES]).coalesce(2).write.mode("overwrite").parquet(str(folder / "spark"))
    theirs = theirs.ended(max(1.0, len(files) / _YARDSTICK_FILES))
    after = table.head().version
    results = [_of_compaction(done, ours, theirs, written)]
    for what, where in ((f"scan of {_SCANNED_FILES:,} files' rows", _OLD_ROWS), ("scan of one file's rows", _FEW_ROWS)):
        first, last = len(table.scan(where, version=before).plan()), len(table.scan(where, version=after).plan())
        results.append(_of_scans(what, *_scans(table, where, before, after), first, last))
    return results


@dataclass(frozen=True, slots=True)
class _Cost:
    """Seconds, and CPU seconds of this process, the JVM and the Python workers."""

    seconds: float
    cpu_seconds: float

    @staticmethod
    def begin() -> _Cost:
        return _Cost(time.perf_counter(), cpu_seconds())

    def ended(self, times: float = 1.0) -> _Cost:
        now = _Cost.begin()
        return _Cost((now.seconds - self.seconds) * times, (now.cpu_seconds - self.cpu_seconds) * times)


def _of_compaction(done: Compaction, ours: _Cost, theirs: _Cost, written: _Written) -> Result:
    note = (
        f"{done.files_before:,} files became {done.files_after:,} in {ours.seconds:.1f} s, {len(done.commits)} groups; "
        f"{done.refused} refused, {done.planned_again} planned again, {done.files_left} files left; meanwhile "
        f"{written.appends} appends and {written.deletes} deletes by position; {ours.cpu_seconds:.1f} CPU seconds "
        f"with the ingest and its coordinator, {theirs.cpu_seconds:.1f} of the yardstick"
    )
    yardstick = "Spark reads the same files and writes two, without ingest"
    if FILES > _YARDSTICK_FILES:
        yardstick += f"; by file, of {_YARDSTICK_FILES:,}"
    return Result(
        "14",
        f"compaction on Spark of {FILES:,} files under ingest",
        Spread.of([ours.seconds]),
        Spread.of([theirs.seconds]),
        yardstick,
        ours.seconds / theirs.seconds,
        "",
        load_average(),
        note,
    )


def _of_scans(of: str, after: Spread, before: Spread, first: int, last: int) -> Result:
    note = f"{first:,} files before, {last:,} after; the library's scan of two columns"
    ratio = after.median / before.median
    what = f"{of} after compaction of {FILES:,} files"
    return Result("14", what, after, before, "the version before it", ratio, "< 1", load_average(), note)


class _Written:
    """What the ingest did."""

    def __init__(self) -> None:
        self.appends = 0
        self.deletes = 0


@contextmanager
def _ingest(table: TableHandle) -> Iterator[_Written]:
    """Appends of one file, and now and then a delete of one row of the many files, until the block ends."""
    written, ended = _Written(), threading.Event()
    victims = np.random.default_rng(7).permutation(FILES * _ROWS)

    def run() -> None:
        for number in itertools.count():
            if ended.wait(_PAUSE_S):
                return
            if number % (_APPENDS_FOR_EACH_DELETE + 1) == _APPENDS_FOR_EACH_DELETE:
                table.delete_where(f"id = {victims[written.deletes]}")
                written.deletes += 1
            else:
                table.append(_rows((FILES + written.appends) * _ROWS, _ROWS))
                written.appends += 1

    thread = threading.Thread(target=run, name="ingest")
    thread.start()
    try:
        yield written
    finally:
        ended.set()
        thread.join()


def _check(table: TableHandle, written: _Written) -> None:
    ids = table.scan(None, ["id"]).to_arrow().column("id")
    rows = (FILES + written.appends) * _ROWS - written.deletes
    assert len(ids) == rows, f"{len(ids)} rows, and {rows} were written and not deleted"
    assert pc.count_distinct(ids).as_py() == rows, "a row is there twice"


def _scans(table: TableHandle, where: str, before: int, after: int) -> tuple[Spread, Spread]:
    async def timed(version: int) -> float:
        began = time.perf_counter()
        await asyncio.to_thread(table.scan(where, ["id", "value"], version=version).to_arrow)
        return time.perf_counter() - began

    return asyncio.run(
        interleaved(lambda _: timed(after), lambda _: timed(before), samples=_SAMPLES, warm_up=_SAMPLES // 5)
    )


def _fill(table: TableHandle, folder: Path) -> None:
    definition, fresh = table.definition(), iter(uuid.uuid4, None)
    for start in range(0, FILES, _AT_ONCE):
        added: list[DataFile] = []
        for number in range(start, min(start + _AT_ONCE, FILES)):
            [file] = write_files(_rows(number * _ROWS, _ROWS), definition, fresh)
            place = folder / "demo" / "events" / file.data_file.location
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(file.body)
            added.append(file.data_file)
        table.add_files(added)


def _rows(first: int, count: int) -> pa.Table:
    ids = np.arange(first, first + count)
    names = [f"device {id_ % 97}" for id_ in ids]
    return pa.table({"id": ids, "device": pa.array(names, pa.string()), "value": ids * 0.5, "at": ids * 1_000})
