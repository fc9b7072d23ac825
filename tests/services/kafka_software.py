"""Kafka's jars, had once through Maven, and an archive of its loaded classes that halves every start.

Owns: the folder in the user's cache. Does not own: running a broker (`kafka_service`).
Invariants: a folder in the cache is whole and of the version in its name, also when two sessions fill it at once; what
cannot be had fails the tests with one line that says what to install.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.services.go_tools import cache_folder
from tests.services.java_runtime import java_runtime
from tests.services.slow_step import run_saying, say_progress

_VERSION = "4.3.1"
_INSTEAD = ", or set ROOTLINE_TEST_KAFKA=host:port to use a running broker"
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>rootline.tests</groupId><artifactId>kafka</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{_VERSION}</version></dependency>
    <dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>2.25.4</version></dependency>
  </dependencies>
</project>
"""


@dataclass(frozen=True)
class KafkaSoftware:
    """What it takes to run one of Kafka's main classes."""

    java: str
    class_path: str
    archive: Path

    def command(self, main: str, *words: str | Path, recording: bool = False) -> list[str | Path]:
        """The command of `main`; `recording` writes the archive of classes when it ends."""
        sharing = f"-XX:ArchiveClassesAtExit={self.archive}" if recording else f"-XX:SharedArchiveFile={self.archive}"
        options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", sharing, "-Xlog:disable"]
        return [self.java, *options, "-cp", self.class_path, main, *words]


def kafka_software(record: Callable[[KafkaSoftware], None]) -> KafkaSoftware:
    """The software, from the cache or fetched into it; `record` runs a broker once for the archive of classes."""
    java = java_runtime("Kafka", instead=_INSTEAD)
    folder = cache_folder() / f"kafka-{_VERSION}"
    with (cache_folder() / "kafka.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _fetch(folder)
        jars = sorted(map(str, folder.glob("*.jar")))
        software = KafkaSoftware(java.command, os.pathsep.join(jars), folder / f"classes-{java.version}.jsa")
        if not software.archive.exists():
            say_progress(f"starting Kafka {_VERSION} a first time, so that later starts are quick …")
            record(software)
    return software


def _fetch(folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        pytest.fail(f"Kafka {_VERSION} cannot be had: install Maven (mvn on PATH){_INSTEAD}", pytrace=False)
    with tempfile.TemporaryDirectory(dir=cache_folder()) as made:
        Path(made, "pom.xml").write_text(_POM)
        command = [maven, "-B", "-q", _PLUGIN, "-DoutputDirectory=libs", "-DincludeScope=runtime"]
        got = run_saying(f"fetching Kafka {_VERSION}, once (63 MB)", command, cwd=made, timeout_s=600)
        if got.code != 0:
            reasons = [line for line in got.stdout.splitlines() if "ERROR" in line] or ["no reason given"]
            pytest.fail(f"Kafka {_VERSION} cannot be had through Maven: {reasons[0][:300]}{_INSTEAD}", pytrace=False)
        Path(made, "libs").rename(folder)
