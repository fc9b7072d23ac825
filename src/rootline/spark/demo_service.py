"""The demo's services: `rootline up` in a process of its own, and single commands of the command line.

Owns: starting and stopping them, their output, the service's metrics. Does not own: what they do.
Invariants: a service that was started is stopped, whatever happens; it is in no terminal's foreground group, so that
Ctrl-C reaches the demo alone, which then stops it cleanly.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from rootline.schemas.errors import Unavailable

PROGRAM: Final = (sys.executable, "-c", "from rootline.cli.app import main; main()")
_START_PATIENCE_S: Final = 60.0
_WAITING_PATIENCE_S: Final = 5.0
_STOP_PATIENCE_S: Final = 30.0
_COMMAND_PATIENCE_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Of a histogram, in milliseconds; interpolated inside a bucket, as Prometheus does."""

    count: int
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class RunningService:
    """`rootline up` on a lake, listening at `url`."""

    process: subprocess.Popen[str]
    url: str

    def quantiles(self, histogram: str) -> Quantiles:
        """What `/metrics` says of one histogram."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        counts: dict[float, float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == f"{histogram}_bucket":
                    counts[float(sample.labels["le"])] = sample.value
        total = max(counts.values(), default=0.0)
        return Quantiles(int(total), _quantile(counts, 0.5) * 1000, _quantile(counts, 0.99) * 1000)


@contextlib.contextmanager
def running_service(lake: Path, output: Path) -> Iterator[RunningService]:
    """Coordinator, worker and HTTP of the lake, until the block ends; their log lines go to the file `output`.

    Raises:
        Unavailable: `log-unavailable`, it did not start, or somebody else serves this lake.

    """
    command = [*PROGRAM, "up", "--root", str(lake), "--http-port", "0", "--json"]
    with output.open("a", encoding="utf-8") as lines:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=lines, text=True, start_new_session=True)
    try:
        said = _said(process)
        if said["event"] == "waiting":
            holder = said["holder"]
            said = _said(process, _WAITING_PATIENCE_S)  # whoever only commits something gives way soon
            if said["event"] == "ended":
                raise Unavailable("log-unavailable", f"process {holder} serves {lake} already; stop it first")
        if said["event"] != "listening" or not said["url"]:
            raise Unavailable("log-unavailable", f"`rootline up` did not start; {output} says why")
        yield RunningService(process, said["url"])
    finally:
        _stop(process)


def _said(process: subprocess.Popen[str], patience_s: float = _START_PATIENCE_S) -> dict[str, Any]:
    """The next event that the service announces; it is stopped when it says nothing for so long."""
    assert process.stdout is not None
    impatient = threading.Timer(patience_s, process.terminate)
    impatient.start()
    try:
        line = process.stdout.readline()
    finally:
        impatient.cancel()
    said: dict[str, Any] = json.loads(line) if line else {"event": "ended"}
    return {"event": "ended"} if said["event"] == "stopped" else said


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.communicate(timeout=_STOP_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def command_line(*words: str, output: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a `rootline` command to its end; stdout goes to the file `output` if one is given."""
    with contextlib.ExitStack() as around:
        stdout: Any = subprocess.PIPE if output is None else around.enter_context(output.open("w", encoding="utf-8"))
        return subprocess.run(
            [*PROGRAM, *words],
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            timeout=_COMMAND_PATIENCE_S,
            check=False,
        )


def _quantile(counts: dict[float, float], wanted: float) -> float:
    """Seconds below which the share `wanted` of the observations lies; `counts`: upper bound → cumulative count."""
    total = max(counts.values(), default=0.0)
    below, seen = 0.0, 0.0
    for bound, count in sorted(counts.items()):
        if total and count >= wanted * total:
            if bound == float("inf"):
                return below
            return below + (bound - below) * (wanted * total - seen) / max(count - seen, 1.0)
        below, seen = bound, count
    return 0.0
