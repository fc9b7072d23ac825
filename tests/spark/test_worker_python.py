"""Spark's workers run the Python that Rootline is installed in."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from rootline.spark.daemon import DAEMON, _is_found_by, use_this_python

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = """
import gc, sys, pyarrow as pa, rootline, rootline.spark
from pyspark.sql import SparkSession
rootline.connect(sys.argv[1]).create_table("demo.t", pa.schema([("id", pa.int64())])).append({"id": [1, 2]})
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
rootline.spark.register(spark)
print("rows", spark.read.format("rootline").option("warehouse", sys.argv[1]).load("demo.t").count())
imported = lambda _: [pa.RecordBatch.from_pydict({"x": [gc.get_freeze_count() > 0]})]
print("forked from ours", spark.range(0, 1, 1, 1).mapInArrow(imported, "x boolean").collect()[0].x)
spark.stop()
"""


class Settings(dict[str, str]):
    """Spark's own settings, as Java shows them."""

    def contains(self, name: str) -> bool:
        return name in self

    def set(self, name: str, value: str) -> None:
        self[name] = value


def session(master: str, **settings: str) -> Any:
    """As much of a session as is asked for its workers."""
    conf = Settings({name.replace("_", "."): value for name, value in settings.items()})
    java = SimpleNamespace(sc=lambda: SimpleNamespace(conf=lambda: conf))
    context = SimpleNamespace(_jsc=java, master=master, pythonExec="python3", getConf=lambda: conf)
    return SimpleNamespace(sparkContext=context, settings=conf)


@pytest.fixture
def _no_python_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)


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
    assert "forked from ours True" in done.stdout


@pytest.mark.usefixtures("_no_python_is_named")
def test_workers_of_a_local_master_are_forked_from_ours_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert daemon_of(session("local[2]")) == DAEMON
    assert daemon_of(session("local[2]", spark_pyspark_python=sys.executable)) == DAEMON
    assert daemon_of(session("local[2]", spark_pyspark_python="/opt/other/python")) is None
    assert daemon_of(session("local[2]", spark_python_daemon_module="their.daemon")) == "their.daemon"
    with pytest.warns(UserWarning, match="set spark.pyspark.python"):
        assert daemon_of(session("spark://host:7077")) is None
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/other/python")
    assert daemon_of(session("local[2]")) is None


@pytest.mark.usefixtures("_no_python_is_named")
def test_a_daemon_that_only_this_process_would_find_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rootline.spark.daemon.DAEMON", "rootline.spark.not_installed")
    _is_found_by.cache_clear()
    found = daemon_of(session("local[2]"))
    _is_found_by.cache_clear()
    assert found is None


def test_the_daemon_serves_functions_of_others_where_the_library_cannot_be_imported() -> None:
    program = """
import sys, types
sys.modules |= {"pandas": None, "rootline.spark.data_source": None}
sys.modules["pyspark.daemon"] = types.SimpleNamespace(manager=lambda: print("serves"))
sys.argv = ["daemon", "pyspark.worker"]
import rootline.spark.daemon
rootline.spark.daemon.main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "serves\n", done.stderr[-2000:]


def daemon_of(seen_to: Any) -> object:
    """The daemon that is set once the session was seen to."""
    use_this_python(seen_to)
    return seen_to.settings.get("spark.python.daemon.module")


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
