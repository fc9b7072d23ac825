"""The loop that reads the log while the process runs, through all changes of its partitions.

Owns: the cycle of assignment and revocation, and committing the offsets of an assignment.
Does not own: the handling of records (`partition_assignment`), the distribution of partitions (the feed).
Invariants: No offset is committed past a record without an acknowledged verdict. Before partitions are revoked, records
in flight are decided or cut off. A stop revokes all partitions.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rootline.coordinator.runtime.assignment.intake import AssignmentSettings, OnPublished
from rootline.coordinator.runtime.assignment.partition_assignment import End, PartitionAssignment
from rootline.coordinator.runtime.assignment.served_tables import LoopFactory
from rootline.coordinator.runtime.table.table_loop import TableLoop
from rootline.library_log import library_logger
from rootline.ports.environment import Environment
from rootline.ports.intent_feed import Assigned, CoordinatorLog, Delivered, FeedEvent, Partition, Revoked
from rootline.ports.retry_policy import jittered_s
from rootline.schemas.errors import OutcomeUnknown, Unavailable
from rootline.schemas.identifiers import TableName

_FULL_WAIT_S: Final = 0.01
_PATIENCE_SHARE: Final = 0.8
"""The share of a revocation's deadline that tables may use. The rest is for committing their offsets."""
_ANSWER_SHARE: Final = 0.95
"""The share of a revocation's deadline after which the revocation is answered at the latest."""


@dataclass(slots=True)
class ConsumerLoop:
    """The reader of one process."""

    log: CoordinatorLog
    make_loop: LoopFactory
    environment: Environment
    settings: AssignmentSettings
    wait_s: float
    remember_every_s: float
    on_published: OnPublished
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    caught_up: asyncio.Event = field(default_factory=asyncio.Event)
    _unreadable: str = ""
    _assignment: PartitionAssignment | None = None
    _reader: asyncio.Task[None] | None = None
    _remembered_s: float = 0.0
    _remembering: asyncio.Task[None] | None = None
    _has_answered: bool = False

    @property
    def tables(self) -> Mapping[TableName, TableLoop]:
        """The tables that this process serves at present."""
        return {} if self._assignment is None else self._assignment.tables

    @property
    def trouble(self) -> str:
        """The reason why the log cannot be read or verdicts cannot be published, or an empty string."""
        return self._unreadable or ("" if self._assignment is None else self._assignment.trouble)

    @property
    def assignment(self) -> PartitionAssignment | None:
        """The present assignment, or `None`."""
        return self._assignment

    @property
    def paused(self) -> str:
        """The reason if an operator paused all tables, or an empty string."""
        pause = None if self._assignment is None else self._assignment.pauses.of_all
        return "" if pause is None else pause.reason

    async def run(self) -> None:
        """Run until `request_stop`, and then until every table has finished its records in flight.

        Raises:
            Fenced: the log must not be read any further, for instance because it was replaced.
            Unavailable: the log could not be reached at the start.
        """
        async with asyncio.TaskGroup() as tasks:
            reader = self._reader = asyncio.ensure_future(self._read(tasks))
            patience_s: float | None = 0.0
            try:
                await asyncio.wait({reader})
                patience_s = (
                    None if reader.cancelled() or reader.exception() is None else self.settings.request_timeout_s
                )
            finally:
                reader.cancel()
                await self._end_assignment(patience_s)
            if not reader.cancelled():
                reader.result()

    def request_stop(self) -> None:
        """Stop reading. Records that were not handed out are read by the next owner."""
        self.stopping.set()
        if self._reader is not None:
            self._reader.cancel()

    async def lag(self) -> Mapping[Partition, int]:
        """The number of records in each partition that their tables have not received. Raises `Unavailable`."""
        ahead = await self.log.lag()
        assignment = self._assignment
        return (
            {}
            if assignment is None
            else {place: lag + assignment.frontier.distance(place) for place, lag in ahead.items()}
        )

    async def _read(self, tasks: asyncio.TaskGroup) -> None:
        while not self.stopping.is_set():
            event = await self._next()
            match event:
                case Assigned():
                    await self._end_assignment(0.0)
                    self._assignment = self._started(event, tasks)
                    if not event.starts:
                        self.caught_up.set()
                case Delivered():
                    if self._assignment is not None and (event.records or event.passed):
                        await self._assignment.hand_out(event.records, event.passed)
                    if event.at_end:
                        self.caught_up.set()
                    self._remember_now_and_then(tasks)
                    await asyncio.sleep(0)  # lets the tables run, even if the feed never waits
                case Revoked():
                    library_logger().info("partitions revoked", action="revoke", deadline_s=event.deadline_s)
                    until_s = self.environment.monotonic_s() + event.deadline_s * _ANSWER_SHARE
                    await self._end_assignment(event.deadline_s * _PATIENCE_SHARE, until_s)
                    await self.log.released()
                case None:
                    await asyncio.sleep(jittered_s(self.wait_s, self.environment.jitter()))

    async def _next(self) -> FeedEvent | None:
        """The next event, or `None` if the log does not answer. A log that has never answered ends the service."""
        is_full = self._assignment is not None and self._assignment.is_full
        try:
            event = await self.log.next(
                wait_s=_FULL_WAIT_S if is_full else self.wait_s, deliver=not is_full and not self.paused
            )
        except (Unavailable, OutcomeUnknown) as error:
            if not self._has_answered:
                raise
            self._unreadable = f"the log cannot be read: {error}"
            library_logger().warning("log unreadable", action="retry", reason=str(error))
            return None
        self._unreadable = ""
        self._has_answered = True
        return event

    def _started(self, event: Assigned, tasks: asyncio.TaskGroup) -> PartitionAssignment:
        partitions = [partition for _, partition, _ in event.starts]
        library_logger().info("partitions assigned", action="assign", partitions=partitions)
        assignment = PartitionAssignment(
            event, self.log, self.make_loop, self.environment, self.settings, tasks, self.on_published
        )
        assignment.begin()
        return assignment

    async def _end_assignment(self, patience_s: float | None, until_s: float = math.inf) -> None:
        """End the assignment, and commit its offsets unless `patience_s` is 0.

        Tables that have not finished after `patience_s` seconds are cut off. At `until_s` (monotonic seconds) the
        assignment ends even if the log has not answered.
        """
        assignment = self._assignment
        if assignment is None:
            return
        end = await assignment.end(patience_s=patience_s)
        if self._remembering is not None:
            self._remembering.cancel()
        if patience_s != 0.0:
            reader_failed = self._reader is not None and self._reader.done() and not self._reader.cancelled()
            await self._remember(assignment, until_s, End.CUT_OFF if reader_failed else end)
        self._assignment = None

    def _remember_now_and_then(self, tasks: asyncio.TaskGroup) -> None:
        """Commit offsets from time to time, in a separate task, so that a slow answer does not delay reading."""
        now_s = self.environment.monotonic_s()
        is_due = self._remembering is None and now_s - self._remembered_s >= self.remember_every_s
        if self._assignment is not None and is_due:
            self._remembered_s = now_s
            self._remembering = tasks.create_task(self._remember(self._assignment), name="progress")
            self._remembering.add_done_callback(self._has_remembered)

    def _has_remembered(self, _: asyncio.Task[None]) -> None:
        self._remembering = None

    async def _remember(
        self, assignment: PartitionAssignment, until_s: float = math.inf, end: End | None = None
    ) -> None:
        concludes = end is End.IN_GOOD_ORDER
        moved = assignment.frontier.everywhere() if concludes else assignment.frontier.moved()
        if not moved:
            return
        left_s = until_s - self.environment.monotonic_s()
        try:
            async with asyncio.timeout(min(self.settings.request_timeout_s, left_s)):
                await (self.log.concluded(moved) if concludes else self.log.decided(moved))
        except (
            Unavailable,
            OutcomeUnknown,
            TimeoutError,
        ) as error:  # a later commit follows, or the next owner reads some records again
            library_logger().info("progress not remembered", action="retry", reason=str(error))
        else:
            assignment.frontier.remember(moved)
