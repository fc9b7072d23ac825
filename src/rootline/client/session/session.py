"""What one process holds open of a lake: store, log, environment, and the loop they live on.

Owns: opening once per process, again in a forked child, and closing. Does not own: which adapters (`rootline.connect`
passes an opener), what is done with them.
Invariants: adapters are used on one loop only; a forked child never touches its parent's connections; no call is
accepted once closing has begun.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future, wait
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from rootline.client.session.loop_thread import LoopThread
from rootline.client.session.upload_dates import UploadDates
from rootline.ports.environment import Environment
from rootline.ports.head_hints import NO_HINTS, HeadHints
from rootline.ports.intent_log import IntentSink, VerdictSource
from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import Invalid, OutcomeUnknown
from rootline.schemas.identifiers import TableName
from rootline.storage.metadata.read_cache import ReadCache

if TYPE_CHECKING:
    from rootline.catalog.exporter import TableExporter

T = TypeVar("T")
_guards: Final[set[asyncio.Task[None]]] = set()
_inherited: Final[list[object]] = []
"""What a forked child got from its parent: kept, because collecting it would close files that the parent uses."""


class ClientLog(IntentSink, VerdictSource, Protocol):
    """The two sides of a log that a writer needs."""


@dataclass(frozen=True, slots=True)
class Session:
    """Everything that an operation needs, open, on the running loop. `close` gives all of it back."""

    store: ObjectStore
    log: ClientLog
    environment: Environment
    close: Callable[[], Coroutine[Any, Any, None]]
    trouble: Callable[[TableName], Awaitable[str | None]]
    """Why intents of a table are not decided, as far as this process knows or can find out soon; for messages."""
    cache: ReadCache = field(default_factory=ReadCache)
    """What plans have read before."""
    base_url: str = ""
    """The warehouse's URL as other engines know it, absolute."""
    uploads: UploadDates = field(default_factory=UploadDates)
    exporters: list[TableExporter] = field(default_factory=list)
    """The one exporter of this session, once an export was asked for."""
    hints: HeadHints = NO_HINTS
    """Where a table's newest root may be."""


Opener = Callable[[], Awaitable[Session]]
Operation = Callable[[Session], Coroutine[Any, Any, T]]


class _End(Enum):
    """The end of an iteration."""

    HERE = "here"


class SessionHolder:
    """Runs operations on the session of the current process; thread-safe."""

    def __init__(self, name: str, opener: Opener) -> None:
        self.name = name
        self._opener = opener
        self._guard = threading.RLock()  # an unfinished iteration may be collected while it is held
        self._process = os.getpid()
        self._loop = self._new_loop()
        self._opening: Future[Session] | None = None
        self._running: set[Future[Any]] = set()
        self._closed = False

    def run(self, operation: Operation[T]) -> T:
        """Carry `operation` out on the loop and wait for it, from any thread but the loop's own."""
        self._adopt_process()
        self._loop.refuse_itself()
        future = self.submit(operation)
        try:
            return future.result()
        except CancelledError:
            raise self._cut_off() from None
        except BaseException:
            future.cancel()
            raise

    async def run_async(self, operation: Operation[T]) -> T:
        """The same for a caller on a loop of its own."""
        future = self.submit(operation)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise self._cut_off() from None  # no one cancelled the caller: the lake was closed meanwhile

    def iterate(self, source: Callable[[Session], AsyncIterator[T]]) -> Iterator[T]:
        """The items of an asynchronous source, one at a time, each awaited on the loop when it is asked for."""
        found: list[AsyncIterator[T]] = []

        async def step(session: Session) -> T | _End:
            if not found:
                found.append(source(session))
            return await anext(found[0], _End.HERE)

        async def finish(_: Session) -> None:
            if found and isinstance(found[0], AsyncGenerator):
                await found[0].aclose()

        try:
            while not isinstance(item := self.run(step), _End):
                yield item
        finally:
            # the lake was closed meanwhile, or the collector runs on the loop itself: nothing is left to give back
            with contextlib.suppress(Invalid, RuntimeError):
                self.run(finish)

    def submit(self, operation: Operation[T]) -> Future[T]:
        """Start `operation`. Raises `Invalid` (`lake-closed`) after `close`."""
        self._adopt_process()
        with self._guard:
            if self._closed:
                raise Invalid("lake-closed", f"{self.name} is closed; call rootline.connect again")
            if self._opening is None or (self._opening.done() and _failed(self._opening)):
                self._opening = self._loop.submit(_opened(self._opener))
            future = self._loop.submit(_after(self._opening, operation))
            self._running.add(future)
        future.add_done_callback(self._forget)
        return future

    def close(self, patience_s: float) -> None:
        """Refuse new operations, let the running ones end for `patience_s` seconds, give all back. Repeatable."""
        self._adopt_process()
        with self._guard:
            self._closed = True
            running, opening = list(self._running), self._opening
            self._opening = None
        for late in wait(running, patience_s).not_done:
            late.cancel()
        if opening is not None and not _failed(opening):
            with contextlib.suppress(RuntimeError):  # the interpreter is shutting down: nothing can be awaited any more
                self._loop.run(opening.result().close())
        self._loop.close()

    def _cut_off(self) -> OutcomeUnknown:
        return OutcomeUnknown(
            "verdict-timeout",
            f"{self.name} was closed during the call; a change that it made may still be committed: "
            "read the table to find out",
        )

    def _forget(self, future: Future[Any]) -> None:
        with self._guard:
            self._running.discard(future)

    def _new_loop(self) -> LoopThread:
        loop = LoopThread(f"rootline {self.name}")
        # no one can use it any more, and no one closed it: end its thread as a crash would; the log keeps what it has
        weakref.finalize(self, loop.request_stop).atexit = False
        return loop

    def _adopt_process(self) -> None:
        if os.getpid() == self._process:
            return
        _inherited.append((self._loop, self._opening))
        self._guard = threading.RLock()  # the parent's may have been held by a thread that does not exist here
        self._process = os.getpid()
        self._loop = self._new_loop()
        self._opening = None
        self._running = set()


def _failed(opening: Future[Session]) -> bool:
    return opening.cancelled() or opening.exception() is not None


class _CloseOnce:
    """Closes a session once: in `close`, or at the end of the loop."""

    def __init__(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._close: Callable[[], Coroutine[Any, Any, None]] | None = close

    async def __call__(self) -> None:
        close, self._close = self._close, None
        if close is not None:
            await close()

    async def at_the_end(self) -> None:
        """Wait to be cancelled, which the end of the loop does to every task, then close."""
        try:
            await asyncio.Event().wait()
        finally:
            with contextlib.suppress(RuntimeError):  # the interpreter ends: nothing can be awaited in threads any more
                await self()


async def _opened(opener: Opener) -> Session:
    session = await opener()

    async def close_all() -> None:
        for exporter in session.exporters:
            await exporter.close()
        await session.close()

    close = _CloseOnce(close_all)
    guard = asyncio.get_running_loop().create_task(close.at_the_end())
    _guards.add(guard)
    guard.add_done_callback(_guards.discard)
    return replace(session, close=close)


async def _after(opening: Future[Session], operation: Operation[T]) -> T:
    # shielded: one caller that gives up must not take the session away from the others
    return await operation(await asyncio.shield(asyncio.wrap_future(opening)))
