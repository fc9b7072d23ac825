"""An open lake in one process: its connections, the sequence numbers of its writer, and the result of a commit.

Owns: opening once per process and again in a forked child, closing, the dates of uploads, the numbers of intents under
one writer id, `Commit` and the error of a change that was not committed. Does not own: the choice of adapters
(`rootline.connect` passes an opener), the loop's thread (`loop_thread`), the ledger that checks a writer's numbers.
Invariants: adapters are used on one loop only. A forked child never touches its parent's connections, and writes under
its own writer id. The fork itself replaces both, because several threads of the child may be the first to use them. No
call is accepted once closing has begun. A number is never assigned twice under one writer id. The date of an upload is
stated only if the date of every file is known.
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
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from rootline.client.loop_thread import LoopThread
from rootline.ports.environment import Environment
from rootline.ports.head_hints import NO_HINTS, HeadHints
from rootline.ports.intent_log import IntentSink, VerdictSource
from rootline.ports.object_store import ObjectStore
from rootline.schemas.client_commits import CLIENT, CLIENT_WRITER_PREFIX, REFUSED
from rootline.schemas.errors import Invalid, OutcomeUnknown
from rootline.schemas.identifiers import PROCESS_WRITER_PREFIX, TableName
from rootline.schemas.object_keys import is_absolute
from rootline.storage.metadata.read_cache import ReadCache

if TYPE_CHECKING:
    from rootline.catalog.exporter import TableExporter
    from rootline.schemas.intent import Intent
    from rootline.schemas.verdict import Verdict


@dataclass(frozen=True, slots=True)
class RowCounts:
    """The numbers of rows that a call inserted, updated and deleted. `None` is as in `Commit`."""

    inserted: int | None
    updated: int
    deleted: int | None


@dataclass(frozen=True, slots=True)
class Commit:
    """A change that is in the table.

    `version`: the table's version that the change made. `snapshot_id`: the same version as an Iceberg snapshot id.
    `sequence_number`: Iceberg's sequence number of the change. It is `None` only for a duplicate of an old change whose
    number is no longer recorded.
    `added_rows`, `deleted_rows`: rows that the call added, and rows that it deleted from the version of its plan. They
    are `None` if unknown, because the call read no file to count them, or if the call does not count rows.
    `updated_rows`: rows that the call replaced by new versions of them. `rows`: the three numbers.
    `is_new`: whether the call made this version. An append without rows, and a change that finds nothing to
    change, publish nothing and return the newest version. An append under a writer's number that was
    committed before returns the version that has its rows.
    """

    version: int
    snapshot_id: int
    sequence_number: int | None
    added_rows: int | None = field(default=None, compare=False)
    deleted_rows: int | None = field(default=None, compare=False)
    is_new: bool = field(default=True, compare=False)
    updated_rows: int = field(default=0, compare=False)

    @property
    def rows(self) -> RowCounts:
        """The numbers of rows that the call changed."""
        return RowCounts(self.added_rows, self.updated_rows, self.deleted_rows)


def commit_of(verdict: Verdict) -> Commit:
    """The commit that `verdict` names.

    Raises:
        Invalid: the intent was rejected. Code and message are the verdict's.
    """
    from rootline.schemas.verdict import VerdictKind

    if verdict.kind is VerdictKind.REJECTED:
        code = verdict.code or "intent-malformed"
        raise Invalid(code, verdict.message or f"{verdict.table}: intent {verdict.intent_id} was rejected ({code})")
    if verdict.version is None or verdict.snapshot_id is None:
        raise Invalid(
            "file-already-live",
            f"{verdict.table}: intent {verdict.intent_id} repeats a commit whose version the table no longer "
            "records; the change is in the table",
        )
    return Commit(verdict.version, verdict.snapshot_id, verdict.sequence_number)


class WriterStamp:
    """A counter that stamps intents. Thread-safe.

    With a supplied `writer_id`, the caller numbers the intents. Without one, the stamp numbers them from 0 for each
    table, under an id from `fresh_uuid`. With a supplied `writer_sequence`, every intent has this number, so at most
    one of them is committed. `content` states what they contain, as in `publish` of a producer.
    """

    def __init__(
        self,
        writer_id: str | None = None,
        writer_sequence: int | None = None,
        content: str = "",
        *,
        fresh_uuid: Callable[[], uuid.UUID] = uuid.uuid4,
    ) -> None:
        if writer_id is not None and not 1 <= len(writer_id) <= 256:
            raise Invalid("setting-invalid", f"writer_id must have 1 to 256 characters, not {len(writer_id)}")
        if writer_id is not None and writer_id.startswith((PROCESS_WRITER_PREFIX, CLIENT_WRITER_PREFIX)):
            raise _reserved(writer_id)
        self._supplied = writer_id
        self._fresh_uuid = fresh_uuid
        self._number = writer_sequence
        self.content = content
        self.begin_anew()
        _of_process.add(self)

    @property
    def is_supplied(self) -> bool:
        """Whether the caller supplied the writer id, and the numbers."""
        return self._supplied is not None

    def begin_anew(self) -> None:
        """Count under a new id. After a fork, the parent still counts under its own, and may own the lock."""
        self._guard = threading.Lock()
        self._minted = f"{PROCESS_WRITER_PREFIX}{self._fresh_uuid()}"
        self._next: defaultdict[str, Iterator[int]] = defaultdict(count)

    def stamp(self, intent: Intent, writer_sequence: int | None = None) -> Intent:
        """`intent` with a writer and a sequence.

        Raises:
            Invalid: `setting-invalid`, a writer id was supplied without a sequence or a sequence without a writer id,
                the intent already has another writer or sequence, or it has a `process/` id that no producer made, or a
                `rest/` id without being the commit of an Iceberg client.
        """
        if intent.writer_id is not None:
            _check_minted(intent.writer_id, intent)
            self._check_carried(intent, writer_sequence)
            return intent
        writer_sequence = self._number if writer_sequence is None else writer_sequence
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
            raise Invalid("setting-invalid", f"writer_sequence {writer_sequence}: give one from 0 to 2^63-1")
        return intent.model_copy(update={"writer_id": writer_id, "writer_sequence": writer_sequence})

    def _check_carried(self, intent: Intent, writer_sequence: int | None) -> None:
        if self._supplied not in (None, intent.writer_id) or writer_sequence not in (None, intent.writer_sequence):
            raise Invalid(
                "setting-invalid",
                f"intent {intent.intent_id} carries writer {intent.writer_id!r}, sequence {intent.writer_sequence}, "
                f"not {self._supplied!r}, {writer_sequence}; publish it under its own pair",
            )

    def _count(self, table: str) -> tuple[str, int]:
        _adopt_process()
        with self._guard:
            return self._minted, next(self._next[table])


def _check_minted(writer_id: str, intent: Intent) -> None:
    """Refuse a `process/` or `rest/` id chosen by a caller, because such ids expire. An intent stamped by a producer
    may carry a `process/` id, the commit of an Iceberg client, and its refusal, a `rest/` id.
    """
    if writer_id.startswith(CLIENT_WRITER_PREFIX) and not {CLIENT, REFUSED} & intent.summary.keys():
        raise _reserved(writer_id)
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
        f"writer_id {writer_id!r:.80}: ids that begin with {CLIENT_WRITER_PREFIX} or {PROCESS_WRITER_PREFIX} are made "
        "by Rootline and expire; choose another",
    )


_FILES_MAX: Final = 100_000


class UploadDates:
    """Upload times by table and location, in milliseconds. The oldest entries are dropped first."""

    def __init__(self) -> None:
        self._dates: dict[tuple[str, str], int] = {}

    def note(self, table: str, location: str, stored_ms: int) -> None:
        """Record the upload of a file."""
        if len(self._dates) >= _FILES_MAX:
            del self._dates[next(iter(self._dates))]
        self._dates[table, location] = stored_ms

    def note_leaves(self, table: str, leaves: Iterable[str], oldest_ms: int | None) -> None:
        """Record that `leaves` list files, the oldest of which was uploaded at `oldest_ms` (`None`: unknown). A leaf
        counts as no newer than its files.
        """
        for leaf in leaves:
            uploaded_ms = self._dates.pop((table, leaf), None)
            if oldest_ms is not None and uploaded_ms is not None:
                self.note(table, leaf, min(oldest_ms, uploaded_ms))

    def oldest(self, table: str, locations: Iterable[str]) -> int | None:
        """The date of the oldest file, or `None` if one of them was not uploaded here, or there are none."""
        return oldest_date(self._dates.get((table, location)) for location in locations)

    def oldest_of(self, intents: Iterable[Intent]) -> int | None:
        """The oldest date of the files in the warehouse that the intents add. `None`: unknown, or no such files."""
        return oldest_date(
            self._dates.get((intent.table, location))
            for intent in intents
            for location in added_locations(intent)
            if not is_absolute(location)
        )


def oldest_date(dates: Iterable[int | None]) -> int | None:
    """The oldest date, or `None` if one of them is unknown, or there are none."""
    found = list(dates)
    known = [date_ms for date_ms in found if date_ms is not None]
    return min(known, default=None) if len(known) == len(found) else None


def added_locations(intent: Intent) -> list[str]:
    """The locations of all files that an intent adds."""
    lists = (intent.add_data_files, intent.add_equality_deletes, intent.add_vectors, intent.add_manifests)
    return [item.location for items in lists for item in items]


T = TypeVar("T")
_guards: Final[set[asyncio.Task[None]]] = set()
_inherited: Final[list[object]] = []
"""Objects of the parent of a forked child. They are never collected, which would close files that the parent uses."""


class ClientLog(IntentSink, VerdictSource, Protocol):
    """The two sides of a log that a writer needs: publishing and verdicts."""


@dataclass(frozen=True, slots=True)
class Session:
    """All resources of an operation, open on the running loop. `close` releases all of them."""

    store: ObjectStore
    log: ClientLog
    environment: Environment
    close: Callable[[], Coroutine[Any, Any, None]]
    trouble: Callable[[TableName], Awaitable[str | None]]
    """The reason why intents of a table are not decided, for messages, if this process can find it out quickly."""
    cache: ReadCache = field(default_factory=ReadCache)
    """Metadata that earlier plans have read."""
    base_url: str = ""
    """The warehouse's absolute URL, as other engines use it."""
    uploads: UploadDates = field(default_factory=UploadDates)
    exporters: list[TableExporter] = field(default_factory=list)
    """The session's only exporter, after the first export."""
    hints: HeadHints = NO_HINTS
    """Hints to a table's newest root."""


Opener = Callable[[], Awaitable[Session]]
Operation = Callable[[Session], Coroutine[Any, Any, T]]


class _End(Enum):
    """The marker of the end of an iteration."""

    HERE = "here"


class SessionHolder:
    """Runs operations on the session of the current process. Thread-safe."""

    def __init__(self, name: str, opener: Opener) -> None:
        self.name = name
        self._opener = opener
        self._closed = False
        self.begin_anew()
        _of_process.add(self)

    def begin_anew(self) -> None:
        """Begin without a session. A thread that does not exist here may have locked the guard of the parent."""
        self._guard = threading.RLock()  # reentrant: an unfinished iteration may be collected while this thread has it
        self._loop = LoopThread(f"rootline {self.name}")
        # an unreachable, unclosed holder: end its thread as a crash would. Records on the log are safe
        weakref.finalize(self, self._loop.request_stop).atexit = False
        self._opening: Future[Session] | None = None
        self._running: set[Future[Any]] = set()

    def run(self, operation: Operation[T]) -> T:
        """Run `operation` on the loop and wait for it, from any thread except the loop's own."""
        self._loop.refuse_itself()
        future = self.submit(operation)
        try:
            return future.result()
        except CancelledError:
            raise self._closed_during_call() from None
        except BaseException:
            future.cancel()
            raise

    async def run_async(self, operation: Operation[T]) -> T:
        """Run `operation` for a caller on another loop."""
        future = self.submit(operation)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise self._closed_during_call() from None  # the caller was not cancelled: the lake was closed meanwhile

    def iterate(self, source: Callable[[Session], AsyncIterator[T]]) -> Iterator[T]:
        """Yield the items of an asynchronous source. Each is awaited on the loop when the caller requests it."""
        step, finish = _steps_of(source)
        try:
            while not isinstance(item := self.run(step), _End):
                yield item
        except GeneratorExit:
            # perhaps of the garbage collector, which runs on any thread and under any lock: nothing may be awaited
            with contextlib.suppress(Invalid, RuntimeError):
                self.submit(finish)
            raise
        except BaseException:
            with contextlib.suppress(Invalid, RuntimeError):
                self.run(finish)
            raise

    async def iterate_async(self, source: Callable[[Session], AsyncIterator[T]]) -> AsyncGenerator[T]:
        """Yield the items of an asynchronous source for a caller on another loop, as `iterate` does."""
        step, finish = _steps_of(source)
        try:
            while not isinstance(item := await self.run_async(step), _End):
                yield item
        finally:
            with contextlib.suppress(Invalid):
                await self.run_async(finish)

    def submit(self, operation: Operation[T]) -> Future[T]:
        """Start `operation`. Raises `Invalid` (`lake-closed`) after `close`."""
        _adopt_process()
        with self._guard:
            if self._closed:
                raise Invalid("lake-closed", f"{self.name} is closed; call rootline.connect again")
            if self._opening is None or (self._opening.done() and _failed(self._opening)):
                self._opening = self._loop.submit(_opened(self._opener))
            future = self._loop.submit(_after(self._opening, operation))
            self._running.add(future)
        # atomic, and without the guard: who has it may wait for the loop, which runs this. The holder lives until then
        future.add_done_callback(lambda done: self._running.discard(done))
        return future

    def close(self, patience_s: float) -> None:
        """Refuse new operations, wait up to `patience_s` seconds for running ones, release all resources.

        A second call does nothing.
        """
        _adopt_process()
        with self._guard:
            self._closed = True
            running, opening, self._opening = list(self._running), self._opening, None
        for late in wait(running, patience_s).not_done:
            late.cancel()
        if opening is not None and not _failed(opening):
            with contextlib.suppress(RuntimeError):  # the interpreter is shutting down: nothing can be awaited now
                self._loop.run(opening.result().close())
        self._loop.close()

    def _closed_during_call(self) -> OutcomeUnknown:
        return OutcomeUnknown(
            "verdict-timeout",
            f"{self.name} was closed during the call; a change that it made may still be committed: "
            "read the table to find out",
        )


def _become_child() -> None:
    for each in list(_of_process):
        _inherited.append(vars(each).copy())
        each.begin_anew()
    _process[0] = os.getpid()


def _adopt_process() -> None:
    """Become a child at the first use, if the fork called no handlers. uWSGI forks its workers in C."""
    if os.getpid() != _process[0]:
        with _adopting:
            if os.getpid() != _process[0]:
                _become_child()


_of_process: Final[weakref.WeakSet[SessionHolder | WriterStamp]] = weakref.WeakSet()
_process: Final = [os.getpid()]
_adopting: Final = threading.Lock()
os.register_at_fork(after_in_child=_become_child)


def _steps_of(source: Callable[[Session], AsyncIterator[T]]) -> tuple[Operation[T | _End], Operation[None]]:
    """The operations that return the next item of a source, and that close it."""
    found: list[AsyncIterator[T]] = []

    async def step(session: Session) -> T | _End:
        if not found:
            found.append(source(session))
        return await anext(found[0], _End.HERE)

    async def finish(_: Session) -> None:
        if found and isinstance(found[0], AsyncGenerator):
            await found[0].aclose()

    return step, finish


def _failed(opening: Future[Session]) -> bool:
    return opening.cancelled() or opening.exception() is not None


class _CloseOnce:
    """Closes a session once: when the lake is closed, or when its event loop ends, whichever is first."""

    def __init__(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._close: Callable[[], Coroutine[Any, Any, None]] | None = close

    async def __call__(self) -> None:
        close, self._close = self._close, None
        if close is not None:
            await close()

    async def at_the_end(self) -> None:
        """Wait until the event loop ends and cancels this task, then close."""
        try:
            await asyncio.Event().wait()
        finally:
            with contextlib.suppress(RuntimeError):  # the interpreter ends: nothing can be awaited in threads now
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
    if not opening.done():
        # shielded: a cancelled caller must not close the session of the others
        await asyncio.shield(asyncio.wrap_future(opening))
    session = opening.result()
    try:
        return await operation(session)
    except Invalid as error:
        if error.code != "table-unknown":
            raise
        raise Invalid(error.code, f"{error.message}. The warehouse is {session.base_url}") from None


class OpenLake(Protocol):
    """A shared connection, and the writer id of this process's changes."""

    @property
    def holder(self) -> SessionHolder:
        """The holder that runs operations on the lake's loop."""
        ...

    @property
    def stamp(self) -> WriterStamp:
        """The counter that numbers the intents of this process."""
        ...
