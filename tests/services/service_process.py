"""One service as a child process.

Owns: its start, its log, its end. Does not own: which service it is.
Invariants: ready means that its port takes connections; it is stopped by its process id, whatever the tests did; it is
in no terminal's foreground group, so that Ctrl-C reaches the tests alone, which then stop it after what uses it; it
ends with the tests also when these are killed.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.services.process_bond import ProcessBond

HOST = "127.0.0.1"


def free_port() -> int:
    """A port that nothing listens on, and that no one else is given while this process lives: as `held_port`."""
    held = held_port()
    port: int = held.getsockname()[1]
    held.detach()  # it stays open, and no one closes it
    return port


def held_port() -> socket.socket:
    """A socket that keeps its port from others until it is closed; servers, which reuse addresses, may listen there."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((HOST, 0))
    return held


class ServiceProcess:
    """A running service; `log` holds what it prints."""

    def __init__(self, command: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self._log = log
        self._name = Path(command[0]).name
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        self._bond = ProcessBond(self._process.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def wait_ready(self, port: int, *, deadline_s: float = 120.0) -> None:
        """Until `port` takes a connection."""
        deadline = time.monotonic() + deadline_s
        while not _takes_connections(port):
            self._check_goes_on(deadline, f"nothing listens on {HOST}:{port} after {deadline_s:.0f} s")

    def wait_said(self, pattern: str, *, deadline_s: float = 120.0) -> str:
        """What the first group of `pattern` is, once the log has it."""
        deadline = time.monotonic() + deadline_s
        while (found := re.search(pattern, self._log.read_text(errors="replace"))) is None:
            self._check_goes_on(deadline, f"it did not say {pattern} in {deadline_s:.0f} s")
        return found[1]

    def _check_goes_on(self, deadline: float, otherwise: str) -> None:
        """Wait a moment; it has ended, or the deadline has passed: an error."""
        if time.monotonic() > deadline:
            self.stop()
            raise TimeoutError(f"{otherwise}: {self._tail()}")
        try:
            code = self._process.wait(timeout=0.02)
        except subprocess.TimeoutExpired:
            return
        self._bond.release()
        raise RuntimeError(f"{self._name} ended with {code}: {self._tail()}")

    def stop(self) -> None:
        """Ask it to end, then make it."""
        self._process.terminate()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.kill()
        self._bond.release()

    def kill(self) -> None:
        """As a power cut would."""
        self._process.kill()
        self._process.wait(timeout=60)
        self._bond.release()

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]


def _takes_connections(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True
