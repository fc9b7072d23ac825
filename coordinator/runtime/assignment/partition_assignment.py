"""The partitions of one process from their assignment to their revocation.

Owns: handing records to tables, carrying out the decisions of pauses and parking, the end of the assignment.
Does not own: decoding and rejecting (`intake`), the tables' loops and pauses (`served_tables`), progress (`frontier`),
tables that have fallen behind (`late_tables`), stuck tables (`parking`), reading the log (`consumer_loop`).
Invariants: Every table gets its records of a partition in order and without a gap. No table stops or delays another
table or the main reader. Memory does not grow with tables that do not exist. An assignment knows the present pauses
before it hands out any record.

Theory. A table whose queue is full gets no more records from the main reader. The first offset that it missed is noted,
and the table's own reader hands it the records from there, whenever it has room, until it reaches the main reader. So a
stuck table costs no more than its queue, and no record is skipped.

The parts know each other in one direction only: parking, late tables, then intake, outbox and served tables, then the
frontier. None of them knows the assignment. Pauses and parking return the tables that need new loops, and the
assignment opens them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from enum import Enum, auto
from functools import partial
from typing import Final

from rootline.coordinator.runtime.assignment.frontier import Frontier, Where
from rootline.coordinator.runtime.assignment.intake import AssignmentSettings, Intake, OnPublished, RejectionOutbox
from rootline.coordinator.runtime.assignment.late_tables import LateTables, ParkedRecords
from rootline.coordinator.runtime.assignment.parking import Parking, ParkingLimits
from rootline.coordinator.runtime.assignment.served_tables import LoopFactory, Pauses, ServedTables
from rootline.coordinator.runtime.records import Rejection
from rootline.coordinator.runtime.table.table_loop import TableLoop
from rootline.library_log import library_logger
from rootline.ports.environment import Environment
from rootline.ports.intent_feed import Assigned, CoordinatorLog, Partition, Pause
from rootline.schemas.errors import Fenced, OutcomeUnknown, Unavailable
from rootline.schemas.identifiers import LogRecord, TableName
from rootline.schemas.parts.log import PartitionOffset
from rootline.tree.draft.batch import Record

_LOOK_S: Final = 5.0
"""The interval at which stuck tables and pauses are looked for."""


class End(Enum):
    """The ways in which an assignment can end."""

    IN_GOOD_ORDER = auto()
    CUT_OFF = auto()


class PartitionAssignment:
    """The partitions of one assignment.

    * `pauses`: the pauses in force.
    * `frontier`: for each partition the offset before which every verdict is acknowledged.
    * `parked`: the parked records of the assignment's tables.
    """

    def __init__(
        self,
        assigned: Assigned,
        log: CoordinatorLog,
        make_loop: LoopFactory,
        environment: Environment,
        settings: AssignmentSettings,
        tasks: asyncio.TaskGroup,
        on_published: OnPublished,
    ) -> None:
        self.assigned = assigned
        self.frontier = frontier = Frontier(assigned.starts)
        self.pauses, self.parked = Pauses(), ParkedRecords()
        self._log, self._settings = log, settings
        bytes_max, timeout_s, retry_s = settings.queue_bytes_max, settings.request_timeout_s, settings.retry_s
        recorded = {rejection.position: rejection for rejection in assigned.answered}
        self._intake = intake = Intake(log, frontier, settings, recorded, assigned.poison_candidates)
        self._outbox = outbox = RejectionOutbox(
            log, environment, frontier, on_published, recorded, bytes_max, timeout_s, retry_s
        )
        self.served = served = ServedTables(
            assigned, log, make_loop, environment, frontier, self.pauses, tasks, settings.table_idle_s, retry_s
        )
        self._late = late = LateTables(log, frontier, intake, outbox, served, self.parked)
        self._parking: Parking | None = None
        if log.parking is not None:
            limits = ParkingLimits(settings.parking_after_s, settings.parked_bytes_max, assigned.retention_s)
            self._parking = Parking(
                log, log.parking, environment, limits, frontier, intake, outbox, served, late, self.parked
            )
        self._looking: list[asyncio.Task[None]] = []
        self.take_pauses(assigned.paused)

    @property
    def tables(self) -> Mapping[TableName, TableLoop]:
        """The loop of each table in memory. The first record of a table opens its loop."""
        return self.served.loops

    @property
    def behind(self) -> Collection[Where]:
        """The tables and partitions that have separate readers."""
        return self._late.places

    @property
    def buffered_bytes(self) -> int:
        """The size of intents in all queues, and of rejected records that are not published."""
        return self.served.buffered_bytes + self._outbox.buffered_bytes

    @property
    def is_full(self) -> bool:
        """Whether the main reader should pause, because buffers are full or too many heads are being searched for."""
        return (
            self.served.searches_too_many
            or self._outbox.is_full
            or self.buffered_bytes >= self._settings.queue_bytes_max
        )

    @property
    def trouble(self) -> str:
        """The reason why verdicts cannot be published, or an empty string."""
        return self.served.trouble or self._outbox.trouble

    def begin(self) -> None:
        """Start the loops of parked tables, and the tasks for rejections, parking and pauses."""
        self.served.start(self._outbox.run(), "rejections")
        if self._parking is not None:
            for table, firsts in self._parking.take(self.assigned.parked, self.assigned.starts).items():
                self.served.reopen(table, firsts)
            step, every_s = partial(self._look_for_stuck_tables, self._parking), self._settings.parking_after_s / 10
            parking = _repeat(min(_LOOK_S, every_s), step, "parking delayed")
            self._looking.append(self.served.start(parking, "parking"))
        pauses = _repeat(_LOOK_S, self._look_for_pauses, "pauses unknown")
        self._looking.append(self.served.start(pauses, "pauses"))

    async def hand_out(self, records: Sequence[LogRecord], passed: Sequence[PartitionOffset] = ()) -> None:
        """Hand each record to its table, or reject it, in the order of each partition.

        `passed`: the next offsets after log entries that are not records, as in `Delivered`.
        """
        await self._intake.examine(records)
        # no await from here on, so that no other reader moves in between
        by_table: dict[Where, list[Record]] = {}
        ends: dict[Partition, int] = {}
        rejections: list[Rejection] = []
        behind = self._late.places
        for raw in records:
            log, number, offset = raw.position
            place = (log, number)
            ends[place] = offset + 1
            if behind and raw.key is not None and (TableName(raw.key.decode(errors="replace")), place) in behind:
                continue  # the table's own reader reads it
            result = self._intake.decoded(raw)
            if isinstance(result, Record):
                by_table.setdefault((TableName(result.intent.table), place), []).append(result)
            else:
                rejections.append(result)
        if rejections:
            self._outbox.reject(rejections)
        if any(table not in self.tables for table, _ in by_table):
            self._close(self.served.absent())
        self._close(self.served.idle())
        for (table, place), own in by_table.items():
            if (table, place) not in behind:
                self._deliver(table, place, tuple(own), ends[place])
        for place, end in ends.items():
            self.frontier.read(place, end)
        for log, number, end in passed:
            self.frontier.read((log, number), end)

    def take_pauses(self, pauses: Iterable[Pause]) -> None:
        """Pause and resume tables, so that `pauses` is the complete list of those in force."""
        phases = ((table, loop.phase) for table, loop in self.tables.items())
        for table in self.pauses.take(pauses, phases):
            if self.pauses.why(table) is None:
                self._hand_out_again(table)
            else:
                self.served.reopen(table, self.frontier.undecided_of(table))
                self._late.restart(table)

    async def end(self, *, patience_s: float | None) -> End:
        """End the assignment: wait up to `patience_s` seconds for records in flight and their verdicts, then cancel.

        If tasks are cancelled, the next owner of the partitions finds the outcomes of their records in the head.
        """
        self._late.stop()
        for task in self._looking:
            task.cancel()
        self._outbox.request_stop()
        self.served.request_stop()
        await self._intake.close()
        return End.CUT_OFF if await self.served.finish(patience_s) else End.IN_GOOD_ORDER

    def _deliver(self, table: TableName, place: Partition, records: tuple[Record, ...], read_to: int) -> None:
        loop = self.tables.get(table) or self.served.open(table)
        if loop.has_room:
            self.served.hand_over(loop, table, place, records)
        else:
            self._late.take_over(table, place, records[0].position.offset, read_to)

    def _close(self, unused: Sequence[TableName]) -> None:
        for table in unused:
            if not self._late.serves(table):
                self.served.close(table)

    def _hand_out_again(self, table: TableName) -> None:
        """Start a new loop for the table, and hand it all of its undecided records again."""
        undecided = self.frontier.undecided_of(table)
        self.served.reopen(table, undecided)
        for log, partition, offset in undecided:
            place = (log, partition)
            if self._parking is not None:
                self._parking.note_restart((table, place))
            self._late.take_over(table, place, offset, self.frontier.next_offset(place))

    async def _look_for_stuck_tables(self, parking: Parking) -> None:
        async with aclosing(parking.round()) as to_restart:
            async for table in to_restart:
                self._hand_out_again(table)

    async def _look_for_pauses(self) -> None:
        self.take_pauses(await self._log.pauses())  # after a failure the known pauses stay in force


async def _repeat(every_s: float, step: Callable[[], Awaitable[None]], delayed: str) -> None:
    """Call `step` every `every_s` seconds, until cancelled. A step that fails is retried in the next round."""
    while True:
        await asyncio.sleep(every_s)
        try:
            await step()
        except (Unavailable, OutcomeUnknown, Fenced, TimeoutError) as error:
            library_logger().warning(delayed, action="retry", reason=str(error))
