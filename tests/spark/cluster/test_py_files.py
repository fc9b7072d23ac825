"""A job on a cluster of two workers, whose Python has the dependencies, and the library from a zip; executors die."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest

from rootline.client.lake import Lake
from rootline.connect import connect
from tests.services.s3_service import S3Service
from tests.services.service_process import HOST, ServiceProcess
from tests.spark.machine.s3a_software import s3a_jars

pytestmark = [pytest.mark.spark, pytest.mark.slow]
HOUSE = Path(__file__).parents[3]
PATIENCE_S = 480
SPECULATION = {
    "": "true",
    "__interval": "100ms",
    "__quantile": "0.25",
    "__multiplier": "1.1",
    "__minTaskRuntime": "1s",
}
LITTLE = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"


def spark_folder() -> Path:
    """Where Spark is: `quick_spark` may have said it."""
    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def java_options() -> str:
    """Of every Java that is not the driver's, which has the tests' options by itself."""
    return f"{LITTLE} {os.environ.get('SPARK_SUBMIT_OPTS', '')}".strip()


def environment() -> dict[str, str]:
    """Without our sources on Python's path: the zip brings them."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH" and not name.startswith("ROOT")}
    return own | {
        "SPARK_HOME": str(spark_folder()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": java_options(),
        "PYSPARK_PYTHON": sys.executable,
    }


def daemon(around: ExitStack, log: Path, main: str, *words: str, host: str = HOST) -> ServiceProcess:
    """A master or a worker, on a port that the system picks, without our sources on Python's path."""
    places = ("--host", host, "--port", "0", "--webui-port", "0")
    command = [spark_folder() / "bin" / "spark-class", main, *places, *words]
    process = ServiceProcess(command, log, environment() | {"PYTHONPATH": ""})
    around.callback(process.stop)
    return process


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """The address of a master with two workers of one core.

    This machine has another name for each, because Spark runs a task twice at a time on two hosts only.
    """
    with ExitStack() as around:
        master = daemon(around, tmp_path / "master.log", MASTER)
        address = master.wait_said(r"Starting Spark master at (spark://127\.0\.0\.1:[1-9]\d*)", deadline_s=PATIENCE_S)
        of_each = ("--cores", "1", "--memory", "600m")
        workers = [
            daemon(
                around,
                tmp_path / f"{name}.log",
                WORKER,
                *of_each,
                "--work-dir",
                str(tmp_path / name),
                address,
                host=host,
            )
            for name, host in (("worker-1", HOST), ("worker-2", "localhost"))
        ]
        for worker in workers:
            worker.wait_said(r"(Successfully registered with master)", deadline_s=PATIENCE_S)
        yield address


@pytest.fixture
def py_files(tmp_path: Path) -> Path:
    """As `make py-files` makes it."""
    made = tmp_path / "rootline.zip"
    subprocess.run([HOUSE / ".ci/py_files", sys.executable, made], cwd=HOUSE, check=True, capture_output=True)
    return made


def submitted(
    cluster: str, py_files: Path, job: str, *words: Path | str, variables: Mapping[str, str], **more: str
) -> dict[str, Any]:
    """What the job says; `more`: settings of Spark, with `__` for a dot; `variables`: of the driver's environment and
    the executors'."""
    named = dict(variables)
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": LITTLE,
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": java_options(),
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{PATIENCE_S}s",
        "spark.sql.shuffle.partitions": "2",
        "spark.cores.max": "2",
        **{name.replace("__", "."): value for name, value in more.items()},
        **{f"spark.executorEnv.{name}": value for name, value in named.items()},
    }
    given = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    command = [spark_folder() / "bin" / "spark-submit", "--master", cluster, "--py-files", py_files, *given]
    done = subprocess.run(
        [*command, Path(__file__).with_name(job), *words],
        cwd=py_files.parent,
        env=environment() | named | ({"PYTHONPATH": str(py_files)} if "spark__executorEnv__PYTHONPATH" in more else {}),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("said: ")]
    said: dict[str, Any] = json.loads(line.removeprefix("said: "))
    return said


def check_appended(lake: Lake) -> None:
    """Check that one commit added each row once."""
    table = lake.table("demo.appended")
    assert sorted(table.scan(columns=["id"]).to_arrow().column("id").to_pylist()) == list(range(3_000))
    assert table.head().version == 1
    assert list(table.check(data_files="all")) == []


@pytest.mark.services
def test_a_job_with_the_library_in_a_zip_writes_and_reads_on_two_workers_and_bears_that_executors_die(
    cluster: str, py_files: Path, tmp_path: Path, s3_service: S3Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also that tasks run twice at a time, as Spark's own writer writes to a folder and to a bucket."""
    for name, value in s3_service.environment().items():
        monkeypatch.setenv(name, value)
    (temporary := tmp_path / "temporary").mkdir()
    bucket, log = f"s3://{s3_service.bucket}/{tmp_path.name}", f"sqlite://{tmp_path / 'log'}"
    columns = pa.schema([("id", pa.int64()), ("list", pa.list_(pa.int64()))])
    jars = os.pathsep.join(map(str, s3a_jars()))
    settings = {f"spark__{who}__extraClassPath": jars for who in ("driver", "executor")}
    settings |= {f"spark__speculation{name}": value for name, value in SPECULATION.items()}
    variables = s3_service.environment() | {"TMPDIR": str(temporary)}
    with connect(tmp_path / "lake") as lake:
        lake.create_table("demo.appended", columns)
    with connect(bucket, log=log) as lake:
        lake.create_table("demo.appended", columns)
        words = (tmp_path / "lake", bucket, log)
        said = submitted(cluster, py_files, "job.py", *words, variables=variables, **settings)
        assert said["marks"] == 2 * [["twin"]], "an executor died in each job, and a task ran twice at a time"
        check_appended(lake)
    left = [path for path in temporary.glob("rootline-*") if path.is_file()]
    assert left == [], "a task that was killed left a copy of a file on its machine"
    assert said["carriers"] == {f"C{at}": 200 for at in range(5)}
    assert said["sum of C2"] == sum(range(2, 1_000, 5))
    assert all("rootline.zip/rootline" in place for place in [said["driver"], *said["code"]]), said
    assert {Path(folder).relative_to(tmp_path).parts[0] for folder in said["executors"]} == {"worker-1", "worker-2"}
    fire = said["under fire"]
    assert (fire["died"], fire["ids"], fire["same rows"]) == ([True, True], list(range(3_000)), True), fire
    appended, before, after, named = fire["files"]
    assert (appended, before, after) == (6, 6, named), "what an attempt stored that lost is in no commit"
    assert after > 4, "tasks had ended when the second executor died"
    assert fire["orphans"] >= 2, "and is left to the sweep"
    with connect(tmp_path / "lake") as lake:
        check_appended(lake)
        for name, version in (("demo.flights", 1), ("demo.mortal", 2)):
            assert lake.table(name).head().version == version
            assert list(lake.table(name).check()) == []


def test_workers_of_a_cluster_are_forked_from_a_daemon_that_imported_the_zip(cluster: str, py_files: Path) -> None:
    settings = {
        "spark__python__daemon__module": "rootline.spark.daemon",
        "spark__executorEnv__PYTHONPATH": py_files.name,
    }
    said = submitted(cluster, py_files, "forked.py", variables={}, **settings)
    assert said["imported at the start"] == [True]
    assert all(place.endswith("rootline.zip/rootline/spark/batch_reader.pyc") for place in said["code"]), said
