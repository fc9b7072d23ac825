"""Bells of the embedded log: a process that has written rings, and the processes that wait look at once.

Owns: a pipe with a name for each process that waits, in a folder beside the log, and ringing them all. Does not own:
what a waiter looks at when it rings (`log_watch`).
Invariants: bells only save time. A bell that cannot be made, was removed, or is not rung (an older version does not
ring) costs a waiter the few milliseconds until it looks by itself; ringing never waits and never fails. A bell has its
name only once its owner listens; one that no process listens to is removed by the next process that rings.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

_FOLDER_NAME: Final = "waiting"
_SUFFIX: Final = ".bell"
_READ_BYTES: Final = 4_096


class LogBells:
    """The bells of the log in `folder`; `hear` belongs to one event loop, `ring` to any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / _FOLDER_NAME
        self._own = f"{os.getpid()}-{uuid.uuid4().hex}{_SUFFIX}"
        self._pipe: int | None = None
        self._tried = False

    def hear(self, rung: Callable[[], None]) -> None:
        """Call `rung` on the running loop whenever another process rings; the first call counts."""
        if self._tried:
            return
        self._tried = True
        unnamed = self._folder / f".{self._own}"
        try:
            self._folder.mkdir(exist_ok=True)
            os.mkfifo(unnamed)
            # for writing too, or the pipe ends, and is readable for ever, whenever the last one that rang closes it
            self._pipe = os.open(unnamed, os.O_RDWR | os.O_NONBLOCK)
            asyncio.get_running_loop().add_reader(self._pipe, self._heard, self._pipe, rung)
            unnamed.rename(self._folder / self._own)
        except (OSError, NotImplementedError):  # no pipes here, or no right to make one: waiters look by themselves
            self.close()

    def ring(self) -> None:
        """Ring every bell but the own one."""
        try:
            bells = list(self._folder.iterdir())
        except OSError:
            return
        for bell in bells:
            if bell.name.endswith(_SUFFIX) and not bell.name.startswith(".") and bell.name != self._own:
                _ring(bell)

    def close(self) -> None:
        """Hear nothing more. On the loop of `hear`."""
        if self._pipe is None:
            return
        asyncio.get_running_loop().remove_reader(self._pipe)
        os.close(self._pipe)
        self._pipe = None
        for path in (self._folder / self._own, self._folder / f".{self._own}"):
            with contextlib.suppress(OSError):
                path.unlink()

    def _heard(self, pipe: int, rung: Callable[[], None]) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(pipe, _READ_BYTES)
        rung()


def _ring(bell: Path) -> None:
    try:
        pipe = os.open(bell, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENXIO:  # its process is gone
            with contextlib.suppress(OSError):
                bell.unlink()
        return
    with contextlib.suppress(OSError):  # a full pipe has rung already
        os.write(pipe, b"\0")
    os.close(pipe)
