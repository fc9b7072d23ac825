"""The lock of the process that hosts an embedded lake's coordinator: one at a time.

Owns: the lock file `coordinator.lock`. Does not own: what the host does.
Invariants: the lock ends with its process, however that ends; it only saves work, because a second host would commit
correctly too (protocol page, section 1).
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import weakref
from pathlib import Path
from typing import Final

from rootline.schemas.errors import Unavailable

FILE_NAME: Final = "coordinator.lock"
_RETRY_S: Final = 0.2
_held: Final[weakref.WeakSet[LakeLock]] = weakref.WeakSet()


class LakeLock:
    """The lock of the lake whose own folder (`<warehouse>/.rootline`) is `folder`."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME
        self._file: int | None = None

    @property
    def folder(self) -> Path:
        """The lake's own folder."""
        return self._path.parent

    def try_acquire(self) -> bool:
        """Take the lock if it is free; whether this object holds it now.

        Raises:
            Unavailable: `log-unavailable`, the file cannot be opened.

        """
        if self._file is not None:
            return True
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise Unavailable("log-unavailable", f"{self._path}: {error.strerror}") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        except OSError as error:
            os.close(file)
            raise Unavailable("log-unavailable", f"{self._path}: {error.strerror}") from error
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        self._file = file
        _held.add(self)
        return True

    async def acquire(self) -> None:
        """Wait until this object holds the lock, trying every 0.2 s; the caller sets a deadline if it wants one."""
        while not self.try_acquire():  # noqa: ASYNC110 -- another process cannot wake this one
            await asyncio.sleep(_RETRY_S)

    def is_held(self) -> bool:
        """Whether a process holds the lock, this object included; takes nothing and creates nothing."""
        if self._file is not None:
            return True
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(file)
        return False

    def holder_pid(self) -> int | None:
        """The process that took the lock last, for messages only; it may have ended."""
        try:
            return int(self._path.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None

    def release(self) -> None:
        """Give the lock back; does nothing if it is not held."""
        if self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_UN)  # closing alone would not do while a forked child has the file open
            os.close(self._file)
            self._file = None

    def leave_to_parent(self) -> None:
        """In a forked child: close the inherited file, so that the lock ends with the parent."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _leave_all_to_parent() -> None:
    for lock in list(_held):
        lock.leave_to_parent()


os.register_at_fork(after_in_child=_leave_all_to_parent)
