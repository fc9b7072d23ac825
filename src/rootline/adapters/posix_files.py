"""What every file of ours needs of the operating system: a lock with a deadline, a folder made durable.

Owns: the calls. Does not own: which files there are, and what must be durable when (the adapters).
Invariants: every wait has a deadline; what is said to be durable was synced, and so were the names that lead to it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_PAUSE_S: Final = 0.005


def wait_for_lock(file: int, operation: int, *, patience_s: float) -> None:
    """Lock an open file or folder with `flock`; held until the descriptor is closed. Blocks.

    Args:
        file: its descriptor.
        operation: `fcntl.LOCK_SH` or `fcntl.LOCK_EX`.
        patience_s: how long another process may hold it.

    Raises:
        OSError: `ETIMEDOUT`, the other process did not let go in time.

    """
    deadline_s = time.monotonic() + patience_s
    while True:
        try:
            return fcntl.flock(file, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline_s:
                reason = f"another process has held its lock for {patience_s:g} s"
                raise OSError(errno.ETIMEDOUT, reason) from None
            time.sleep(_PAUSE_S)


@contextlib.contextmanager
def open_regular(path: Path) -> Iterator[int | None]:
    """A descriptor of a regular file to read, or `None` if nothing is there, or something else, such as a pipe.

    Never waits for another process, as opening a pipe does, and opens no device unless one took the file's place just
    now. Raises `OSError`.
    """
    descriptor = None
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if stat.S_ISREG(path.stat().st_mode):
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield descriptor if descriptor is not None and stat.S_ISREG(os.fstat(descriptor).st_mode) else None
    finally:
        if descriptor is not None:
            os.close(descriptor)


def read_regular(path: Path, bytes_max: int | None = None) -> bytes | int | None:
    """The bytes of a regular file, or its length if it has more than `bytes_max`, or `None` as `open_regular`.

    Raises `OSError`.
    """
    with open_regular(path) as descriptor:
        if descriptor is None:
            return None
        length = os.fstat(descriptor).st_size
        if bytes_max is not None and length > bytes_max:
            return length
        with open(descriptor, "rb", closefd=False) as file:
            return file.read() if bytes_max is None else file.read(bytes_max)


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable. Blocks; raises `OSError`."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> bool:
    """Make the bytes of a regular file durable, and return whether there is one. Blocks. Raises `OSError`."""
    with open_regular(path) as descriptor:
        if descriptor is not None:
            os.fsync(descriptor)
        return descriptor is not None


def make_durable_folder(folder: Path, *, top: Path) -> None:
    """Make `folder` and its missing parents, and make their names durable. Blocks; raises `OSError`.

    Args:
        folder: absolute.
        top: `folder` or a parent of it. The names from here down are synced even if they were there: the process that
            made them may have died before it did that.

    """
    while not top.parent.exists():
        top = top.parent
    folder.mkdir(parents=True, exist_ok=True)
    for made in (folder, *folder.parents):
        sync_folder(made.parent)
        if made == top:
            break
