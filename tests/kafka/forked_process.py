"""A process that is forked from one in which the library is imported, and looks like one of `subprocess.Popen`.

Owns: asking for it, signals to it, its exit code; the life of the fork server. Does not own: what a forked process is
(`fork_server`), that it ends when we are killed (`ProcessBond`).
Invariants: we never fork ourselves; the server starts with the first process that is asked for, and ends with us; a
process keeps its number until we have heard its exit code; several threads may ask.

The standard library's fork server would do, but for this: what it forks imports the module that pytest was started
with, or the demo; it ends without what `atexit` was told, and keeps the server's descriptors; and two threads that ask
for its exit code at once may hear a wrong one.
"""

from __future__ import annotations

import atexit
import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

_HOUSE: Final = Path(__file__).parents[2]
_PROGRAM: Final = """
import socket, sys
from tests.kafka.fork_server import fork_when_asked

fork_when_asked(socket.socket(fileno=int(sys.argv.pop())))()
"""
_WITHOUT_THREADS: Final = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""For the server alone, since only the thread that forks is in a forked process: numpy and pyarrow then start none."""
_PATIENCE_S: Final = 180.0
_ANSWER_BYTES: Final = 1_000


class ForkServer:
    """The server of this process, which need not run yet."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._asking = threading.Lock()
        self._numbers = itertools.count()

    def ask(self, question: Mapping[str, Any], streams: Sequence[int] = ()) -> Any:
        """Its answer."""
        with self._asking:
            if self._socket is None:
                self._socket = _started()
            number = next(self._numbers)
            socket.send_fds(self._socket, [json.dumps({**question, "number": number}).encode()], streams)
            while True:
                said = self._socket.recv(_ANSWER_BYTES)
                assert said, "the fork server has ended"
                answered, answer = json.loads(said)
                if answered == number:  # else an exception ended the wait for it
                    return answer


def _started() -> socket.socket:
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(_PATIENCE_S)
    with its:
        server = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(its.fileno())],
            cwd=_HOUSE,
            env={**os.environ, **_WITHOUT_THREADS},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[its.fileno()],
            start_new_session=True,
        )
    atexit.register(_end, ours, server)
    return ours


def _end(ours: socket.socket, server: subprocess.Popen[bytes]) -> None:
    ours.close()
    server.kill()
    server.wait()


_SERVER: Final = ForkServer()


class ForkedProcess:
    """Runs `program`, a function named `module:function`, with the words, here, in exactly this environment."""

    def __init__(
        self, program: str, words: Sequence[str], environment: Mapping[str, str], stdout: int, stderr: int
    ) -> None:
        self._words = list(words)
        question = {
            "program": program,
            "words": self._words,
            "environment": dict(environment),
            "folder": str(Path.cwd()),
        }
        self.pid: int = _SERVER.ask(question, [stdout, stderr])
        self.returncode: int | Any = None
        """`None` until it is known that it ended; negative: a signal's number."""
        self._polling = threading.Lock()

    def poll(self) -> int | None:
        """The exit code, if it has ended."""
        with self._polling:
            if self.returncode is None:
                self.returncode = _SERVER.ask({"pid": self.pid})
            code: int | None = self.returncode
            return code

    def wait(self, timeout_s: float) -> int:
        """The exit code, once it has ended.

        Raises:
            subprocess.TimeoutExpired: it has not.

        """
        with self._polling:
            ended = os.pidfd_open(self.pid) if self.returncode is None else None
        if ended is not None:
            waiting = select.poll()
            waiting.register(ended, select.POLLIN)
            try:
                waiting.poll(timeout_s * 1_000)
            finally:
                os.close(ended)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired(self._words, timeout_s)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Nothing if it has ended."""
        with self._polling:
            if self.returncode is None:
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)
