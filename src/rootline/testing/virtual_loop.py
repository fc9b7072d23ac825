"""An event loop whose time is a number: it jumps to the next timer instead of waiting.

Owns: virtual time for asyncio programs. Does not own: the programs that run in it.
Invariants: one thread, no real I/O, no real clock. The same program with the same seed always runs the same way.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Deadlock(RuntimeError):
    """Every task waits and no timer is armed: nothing can ever happen again."""


class _JumpingSelector(selectors.SelectSelector):
    """Never waits: instead of waiting for a timer it moves the loop's time."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock("every task waits and no timer is armed")
        self.now_s += max(0.0, timeout)
        return []


class _InlineExecutor(concurrent.futures.ThreadPoolExecutor):
    """Runs a call where it is submitted: a thread would bring real time back in."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[T]:
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` starts at 0 and is in seconds."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)
        # a timer is due this close to its time; a float of some months has no nanoseconds, and time would not move on
        self._clock_resolution = 1e-6
        self.set_default_executor(_InlineExecutor(max_workers=1))

    def time(self) -> float:
        """Virtual seconds since the loop began."""
        return self._jumping.now_s

    async def shutdown_default_executor(self, *_: object) -> None:
        """There is no thread to wait for; the loop's own way starts one, and time would not wait for its answer."""


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end in virtual time. Raises `Deadlock` if it can never end."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
