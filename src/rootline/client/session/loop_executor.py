"""Threads for what an event loop must not wait for, which serve it until it ends.

Owns: starting threads when there is more to do than they can take, their end. Does not own: the loop (`loop_thread`).
Invariants: calls begin in the order in which they came; a shutdown finishes all of them, unless it says otherwise.

Python's own executor refuses calls as soon as the main thread has ended. A program may go on in other threads, which
still use the lake, and a lake that is open still has work of its own to finish. Where no thread can be started any
more, those that run take the calls, and without one the caller carries them out.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

T = TypeVar("T")
_THREADS_MAX: Final = min(32, (os.cpu_count() or 1) + 4)
"""As many as asyncio allows itself."""


class LoopExecutor(ThreadPoolExecutor):
    """The executor of one loop; asyncio takes none that is not a `ThreadPoolExecutor`."""

    def __init__(self, name: str) -> None:
        super().__init__(_THREADS_MAX, name)
        self._name = name
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._waiting = threading.Semaphore(0)
        self._guard = threading.Lock()
        self._started: list[threading.Thread] = []
        self._ended = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Call `fn` on a thread. Raises `RuntimeError` after `shutdown`."""
        future: Future[T] = Future()
        with self._guard:
            if self._ended:
                raise RuntimeError(f"{self._name}: the event loop has ended")
            self._calls.put((future, functools.partial(fn, *args, **kwargs)))
            is_taken = self._waiting.acquire(blocking=False) or len(self._started) >= _THREADS_MAX
            call = None if is_taken or self._start_thread() else self._calls.get_nowait()
        if call is not None:
            _carry_out(*call)
        return future

    def _start_thread(self) -> bool:
        """Start a thread, and return whether some thread takes calls.

        Python starts no thread at the end of a program, and some versions of it already refuse early.
        """
        thread = threading.Thread(target=self._work, name=f"{self._name}-{len(self._started)}", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return bool(self._started)
        self._started.append(thread)
        return True

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls, and wait until the threads have ended."""
        with self._guard:
            self._ended = True
            if cancel_futures:
                self._cancel_calls()
            for _ in self._started:
                self._calls.put(None)
        if wait:
            for thread in self._started:
                thread.join()

    def _cancel_calls(self) -> None:
        while True:
            try:
                call = self._calls.get_nowait()
            except Empty:
                return
            if call is not None:
                call[0].cancel()

    def _work(self) -> None:
        while (call := self._next()) is not None:
            _carry_out(*call)
            del call  # what it returned may be large, and the next call far away

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        try:
            return self._calls.get_nowait()
        except Empty:
            self._waiting.release()
            return self._calls.get()


def _carry_out(future: Future[Any], function: Callable[[], Any]) -> None:
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(function())
        except BaseException as error:  # whatever it is: the caller's
            future.set_exception(error)
