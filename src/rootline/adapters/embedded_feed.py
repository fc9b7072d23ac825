"""An embedded log as a coordinator's feed: one partition, one reader, no rebalance.

Owns: the translation of the log into events. Does not own: the log, the choice of the process that reads it (the lake's
lock).
Invariants: All invariants of the port `IntentFeed`. Records are not read while their verdicts cannot be written. The
log knows the verdict of each record, so no offset is committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from rootline.ports.intent_feed import (
    Assigned,
    CoordinatorLog,
    Delivered,
    FeedEvent,
    ParkedStore,
    Partition,
    Pause,
    RecordedRejection,
    Reread,
)
from rootline.ports.intent_log import IntentLog, KnowsItsLake, MayGoBack
from rootline.schemas.bytes.record_headers import Lake
from rootline.schemas.errors import Fenced, OutcomeUnknown, Unavailable
from rootline.schemas.identifiers import LogId, LogRecord, TableName
from rootline.schemas.parts.log import PartitionOffset
from rootline.schemas.verdict import DeadLetter, Verdict

if TYPE_CHECKING:
    from rootline.adapters.sqlite.intent_log import NoticesOnly

_PARTITION: Final = 0
_READ_MAX: Final = 256
CHECK_EVERY_S: Final = 5.0


class EmbeddedFeed(CoordinatorLog, KnowsItsLake):
    """The interface through which a coordinator uses an embedded log. Closing the feed does not close the log.

    * `mark`: a file that exists while a coordinator reads, so that the next coordinator detects a crash.
    * `pruning`: deletes old records. It runs from the first `next` until `close`.
    * `check_writable`: raises `Unavailable` while verdicts cannot be written. It is called periodically, and `next`
      raises its error.
    * `pauses`: reads the tables that operators have paused. `None` for a log in memory.
    * `parked_store`: notices of parked and quarantined tables. `None` for a log in memory.
    """

    def __init__(
        self,
        log: IntentLog,
        mark: Path | None = None,
        pruning: Callable[[], Coroutine[None, None, None]] | None = None,
        check_writable: Callable[[], Awaitable[None]] | None = None,
        check_every_s: float = CHECK_EVERY_S,
        pauses: Callable[[], Awaitable[Sequence[Pause]]] | None = None,
        parked_store: NoticesOnly | None = None,
    ) -> None:
        self._log = log
        self._mark = mark
        self._pruning = pruning
        self._check_writable, self._check_every_s = check_writable, check_every_s
        self._background: list[asyncio.Task[None]] = []
        self._unwritable: Unavailable | None = None
        self._pauses = pauses
        self._parked_store = parked_store
        self._may_go_back = log if isinstance(log, MayGoBack) else None
        self._last: LogRecord | None = None
        self._identity: LogId | None = None
        self._position = 0
        self._end = 0
        self._reported_end = False

    @override
    async def introduce(self, lake: Lake) -> None:
        if isinstance(self._log, KnowsItsLake):
            await self._log.introduce(lake)

    @property
    @override
    def parking(self) -> ParkedStore | None:
        """The notices of parked tables, and operators' requests to retry them.

        No record is parked, because the log keeps undecided records.
        """
        return self._parked_store

    @override
    async def next(self, *, wait_s: float, deliver: bool = True) -> FeedEvent:
        if self._identity is None:
            identity, self._position = await self._log.identity(), await self._log.first_undecided()
            self._end = await self._log.end_offset()
            paused = tuple(await self.pauses())
            stuck = () if self._parked_store is None else tuple(await self._parked_store.known())
            self._identity = identity
            self._start_background()
            poison_candidates = (PartitionOffset(identity, _PARTITION, self._end),) if self._replace_mark() else ()
            start = PartitionOffset(identity, _PARTITION, self._position)
            return Assigned((start,), poison_candidates, parked=stuck, paused=paused)
        if self._unwritable is not None:
            raise Unavailable(self._unwritable.code, self._unwritable.message)
        if not deliver:
            await asyncio.sleep(wait_s)
            return Delivered((), at_end=False)
        if self._position >= self._end and not self._reported_end:
            self._reported_end = True  # before any wait, so that a coordinator on an empty log is ready immediately
            return Delivered((), at_end=True)
        records = await self._log.read(self._position, limit=_READ_MAX, wait_s=wait_s)
        if records:
            await self._check_gap(self._position, records[0])
        await self._check_last()
        if records:
            self._last = records[-1]
            self._position = self._last.position.offset + 1
        self._reported_end = not records or self._position >= self._end
        self._end = max(self._end, self._position)
        return Delivered(tuple(records), at_end=self._reported_end)

    @override
    async def released(self) -> None:
        """Do nothing, because partitions are never revoked."""

    @override
    async def decided(self, up_to: Sequence[PartitionOffset]) -> None:
        """Do nothing, because the log knows its verdicts."""

    @override
    async def concluded(self, up_to: Sequence[PartitionOffset]) -> None:
        """Remove the mark, because this coordinator stops normally."""
        if self._mark is not None:
            self._mark.unlink(missing_ok=True)

    @override
    async def record_rejections(self, rejections: Sequence[RecordedRejection]) -> None:
        """Do nothing, because the log has one partition.

        Records that were rejected before their table existed precede the table's `create`. So the root that the
        `create` makes counts them as decided.
        """

    @override
    async def confirm(self, generation: int) -> None:
        """Do nothing, because the log has one partition.

        The offset in a table's root is above all records that were rejected before the table existed.
        """

    @override
    def paused(self) -> Sequence[Partition]:
        return ()

    @override
    async def pauses(self) -> Sequence[Pause]:
        return () if self._pauses is None else await self._pauses()

    @override
    async def read_again(self, reader: str, start: PartitionOffset, *, limit: int) -> Reread:
        end = await self._log.end_offset()
        records = await self._log.read(start.next_offset, limit=limit, wait_s=0.0)
        if records:
            await self._check_gap(start.next_offset, records[0])
        return Reread(tuple(records), records[-1].position.offset + 1 if records else max(end, start.next_offset))

    @override
    async def forget_reader(self, reader: str) -> None:
        """Do nothing, because readers have no connections."""

    @override
    async def end_offset(self, log: LogId, partition: int) -> int | None:
        if log != await self._log.identity() or partition != _PARTITION:
            return None
        return await self._log.end_offset()

    @override
    async def confirmed_version(self, table: TableName) -> int | None:
        return await self._log.confirmed_version(table)

    @override
    async def lag(self) -> Mapping[Partition, int]:
        if self._identity is None:
            return {}
        return {(self._identity, _PARTITION): max(0, await self._log.end_offset() - self._position)}

    @override
    async def publish_verdicts(self, verdicts: Sequence[Verdict], dead_letters: Sequence[DeadLetter]) -> None:
        """Publish verdicts on records that are still in the log. Raises the same `Fenced` errors as `next`."""
        if self._may_go_back is None:
            await self._log.publish_verdicts(verdicts, dead_letters)
        else:
            await self._may_go_back.publish_verdicts(verdicts, dead_letters, self._last)

    @override
    async def close(self) -> None:
        """Stop the pruning and the checks. The caller that opened the log closes it."""
        for task in self._background:
            task.cancel()
        if self._background:
            await asyncio.wait(self._background)

    def _start_background(self) -> None:
        loop = asyncio.get_running_loop()
        if self._pruning is not None:
            self._background.append(loop.create_task(self._pruning(), name="pruning of the log"))
        if self._check_writable is not None:
            self._background.append(loop.create_task(self._watch(self._check_writable), name="check of the log"))

    async def _watch(self, check: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(self._check_every_s)
            try:
                await check()
                self._unwritable = None
            except (Unavailable, OutcomeUnknown) as error:
                self._unwritable = Unavailable("log-unavailable", error.message)

    async def _check_gap(self, expected: int, first: LogRecord) -> None:
        """Raise `Fenced` if records between the expected offset and the first record that was read were deleted."""
        if first.position.offset > expected < (beginning := await self._log.beginning()):
            raise Fenced(
                "offset-out-of-range",
                f"{first.position.log}: offset {expected} was requested, but the log begins at {beginning}, because "
                "records below it were decided and deleted. Open the lake again to start at the first undecided record",
            )

    async def _check_last(self) -> None:
        """Raise `Fenced` if an older copy has overwritten the log, even if the last read returned no records."""
        if self._last is not None and self._may_go_back is not None:
            self._may_go_back.check_is_there(self._last)
        elif self._position > await self._log.end_offset():
            raise Fenced(
                "log-behind-root",
                f"{self._identity}: the log ends before offset {self._position}, at which this process began to read: "
                "an older copy replaced the file while it was open. See `rootline explain log-behind-root`",
            )

    def _replace_mark(self) -> bool:
        """Create the mark, and return whether it existed already."""
        if self._mark is None:
            return False
        was_there = self._mark.exists()
        self._mark.touch()
        return was_there
