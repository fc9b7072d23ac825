"""`rootline coordinator` and the like, each a process of its own that can be killed, paused and started again.

Owns: the process, its log lines. Does not own: what it is told to serve (`kafka_lake`).
Invariants: it runs the command line's `main` with the words, in a process forked from one that has it imported
(`forked_process`): that the command line starts from nothing is proven without this one, by
`tests/cli/test_service_commands.py`, `tests/documents` and `tests/demo`; log lines of every incarnation stay in one
file; the code that starts one stops it, a paused one as well; it ends with the tests also when these are killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from tests.kafka.forked_process import ForkedProcess
from tests.services.process_bond import ProcessBond

_PROGRAM = "rootline.cli.app:main"
_DEADLINE_S = 180.0


class RootlineProcess:
    """`words` of the command line; not started yet."""

    def __init__(self, name: str, words: tuple[str, ...], environment: Mapping[str, str], folder: Path) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self.incarnation = 0
        self._words = words
        self._environment = environment
        self._output = folder / f"{name}.out"
        self._process: ForkedProcess | subprocess.Popen[bytes] | None = None
        self._bond: ProcessBond | None = None
        self._is_paused = False
        self.is_leaving = False
        """Whether the present incarnation was asked to stop."""

    def start(self) -> None:
        """Begin; `wait_listening` says when it is there."""
        assert not self.is_alive, f"{self.name} runs already"
        self._release()
        self.incarnation += 1
        self._is_paused = False
        self.is_leaving = False
        variables = {
            **os.environ,
            **self._environment,
            "ROOTLINE_COORDINATOR__COORDINATOR_ID": f"{self.name}.{self.incarnation}",
        }
        with self._output.open("wb") as output, self.log.open("ab") as log:
            self._process = self.begun((*self._words, "--json"), variables, output, log)
        self._bond = ProcessBond(self._process.pid)

    def begun(
        self, words: tuple[str, ...], variables: Mapping[str, str], output: BinaryIO, log: BinaryIO
    ) -> ForkedProcess | subprocess.Popen[bytes]:
        """A process with these words, in exactly this environment, which leads a session of its own."""
        return ForkedProcess(_PROGRAM, words, variables, output.fileno(), log.fileno())

    @property
    def running(self) -> ForkedProcess | subprocess.Popen[bytes]:
        """The present incarnation."""
        assert self._process is not None, f"{self.name} was not started"
        return self._process

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait_listening(self) -> str:
        """Wait until it says where its HTTP listens."""
        deadline_s = time.monotonic() + _DEADLINE_S
        while b"\n" not in self._output.read_bytes():
            assert self.is_alive, f"{self.name} ended with {self.running.returncode}: {self.tail()}"
            assert time.monotonic() < deadline_s, f"{self.name} did not start: {self.tail()}"
            self._breathe()
        said = json.loads(self._output.read_bytes().splitlines()[0])
        assert said["event"] == "listening", said
        return str(said["url"])

    def readiness(self) -> Any:
        """What `/readyz` answers; `None` if nothing answers."""
        try:
            with urlopen(f"{self.wait_listening()}/readyz", timeout=5) as reply:
                return json.loads(reply.read())
        except HTTPError as error:
            return json.loads(error.read())
        except (URLError, TimeoutError):
            return None

    def wait_ready(self) -> None:
        """Wait until it has its partitions, or there is none for it, and has read the log to its end."""
        deadline_s = time.monotonic() + _DEADLINE_S
        while not (answer := self.readiness() or {}).get("ready"):
            assert self.is_alive, f"{self.name} ended with {self.running.returncode}: {self.tail()}"
            assert time.monotonic() < deadline_s, f"{self.name} is not ready: {answer}; {self.tail()}"
            self._breathe()

    def kill(self) -> None:
        """Kill it, as a power cut would."""
        self.running.kill()
        self.wait()

    def pause(self) -> None:
        """Stop it like a machine that hangs: it receives nothing, and does not know it."""
        os.kill(self.running.pid, signal.SIGSTOP)
        self._is_paused = True

    def resume(self) -> None:
        """After `pause`."""
        os.kill(self.running.pid, signal.SIGCONT)
        self._is_paused = False

    def request_stop(self) -> None:
        """Ask it to stop, as a deployment does."""
        self.is_leaving = True
        self.running.terminate()

    def wait(self, timeout_s: float = 60.0) -> int:
        """Its exit code, once it has ended."""
        code = self.running.wait(timeout_s)
        self._release()
        return code

    def end(self) -> None:
        """End it in any state."""
        if self.is_alive:
            if self._is_paused:
                self.resume()
            self.request_stop()
            try:
                self.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()
        self._release()

    def lines(self) -> Iterator[dict[str, Any]]:
        """What it logged so far, in all incarnations."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        for line in text.splitlines():
            if line.startswith("{"):
                try:
                    yield json.loads(line)
                except ValueError:  # cut off by a kill
                    continue

    def said(self) -> str:
        """What the present incarnation printed."""
        return self._output.read_text(errors="replace")

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-2_000:] if self.log.exists() else ""

    def _release(self) -> None:
        if self._bond is not None:
            self._bond.release()

    def _breathe(self) -> None:
        try:
            self.running.wait(0.05)
        except subprocess.TimeoutExpired:
            return


@contextmanager
def ending(*processes: RootlineProcess) -> Iterator[None]:
    """They end with the block in any case."""
    try:
        yield
    finally:
        for process in processes:
            process.end()
