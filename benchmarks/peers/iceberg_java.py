"""The driver of Iceberg Java, built once with Maven into the cache of the tests."""

from __future__ import annotations

import hashlib
import shutil
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from benchmarks.peers.driver import Missing
from tests.services.cached_software import cached, carry_out, maven
from tests.services.java_runtime import java_runtime

_SOURCES: Final = Path(__file__).parent / "iceberg_java"
_NAME: Final = "the driver of Iceberg Java"


def java_command() -> tuple[str, ...]:
    """The command that starts the driver.

    Raises:
        Missing: it cannot be built, with the reason.
    """
    java, folder = _built()
    options = ("-Xmx1g", f"-Dpeers.server={_server_jars(folder)}", "-cp", f"{folder}/classes:{folder}/driver-jars/*")
    return (java, *options, "peers.Driver")


def server_command() -> tuple[str, ...]:
    """The command that starts Iceberg's reference REST catalog.

    Raises:
        Missing: it cannot be had, with the reason.
    """
    java, folder = _built()
    return (java, "-cp", _server_jars(folder), "org.apache.iceberg.rest.RESTCatalogServer")


def aws_jar() -> Path:
    """Iceberg's bundle for S3, which goes beside an engine's runtime.

    Raises:
        Missing: it cannot be had, with the reason.
    """
    return _jar(_built()[1], "iceberg-aws-bundle")


@cache
def _built() -> tuple[str, Path]:
    """Java, and the folder with everything that was built and fetched."""
    try:
        java = java_runtime(_NAME)
        sources = sorted(path for path in _SOURCES.rglob("*") if path.is_file())
        digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
        with cached("iceberg-driver", digest, _build) as folder:
            return java.command, folder
    except pytest.fail.Exception as failed:
        raise Missing(str(failed)) from None


def _server_jars(folder: Path) -> str:
    return f"{folder}/server-jars/*:{_jar(folder, 'postgresql')}"


def _jar(folder: Path, name: str) -> Path:
    [jar] = (folder / "driver-jars").glob(f"{name}-*.jar")
    return jar


def _build(folder: Path) -> Path:
    whole = shutil.copytree(_SOURCES, folder / "whole")
    for pom, what in (
        ("pom.xml", "building it with Maven, once (a minute or two)"),
        ("server.xml", "fetching Iceberg's reference REST catalog, once (a minute or two)"),
    ):
        carry_out(_NAME, what, [*maven(_NAME), "-f", pom, "package"], whole, timeout_s=900)
    return whole
