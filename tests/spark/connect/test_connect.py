"""Every function of `rootline.spark` by a client of a real Spark Connect server, which has no JVM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests.services.service_process import HOST, ServiceProcess
from tests.spark.connect.connect_software import connect_packages

pytestmark = [pytest.mark.spark, pytest.mark.slow]
PATIENCE_S = 480
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


@pytest.fixture
def environment(quick_spark: None) -> dict[str, str]:
    """Of the server, whose Python workers are clients too in `foreachBatch`, and of the client."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("ROOTLINE_", "PYSPARK_"))}
    return own | {
        "PYTHONPATH": str(connect_packages()),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent),
    }


@pytest.fixture
def address(environment: dict[str, str], tmp_path: Path) -> Iterator[str]:
    """Of a server on a port that the system picks."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": "0",
        "spark.sql.shuffle.partitions": "2",
        # as in the other tests of Spark: compiling a plan takes longer than running it as it is
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.warehouse.dir": str(tmp_path / "spark-warehouse"),
    }
    words = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    submit = Path(environment["SPARK_HOME"]) / "bin" / "spark-submit"
    command = [submit, "--master", "local[2]", "--class", SERVER, *words, "spark-internal"]
    server = ServiceProcess(command, tmp_path / "server.log", environment)
    try:
        port = server.wait_said(rf"server started at: {HOST}:([1-9]\d*)", deadline_s=PATIENCE_S)
        yield f"sc://{HOST}:{port}"
    finally:
        server.stop()


def said_by_client(address: str, environment: dict[str, str], folder: Path) -> dict[str, Any]:
    """What `job.py` reports."""
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("job.py"), address, folder],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("said: ")]
    said: dict[str, Any] = json.loads(line.removeprefix("said: "))
    return said


def test_every_function_works_through_spark_connect_or_names_the_way_that_does(
    address: str, environment: dict[str, str], tmp_path: Path
) -> None:
    said = said_by_client(address, environment, tmp_path)
    assert "give batch_appender a writer_id" in said.pop("batch_appender_without_a_name")
    assert said == {
        "write": None,
        "format": [1_000, 10, ["carrier"]],
        "table": [1_000, sum(range(2, 1_000, 5)), True],
        "append": [1_100, 2],
        "update_where": 1,
        "delete_where": 1,
        "merge_into": [1, 1],
        "stream": [2, 1_102],
        "batch_appender": 4,
        "compact": [True, 0],
        "sort": 1,
        "add_folder": 1,
        "pinned": [0, 0, 1],
    }
