"""The embedded intent log: one SQLite file that any number of processes may publish to and read from.

Owns: the writing thread and its queue, the store of notices over the log. Does not own: the SQL and the file
(`log_file`), waiting (`wakeups`), framing of records.
Invariants: No record is ever parked, because the log keeps undecided records. One thread writes everything, with the
records of several callers in one transaction. Callers are answered after the transaction is durable. An unknown outcome
is never reported as success or failure.

Source: the protocol page, section 6.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Generic, TypeVar

from typing_extensions import override

from rootline.adapters.posix_files import hand_over
from rootline.adapters.sqlite.log_file import LogReader, LogWriter
from rootline.adapters.sqlite.log_pruning import STEP_ROWS, LogRetention, Pruned, is_due
from rootline.adapters.sqlite.meta_rows import lifts_in, pauses_in, stuck_in, write_lift, write_pause, write_stuck
from rootline.adapters.sqlite.wakeups import LogWatch, Wakeups, wakeups_folder
from rootline.adapters.system_environment import publishing
from rootline.ports.intent_feed import Lift, ParkedStore, ParkedTable, Pause
from rootline.ports.intent_log import IntentLog, KnowsItsLake, MayGoBack, NewRecord, check_identity
from rootline.schemas.bytes.record_headers import LAKE_MISMATCH, Lake, mismatch
from rootline.schemas.errors import Invalid, RootlineError, Unavailable
from rootline.schemas.identifiers import LogId, LogPosition, LogRecord
from rootline.schemas.verdict import DeadLetter, Verdict

_QUEUED_MAX: Final = 100_000
_BATCH_MAX: Final = 1_000
WRITABLE_WITHIN_S: Final = 5.0
"""Ample, because other processes write for milliseconds at a time."""
_WAITS: Final = 10
"""The time is divided into this many waits, so that a pause of the process uses up only one of them."""
ROOM_BYTES_MIN: Final = 65_536
"""About one transaction."""
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True, eq=False)
class _Request(Generic[_Answer]):
    """Work for the writing thread, inside its transaction, and the future for its result. `appends`: only records."""

    work: Callable[[LogWriter], _Answer]
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[_Answer]
    appends: bool


class SqliteIntentLog(IntentLog, KnowsItsLake, MayGoBack):
    """The log in `folder` (`<warehouse>/.rootline`), created when it is first opened. For one event loop.

    Raises:
        Unavailable: `log-unavailable`, the file cannot be opened or created.
        Corrupt: `log-corrupt`, the file is not a Rootline log.
    """

    def __init__(self, folder: Path) -> None:
        self._writer = LogWriter.open(folder.absolute())
        try:
            self._reader = LogReader(self._writer.path)
        except BaseException:
            self._writer.close()
            raise
        self._identity = self._writer.identity
        self._wakeups = Wakeups(wakeups_folder(self._identity))
        self._watch = LogWatch(self._reader, self._wakeups)
        self._requests: queue.SimpleQueue[_Request[object] | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._write_loop, name="rootline-log", daemon=True)
        self._thread.start()

    @override
    async def publish_many(
        self, records: Sequence[NewRecord], *, oldest_file_ms: int | None = None
    ) -> list[LogPosition]:
        """Append records in order, all or none.

        Raises:
            Unavailable: `log-unavailable`, nothing was appended.
            OutcomeUnknown: `publish-unknown`, appended or not.

        """
        kept = [(bytes(key), bytes(value), said[0] if said else None) for key, value, *said in records]
        with publishing(kept[0][0] if kept else b"", len(kept)) as trace:
            offsets = await self._write(lambda writer: writer.append(kept, oldest_file_ms, trace), appends=True)
        self._watch.appended()
        return [LogPosition(self._identity, 0, offset) for offset in offsets]

    @override
    async def identity(self) -> LogId:
        """`embedded/<uuid>`, chosen when the file was created."""
        return self._identity

    @override
    async def first_undecided(self) -> int:
        return await self._write(lambda writer: writer.first_undecided())

    @override
    async def end_offset(self) -> int:
        self._check_open()
        return self._reader.end_offset()

    @override
    async def beginning(self) -> int:
        self._check_open()
        return self._reader.pruning_state().records_below

    @override
    async def confirmed_version(self, table: str) -> int | None:
        self._check_open()
        return self._reader.confirmed_version(table)

    async def accept_head(self, table: str, version: int | None) -> None:
        """Store an operator's decision that `table` continues from this version.

        `None`: the table continues without any version. Raises the errors of `publish`.
        """
        await self._write(lambda writer: writer.accept_head(table, version))

    @override
    async def introduce(self, lake: Lake) -> None:
        """Name the caller's lake.

        Raises `Invalid` (`lake-mismatch`) if the log serves another lake, and the errors of `publish`.
        """
        known = await self._write(lambda writer: writer.lake(lake))
        if known.lake_id != lake.lake_id:
            raise Invalid(LAKE_MISMATCH, f"{self._writer.path}: {mismatch(lake, known)}")

    @override
    def check_is_there(self, last_read: LogRecord) -> None:
        self._check_open()
        self._reader.check_is_there(last_read)

    async def accept_as_another(self) -> LogId:
        """Accept an operator's decision to give the log a new identity.

        Close the log afterwards. Raises the errors of `publish`.
        """
        return await self._write(lambda writer: writer.accept_as_another())

    async def pauses(self) -> Sequence[Pause]:
        """The pauses of operators."""
        self._check_open()
        return self._reader.ask(pauses_in)

    async def pause(self, pause: Pause) -> None:
        """Begin a pause. Raises the errors of `publish`."""
        await self._write(lambda writer: write_pause(writer.connection, pause, over=False))

    async def resume(self, pause: Pause) -> None:
        """End a pause. Raises the errors of `publish`."""
        await self._write(lambda writer: write_pause(writer.connection, pause, over=True))

    async def stuck(self) -> Sequence[ParkedTable]:
        """The coordinator's notices of parked and quarantined tables."""
        self._check_open()
        return self._reader.ask(partial(stuck_in, log=self._identity))

    async def lifts(self) -> Sequence[Lift]:
        """The operators' requests to retry a table."""
        self._check_open()
        return self._reader.ask(partial(lifts_in, log=self._identity))

    async def mark_stuck(self, stuck: ParkedTable, *, over: bool) -> None:
        """Store the notice that a table is parked or quarantined. `over`: remove the notice instead.

        Raises the errors of `publish`.
        """
        await self._write(lambda writer: write_stuck(writer.connection, stuck, over=over))

    async def mark_lift(self, lift: Lift, *, over: bool) -> None:
        """Store a request to retry a table. `over`: remove it instead. Raises the errors of `publish`."""
        await self._write(lambda writer: write_lift(writer.connection, lift, over=over))

    async def prune(self, retention: LogRetention, *, now_ms: int) -> Pruned:
        """Delete some records that were decided longer ago than `retention`. `now_ms`: the wall clock.

        Writes nothing while nothing is due. Raises the errors of `publish_many`.
        """
        self._check_open()
        state = self._reader.pruning_state()
        if self._reader.end_offset() == 1 or not is_due(state, now_ms=now_ms, retention=retention):
            return Pruned(state.records_below, False)
        return await self._write(lambda writer: writer.prune(retention, now_ms=now_ms, limit=STEP_ROWS))

    async def check_writable(self, within_s: float = WRITABLE_WITHIN_S, room_bytes_min: int = ROOM_BYTES_MIN) -> None:
        """Raise `Unavailable` (`log-unavailable`) unless a write succeeds within `within_s` seconds.

        A disk with less than `room_bytes_min` free bytes counts as full.
        """
        asking = asyncio.ensure_future(self._room_after_a_write())
        try:
            for _ in range(_WAITS):
                answered, _ = await asyncio.wait((asking,), timeout=within_s / _WAITS)
                if answered:
                    break
            else:
                reason = "another process has the file's write lock, or the disk does not answer"
                raise Unavailable(
                    "log-unavailable",
                    f"{self._writer.path}: nothing could be written for {within_s:g} s: {reason}. End the program that "
                    "has the file open, perhaps a SQLite shell",
                )
            room_bytes = asking.result()
        finally:
            asking.cancel()
        if room_bytes < room_bytes_min:
            reason = f"the disk is full, with {room_bytes:,} free bytes. Free some space. No record is lost meanwhile"
            raise Unavailable("log-unavailable", f"{self._writer.path}: {reason}")

    async def _room_after_a_write(self) -> int:
        await self._write(lambda _: None)
        return await asyncio.to_thread(_room_bytes, self._writer.path)

    @override
    async def read(self, from_offset: int, *, limit: int, wait_s: float) -> list[LogRecord]:
        self._check_open()
        return await self._watch.records(from_offset, limit=limit, wait_s=wait_s)

    @override
    async def publish_verdicts(
        self, verdicts: Sequence[Verdict], dead_letters: Sequence[DeadLetter], last_read: LogRecord | None = None
    ) -> None:
        """Store verdicts and dead letters durably. The first verdict and the first dead letter of an offset win.

        `last_read`: the newest record that the coordinator has read. Raises `Fenced` unless it is still in the log.
        """
        for log in {item.log for item in verdicts} | {item.log for item in dead_letters}:
            check_identity(self._identity, log)
        kept = await self._write(lambda writer: writer.decide(verdicts, dead_letters, last_read))
        self._watch.decided(kept)

    @override
    async def wait_verdict(self, position: LogPosition, *, timeout_s: float) -> Verdict | None:
        self._check_open()
        check_identity(self._identity, position.log)
        return await self._watch.verdict(position.offset, timeout_s=timeout_s)

    async def dead_letters(self, *, limit: int = 1_000) -> list[DeadLetter]:
        """The newest `limit` rejected records, in offset order."""
        self._check_open()
        found: list[DeadLetter] = []
        while len(found) < limit:
            before = found[-1].offset if found else self._reader.end_offset()
            portion = self._reader.dead_letters_before(before, limit - len(found))
            if not portion:
                break
            found += portion
        return found[::-1]

    @override
    async def close(self) -> None:
        """Write the queued records, then stop the thread and close the file."""
        if self._closed:
            return
        self._closed = True
        await self._watch.close(f"{self._writer.path}: the log was closed")
        self._requests.put(None)
        await asyncio.to_thread(self._thread.join)
        self._reader.close()
        self._writer.close()

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("log-unavailable", f"{self._writer.path}: the log was closed")

    async def _write(self, work: Callable[[LogWriter], _Answer], *, appends: bool = False) -> _Answer:
        self._check_open()
        if self._requests.qsize() >= _QUEUED_MAX:
            raise Unavailable(
                "log-unavailable", f"{self._writer.path}: {_QUEUED_MAX} writes are waiting. Publish more slowly"
            )
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[_Answer] = loop.create_future()
        self._requests.put(_Request(work, loop, answer, appends))  # type: ignore[arg-type]
        return await answer

    def _write_loop(self) -> None:
        while (first := self._requests.get()) is not None:
            batch = [first]
            with contextlib.suppress(queue.Empty):
                while len(batch) < _BATCH_MAX:
                    request = self._requests.get_nowait()
                    if request is None:
                        self._requests.put(None)
                        break
                    batch.append(request)
            self._carry_out(batch)

    def _carry_out(self, batch: Sequence[_Request[object]]) -> None:
        try:
            answers = self._writer.in_one_transaction([request.work for request in batch])
        except Exception as error:  # every error goes to the callers, and must not end this thread
            for request in batch:
                hand_over(request.loop, request.answer, _own_copy(error))
        else:
            self._wakeups.ring(only_records=all(request.appends for request in batch))
            for request, answer in zip(batch, answers, strict=True):
                hand_over(request.loop, request.answer, answer)


class NoticesOnly(ParkedStore):
    """The parked store of a log that keeps undecided records. It has notices and requests (lifts), but no records."""

    def __init__(self, log: SqliteIntentLog) -> None:
        self._log = log

    async def known(self) -> Sequence[ParkedTable]:
        """The notices that earlier coordinators have stored."""
        return await self._log.stuck()

    @override
    async def park(self, parked: ParkedTable, records: Sequence[LogRecord]) -> ParkedTable:
        """Store the notice of a parked or quarantined table. `records` must be empty."""
        assert not records, f"{parked.table}: the log keeps its records, so none is parked"
        await self._log.mark_stuck(parked, over=False)
        return parked

    @override
    async def parked_records(
        self, parked: ParkedTable, from_offset: int, *, without_missing: bool
    ) -> AsyncGenerator[Sequence[LogRecord], None]:
        return
        yield

    @override
    async def unpark(self, parked: ParkedTable) -> None:
        await self._log.mark_stuck(parked, over=True)

    @override
    async def lifts(self) -> Sequence[Lift]:
        return await self._log.lifts()

    @override
    async def lifted(self, lift: Lift) -> None:
        await self._log.mark_lift(lift, over=True)


def _own_copy(error: Exception) -> Exception:
    """A copy of the error for one of several callers, because a shared one would collect all their tracebacks."""
    return type(error)(error.code, error.message) if isinstance(error, RootlineError) else error


def _room_bytes(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_frsize * (found.f_bfree if os.geteuid() == 0 else found.f_bavail)
