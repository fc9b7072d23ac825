"""A process that must not outlive this one.

Owns: a watcher that ends the process, and what it started, when this one dies without saying goodbye: killed, or with
its whole group, as `timeout` and CI do it. Does not own: the orderly end.
Invariants: the code that ended the process releases the bond, so that its number is never taken for another process's.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Iterator

_WATCH = 'read -r _ || kill -9 "-$1"'
"""A shell that kills the process when its input ends without a line: then we are dead."""


class ProcessBond:
    """To a process that leads a group of its own (`start_new_session`)."""

    def __init__(self, pid: int) -> None:
        self._watcher = subprocess.Popen(
            ["/bin/sh", "-c", _WATCH, "sh", str(pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._releasing = threading.Lock()

    def release(self) -> None:
        """The process has ended, or may live on. Repeatable, and by several threads at once."""
        with self._releasing:
            if self._watcher.poll() is None:
                self._watcher.communicate(b"\n")


@contextlib.contextmanager
def bound(pid: int) -> Iterator[None]:
    """A bond until the block ends."""
    bond = ProcessBond(pid)
    try:
        yield
    finally:
        bond.release()
