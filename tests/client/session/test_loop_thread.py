"""Plain functions on top of one event loop in a thread."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest

from rootline.client.loop_thread import LoopThread


async def _thread_name() -> str:
    return threading.current_thread().name


def test_coroutines_of_all_threads_run_on_the_one_loop() -> None:
    loop = LoopThread("loop under test")
    with ThreadPoolExecutor(4) as callers:
        names = set(callers.map(lambda _: loop.run(_thread_name()), range(20)))
    loop.close()
    assert names == {"loop under test"}


def test_an_error_reaches_the_caller_as_it_was_raised() -> None:
    async def fail() -> None:
        raise KeyError("lost")

    loop = LoopThread("loop under test")
    with pytest.raises(KeyError, match="lost"):
        loop.run(fail())
    loop.close()


def test_a_caller_inside_a_loop_of_its_own_is_served_as_in_a_notebook() -> None:
    async def notebook() -> str:
        loop = LoopThread("loop under test")
        try:
            return loop.run(_thread_name())
        finally:
            loop.close()

    assert asyncio.run(notebook()) == "loop under test"


def test_a_blocking_call_from_the_loop_itself_is_refused_instead_of_hanging() -> None:
    loop = LoopThread("loop under test")

    async def nested() -> None:
        loop.run(_thread_name())

    with pytest.raises(
        RuntimeError, match="loop under test: a blocking call on the event loop's own thread would never end"
    ):
        loop.run(nested())
    loop.close()


def test_closing_cuts_off_what_still_runs_and_says_so_to_its_caller() -> None:
    loop = LoopThread("loop under test")
    begun = threading.Event()

    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    future = loop.submit(endless())
    begun.wait(60)
    loop.close()
    with pytest.raises(CancelledError):
        future.result(60)


def test_a_closed_loop_takes_nothing_and_closing_again_is_harmless() -> None:
    loop = LoopThread("loop under test")
    loop.close()
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.run(_thread_name())
