"""Runs the command line in child processes: services that run until a block ends, and single commands.

Owns: starting and stopping such processes, their output. Does not own: the commands, their metrics (`quantiles`).
Invariants: a service that was started is stopped in every case. It is not in the terminal's foreground process
group, so Ctrl-C reaches the demo only, which then stops the service cleanly.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from examples.spark_demo.quantiles import Quantiles, quantiles_at
from rootline.schemas.errors import Unavailable

PROGRAM: Final = (sys.executable, "-c", "from rootline.cli.app import main; main()")
_START_PATIENCE_S: Final = 60.0
_WAITING_PATIENCE_S: Final = 5.0
_STOP_PATIENCE_S: Final = 30.0
_COMMAND_PATIENCE_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class RunningService:
    """A service in a child process. `url`: its HTTP address, empty if it has none."""

    process: subprocess.Popen[str]
    url: str

    def quantiles(self, histogram: str) -> Quantiles:
        """The quantiles of one histogram in its `/metrics`."""
        return quantiles_at([self.url], histogram)


@dataclass(frozen=True, slots=True)
class ServedLake:
    """A lake that is already served: its location, and the HTTP URLs of its coordinators, as far as they are known."""

    warehouse: str
    log: str | None
    coordinators: tuple[str, ...]

    def options(self) -> dict[str, str]:
        """Spark's options for the lake."""
        return {"warehouse": self.warehouse} | ({} if self.log is None else {"log": self.log})

    def words(self) -> tuple[str, ...]:
        """The command line's options for the lake."""
        return tuple(word for name, value in self.options().items() for word in (f"--{name}", value))


@contextlib.contextmanager
def running_service(lake: Path, output: Path) -> Iterator[RunningService]:
    """Run coordinator, worker and HTTP of an embedded lake until the block ends. Their log is written to the file
    `output`.

    Raises:
        Unavailable: `log-unavailable`, they did not start, or another process serves this lake.
    """
    with running("up", "--root", str(lake), "--http-port", "0", output=output) as service:
        if not service.url:
            raise Unavailable("log-unavailable", f"`rootline up` serves no HTTP: the reason is in {output}")
        yield service


@contextlib.contextmanager
def running(*words: str, output: Path, environment: Mapping[str, str] | None = None) -> Iterator[RunningService]:
    """Run the service `rootline WORDS…` until the block ends. Its log is written to the file `output`.

    `environment`: variables besides those of this process.

    Raises:
        Unavailable: `log-unavailable`, it did not start, or another process serves this lake.
    """
    with output.open("a", encoding="utf-8") as lines:
        process = subprocess.Popen(
            [*PROGRAM, *words, "--json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=lines,
            text=True,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )
    try:
        said = _said(process)
        if said["event"] == "waiting":
            holder = said["holder"]
            said = _said(process, _WAITING_PATIENCE_S)  # a process that only commits something ends soon
            if said["event"] == "ended":
                raise Unavailable(
                    "log-unavailable",
                    f"`rootline {' '.join(words)}`: process {holder} serves this lake already; stop it first",
                )
        if said["event"] != "listening":
            raise Unavailable("log-unavailable", f"`rootline {words[0]}` did not start: the reason is in {output}")
        yield RunningService(process, said["url"] or "")
    finally:
        stop_process(process, _STOP_PATIENCE_S)


def _said(process: subprocess.Popen[str], patience_s: float = _START_PATIENCE_S) -> dict[str, Any]:
    """The next event that the service announces. The service is terminated if there is none within `patience_s`."""
    assert process.stdout is not None
    impatient = threading.Timer(patience_s, process.terminate)
    impatient.start()
    try:
        line = process.stdout.readline()
    finally:
        impatient.cancel()
    said: dict[str, Any] = json.loads(line) if line else {"event": "ended"}
    return {"event": "ended"} if said["event"] == "stopped" else said


def stop_process(process: subprocess.Popen[Any], patience_s: float) -> None:
    """Terminate a process, and kill it if it does not end within `patience_s`. No effect if it has ended."""
    process.terminate()
    try:
        process.communicate(timeout=patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def command_line(*words: str, output: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a `rootline` command to its end. Its stdout is written to the file `output` if one is given."""
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
