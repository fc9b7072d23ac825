"""A forked child has its own session and its own writer id before any of its threads uses them."""

from __future__ import annotations

import ctypes
import os
import sys
import uuid
from collections.abc import Callable
from threading import Barrier, Thread

import pytest

from rootline.adapters.memory import MemoryIntentLog, MemoryObjectStore
from rootline.adapters.system_environment import SystemEnvironment
from rootline.client.session import Session, SessionHolder, WriterStamp
from tests.support.opened_sessions import nothing_known

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
_THREADS = 6
_FORKS = 20
Fork = Callable[[], int]
_fork_in_c: Fork = ctypes.PyDLL(None).fork
"""A fork that calls none of Python's handlers, as by uWSGI."""


def succeeds_in_a_child(check: Callable[[], bool], fork: Fork = os.fork) -> bool:
    """Whether `check` is true in a forked child, whose threads take turns as often as possible."""
    child = fork()
    if child == 0:
        try:
            sys.setswitchinterval(1e-6)
            os._exit(0 if check() else 1)
        except BaseException:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def results_of_threads(work: Callable[[], object]) -> list[object]:
    """The results of `work` on several threads that begin together. A thread that waits for ever has none."""
    together, found = Barrier(_THREADS), list[object]()

    def run() -> None:
        together.wait()
        found.append(work())

    threads = [Thread(target=run, daemon=True) for _ in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    return found


def test_a_fork_gives_the_child_its_writer_id_before_a_thread_counts() -> None:
    minted = list[uuid.UUID]()

    def fresh() -> uuid.UUID:
        minted.append(uuid.uuid4())
        return minted[-1]

    stamp = WriterStamp(fresh_uuid=fresh)
    assert stamp._count("demo.flights") == (f"process/{minted[0]}", 0)
    assert succeeds_in_a_child(lambda: len(minted) == 2 and stamp._count("demo.flights") == (f"process/{minted[1]}", 0))
    assert stamp._count("demo.flights") == (f"process/{minted[0]}", 1)


def test_threads_of_a_child_that_was_forked_in_c_count_under_one_writer_id_which_is_not_their_parents() -> None:
    stamp = WriterStamp()
    known, _ = stamp._count("demo.flights")

    def count_anew() -> bool:
        found = results_of_threads(lambda: stamp._count("demo.flights"))
        writer, _ = stamp._count("demo.flights")
        return writer != known and sorted(found, key=repr) == [(writer, number) for number in range(_THREADS)]

    assert all(succeeds_in_a_child(count_anew, _fork_in_c) for _ in range(_FORKS))


@pytest.mark.parametrize("fork", [os.fork, _fork_in_c], ids=["by Python", "in C"])
def test_threads_of_a_forked_child_that_use_a_lake_first_share_one_session(fork: Fork) -> None:
    opened = list[Session]()

    async def opener() -> Session:
        store = MemoryObjectStore()
        opened.append(Session(store, MemoryIntentLog(), SystemEnvironment(), store.close, nothing_known))
        return opened[-1]

    async def used(session: Session) -> int:
        return id(session.store)

    holder = SessionHolder("lake", opener)
    holder.run(used)

    def share_one() -> bool:
        opened.clear()
        found = results_of_threads(lambda: holder.run(used))
        return len(opened) == 1 and found == [id(opened[0].store)] * _THREADS

    assert all(succeeds_in_a_child(share_one, fork) for _ in range(_FORKS))
    holder.close(1)
