"""Spark's workers run the Python that Rootline is installed in."""

from __future__ import annotations

import gc
import importlib.util
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import rootline
from rootline.spark.daemon import DAEMON, _is_found_by, imported_first, use_this_python

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


def test_without_pyspark_each_name_is_refused_with_the_extra_to_install() -> None:
    program = """
import sys
sys.modules["pyspark"] = None
import rootline, rootline.spark
for name in rootline.spark.__all__:
    try:
        getattr(rootline.spark, name)
    except rootline.Invalid as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    refused = done.stdout.splitlines()
    assert len(refused) == len(rootline.spark.__all__)
    assert all("PySpark 4.1" in line and "pip install 'rootline-lake[spark]'" in line for line in refused)


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


def test_the_daemon_of_a_lake_in_a_bucket_imports_the_store_too() -> None:
    store = "rootline.adapters.s3_object_store"
    assert store not in imported_first({"ROOTLINE_WAREHOUSE": "/data/lake"})
    for variables in ({"ROOTLINE_WAREHOUSE": "s3://lake/tables"}, {"ROOTLINE_S3__ENDPOINT": "http://127.0.0.1:1"}):
        modules = imported_first(variables)
        assert store in modules
        assert all(importlib.util.find_spec(module) for module in modules)


READING = """
import pickle, sys
from pathlib import Path
from rootline.spark.data_source import RootlineDataSource
path = Path(sys.argv[1])
found = pickle.loads(path.read_bytes()) if path.exists() else None
{}
path.write_bytes(pickle.dumps(found))
print(*sorted(sys.modules))
"""
STEPS = {
    "schema": """
source = RootlineDataSource({"path": "demo.t", "warehouse": sys.argv[2], "where": "id > 1"})
found = source, source.schema()
""",
    "plan": """
source, schema = found
reader = source.reader(schema)
found = source, reader, reader.partitions()
""",
    "read": """
source, reader, partitions = found
found = [batch.to_pydict() for partition in partitions for batch in reader.read(partition)]
""",
}
"""A read as Spark's Python processes carry it out, one after the other."""
UNNEEDED = {
    "schema": {"rootline.spark.batch_reader", "rootline.client.planned_files", "rootline.storage.rows.scan_executor"},
    "plan": {"rootline.storage.rows.scan_executor"},
    "read": {"rootline.client.planned_files"},
}
FOR_WRITES = {
    "fastavro",
    "pandas",
    "rootline.client.data_file_writer",
    "rootline.schemas.intent",
    "rootline.spark.batch_commit",
}


def test_each_process_of_a_read_imports_what_its_step_needs(tmp_path: Path) -> None:
    with rootline.connect(str(tmp_path / "lake")) as lake:
        lake.create_table("demo.t", {"id": "long"}).append([{"id": 1}, {"id": 2}])
    handed_over = tmp_path / "found.pickle"
    for step, program in STEPS.items():
        done = subprocess.run(
            [sys.executable, "-c", READING.format(program), str(handed_over), str(tmp_path / "lake")],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert not (UNNEEDED[step] | FOR_WRITES).intersection(done.stdout.split()), step
    assert pickle.loads(handed_over.read_bytes()) == [{"id": [2]}]


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
