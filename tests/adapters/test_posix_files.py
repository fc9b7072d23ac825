"""Locks with a deadline, which another process may hold."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from rootline.adapters.posix_files import sync_folder, wait_for_lock


def test_a_lock_that_another_holds_too_long_is_a_time_out_that_says_how_long(tmp_path: Path) -> None:
    mine, other = (os.open(tmp_path, os.O_RDONLY) for _ in range(2))
    fcntl.flock(other, fcntl.LOCK_EX)

    with pytest.raises(OSError, match=r"another process has held its lock for 0\.01 s") as late:
        wait_for_lock(mine, fcntl.LOCK_SH, patience_s=0.01)

    assert late.value.errno == errno.ETIMEDOUT
    os.close(other)
    wait_for_lock(mine, fcntl.LOCK_SH, patience_s=0.01)
    os.close(mine)


def test_shared_locks_do_not_wait_for_each_other(tmp_path: Path) -> None:
    files = [os.open(tmp_path, os.O_RDONLY) for _ in range(2)]
    for file in files:
        wait_for_lock(file, fcntl.LOCK_SH, patience_s=0)
    for file in files:
        os.close(file)


def test_a_folder_that_is_not_there_cannot_be_made_durable(tmp_path: Path) -> None:
    sync_folder(tmp_path)
    with pytest.raises(FileNotFoundError):
        sync_folder(tmp_path / "nowhere")
