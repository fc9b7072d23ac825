"""Goal 13: how soon a scan through Spark with a selective filter starts its first task, in a table of 100,000 files.

Owns: the table, the two ways to scan it, and their times. Does not own: the session (`spark_session`).
Invariants: every file is there, a link to one that was written; what entries state of column `id` is made up, and only
one of them can match; each sample makes its DataFrame again, so that planning counts.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

import rootline
from benchmarks.measure import Result, Spread, load_average
from benchmarks.spark_session import local_session
from rootline.client.data_file_writer import write_files
from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.content_entry import FieldStatistics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES: Final = int(os.environ.get("ROOTLINE_BENCH_SPARK_FILES", "100000"))
_SAMPLES: Final = 5
_ROWS: Final = 100
_FOLDERS: Final = 100
"""With a file each that the others are links to: file systems limit the links to one."""
_GOAL_S: Final = 2.0
_TABLE: Final = "demo.small"
_WHERE: Final = f"id = {FILES // 2 * _ROWS + 1}"


def measure() -> list[Result]:
    """By `format("rootline")` and by `rootline.spark.table`."""
    with tempfile.TemporaryDirectory(prefix="rootline-bench-", dir=".") as name:
        folder = Path(name).resolve()
        _make_table(folder)
        spark = local_session()

        def source() -> DataFrame:
            reader = spark.read.format("rootline").option("warehouse", str(folder)).option("where", _WHERE)
            return reader.load(_TABLE)

        def table() -> DataFrame:
            return rootline.spark.table(spark, _TABLE, where=_WHERE, warehouse=str(folder))

        try:
            return [_measured(spark, 'format("rootline")', source), _measured(spark, "rootline.spark.table", table)]
        finally:
            spark.stop()


def _make_table(folder: Path) -> None:
    rows = pa.table({"id": pa.array([7] * _ROWS, pa.int64()), "value": pa.array(range(_ROWS), pa.int64())})
    with rootline.connect(str(folder)) as lake:
        table = lake.create_table(_TABLE, rows.schema)
        definition = table.definition()
        (written,) = write_files(rows, definition, iter(uuid.uuid4, None))
        data = folder / "demo" / "small" / "data"
        codec = EntryCodec.of_definition(definition).statistics
        value = codec.decode(written.data_file.content_stats or b"")[0][2]
        files = []
        for number in range(FILES):
            place = data / f"{number % _FOLDERS:03d}" / f"{number}.parquet"
            if number < _FOLDERS:
                place.parent.mkdir(parents=True)
                place.write_bytes(written.body)
            else:
                place.hardlink_to(place.with_name(f"{number % _FOLDERS}.parquet"))
            stated = FieldStatistics(number * _ROWS, (number + 1) * _ROWS - 1, True, _ROWS, 0)
            update = {
                "location": f"data/{place.parent.name}/{place.name}",
                "content_stats": codec.encode({1: stated, 2: value}),
            }
            files.append(written.data_file.model_copy(update=update))
        table.add_files(files, timeout_s=300)


def _measured(spark: SparkSession, way: str, opened: Callable[[], DataFrame]) -> Result:
    seconds = [_until_first_task(spark, opened) for _ in range(_SAMPLES + 1)][1:]
    spread = Spread.of(seconds)
    return Result(
        "13",
        f"selective scan of {FILES:,} files, {way}: until its first task",
        spread,
        None,
        "2 s",
        spread.median / _GOAL_S,
        "≤ 1",
        load_average(),
    )


def _until_first_task(spark: SparkSession, opened: Callable[[], DataFrame]) -> float:
    group, tracker = uuid.uuid4().hex, spark.sparkContext.statusTracker()

    def scanned() -> None:
        spark.sparkContext.setJobGroup(group, group)
        opened().collect()

    began = time.perf_counter()
    scan = threading.Thread(target=scanned)
    scan.start()
    while scan.is_alive():
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        if any(stage is not None and stage.numActiveTasks + stage.numCompletedTasks > 0 for stage in stages):
            break
        time.sleep(0.002)
    taken = time.perf_counter() - began
    scan.join()
    return taken
