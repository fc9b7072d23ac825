"""The embedded intent log: one SQLite file that any number of processes may publish to and read from.

Owns: the writing thread and its queue. Does not own: the SQL and the file (`log_file`), waiting (`wakeups`), framing
of records.
Invariants: one thread writes everything, the records of several callers in one transaction, and answers after the
transaction is durable. An unknown outcome is never reported as success or failure.

Source: the protocol page, section 6.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

from rootline.adapters.posix_files import hand_over
from rootline.adapters.sqlite.log_file import LogReader, LogWriter
from rootline.adapters.sqlite.log_pruning import STEP_ROWS, LogRetention, Pruned, is_due
from rootline.adapters.sqlite.wakeups import LogWatch, Wakeups, wakeups_folder
from rootline.adapters.system_environment import publishing
from rootline.ports.intent_feed import Lift, ParkedTable, Pause
from rootline.ports.intent_log import NewRecord, check_identity
from rootline.schemas.bytes.record_headers import LAKE_MISMATCH, Lake, mismatch
from rootline.schemas.errors import Invalid, RootlineError, Unavailable
from rootline.schemas.identifiers import LogId, LogPosition, LogRecord
from rootline.schemas.verdict import DeadLetter, Verdict

_QUEUED_MAX: Final = 100_000
_BATCH_MAX: Final = 1_000
WRITABLE_WITHIN_S: Final = 5.0
"""Other processes write for milliseconds at a time."""
_LOOKS: Final = 10
"""So often it is looked in this time whether there is an answer: a process that stood still used up one of them."""
ROOM_BYTES_MIN: Final = 65_536
"""Less than a transaction or two of ours."""
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True, eq=False)
class _Request(Generic[_Answer]):
    """Work for the writing thread, inside its transaction, and the future for its answer."""

    work: Callable[[LogWriter], _Answer]
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[_Answer]


class SqliteIntentLog:
    """The log in `folder` (`<warehouse>/.rootline`), created when it is first opened; for one event loop.

    Raises:
        Unavailable: `log-unavailable`, the file cannot be opened or created.
        Corrupt: `log-corrupt`, the file is not a log of ours.

    """

    def __init__(self, folder: Path) -> None:
        self._writer = LogWriter.open(folder.absolute())
        try:
            self._reader = LogReader(self._writer.path)
        except BaseException:
            self._writer.close()
            raise
        self._identity = self._writer.identity
        self._bells = Wakeups(wakeups_folder(self._identity))
        self._watch = LogWatch(self._reader, self._bells)
        self._requests: queue.SimpleQueue[_Request[object] | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._write_loop, name="rootline-log", daemon=True)
        self._thread.start()

    async def publish(self, key: bytes, value: bytes, *, oldest_file_ms: int | None = None) -> LogPosition:
        """Append one record; durable when it returns."""
        return (await self.publish_many([(key, value)], oldest_file_ms=oldest_file_ms))[0]

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
            offsets = await self._write(lambda writer: writer.append(kept, oldest_file_ms, trace))
        self._watch.appended()
        return [LogPosition(self._identity, 0, offset) for offset in offsets]

    async def identity(self) -> LogId:
        """`embedded/<uuid>`, chosen when the file was created."""
        return self._identity

    async def first_undecided(self) -> int:
        """The lowest offset without a verdict; the next offset when every record has one."""
        return await self._write(lambda writer: writer.first_undecided())

    async def end_offset(self) -> int:
        """The offset that the next record will get."""
        self._check_open()
        return self._reader.end_offset()

    async def beginning(self) -> int:
        """As the port says."""
        self._check_open()
        return self._reader.pruning_state().records_below

    async def confirmed_version(self, table: str) -> int | None:
        """As the port says."""
        self._check_open()
        return self._reader.confirmed_version(table)

    async def accept_head(self, table: str, version: int | None) -> None:
        """An operator has decided that `table` goes on from this version; `None`: without any. Raises as `publish`."""
        await self._write(lambda writer: writer.accept_head(table, version))

    async def introduce(self, lake: Lake) -> None:
        """As the port says. Raises as `publish` as well."""
        known = await self._write(lambda writer: writer.lake(lake))
        if known.lake_id != lake.lake_id:
            raise Invalid(LAKE_MISMATCH, f"{self._writer.path}: {mismatch(lake, known)}")

    def check_is_there(self, last_read: LogRecord) -> None:
        """Raises `Fenced` (`log-behind-root`) unless the record that was read last is still there."""
        self._check_open()
        self._reader.check_is_there(last_read)

    async def accept_as_another(self) -> LogId:
        """An operator has decided that the log goes on as another one. Close it then. Raises as `publish`."""
        return await self._write(lambda writer: writer.accept_as_another())

    async def pauses(self) -> Sequence[Pause]:
        """What operators have paused."""
        self._check_open()
        return self._reader.pauses()

    async def pause(self, pause: Pause) -> None:
        """It begins. Raises as `publish`."""
        await self._write(lambda writer: writer.mark(pause, over=False))

    async def resume(self, pause: Pause) -> None:
        """It ends. Raises as `publish`."""
        await self._write(lambda writer: writer.mark(pause, over=True))

    async def stuck(self) -> Sequence[ParkedTable]:
        """Tables that cannot go on, as the coordinator noticed."""
        self._check_open()
        return self._reader.stuck()

    async def lifts(self) -> Sequence[Lift]:
        """Tables that an operator wants to be tried again."""
        self._check_open()
        return self._reader.lifts()

    async def mark_stuck(self, stuck: ParkedTable, *, over: bool) -> None:
        """A table cannot go on, or that is `over`. Raises as `publish`."""
        await self._write(lambda writer: writer.mark_stuck(stuck, over=over))

    async def mark_lift(self, lift: Lift, *, over: bool) -> None:
        """A table is to be tried again, or that is `over`. Raises as `publish`."""
        await self._write(lambda writer: writer.mark_lift(lift, over=over))

    async def prune(self, retention: LogRetention, *, now_ms: int) -> Pruned:
        """Delete some of what was decided longer ago than `retention`; `now_ms` by the wall clock.

        Writes nothing while nothing is due. Raises as `publish_many`.
        """
        self._check_open()
        state = self._reader.pruning_state()
        if self._reader.end_offset() == 1 or not is_due(state, now_ms=now_ms, retention=retention):
            return Pruned(state.records_below, False)
        return await self._write(lambda writer: writer.prune(retention, now_ms=now_ms, limit=STEP_ROWS))

    async def check_writable(self, within_s: float = WRITABLE_WITHIN_S, room_bytes_min: int = ROOM_BYTES_MIN) -> None:
        """Raises `Unavailable` (`log-unavailable`) unless the log can be written to now, within so many seconds.

        `room_bytes_min`: a disk with less is full.
        """
        asking = asyncio.ensure_future(self._room_after_a_write())
        try:
            for _ in range(_LOOKS):
                answered, _ = await asyncio.wait((asking,), timeout=within_s / _LOOKS)
                if answered:
                    break
            else:
                reason = "another process holds the file's write lock, or the disk does not answer"
                raise Unavailable(
                    "log-unavailable",
                    f"{self._writer.path}: nothing could be written for {within_s:g} s: {reason}: end what has the "
                    "file open, a SQLite shell perhaps",
                )
            room_bytes = asking.result()
        finally:
            asking.cancel()
        if room_bytes < room_bytes_min:
            reason = f"the disk is full, {room_bytes:,} bytes are left: free some space; nothing is lost meanwhile"
            raise Unavailable("log-unavailable", f"{self._writer.path}: {reason}")

    async def _room_after_a_write(self) -> int:
        await self._write(lambda _: None)
        return await asyncio.to_thread(_room_bytes, self._writer.path)

    async def read(self, from_offset: int, *, limit: int, wait_s: float) -> list[LogRecord]:
        """Up to `limit` records at or after `from_offset`, waiting up to `wait_s` seconds for the first one."""
        self._check_open()
        return await self._watch.records(from_offset, limit=limit, wait_s=wait_s)

    async def publish_verdicts(
        self, verdicts: Sequence[Verdict], dead_letters: Sequence[DeadLetter], last_read: LogRecord | None = None
    ) -> None:
        """Store verdicts and dead letters durably. The first verdict and the first dead letter of an offset stay.

        `last_read`: the newest record that the coordinator has read. Raises `Fenced` unless it is still there.
        """
        for log in {item.log for item in verdicts} | {item.log for item in dead_letters}:
            check_identity(self._identity, log)
        kept = await self._write(lambda writer: writer.decide(verdicts, dead_letters, last_read))
        self._watch.decided(kept)

    async def wait_verdict(self, position: LogPosition, *, timeout_s: float) -> Verdict | None:
        """The verdict on the record at `position`; `None` when none came in `timeout_s` seconds."""
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

    async def close(self) -> None:
        """Write what is queued, then end the thread and close the file."""
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

    async def _write(self, work: Callable[[LogWriter], _Answer]) -> _Answer:
        self._check_open()
        if self._requests.qsize() >= _QUEUED_MAX:
            raise Unavailable(
                "log-unavailable", f"{self._writer.path}: {_QUEUED_MAX} writes are waiting: publish more slowly"
            )
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[_Answer] = loop.create_future()
        self._requests.put(_Request(work, loop, answer))  # type: ignore[arg-type]
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
        except Exception as error:  # any error is for the callers, and must not end this thread
            for request in batch:
                hand_over(request.loop, request.answer, _own_copy(error))
        else:
            self._bells.ring()
            for request, answer in zip(batch, answers, strict=True):
                hand_over(request.loop, request.answer, answer)


def _own_copy(error: Exception) -> Exception:
    """An error for one caller of several: a shared one would collect all their tracebacks."""
    return type(error)(error.code, error.message) if isinstance(error, RootlineError) else error


def _room_bytes(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_frsize * (found.f_bfree if os.geteuid() == 0 else found.f_bavail)
