"""`rootline coordinator` as people run it: the command itself, in a process of its own, watched from outside.

Owns: the process, its metrics, its cost. Does not own: what is asked of it.
Invariants: it is ended, or killed, by its own process id.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.error import HTTPError
from urllib.request import urlopen

from benchmarks.coordinator_process import ProcessCost, cost_of
from examples.spark_demo.service import running

_LOOK_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class CommandProcess:
    """A running coordinator; `url` is where its HTTP listens."""

    process: subprocess.Popen[str]
    url: str

    def cost(self) -> ProcessCost:
        """CPU so far, memory now."""
        return cost_of(self.process.pid)

    def metric(self, name: str) -> float:
        """The sum over all labels of a metric."""
        with urlopen(f"{self.url}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.split("{")[0].split(" ")[0] == name)

    def wait_ready(self, deadline_s: float = 60.0) -> None:
        """Wait until it has read the log to its end."""
        limit_s = time.monotonic() + deadline_s
        while time.monotonic() < limit_s:
            try:
                with urlopen(f"{self.url}/readyz", timeout=30):
                    return
            except HTTPError:  # not yet
                time.sleep(_LOOK_S)
        raise TimeoutError(f"{self.url} is not ready after {deadline_s:.0f} s")

    def kill(self) -> None:
        """Kill it, as a power cut would."""
        self.process.kill()
        self.process.wait()


@contextmanager
def running_command(
    log: Path, warehouse: str, kafka_url: str, environment: Mapping[str, str]
) -> Iterator[CommandProcess]:
    """Started, listening, not yet ready; stopped cleanly at the end unless it was killed. `log` gets its stderr."""
    words = ("coordinator", "--log-level", "warning", "--warehouse", warehouse, "--log", kafka_url, "--http-port", "0")
    with running(*words, output=log, environment=environment) as service:
        yield CommandProcess(service.process, service.url)
