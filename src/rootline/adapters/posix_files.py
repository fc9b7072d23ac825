"""What every file of ours needs of the operating system: a lock with a deadline, a folder made durable.

Owns: the calls. Does not own: which files there are, and what must be durable when (the adapters).
Invariants: every wait has a deadline; what is said to be durable was synced, and so were the names that lead to it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
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


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable. Blocks; raises `OSError`."""
    _sync(folder, os.O_DIRECTORY)


def sync_file(path: Path) -> None:
    """Make the bytes of a file durable. Blocks; raises `OSError`."""
    _sync(path, 0)


def _sync(path: Path, kind: int) -> None:
    descriptor = os.open(path, os.O_RDONLY | kind)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
