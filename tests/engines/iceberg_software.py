"""Spark 4.1 with Iceberg's own runtime, had once through pip and Maven: an environment beside ours.

Iceberg publishes its runtime for Spark up to 4.1, which the environment of these tests is too new for.

Owns: the folder in the user's cache. Does not own: running it (`iceberg_spark`).
Invariants: a folder in the cache is whole and of the versions in its name, also when two sessions fill it at once; what
cannot be had fails the tests with one line that says what to install.
"""

from __future__ import annotations

import fcntl
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from tests.services.go_tools import cache_folder
from tests.services.java_runtime import JavaRuntime, java_runtime
from tests.services.slow_step import run_saying

SPARK = "4.1.2"
ICEBERG = "1.12.0"
_NAME = f"Spark {SPARK} with Iceberg {ICEBERG}"
_PACKAGES = (f"pyspark=={SPARK}", "py4j==0.10.9.9", f"pyarrow=={pa.__version__}")
_ARTIFACT = f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:{ICEBERG}"
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"


@dataclass(frozen=True)
class IcebergSoftware:
    """A Python that has Spark, the jar that Spark needs, and where its loaded classes are archived."""

    python: Path
    jar: Path
    java: JavaRuntime
    archive: Path


def iceberg_software() -> IcebergSoftware:
    """The software, from the cache or fetched into it."""
    java = java_runtime("Spark")
    folder = cache_folder() / f"iceberg-spark-{SPARK}-{ICEBERG}-{sys.version_info.major}.{sys.version_info.minor}"
    with (cache_folder() / "iceberg-spark.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _fetch(folder)
    [jar] = folder.glob("*.jar")
    return IcebergSoftware(folder / "environment/bin/python", jar, java, folder / f"classes-{java.version}.jsa")


def _fetch(folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        pytest.fail(f"{_NAME} cannot be had: install Maven (mvn on PATH)", pytrace=False)
    with tempfile.TemporaryDirectory(dir=cache_folder()) as made:
        environment = str(Path(made, "environment"))
        fetch = [maven, "-B", "-q", _PLUGIN, f"-Dartifact={_ARTIFACT}", f"-DoutputDirectory={made}"]
        python = str(Path(environment, "bin/python"))
        # no pip of its own: ours can install into another environment
        make = [sys.executable, "-m", "venv", "--without-pip", environment]
        install = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--progress-bar", "off"]
        for what, command in (
            ("fetching Iceberg's runtime for Spark, once (47 MB)", fetch),
            ("making an environment for it", make),
            (f"installing PySpark {SPARK} there, once (750 MB, about a minute)", [*install, *_PACKAGES]),
        ):
            free = {
                "PIP_CONSTRAINT": "",
                "PIP_BUILD_CONSTRAINT": "",
            }  # the pins of our own environment say another Spark
            ended = run_saying(what, command, cwd=made, timeout_s=900, env=free)
            if ended.code != 0:
                said = [line for line in (ended.stdout + ended.stderr).splitlines() if "ERROR" in line]
                reason = said[0] if said else "no reason given"
                pytest.fail(f"{_NAME} cannot be had: {what}: {reason[:300]}", pytrace=False)
        whole = Path(made, "whole")
        whole.mkdir()
        for part in (Path(environment), *Path(made).glob("*.jar")):
            part.rename(whole / part.name)
        whole.rename(folder)
