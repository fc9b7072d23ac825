"""A real Prometheus for a test, and promtool.

Owns: a server's life, asking it. Does not own: where the programs come from (`prometheus_software`), rules and
dashboards (`deploy`).
Invariants: a server is stopped by its process id, and keeps what it gathers in the test's folder.
"""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.services.service_process import HOST, ServiceProcess, free_port
from tests.services.watching.prometheus_software import prometheus_program


def promtool(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """What it says."""
    return subprocess.run(
        [prometheus_program("promtool"), *map(str, words)], capture_output=True, text=True, timeout=120, check=False
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
        prometheus_program("prometheus"),
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
