"""A real Prometheus for a test, and promtool.

Owns: finding the programs, a server's life, asking it. Does not own: rules and dashboards (`deploy`).
Invariants: programs that are missing fail the test with one line that says what to install; a server is stopped by its
process id, and keeps what it gathers in the test's folder.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.services.service_process import HOST, ServiceProcess, free_port


def program(name: str) -> str:
    """Where `prometheus` or `promtool` is."""
    found = shutil.which(name)
    if found is None:
        pytest.fail(
            f"{name} is not installed: on Debian and Ubuntu `apt-get install --no-install-recommends prometheus` "
            "(its service need not run), or put the release's programs on the path",
            pytrace=False,
        )
    return found


def promtool(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """What it says."""
    return subprocess.run(
        [program("promtool"), *map(str, words)], capture_output=True, text=True, timeout=120, check=False
    )


@dataclass(frozen=True)
class Prometheus:
    """A running server."""

    url: str

    def query(self, expression: str) -> list[Any]:
        """The samples of an instant query; an error of the query is an error here."""
        return list(self._get("query", query=expression)["result"])

    def firing(self) -> set[str]:
        """The alerts that fire now."""
        alerts = self._get("alerts")["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    def metric_names(self) -> set[str]:
        """All that it has seen."""
        return set(self._get("label/__name__/values"))

    def _get(self, path: str, **arguments: str) -> Any:
        asked = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
        try:
            with urllib.request.urlopen(asked, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{arguments}: {error.read().decode()}") from None


@contextmanager
def running_prometheus(configuration: Path, folder: Path) -> Iterator[Prometheus]:
    """A server for a block; `folder`: for its data and log."""
    port = free_port()
    command = [
        program("prometheus"),
        f"--config.file={configuration}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={HOST}:{port}",
    ]
    process = ServiceProcess(command, folder / "prometheus.log")
    try:
        process.wait_ready(port)
        yield Prometheus(f"http://{HOST}:{port}")
    finally:
        process.stop()
