"""Kafka's jars, fetched once through Maven, and an archive of its loaded classes that halves every start.

Owns: which jars, the archive, the command. Does not own: the cache (`cached_software`), running a broker
(`kafka_service`).
Invariants: the archive is made by one session at a time, from the jars and the Java that it is used with.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.services.cached_software import cached, carry_out, maven
from tests.services.java_runtime import java_runtime
from tests.services.slow_step import say_progress

VERSION = "4.3.1"
_INSTEAD = ", or set ROOTLINE_TEST_KAFKA=host:port to use a running broker"
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>rootline.tests</groupId><artifactId>kafka</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version></dependency>
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
    with cached("kafka", VERSION, _fetch) as folder:
        jars = sorted(map(str, folder.glob("*.jar")))
        software = KafkaSoftware(java.command, os.pathsep.join(jars), folder / f"used-classes-{java.version}.jsa")
        if not software.archive.exists():
            say_progress(f"starting Kafka {VERSION} a first time, so that later starts are quick …")
            record(software)
    return software


def _fetch(folder: Path) -> Path:
    software = f"Kafka {VERSION}"
    (folder / "pom.xml").write_text(_POM)
    command = [*maven(software, instead=_INSTEAD), _PLUGIN, "-DoutputDirectory=libs", "-DincludeScope=runtime"]
    carry_out(software, f"fetching {software}, once (63 MB)", command, folder, timeout_s=600, instead=_INSTEAD)
    return folder / "libs"
