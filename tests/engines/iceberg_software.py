"""Spark 4.1 with Iceberg's own runtime, fetched once through pip and Maven, or Ivy: an environment beside ours.

Iceberg publishes its runtime for Spark up to 4.1, and the environment of these tests has a newer one.

Owns: which software, and making its environment. Does not own: the cache (`cached_software`), running it
(`iceberg_spark`).
Invariants: our own environment is not touched.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tests.services.cached_software import cached, carry_out, maven
from tests.services.java_runtime import JavaRuntime, java_runtime

SPARK = "4.1.2"
ICEBERG = "1.12.0"
_NAME = f"Spark {SPARK} with Iceberg {ICEBERG}"
_PACKAGES = (f"pyspark=={SPARK}", "py4j==0.10.9.9", f"pyarrow=={pa.__version__}")
_ARTIFACT = f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:{ICEBERG}"
_NO_PINS = {"PIP_CONSTRAINT": "", "PIP_BUILD_CONSTRAINT": ""}
"""The pins of our own environment name another Spark."""
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
    version = f"{SPARK}-{ICEBERG}-{sys.version_info.major}.{sys.version_info.minor}"
    with cached("iceberg-spark", version, _fetch) as folder:
        [jar] = folder.glob("*.jar")
    return IcebergSoftware(folder / "environment/bin/python", jar, java, folder / f"classes-{java.version}.jsa")


def _fetch(folder: Path) -> Path:
    whole = folder / "whole"
    whole.mkdir()
    environment = whole / "environment"
    # no pip of its own: ours can install into another environment
    make = [sys.executable, "-m", "venv", "--without-pip", str(environment)]
    python = str(environment / "bin/python")
    install = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--progress-bar", "off", *_PACKAGES]
    carry_out(_NAME, "making an environment for it", make, folder, timeout_s=900)
    what = f"installing PySpark {SPARK} there, once (a download of 0.5 GB, one or two minutes)"
    carry_out(_NAME, what, install, folder, timeout_s=900, environment=_NO_PINS)
    what = "fetching Iceberg's runtime for Spark, once (47 MB)"
    carry_out(_NAME, what, _fetching(environment, whole), folder, timeout_s=900)
    return whole


def _fetching(environment: Path, into: Path) -> list[str]:
    """By Maven, which knows the user's mirrors; without one by Ivy, which every PySpark has."""
    if shutil.which("mvn"):
        return [*maven(_NAME), _PLUGIN, f"-Dartifact={_ARTIFACT}", f"-DoutputDirectory={into}"]
    [ivy] = environment.glob("lib/python3*/site-packages/pyspark/jars/ivy-*.jar")
    command = [java_runtime("Spark").command, "-jar", str(ivy), "-cache", str(into.parent / "ivy"), "-confs", "master"]
    return [*command, "-dependency", *_ARTIFACT.split(":"), "-retrieve", f"{into}/[artifact]-[revision].[ext]"]
