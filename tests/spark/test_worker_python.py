"""Spark's workers run the Python that Rootline is installed in."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = """
import sys, pyarrow as pa, rootline, rootline.spark
from pyspark.sql import SparkSession
rootline.connect(sys.argv[1]).create_table("demo.t", pa.schema([("id", pa.int64())])).append({"id": [1, 2]})
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
rootline.spark.register(spark)
print("rows", spark.read.format("rootline").option("warehouse", sys.argv[1]).load("demo.t").count())
spark.stop()
"""


def test_a_local_spark_runs_the_python_of_the_program_whatever_python3_is(tmp_path: Path) -> None:
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    environment["PATH"] = f"{other.parent}:{environment['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "lake")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "rows 2" in done.stdout, done.stderr[-2000:]


def test_a_worker_of_our_daemon_begins_with_the_library_imported(spark: SparkSession) -> None:
    """Also the one after a query that stopped early, whose worker Spark has ended."""

    def imported(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begun_with = gc.get_freeze_count() > 0 and "rootline.spark.batch_reader" in sys.modules
        for _ in range(100):
            yield pa.RecordBatch.from_pydict({"imported": [begun_with], "process": [os.getpid()]})

    found = [
        spark.range(0, 1, 1, 1).mapInArrow(imported, "imported boolean, process long").limit(1).collect()[0]
        for _ in range(2)
    ]
    assert all(row.imported for row in found)
    assert found[0].process != found[1].process, "Spark keeps workers of such queries now: is the daemon needed still?"
