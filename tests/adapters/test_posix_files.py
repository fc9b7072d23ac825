"""Locks with a deadline, which another process may hold, blocks that no fork interrupts, and calls on threads."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import threading
import weakref
from functools import partial
from pathlib import Path

import pytest

from rootline.adapters.posix_files import BlockingCalls, ForkGate, sync_folder, unlock_and_close, wait_for_lock
from tests.support.forking import waiting_child


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


def test_a_child_that_was_forked_while_a_file_was_locked_does_not_keep_its_lock(tmp_path: Path) -> None:
    mine, other = (os.open(tmp_path, os.O_RDONLY) for _ in range(2))
    wait_for_lock(mine, fcntl.LOCK_EX, patience_s=0)
    with waiting_child():
        unlock_and_close(mine)
        wait_for_lock(other, fcntl.LOCK_EX, patience_s=0)
    os.close(other)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_waits_for_the_blocks_of_other_threads_and_then_closes_what_no_child_may_inherit() -> None:
    gate, order = ForkGate(), list[str]()
    is_in, may_end = threading.Event(), threading.Event()

    class Connection:
        def close_for_fork(self) -> None:
            order.append("closed")

    def block() -> None:
        with gate.shut():
            is_in.set()
            may_end.wait(30)
            order.append("block")

    connection = Connection()
    gate.close_before_forks(connection)
    thread = threading.Thread(target=block)
    thread.start()
    is_in.wait(30)
    threading.Timer(0.05, may_end.set).start()
    child = os.fork()
    if child == 0:
        with gate.shut():
            os._exit(0 if order == ["block", "closed"] else 1)
    thread.join(30)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with gate.shut():
        assert order == ["block", "closed"]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_that_a_signal_interrupts_still_waits_for_the_blocks() -> None:
    gate, is_in, may_end = ForkGate(), threading.Event(), threading.Event()

    def block() -> None:
        with gate.shut():
            is_in.set()
            may_end.wait(30)

    def interrupt(*_: object) -> None:
        threading.Timer(0.05, may_end.set).start()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    thread = threading.Thread(target=block)
    thread.start()
    try:
        is_in.wait(30)
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        child = os.fork()
        if child == 0:
            os._exit(0 if may_end.is_set() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        signal.signal(signal.SIGUSR1, before)
        thread.join(30)


def test_a_folder_that_is_not_there_cannot_be_made_durable(tmp_path: Path) -> None:
    sync_folder(tmp_path)
    with pytest.raises(FileNotFoundError):
        sync_folder(tmp_path / "nowhere")


class _Body(list[int]):
    """A body that may be watched."""


async def test_a_thread_that_waits_for_calls_keeps_nothing_of_its_last_one() -> None:
    calls, is_freed = BlockingCalls("test", 1), threading.Event()
    body = _Body([1, 2])
    weakref.finalize(body, is_freed.set)
    assert await calls.run(partial(sum, body)) == 3
    del body
    assert is_freed.wait(30)
    await calls.close()
