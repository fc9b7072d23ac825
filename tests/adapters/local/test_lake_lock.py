"""One process at a time hosts the coordinator of an embedded lake."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rootline.adapters.posix_files import LakeLock


def test_a_lock_that_is_held_is_not_given_twice(tmp_path: Path) -> None:
    first, second = LakeLock(tmp_path / ".rootline"), LakeLock(tmp_path / ".rootline")

    assert first.try_acquire()
    assert first.try_acquire()
    assert not second.try_acquire()
    assert second.holder_pid() == os.getpid()
    first.release()
    assert second.try_acquire()
    second.release()
    second.release()


async def test_who_waits_gets_the_lock_when_it_is_given_back(tmp_path: Path) -> None:
    first, second = LakeLock(tmp_path), LakeLock(tmp_path)
    assert first.try_acquire()
    waiting = asyncio.ensure_future(second.acquire())
    await asyncio.sleep(0)
    assert not waiting.done()

    first.release()
    await asyncio.wait_for(waiting, 30)

    assert not first.try_acquire()
    second.release()


def test_the_lock_of_a_process_that_was_killed_is_free(tmp_path: Path) -> None:
    script = """
import sys
from pathlib import Path
from rootline.adapters.posix_files import LakeLock

lock = LakeLock(Path(sys.argv[1]))
print(lock.try_acquire(), flush=True)
sys.stdin.readline()
"""
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    lock = LakeLock(tmp_path)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "True\n"
    assert not lock.try_acquire()
    assert lock.holder_pid() == holder.pid

    holder.kill()
    holder.communicate(timeout=30)

    assert lock.try_acquire()
    lock.release()


def test_a_child_forked_while_the_lock_is_given_back_keeps_its_own_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that starts Spark while its lake ends in the background: the pipe to Java has the lock's old number."""
    lock = LakeLock(tmp_path)
    assert lock.try_acquire()
    close, statuses = os.close, list[int]()

    def close_and_fork(file: int) -> None:
        monkeypatch.undo()
        close(file)
        reused = os.open(os.devnull, os.O_RDONLY)
        assert reused == file
        child = os.fork()
        if child == 0:
            os._exit(0 if Path(f"/proc/self/fd/{reused}").exists() else 1)
        statuses.append(os.waitpid(child, 0)[1])
        close(reused)

    monkeypatch.setattr(os, "close", close_and_fork)
    lock.release()

    assert statuses == [0]
