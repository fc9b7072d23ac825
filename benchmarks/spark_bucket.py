"""Reads and appends of a table in a bucket through Spark, beside Spark's own Parquet in the same bucket over S3A.

Owns: the bucket and its tables. Does not own: the queries (`spark_read`), interleaving (`measure`), the store
(`tests.services`), Hadoop's jars (`tests.spark.machine`).
Invariants: subject and yardstick use one Spark and one store, in turn. The yardstick's writes have Hadoop's committer,
which renames.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow.parquet as pq
import pytest

import rootline
import rootline.spark
from benchmarks.far_services import far_store
from benchmarks.measure import Result, interleaved, load_average
from benchmarks.scan_speed import flights
from benchmarks.spark_read import ROWS, TABLE, make_table, measured
from benchmarks.spark_session import local_session
from tests.services.s3_service import running_s3
from tests.spark.machine.s3a_software import s3a_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from rootline.client.lake import Lake

_ADDED_MS: Final = int(os.environ.get("ROOTLINE_BENCH_S3_MS", "0"))
_SAMPLES: Final = int(os.environ.get("ROOTLINE_BENCH_SPARK_SAMPLES", "5"))
_FILE_ROWS: Final = 1_000_000
_Append = Callable[["DataFrame", str], None]


def measure() -> list[Result]:
    """The queries of `spark_read`, and appends with and without partitions."""
    with ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="rootline-bench-")))
        service = ends.enter_context(far_store(_ADDED_MS) if _ADDED_MS else running_s3(folder / "s3"))
        patch = ends.enter_context(pytest.MonkeyPatch.context())
        for name, value in service.environment().items():
            patch.setenv(name, value)
        warehouse, log = f"s3://{service.bucket}/bench", f"sqlite://{folder / 'log'}"
        lake = ends.enter_context(rootline.connect(warehouse, log=log))
        make_table(lake, ROWS)
        jars = ",".join(map(str, s3a_jars()))
        settings = {"spark__jars": jars, "spark__sql__parquet__outputTimestampType": "TIMESTAMP_MICROS"}
        spark = local_session(**settings)
        ends.callback(spark.stop)
        tasks = lake.table(TABLE).scan().plan()
        paths = [f"s3a://{service.bucket}/bench/demo/flights/{task.location}" for task in tasks]
        rootline.spark.table(spark, TABLE, warehouse=warehouse, log=log)  # hands the settings over
        found = measured(spark, warehouse, paths, log)
        source = folder / "source"
        source.mkdir()
        for start in range(0, ROWS, _FILE_ROWS):
            pq.write_table(flights(min(_FILE_ROWS, ROWS - start), start), source / f"{start}.parquet")
        frame = spark.read.parquet(str(source))

        def by_sparks_writer(rows: DataFrame, name: str) -> None:
            rootline.spark.append(rows, name, warehouse=warehouse, log=log)

        def by_format(rows: DataFrame, name: str) -> None:
            rows.write.format("rootline").options(warehouse=warehouse, log=log).mode("append").save(name)

        into = f"s3a://{service.bucket}/parquet"
        for what, append in (("rootline.spark.append", by_sparks_writer), ('format("rootline"), append', by_format)):
            for partitions in ([], ["carrier"]):
                found.append(_compared(lake, frame, f"{what}, {partitions}", append, partitions, into))
        return found


def _compared(lake: Lake, frame: DataFrame, what: str, append: _Append, partitions: list[str], into: str) -> Result:
    numbers = iter(range(1_000))

    async def ours(_: int) -> float:
        name = f"demo.new_{abs(hash(what))}_{next(numbers)}"
        table = lake.create_table(name, flights(1, 0).schema, partition_by=partitions)
        began = time.perf_counter()
        append(frame, name)
        taken = time.perf_counter() - began
        assert table.scan().count() == ROWS
        return taken

    async def theirs(_: int) -> float:
        began = time.perf_counter()
        writer = frame.write.partitionBy(*partitions) if partitions else frame.write
        writer.parquet(f"{into}-{abs(hash(what))}-{next(numbers)}")
        return time.perf_counter() - began

    subject, yardstick = asyncio.run(interleaved(ours, theirs, samples=_SAMPLES, warm_up=1))
    note = f"by minimum {subject.minimum / yardstick.minimum:.2f} ×; +{_ADDED_MS} ms"
    ratio = subject.median / yardstick.median
    title = f"{what}, {ROWS:,} rows, in a bucket"
    return Result("13", title, subject, yardstick, "Spark's Parquet, same bucket", ratio, "≤ 1.3", load_average(), note)
