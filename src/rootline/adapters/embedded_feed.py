"""An embedded log as a coordinator's feed: one partition, one reader, no rebalance.

Owns: the translation. Does not own: the log, the choice of the process that reads it (the lake's lock).
Invariants: those of the port. Records are not read while their verdicts could not be written. The log knows the
verdict of each record, so nothing is remembered here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Final

from rootline.adapters.sqlite.meta_rows import NoticesOnly
from rootline.ports.intent_feed import (
    Assigned,
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
from rootline.schemas.root_header import PartitionOffset
from rootline.schemas.verdict import DeadLetter, Verdict

_PARTITION: Final = 0
_READ_MAX: Final = 256
CHECK_EVERY_S: Final = 5.0


class EmbeddedFeed:
    """A coordinator's side of `log`. Closing the feed does not close the log.

    `mark`: a file that exists while a coordinator reads, so that the next one notices when this one crashed.
    `pruning`: keeps the log from growing. It runs from the first `next` until `close`.
    `check_writable`: raises `Unavailable` while verdicts cannot be written. Called now and then. `next` reports it.
    `pauses`: the tables that operators have paused. `lot`: tables that cannot go on. A log in memory has neither.
    """

    def __init__(
        self,
        log: IntentLog,
        mark: Path | None = None,
        pruning: Callable[[], Coroutine[None, None, None]] | None = None,
        check_writable: Callable[[], Awaitable[None]] | None = None,
        check_every_s: float = CHECK_EVERY_S,
        pauses: Callable[[], Awaitable[Sequence[Pause]]] | None = None,
        lot: NoticesOnly | None = None,
    ) -> None:
        self._log = log
        self._mark = mark
        self._pruning = pruning
        self._check_writable, self._check_every_s = check_writable, check_every_s
        self._beside: list[asyncio.Task[None]] = []
        self._unwritable: Unavailable | None = None
        self._pauses = pauses
        self._lot = lot
        self._may_go_back = log if isinstance(log, MayGoBack) else None
        self._last: LogRecord | None = None
        self._identity: LogId | None = None
        self._position = 0
        self._end = 0
        self._told_end = False

    async def introduce(self, lake: Lake) -> None:
        """As the log's own, if it has one."""
        if isinstance(self._log, KnowsItsLake):
            await self._log.introduce(lake)

    @property
    def parking(self) -> ParkedStore | None:
        """The lot for notices and lifts. No record is parked, because the log keeps those that are undecided."""
        return self._lot

    async def next(self, *, wait_s: float, deliver: bool = True) -> FeedEvent:
        """The one assignment first, then records."""
        if self._identity is None:
            identity, self._position = await self._log.identity(), await self._log.first_undecided()
            self._end = await self._log.end_offset()
            paused = tuple(await self.pauses())
            stuck = () if self._lot is None else tuple(await self._lot.known())
            self._identity = identity
            self._begin_beside()
            poison_candidates = (PartitionOffset(identity, _PARTITION, self._end),) if self._left_mark() else ()
            start = PartitionOffset(identity, _PARTITION, self._position)
            return Assigned((start,), poison_candidates, parked=stuck, paused=paused)
        if self._unwritable is not None:
            raise Unavailable(self._unwritable.code, self._unwritable.message)
        if not deliver:
            await asyncio.sleep(wait_s)
            return Delivered((), at_end=False)
        if self._position >= self._end and not self._told_end:
            self._told_end = True  # before any wait, so that a coordinator that starts on an empty log is ready at once
            return Delivered((), at_end=True)
        records = await self._log.read(self._position, limit=_READ_MAX, wait_s=wait_s)
        if records:
            await self._check_gap(self._position, records[0])
        await self._check_last()
        if records:
            self._last = records[-1]
            self._position = self._last.position.offset + 1
        self._told_end = not records or self._position >= self._end
        self._end = max(self._end, self._position)
        return Delivered(tuple(records), at_end=self._told_end)

    async def released(self) -> None:
        """Does nothing: partitions are never revoked."""

    async def decided(self, up_to: Sequence[PartitionOffset]) -> None:
        """Does nothing: the log finds out from its verdicts."""

    async def concluded(self, up_to: Sequence[PartitionOffset]) -> None:
        """Remove the mark: no coordinator reads any more."""
        if self._mark is not None:
            self._mark.unlink(missing_ok=True)

    async def record_rejections(self, rejections: Sequence[RecordedRejection]) -> None:
        """Nothing to do: on one partition a `create` follows the rejections, and its root's offset passes them."""

    async def confirm(self, generation: int) -> None:
        """Nothing to do: on one partition, what was rejected before a table existed comes before its root's offset."""

    def paused(self) -> Sequence[Partition]:
        """None, ever."""
        return ()

    async def pauses(self) -> Sequence[Pause]:
        """As the log says."""
        return () if self._pauses is None else await self._pauses()

    async def read_again(self, reader: str, start: PartitionOffset, *, limit: int) -> Reread:
        """Read from the log directly."""
        end = await self._log.end_offset()
        records = await self._log.read(start.next_offset, limit=limit, wait_s=0.0)
        if records:
            await self._check_gap(start.next_offset, records[0])
        return Reread(tuple(records), records[-1].position.offset + 1 if records else max(end, start.next_offset))

    async def forget_reader(self, reader: str) -> None:
        """Does nothing: nothing is kept for a reader."""

    async def end_offset(self, log: LogId, partition: int) -> int | None:
        """The end of the log's one partition."""
        if log != await self._log.identity() or partition != _PARTITION:
            return None
        return await self._log.end_offset()

    async def confirmed_version(self, table: TableName) -> int | None:
        """As the log says."""
        return await self._log.confirmed_version(table)

    async def lag(self) -> Mapping[Partition, int]:
        """Records that were not delivered yet."""
        if self._identity is None:
            return {}
        return {(self._identity, _PARTITION): max(0, await self._log.end_offset() - self._position)}

    async def publish_verdicts(self, verdicts: Sequence[Verdict], dead_letters: Sequence[DeadLetter]) -> None:
        """As the log's own, on records that are still there. Raises `Fenced` as `next`."""
        if self._may_go_back is None:
            await self._log.publish_verdicts(verdicts, dead_letters)
        else:
            await self._may_go_back.publish_verdicts(verdicts, dead_letters, self._last)

    async def close(self) -> None:
        """End the pruning; the caller that opened the log closes it."""
        for task in self._beside:
            task.cancel()
        if self._beside:
            await asyncio.wait(self._beside)

    def _begin_beside(self) -> None:
        loop = asyncio.get_running_loop()
        if self._pruning is not None:
            self._beside.append(loop.create_task(self._pruning(), name="pruning of the log"))
        if self._check_writable is not None:
            self._beside.append(loop.create_task(self._watch(self._check_writable), name="check of the log"))

    async def _watch(self, check: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(self._check_every_s)
            try:
                await check()
                self._unwritable = None
            except (Unavailable, OutcomeUnknown) as error:
                self._unwritable = Unavailable("log-unavailable", error.message)

    async def _check_gap(self, expected: int, first: LogRecord) -> None:
        """Offsets have gaps only where records were deleted."""
        if first.position.offset > expected < (beginning := await self._log.beginning()):
            raise Fenced(
                "offset-out-of-range",
                f"{first.position.log}: offset {expected} was asked for, but the log begins at {beginning}, because "
                "what is below was decided and is deleted: open the lake again, to start at the first undecided record",
            )

    async def _check_last(self) -> None:
        """The log has not gone back. Also when nothing comes: what it has below then, no one would read."""
        if self._last is not None and self._may_go_back is not None:
            self._may_go_back.check_is_there(self._last)
        elif self._position > await self._log.end_offset():
            raise Fenced(
                "log-behind-root",
                f"{self._identity}: the log went back behind offset {self._position}, at which its host began: the "
                "file was overwritten by an older copy while it was open",
            )

    def _left_mark(self) -> bool:
        """Make the mark; whether there was one already."""
        if self._mark is None:
            return False
        was_there = self._mark.exists()
        self._mark.touch()
        return was_there
