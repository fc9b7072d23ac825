"""Two calls to the operating system that every file of ours needs: a lock with a deadline, a folder made durable."""

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
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
