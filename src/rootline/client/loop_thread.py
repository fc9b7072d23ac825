"""An event loop in its own thread, and a thread pool for blocking calls.

Owns: the loop, its thread and their clean end, threads for calls that block. Does not own: the coroutines that run on
the loop.
Invariants: `run` never blocks the loop's own thread. After `close` no task runs, and a caller whose coroutine was
cancelled gets `CancelledError`. At the interpreter's exit the loop ends before Python tears modules down. Blocking
calls begin in the order of their arrival. A shutdown finishes all of them, unless its caller cancels those that have
not begun.

Theory. Python's own executor refuses calls as soon as the main thread has ended. Other threads of the program may still
use the lake then, and an open lake still has work to finish. If no further thread can be started, the running threads
execute the calls. If no thread is running, the caller executes them.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

T = TypeVar("T")
_THREADS_MAX: Final = min(32, (os.cpu_count() or 1) + 4)
"""The default of asyncio's own executor."""


class LoopExecutor(ThreadPoolExecutor):
    """The executor of one loop. It is a `ThreadPoolExecutor`, because asyncio accepts no other kind."""

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
        """Start a thread, and return whether there is a thread that executes calls.

        Python refuses to start a thread at the end of a program, and some versions of Python refuse earlier.
        """
        thread = threading.Thread(target=self._work, name=f"{self._name}-{len(self._started)}", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return bool(self._started)
        self._started.append(thread)
        return True

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Stop accepting calls, and wait until the threads have ended."""
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
            del call  # its result may be large, and the next call may be much later

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
        except BaseException as error:  # every error is passed to the caller
            future.set_exception(error)


_EXIT_PATIENCE_S: Final = 2.0
_alive: Final[weakref.WeakSet[LoopThread]] = weakref.WeakSet()


class LoopThread:
    """An event loop on a daemon thread that starts at the first use."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._executor = LoopExecutor(name)
        self._closed = False
        self._stop_seen = False
        self._process = os.getpid()

    def refuse_itself(self) -> None:
        """Raises `RuntimeError` if called on this loop's thread, where a blocking call would deadlock."""
        if threading.current_thread() is self._thread:
            raise RuntimeError(
                f"{self._name}: a blocking call on the event loop's own thread would never end; call it from another "
                "thread"
            )

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run `coroutine` on the loop and wait for its result. An interrupt of the caller cancels it."""
        try:
            self.refuse_itself()
        except RuntimeError:
            coroutine.close()
            raise
        future = self.submit(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start `coroutine` on the loop. Raises `RuntimeError` once the loop is closed."""
        try:
            loop = self._started()
            return asyncio.run_coroutine_threadsafe(coroutine, loop)
        except RuntimeError:
            coroutine.close()
            raise

    def close(self, *, timeout_s: float | None = None) -> None:
        """Cancel running tasks and end the thread.

        Wait for it up to `timeout_s` seconds, or without a limit if `None`.
        """
        self.request_stop()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)

    def finish_calls(self) -> None:
        """Wait for running calls on the loop's other threads, before Python tears its modules down."""
        if os.getpid() == self._process:
            self._executor.shutdown(cancel_futures=True)

    def request_stop(self) -> None:
        """Begin to close without waiting. It may be called from any thread, any number of times."""
        if os.getpid() != self._process:
            return  # a forked child: the thread and the loop's wake-up socket belong to its parent
        with self._guard:
            self._closed = True
            loop, stop = self._loop, self._stop
        if loop is not None and stop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended already
                loop.call_soon_threadsafe(stop.set)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._guard:
            if self._closed:
                raise RuntimeError(f"{self._name}: the event loop is closed")
            if self._loop is None:
                ready = threading.Event()
                self._thread = threading.Thread(target=self._run, args=(ready,), name=self._name, daemon=True)
                self._thread.start()
                ready.wait()
                _alive.add(self)
            assert self._loop is not None
            return self._loop

    def _run(self, ready: threading.Event) -> None:
        try:
            asyncio.run(self._main(ready))
        except RuntimeError:
            # Python 3.12.0 and 3.12.1 start no thread once a program ends, not even asyncio's own thread that waits for
            # the executor. Everything else has been done before.
            if not self._stop_seen:
                raise
            self._executor.shutdown(cancel_futures=True)

    async def _main(self, ready: threading.Event) -> None:
        self._stop = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.set_default_executor(self._executor)
        ready.set()
        await self._stop.wait()
        self._stop_seen = True


@atexit.register
def _stop_all() -> None:
    for thread in list(_alive):
        thread.close(timeout_s=_EXIT_PATIENCE_S)
        thread.finish_calls()
