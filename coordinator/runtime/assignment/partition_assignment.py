"""The partitions of one process from their assignment to their revocation.

Owns: the tables' loops, and the frontier of all of them.
Does not own: the handling of a record by its table (`table_loop`), tables that have fallen behind (`late_tables`),
stuck tables (`parking`), decoding (`records`), reading the log (`consumer_loop`).
Invariants: Every table gets its records of a partition in order and without a gap. No table stops or delays another
table or the main reader. Memory does not grow with tables that do not exist.

Theory. A table whose queue is full gets no more records from the main reader. The first offset that it missed is noted,
and the table's own reader hands it the records from there, whenever it has room, until it reaches the main reader. So a
stuck table costs no more than its queue, and no record is skipped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

import structlog

from rootline.coordinator.runtime.assignment.frontier import Frontier
from rootline.coordinator.runtime.assignment.late_tables import LateTables
from rootline.coordinator.runtime.assignment.new_tables import NewTables
from rootline.coordinator.runtime.assignment.parking import Parking
from rootline.coordinator.runtime.assignment.parking_rules import ParkingLimits
from rootline.coordinator.runtime.assignment.pausing import Pausing
from rootline.coordinator.runtime.assignment.rejection_outbox import RejectionOutbox
from rootline.coordinator.runtime.records import (
    DecodingTrial,
    Principals,
    Rejection,
    decoded,
    of_lake,
    poison_rejection,
    with_recorded_rejection,
)
from rootline.coordinator.runtime.table.table_loop import TableLoop, TableOwner
from rootline.ports.environment import Environment
from rootline.ports.intent_feed import Assigned, CoordinatorLog, Partition, RecordedRejection
from rootline.ports.retry_policy import jittered_s
from rootline.schemas.bytes.record_headers import Lake
from rootline.schemas.identifiers import LogId, LogPosition, LogRecord, TableName
from rootline.schemas.intent_rules import IntentLimits
from rootline.schemas.root_header import PartitionOffset
from rootline.schemas.verdict import Verdict
from rootline.tree.draft.batch import Record
from rootline.tree.ledger.outcomes import Acknowledged

_UNKNOWN_TABLES_MAX: Final = 100
"""The most tables whose heads are searched for concurrently. Most of them may not exist."""
_UNLISTABLE_TABLES_MAX: Final = 5_000
"""The most tables with unlistable heads in memory. With more, the main reader pauses."""

_LOOK_S: Final = 5.0
"""The interval at which stuck tables and pauses are looked for."""

LoopFactory = Callable[[TableName, Acknowledged, TableOwner], TableLoop]
OnPublished = Callable[[Sequence[Verdict], bool], None]
"""Called with acknowledged verdicts on records without a table, and whether they had been published before."""


class End(Enum):
    """The ways in which an assignment can end."""

    IN_GOOD_ORDER = auto()
    CUT_OFF = auto()


@dataclass(frozen=True, slots=True)
class AssignmentSettings:
    """The limits of an assignment.

    * `queue_bytes_max`: the most bytes in memory over all tables.
    * `table_idle_s`: the idle time after which a table is closed.
    * `parking_after_s`: the time that a table may be stuck before it is parked.
    * `parked_bytes_max`: the most parked bytes of a table and partition.
    """

    limits: IntentLimits
    queue_bytes_max: int
    table_idle_s: float
    retry_s: float
    request_timeout_s: float
    parking_after_s: float = 600.0
    parked_bytes_max: int = 67_108_864
    principals: Principals | None = None
    """The writers and their permissions, or `None` if everybody who can publish may write."""
    lake: Lake | None = None
    """This lake. Records for another lake are rejected. `None` if it is unknown."""


@dataclass(slots=True)
class PartitionAssignment:
    """The partitions of one assignment.

    * `tables`: the loops of tables, opened by their first records.
    * `buffered_bytes`: the size of intents in all queues, and of rejected records that are not published.
    * `late`: the separate readers of tables.
    * `parking`: the parking loop, or `None` if the log cannot park.
    """

    assigned: Assigned
    log: CoordinatorLog
    make_loop: LoopFactory
    environment: Environment
    settings: AssignmentSettings
    tasks: asyncio.TaskGroup
    on_published: OnPublished
    tables: dict[TableName, TableLoop] = field(default_factory=dict)
    buffered_bytes: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    frontier: Frontier = field(init=False)
    late: LateTables = field(init=False)
    parking: Parking | None = None
    pausing: Pausing = field(init=False)
    _acknowledged: Mapping[Partition, int] = field(init=False)
    _outbox: RejectionOutbox = field(init=False)
    _own: set[asyncio.Task[None]] = field(default_factory=set)
    _looking: list[asyncio.Task[None]] = field(default_factory=list)
    _new: NewTables = field(default_factory=NewTables)
    _looked_for_idle_s: float = 0.0
    _poison_candidates: Mapping[Partition, int] = field(init=False)
    _answered: dict[LogPosition, RecordedRejection] = field(init=False)
    _poison: dict[LogPosition, str] = field(default_factory=dict)
    _trial: DecodingTrial = field(init=False)

    def __post_init__(self) -> None:
        self.frontier = Frontier(self.assigned.starts)
        self._acknowledged = {(log, partition): offset for log, partition, offset in self.assigned.starts}
        self._poison_candidates = {
            (log, partition): offset for log, partition, offset in self.assigned.poison_candidates
        }
        self._answered = {answer.position: answer for answer in self.assigned.answered}
        self._trial = DecodingTrial(self.settings.limits)
        self._outbox = RejectionOutbox(
            self.log,
            self.environment,
            self._rejected,
            self.buffered,
            self.settings.queue_bytes_max,
            self.settings.request_timeout_s,
            self.settings.retry_s,
        )
        self.late = LateTables(self)
        self.pausing = Pausing(self, _LOOK_S)
        self.pausing.take(self.assigned.paused)
        store, after_s = self.log.parking, self.settings.parking_after_s
        if store is not None:
            limits = ParkingLimits(after_s, self.settings.parked_bytes_max, self.assigned.retention_s)
            self.parking = Parking(self, self.late, store, limits, min(_LOOK_S, after_s / 10))

    @property
    def behind(self) -> set[tuple[TableName, Partition]]:
        """The tables and partitions that have separate readers."""
        return self.late.places

    def begin(self) -> None:
        """Start publishing rejections, parking, looking for pauses, and the tables that have parked records."""
        self.start(self._outbox.run(), "rejections")
        if self.parking is not None:
            self.parking.take(self.assigned.parked, self.assigned.starts)
            self._looking.append(self.start(self.parking.run(), "parking"))
        self._looking.append(self.start(self.pausing.run(), "pauses"))

    async def examine(self, records: Sequence[LogRecord]) -> None:
        """Decode records that may have crashed a reader in a separate process, and note those that crash it.

        Must be called before `hand_out`.
        """
        if not self._poison_candidates:
            return
        poison_candidates = [
            raw for raw in records if raw.position.offset < self._poison_candidates.get(raw.position[:2], 0)
        ]
        if poison_candidates:
            self._poison |= await self._trial.poison_among(poison_candidates)
        elif all(self.frontier.next_offset(place) >= end for place, end in self._poison_candidates.items()):
            await self._trial.close()  # a separate reader that is behind starts the trial again

    def hand_out(self, records: Sequence[LogRecord], passed: Sequence[PartitionOffset] = ()) -> None:
        """Hand each record to its table, or reject it, in the order of each partition.

        `passed` are offsets without records, as in `Delivered`.
        """
        by_table: dict[tuple[TableName, Partition], list[Record]] = {}
        ends: dict[Partition, int] = {}
        rejections: list[Rejection] = []
        behind = self.late.places
        for raw in records:
            log, number, offset = raw.position
            place = (log, number)
            ends[place] = offset + 1
            if behind and raw.key is not None and (TableName(raw.key.decode(errors="replace")), place) in behind:
                continue  # the table's own reader reads it
            result = self.decoded(raw)
            if isinstance(result, Record):
                by_table.setdefault((TableName(result.intent.table), place), []).append(result)
            else:
                rejections.append(result)
        for rejection in rejections:
            self.reject(rejection)
        if any(table not in self.tables for table, _ in by_table):
            self._close_absent()
        self._close_idle()
        for (table, place), own in by_table.items():
            if (table, place) not in behind:
                self._deliver(table, place, tuple(own), ends[place])
        for place, end in ends.items():
            self.frontier.read(place, end)
        for log, number, end in passed:
            self.frontier.read((log, number), end)

    @property
    def is_full(self) -> bool:
        """Whether the main reader should pause, because buffers are full or too many heads are being searched for.

        Tables whose head cannot be listed count separately, so that missing rights to some do not block others.
        """
        return (
            len(self._new.looking) > _UNKNOWN_TABLES_MAX
            or len(self._new.unlistable) > _UNLISTABLE_TABLES_MAX
            or self._outbox.is_full
            or self.buffered_bytes >= self.settings.queue_bytes_max
        )

    @property
    def trouble(self) -> str:
        """The reason why verdicts cannot be published, or an empty string."""
        return next((loop.trouble for loop in self.tables.values() if loop.trouble), self._outbox.trouble)

    async def confirm(self) -> None:
        """Confirm with the log that the assignment is still valid. Raises `Unavailable`."""
        await self.log.confirm(self.assigned.generation)

    def decided(self, table: TableName, up_to: Acknowledged) -> None:
        """Note acknowledged verdicts of a table."""
        self.frontier.decided(table, up_to)
        if self.parking is not None:
            self.parking.last_progress.note(table, self.environment.monotonic_s())

    def took_event(self, table: TableName) -> None:
        """Note that a table's loop has handled an event."""
        self._new.note(table, self.tables.get(table))

    def buffered(self, more_bytes: int) -> None:
        """Add to the buffered bytes. Negative numbers subtract."""
        self.buffered_bytes += more_bytes

    async def end(self, *, patience_s: float | None) -> End:
        """End the assignment: wait for records in flight and their verdicts for `patience_s` seconds, then cut off.

        The next owner of the partitions finds the outcome of records that were cut off in the head.
        """
        self.late.stop()
        for task in self._looking:
            task.cancel()
        self._outbox.request_stop()
        for loop in self.tables.values():
            loop.request_stop()
        await self._trial.close()
        if not self._own:
            return End.IN_GOOD_ORDER
        _, late = await asyncio.wait(self._own, timeout=patience_s)
        for task in late:
            task.cancel()
        if late:
            structlog.get_logger().warning("tables cut off", action="revoke", tasks=len(late), patience_s=patience_s)
            await asyncio.wait(late)
        return End.CUT_OFF if late else End.IN_GOOD_ORDER

    def open_table(self, table: TableName, undecided: Iterable[PartitionOffset]) -> None:
        """Start a new loop for the table, in place of the present one (see `ParkingOwner.open_table`)."""
        old = self.tables.pop(table, None)
        if old is not None:
            old.request_stop()
        acknowledged = dict(self._acknowledged)
        for log, partition, offset in undecided:
            acknowledged[log, partition] = min(offset, acknowledged.get((log, partition), offset))
        self._open(table, acknowledged, None if old is None else old.pending_since_ms)

    def pause_table(self, table: TableName) -> None:
        """Start a loop that commits nothing for the table (see `PausingOwner.pause_table`)."""
        self.open_table(table, self._undecided_of(table))
        for place in self.late.places_of(table):
            self.late.read(table, place)  # the reader may be waiting for room in the old loop

    def restart_table(self, table: TableName) -> None:
        """Start a new loop for the table, and hand it its undecided records again."""
        undecided = self._undecided_of(table)
        self.open_table(table, undecided)
        for log, partition, offset in undecided:
            place = (log, partition)
            if self.parking is not None:
                self.parking.note_restart((table, place))
            self.late.take_over(table, place, offset, self.frontier.next_offset(place))
            self.late.read(table, place)

    def hand_over(self, loop: TableLoop, table: TableName, place: Partition, records: tuple[Record, ...]) -> None:
        """Hand records to a table that has room for them."""
        self.frontier.handed_over(place, table, records[0].position.offset, records[-1].position.offset)
        loop.deliver(records)

    def decoded(self, raw: LogRecord) -> Record | Rejection:
        """The intent in `raw`, or its rejection. A rejection that was recorded before is returned again."""
        how = self._poison.get(raw.position) if self._poison else None
        found = decoded(raw, self.settings.limits) if how is None else poison_rejection(raw, how)
        if self.settings.principals is not None and isinstance(found, Record):
            found = self.settings.principals.judged(raw, found)
        if self.settings.lake is not None and raw.headers and isinstance(found, Record):
            found = of_lake(raw, found, self.settings.lake)
        if self._answered and (answer := self._answered.get(raw.position)) is not None:
            return with_recorded_rejection(raw, found, answer.code, answer.message)
        return found

    def reject(self, rejection: Rejection) -> None:
        """Publish a rejection. It blocks the frontier until it is acknowledged."""
        verdict, _ = rejection
        self.frontier.rejected((LogId(verdict.log), verdict.partition), verdict.offset)
        self._outbox.reject([rejection])

    @property
    def has_room_for_rejections(self) -> bool:
        """Whether the buffer of rejections has room."""
        return not self._outbox.is_full

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run `work` as a task of the assignment."""
        task = self.tasks.create_task(work, name=name)
        self._own.add(task)
        task.add_done_callback(self._own.discard)
        return task

    async def pause(self) -> None:
        """Wait before a retry."""
        await asyncio.sleep(jittered_s(self.settings.retry_s, self.environment.jitter()))

    def _deliver(self, table: TableName, place: Partition, records: tuple[Record, ...], read_to: int) -> None:
        loop = self.tables.get(table)
        if loop is None:
            loop = self._open(table, self._acknowledged)
            self._new.opened(table)
        if loop.has_room:
            self.hand_over(loop, table, place, records)
            return
        self.late.take_over(table, place, records[0].position.offset, read_to)
        self.late.read(table, place)

    def _undecided_of(self, table: TableName) -> list[PartitionOffset]:
        return [PartitionOffset(*place, offset) for place, offset in self.frontier.undecided_of(table).items()]

    def _open(self, table: TableName, acknowledged: Acknowledged, pending_since_ms: int | None = None) -> TableLoop:
        loop = self.tables[table] = self.make_loop(table, acknowledged, self)
        why = self.pausing.why(table)
        if why is not None:
            loop.pause(why, pending_since_ms=pending_since_ms)
        self.start(loop.run(), f"table {table}")
        return loop

    def _rejected(self, rejections: Sequence[Rejection]) -> None:
        fresh, again = list[Verdict](), list[Verdict]()
        for verdict, _ in rejections:
            position = LogPosition(LogId(verdict.log), verdict.partition, verdict.offset)
            (again if position in self._answered else fresh).append(verdict)
            self.frontier.rejection_published(position[:2], verdict.offset)
        self.on_published(fresh, False)
        self.on_published(again, True)

    def _close_absent(self) -> None:
        """Close tables that do not exist, so that a writer cannot fill the memory with names."""
        for table in [table for table in self._new.absent if not self.late.places_of(table)]:
            loop = self.tables.get(table)
            if loop is not None and loop.is_absent:
                self._close(table)
            else:
                self._new.note(table, loop)

    def _close_idle(self) -> None:
        """Close tables that are idle or do not exist. This runs from time to time."""
        now_s = self.environment.monotonic_s()
        if now_s - self._looked_for_idle_s < 0.1 * self.settings.table_idle_s:
            return
        self._looked_for_idle_s = now_s
        idle_since_s = now_s - self.settings.table_idle_s
        unused = [table for table, loop in self.tables.items() if loop.is_absent or loop.is_idle_since(idle_since_s)]
        for table in unused:
            if not self.late.places_of(table):
                self._close(table)

    def _close(self, table: TableName) -> None:
        self.tables.pop(table).request_stop()
        self._new.note(table, None)
