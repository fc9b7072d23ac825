"""One event loop in a thread of its own, so that plain functions, notebooks and threads can call coroutines.

Owns: the thread, the loop and its clean end. Does not own: what runs on it.
Invariants: `run` never blocks the loop's own thread; after `close` no task is left; a caller whose coroutine was cut
off gets `CancelledError`; at the interpreter's exit the loop ends before Python tears modules down.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
import weakref
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from rootline.client.session.loop_executor import LoopExecutor

T = TypeVar("T")
_EXIT_PATIENCE_S: Final = 2.0
_alive: Final[weakref.WeakSet[LoopThread]] = weakref.WeakSet()


class LoopThread:
    """An event loop on a daemon thread, started by the first use."""

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
        """Raises `RuntimeError` for a caller on this loop: if it blocked, it would wait for itself."""
        if threading.current_thread() is self._thread:
            raise RuntimeError(
                f"{self._name}: a blocking call on the event loop's own thread would never end; call it from another "
                "thread"
            )

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run `coroutine` on the loop and wait for its result; an interrupt of the caller cancels it."""
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
        """Cancel what still runs and end the thread; wait up to `timeout_s` seconds for it (`None`: until it ends)."""
        self.request_stop()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)

    def finish_calls(self) -> None:
        """Wait for what has begun on the loop's other threads: Python must not be torn down below it."""
        if os.getpid() == self._process:
            self._executor.shutdown(cancel_futures=True)

    def request_stop(self) -> None:
        """Begin to close without waiting; harmless from any thread, also more than once."""
        if os.getpid() != self._process:
            return  # a forked child: the thread, and the loop's wake-up socket, are its parent's
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
            # Python 3.12.0 and 3.12.1 start no thread once a program ends, not even the one in which asyncio waits for
            # the executor. All else has been done by then.
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
