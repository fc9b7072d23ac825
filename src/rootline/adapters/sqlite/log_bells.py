"""Bells of the embedded log: a process that has written rings, and the processes that wait look at once.

Owns: a pipe with a name for each process that waits, in a folder of this user among the temporary files, and ringing
them all. Does not own: what a waiter looks at when it rings (`log_watch`).
Invariants: bells only save time. A bell that cannot be made, was removed, or is not rung (an older version does not
ring, and neither do other users or other machines) costs a waiter the time until it looks by itself;
ringing never waits and never fails. A bell has its name only once its owner listens; one that no process listens to is
removed by the next process that rings. Nothing but pipes in a folder that only this user can write to is ever opened.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rootline.schemas.identifiers import LogId

_SUFFIX: Final = ".bell"
_READ_BYTES: Final = 4_096


def wakeups_folder(log: LogId) -> Path:
    """Where the bells of a log are on this machine, for this user: not in the lake, which may be copied."""
    return Path(tempfile.gettempdir()) / f"rootline-{os.getuid()}" / log.rpartition("/")[2]


class Wakeups:
    """The bells in `folder`, of one log; `hear` belongs to one event loop, `ring` to any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
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
            for folder in (self._folder.parent, self._folder):
                folder.mkdir(mode=0o700, exist_ok=True)
            if not _is_private(self._folder.parent):
                return
            os.mkfifo(unnamed, 0o600)
            # for writing too, or the pipe ends, and is readable for ever, whenever the last one that rang closes it
            self._pipe = os.open(unnamed, os.O_RDWR | os.O_NONBLOCK)
            asyncio.get_running_loop().add_reader(self._pipe, self._heard, self._pipe, rung)
            unnamed.rename(self._folder / self._own)
        except (OSError, NotImplementedError):  # no pipes here, or no right to make one: waiters look by themselves
            self.close()

    @property
    def are_heard(self) -> bool:
        """Whether this process has a bell that others can ring."""
        return self._pipe is not None

    def ring(self) -> None:
        """Ring every bell but the own one."""
        if not _is_private(self._folder.parent):
            return
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
        with contextlib.suppress(OSError):  # others still wait, or have gone already
            self._folder.rmdir()

    def _heard(self, pipe: int, rung: Callable[[], None]) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(pipe, _READ_BYTES)
        rung()


def _is_private(folder: Path) -> bool:
    """Whether no other user can put anything there."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _ring(bell: Path) -> None:
    try:
        if not stat.S_ISFIFO(bell.lstat().st_mode):
            return
        pipe = os.open(bell, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.ENXIO:  # its process is gone
            with contextlib.suppress(OSError):
                bell.unlink()
        return
    with contextlib.suppress(OSError):  # a full pipe has rung already
        os.write(pipe, b"\0")
    os.close(pipe)
