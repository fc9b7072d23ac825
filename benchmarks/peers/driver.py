"""A driver from the outside: its process, and one request at a time.

Owns: the process, its end, its answers. Does not own: the protocol (`protocol`), which driver it is (`subjects`).
Invariants: it ends by its own process id, also when an answer never arrives; its stderr is kept beside its place.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final

PATIENCE_S: Final = 3_600.0
_CLOSE_S: Final = 60.0


class DriverFailed(Exception):
    """A request failed, or the driver ended, with the reason."""


class Missing(Exception):
    """A peer's software cannot be had here, with the reason."""


class Driver:
    """A running driver. `send` and `answer` are apart, so that many can work at once."""

    def __init__(self, command: Sequence[str], stderr: Path, environment: Mapping[str, str]) -> None:
        self._stderr = stderr
        with stderr.open("ab") as output:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                # empty: keep compiled files, as an installed library has them
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", **environment},
                start_new_session=True,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._asked: IO[bytes] = self._process.stdin
        self._answers: IO[bytes] = self._process.stdout
        self._read = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, **request: Any) -> None:
        try:
            self._asked.write(json.dumps(request).encode() + b"\n")
            self._asked.flush()
        except BrokenPipeError:
            raise DriverFailed(self._last_words()) from None

    def answer(self, patience_s: float = PATIENCE_S) -> dict[str, Any]:
        """The next answer.

        Raises:
            DriverFailed: the request failed, the driver ended, or there was no answer in time.
        """
        end_s = time.monotonic() + patience_s
        with selectors.DefaultSelector() as ready:
            ready.register(self._answers, selectors.EVENT_READ)
            while b"\n" not in self._read:
                if not ready.select(max(0.0, end_s - time.monotonic())):
                    raise DriverFailed(f"no answer within {patience_s:.0f} s")
                more = os.read(self._answers.fileno(), 1 << 20)
                if not more:
                    raise DriverFailed(self._last_words())
                self._read += more
        line, _, self._read = self._read.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise DriverFailed(found["error"])
        return found

    def ask(self, patience_s: float = PATIENCE_S, **request: Any) -> dict[str, Any]:
        self.send(**request)
        return self.answer(patience_s)

    def _last_words(self) -> str:
        lines = self._stderr.read_text(errors="replace").strip().splitlines()
        return f"the driver ended: {lines[-1] if lines else 'it printed nothing'}"[:300]

    def end(self) -> None:
        """Close it, or kill it if it does not close. A second call does nothing."""
        if self._process.returncode is not None:
            return
        try:
            self.ask(_CLOSE_S, close=None)
        except DriverFailed:
            self._process.kill()
        with suppress(BrokenPipeError):  # a request that the ended driver did not read
            self._asked.close()
        try:
            self._process.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()


@contextmanager
def running_driver(command: Sequence[str], stderr: Path, environment: Mapping[str, str] = {}) -> Iterator[Driver]:
    """A driver, until the block ends."""
    driver = Driver(command, stderr, environment)
    try:
        yield driver
    finally:
        driver.end()
