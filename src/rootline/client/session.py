"""An open lake in one process: its connections, its writer's numbers, and the result of a commit.

Owns: opening once a process and again in a forked child, closing, the dates of uploads, the numbers of intents under
one writer id, `Commit` and the error of a change that was not committed. Does not own: the choice of adapters
(`rootline.connect` passes an opener), the loop's thread (`loop_thread`), the ledger that checks a writer's numbers.
Invariants: adapters are used on one loop only. A forked child never touches its parent's connections, and writes under
its own writer id. No call is accepted once closing has begun. A number is never given twice under one writer id. The
date of an upload is stated only when the date of every file is known.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import uuid
import weakref
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import CancelledError, Future, wait
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from rootline.client.loop_thread import LoopThread
from rootline.ports.environment import Environment
from rootline.ports.head_hints import NO_HINTS, HeadHints
from rootline.ports.intent_log import IntentSink, VerdictSource
from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import Invalid, OutcomeUnknown
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import PROCESS_WRITER_PREFIX, Intent
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.storage.metadata.read_cache import ReadCache

if TYPE_CHECKING:
    from rootline.catalog.exporter import TableExporter


@dataclass(frozen=True, slots=True)
class Commit:
    """A change that is in the table.

    `version`: the table's version that the change made. `snapshot_id`: the same version as Iceberg names it.
    `sequence_number`: the change's own, as in the Iceberg specification; `None` only for a duplicate of a change whose
    number is not kept any more.
    `added_rows`, `deleted_rows`: rows that the call gave, and rows of the version that it was planned from; `None` if
    it does not know, because it read no file to find out, or counts no rows.
    `is_new`: whether the call made this version; an append of no rows publishes nothing, and names the newest version.
    """

    version: int
    snapshot_id: int
    sequence_number: int | None
    added_rows: int | None = field(default=None, compare=False)
    deleted_rows: int | None = field(default=None, compare=False)
    is_new: bool = field(default=True, compare=False)


def commit_of(verdict: Verdict) -> Commit:
    """The commit that `verdict` names.

    Raises:
        Invalid: the intent was rejected, with the verdict's own code and message.

    """
    if verdict.kind is VerdictKind.REJECTED:
        code = verdict.code or "intent-malformed"
        raise Invalid(code, verdict.message or f"{verdict.table}: intent {verdict.intent_id} was rejected ({code})")
    if verdict.version is None or verdict.snapshot_id is None:
        raise Invalid(
            "file-already-live",
            f"{verdict.table}: intent {verdict.intent_id} repeats a commit whose version the table does not keep any "
            "more; the change is in the table",
        )
    return Commit(verdict.version, verdict.snapshot_id, verdict.sequence_number)


class WriterStamp:
    """Stamps intents; thread-safe. With a supplied `writer_id` the caller counts, without one this does, from 0."""

    def __init__(self, writer_id: str | None = None) -> None:
        if writer_id is not None and not 1 <= len(writer_id) <= 256:
            raise Invalid("setting-invalid", f"writer_id must have 1 to 256 characters, not {len(writer_id)}")
        if writer_id is not None and writer_id.startswith(PROCESS_WRITER_PREFIX):
            raise _reserved(writer_id)
        self._supplied = writer_id
        self._mint()

    @property
    def is_supplied(self) -> bool:
        """Whether the caller named the writer, and counts."""
        return self._supplied is not None

    def _mint(self) -> None:
        self._guard = threading.Lock()
        self._minted = f"{PROCESS_WRITER_PREFIX}{uuid.uuid4()}"
        self._next: defaultdict[str, int] = defaultdict(int)
        self._process = os.getpid()

    def stamp(self, intent: Intent, writer_sequence: int | None = None) -> Intent:
        """`intent` with a writer and a sequence.

        Raises:
            Invalid: `setting-invalid`, the id was supplied without a sequence, or the other way round, or the intent
                carries another pair, or a `process/` id that no producer made.

        """
        if intent.writer_id is not None:
            _check_minted(intent.writer_id)
            self._check_carried(intent, writer_sequence)
            return intent
        if self._supplied is None:
            if writer_sequence is not None:
                raise Invalid(
                    "setting-invalid",
                    "writer_sequence needs a writer_id: open the producer with one, or leave the sequence out",
                )
            writer_id, writer_sequence = self._count(intent.table)
        elif writer_sequence is None:
            raise Invalid(
                "setting-invalid",
                f"writer {self._supplied!r}: give the intent's number: publish(intent, writer_sequence=n)",
            )
        else:
            writer_id = self._supplied
        if not 0 <= writer_sequence < 2**63:
            raise Invalid("setting-invalid", f"writer_sequence {writer_sequence} is outside 0..2^63-1")
        return intent.model_copy(update={"writer_id": writer_id, "writer_sequence": writer_sequence})

    def _check_carried(self, intent: Intent, writer_sequence: int | None) -> None:
        if self._supplied not in (None, intent.writer_id) or writer_sequence not in (None, intent.writer_sequence):
            raise Invalid(
                "setting-invalid",
                f"intent {intent.intent_id} carries writer {intent.writer_id!r}, sequence {intent.writer_sequence}, "
                f"not {self._supplied!r}, {writer_sequence}; publish it under its own pair",
            )

    def _count(self, table: str) -> tuple[str, int]:
        if self._process != os.getpid():
            self._mint()  # a forked child: the parent goes on counting under its id, and may have held the lock
        with self._guard:
            number = self._next[table]
            self._next[table] = number + 1
            return self._minted, number


def _check_minted(writer_id: str) -> None:
    """An intent that was stamped before may carry a `process/` id; one that a caller chose would be forgotten."""
    if not writer_id.startswith(PROCESS_WRITER_PREFIX):
        return
    name = writer_id.removeprefix(PROCESS_WRITER_PREFIX)
    try:
        is_minted = str(uuid.UUID(name)) == name
    except ValueError:
        is_minted = False
    if not is_minted:
        raise _reserved(writer_id)


def _reserved(writer_id: str) -> Invalid:
    return Invalid(
        "setting-invalid",
        f"writer_id {writer_id!r:.80}: ids that begin with {PROCESS_WRITER_PREFIX} are made by Rootline and forgotten "
        "after seven idle days; choose another",
    )


_FILES_MAX: Final = 100_000


class UploadDates:
    """By table and location, in milliseconds; the oldest uploads are forgotten first."""

    def __init__(self) -> None:
        self._dates: dict[tuple[str, str], int] = {}

    def note(self, table: str, location: str, stored_ms: int) -> None:
        """A file was uploaded."""
        if len(self._dates) >= _FILES_MAX:
            del self._dates[next(iter(self._dates))]
        self._dates[table, location] = stored_ms

    def note_leaves(self, table: str, leaves: Iterable[str], oldest_ms: int | None) -> None:
        """Leaves were written of files the oldest of which is of `oldest_ms`, if that is known; so are they."""
        for leaf in leaves:
            uploaded_ms = self._dates.pop((table, leaf), None)
            if oldest_ms is not None and uploaded_ms is not None:
                self.note(table, leaf, min(oldest_ms, uploaded_ms))

    def oldest(self, table: str, locations: Iterable[str]) -> int | None:
        """The date of the oldest; `None`: one of them was not uploaded here, or there are none."""
        return oldest_date(self._dates.get((table, location)) for location in locations)

    def oldest_of(self, intents: Iterable[Intent]) -> int | None:
        """Of all files that these bring; `None`: it is not known, or they bring none."""
        return oldest_date(
            self._dates.get((intent.table, location)) for intent in intents for location in brought(intent)
        )


def oldest_date(dates: Iterable[int | None]) -> int | None:
    """The least; `None`: one of them is not known, or there are none."""
    oldest_ms: int | None = None
    for date_ms in dates:
        if date_ms is None:
            return None
        oldest_ms = date_ms if oldest_ms is None else min(oldest_ms, date_ms)
    return oldest_ms


def brought(intent: Intent) -> list[str]:
    """The locations that an intent names as new."""
    lists = (intent.add_data_files, intent.add_equality_deletes, intent.add_vectors, intent.add_manifests)
    return [item.location for items in lists for item in items]


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


class OpenLake(Protocol):
    """A shared connection, and the writer id that changes of this process carry."""

    @property
    def holder(self) -> SessionHolder:
        """Runs operations on the lake's loop."""
        ...

    @property
    def stamp(self) -> WriterStamp:
        """Numbers the intents of this process."""
        ...
