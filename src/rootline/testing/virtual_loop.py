"""An event loop with virtual time: it jumps to the next timer instead of waiting.

Owns: virtual time for asyncio programs. Does not own: the programs that run in it.
Invariants: One thread, no real I/O, no real clock. The same program with the same seed always runs in the same way.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from typing_extensions import override

T = TypeVar("T")


class Deadlock(RuntimeError):
    """Every task waits and no timer is set, so no task can ever continue."""


class _JumpingSelector(selectors.SelectSelector):
    """A selector that never waits: it moves the loop's time to the next timer."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock("every task waits and no timer is set")
        self.now_s += max(0.0, timeout)
        return []


class _InlineExecutor(concurrent.futures.ThreadPoolExecutor):
    """Runs each call in the caller's thread, because another thread would depend on real time."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[T]:
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose `time()` starts at 0 and is in virtual seconds."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)
        # timers fire this close to their time: after some months a float has no nanoseconds, and time would stop
        self._clock_resolution = 1e-6
        self.set_default_executor(_InlineExecutor(max_workers=1))

    @override
    def time(self) -> float:
        """Virtual seconds since the loop began."""
        return self._jumping.now_s

    @override
    async def shutdown_default_executor(self, *_: object) -> None:
        """Do nothing. The base class would start a thread for it, and virtual time would not wait for that."""


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to completion in virtual time. Raises `Deadlock` if it can never complete."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
