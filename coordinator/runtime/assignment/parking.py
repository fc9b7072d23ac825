"""Parking: storing the records of a stuck table aside, so that the offset of its partition can pass them.

Owns: the rule for parking, finding stuck tables (paused, quarantined or without a decision for too long), parking their
records, removing decided ones, and the lifts of an operator (commands that let a stuck table retry).
Does not own: the storage of parked records (the log's `ParkedStore`), reading them (`late_tables`), new loops for
tables that are lifted (`partition_assignment`).
Invariants: The offset passes a record only after the record is parked durably, or its rejection is acknowledged. A
record that was handed to a table is never rejected for lack of room. Parked records are removed only after the verdicts
on all of them are published. During an outage of the store, in which no table makes progress, no table is parked before
half of the log's retention has passed. A table that makes progress, however slowly, is never parked.

Theory. A table is parked separately for each partition. While it is parked, it gets nothing of that partition from the
main reader. Each round re-reads the log from the end of the table's parked records on, stores the table's next records,
and advances the offset by which the table bounds the frontier. A separate reader hands the table its parked records as
soon as the table takes any. When all of them are decided, that reader continues with the log where parking has stopped.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from rootline.coordinator.protocol.machine_state import Phase
from rootline.coordinator.runtime.assignment.frontier import Frontier, Where
from rootline.coordinator.runtime.assignment.intake import Intake, RejectionOutbox
from rootline.coordinator.runtime.assignment.late_tables import LateTables, ParkedRecords
from rootline.coordinator.runtime.assignment.served_tables import ServedTables
from rootline.coordinator.runtime.records import with_recorded_rejection
from rootline.coordinator.runtime.table.table_loop import TableLoop
from rootline.coordinator.runtime.table.table_states import written_reason
from rootline.library_log import library_logger
from rootline.ports.environment import Environment
from rootline.ports.intent_feed import IntentFeed, ParkedStore, ParkedTable, Partition
from rootline.schemas.errors import Invalid, OutcomeUnknown
from rootline.schemas.identifiers import LogRecord, TableName
from rootline.schemas.parts.log import PartitionOffset
from rootline.tree.draft.batch import Record

_WHY_CHARS_MAX: Final = 400
_Own = tuple[LogRecord, Record]


@dataclass(frozen=True, slots=True)
class ParkingLimits:
    """The limits of parking.

    * `patience_s`: the time without a decision after which a table may be parked.
    * `table_bytes_max`: the most parked bytes of a table and partition.
    * `retention_s`: the retention of the log, or `None` if it keeps records forever.
    """

    patience_s: float
    table_bytes_max: int
    retention_s: float | None


def is_due(
    limits: ParkingLimits, *, stuck_since_s: float, now_s: float, others_s: float | None, oldest_age_s: float | None
) -> bool:
    """Whether a table that has decided nothing since `stuck_since_s` must be parked.

    * `others_s`: the last time at which another table of this process decided a record. All times are monotonic.
    * `oldest_age_s`: the age of the table's oldest undecided record.
    """
    if limits.retention_s is None or now_s - stuck_since_s < limits.patience_s:
        return False
    others_progress = others_s is not None and others_s - stuck_since_s >= limits.patience_s
    return others_progress or (oldest_age_s is not None and oldest_age_s > limits.retention_s / 2)


@dataclass(slots=True)
class _StuckSince:
    """The time since which the first undecided offset of each table and partition has not changed."""

    _known: dict[Where, tuple[int, float]] = field(default_factory=dict)

    def look(self, offsets: dict[Where, int], now_s: float) -> dict[Where, float]:
        """Note the present first undecided offsets. Returns for each the time at which it was first noted."""
        known = self._known
        self._known = {
            where: known[where] if where in known and known[where][0] == offset else (offset, now_s)
            for where, offset in offsets.items()
        }
        return {where: since_s for where, (_, since_s) in self._known.items()}


@dataclass(slots=True)
class Parking:
    """The parking of one assignment.

    `_noticed` has stuck tables whose records are not parked. A notice of each is stored for later owners.
    """

    log: IntentFeed
    store: ParkedStore
    environment: Environment
    limits: ParkingLimits
    frontier: Frontier
    intake: Intake
    outbox: RejectionOutbox
    served: ServedTables
    late: LateTables
    parked: ParkedRecords
    _noticed: dict[Where, ParkedTable] = field(default_factory=dict)
    _stuck: _StuckSince = field(default_factory=_StuckSince)
    _given_to: dict[Where, int] = field(default_factory=dict)
    """The offset before which the table had received all records when it was parked. A root may have decided them."""
    _resumes_at: dict[Where, int] = field(default_factory=dict)
    """A copy of `_given_to` while the loop that received these records exists, since it must not receive them twice."""

    def take(
        self, parked: Sequence[ParkedTable], starts: Iterable[PartitionOffset]
    ) -> Mapping[TableName, Sequence[PartitionOffset]]:
        """Take over the records that earlier owners of these partitions have parked, and start reading them.

        Returns the tables that need a loop, each with the first parked offset of each partition.
        """
        start_of = {(log, partition): offset for log, partition, offset in starts}
        to_open: dict[TableName, list[PartitionOffset]] = {}
        for item in parked:
            place = (item.log, item.partition)
            where = (item.table, place)
            if not item.records:
                self._noticed[where] = item
                continue
            to_open.setdefault(item.table, []).append(PartitionOffset(*place, item.first_offset))
            self.parked.tables[where] = item
            self.frontier.parked(place, item.table, start_of[place])
            self.late.take_over(item.table, place, item.first_offset, start_of[place])
        return to_open

    async def round(self) -> AsyncGenerator[TableName, None]:
        """Park the records of stuck tables, and carry out the lifts of operators.

        Yields each lifted table. Give it a new loop before the next step, which confirms the lift.

        Raises:
            Unavailable, OutcomeUnknown, Fenced, TimeoutError: the next round, or the next owner, retries.
        """
        may_be_lifted = self._has_any
        await self._look()
        if not (may_be_lifted or self._has_any):
            return
        for lift in await self.store.lifts():
            is_stopped = self.parked.lift((lift.table, (lift.log, lift.partition)), lift)
            loop = self.served.loops.get(lift.table)
            if loop is not None and (is_stopped or loop.phase is Phase.QUARANTINED):
                library_logger().info("quarantine lifted", action="lift", table=lift.table)
                yield lift.table
            await self.store.lifted(lift)

    def note_restart(self, where: Where) -> None:
        """Note that the table has a new loop, which will receive all undecided records, the parked ones first."""
        self._resumes_at.pop(where, None)

    @property
    def _has_any(self) -> bool:
        """Whether a table is parked, or a notice of a stuck table is stored."""
        return bool(self.parked.tables or self._noticed)

    async def _look(self) -> None:
        now_s, now_ms = self.environment.monotonic_s(), self.environment.now_ms()
        offsets = self.frontier.undecided()
        since = self._stuck.look(offsets, now_s)
        to_park: dict[Partition, list[TableName]] = {}
        for where, offset in offsets.items():
            table, place = where
            loop, parked = self.served.loops.get(table), self.parked.tables.get(where)
            if loop is None:
                continue
            due = self._is_due(where, loop, since[where], now_s, now_ms)
            since_ms = now_ms - int(1000 * (now_s - since[where]))
            if parked is None and due:
                self._begin(where, loop, offset, since_ms)
                to_park.setdefault(place, []).append(table)
            elif parked is None and loop.is_stuck:
                await self._notice(where, loop, offset, since_ms)
            elif parked is not None and await self._must_park_more(where, loop, parked, offset, due):
                to_park.setdefault(place, []).append(table)
        for where, notice in list(self._noticed.items()):
            if self._is_over(where, notice, where in offsets):
                await self.store.unpark(notice)
                del self._noticed[where]
        for place, tables in to_park.items():
            await self._park(place, tables)

    def _is_due(self, where: Where, loop: TableLoop, stuck_since_s: float, now_s: float, now_ms: int) -> bool:
        parked, notice, limits = self.parked.tables.get(where), self._noticed.get(where), self.limits
        if parked is not None:  # each owner may have it only briefly
            limits = replace(limits, patience_s=limits.patience_s / 10)
        if notice is not None:  # it may be from an earlier owner
            stuck_since_s = min(stuck_since_s, now_s - (now_ms - notice.since_ms) / 1000)
        oldest_ms = loop.pending_since_ms if parked is None else parked.oldest_ms
        return is_due(
            limits,
            stuck_since_s=stuck_since_s,
            now_s=now_s,
            others_s=self.served.last_progress.other_than(where[0]),
            oldest_age_s=None if oldest_ms is None else (now_ms - oldest_ms) / 1000,
        )

    async def _must_park_more(self, where: Where, loop: TableLoop, parked: ParkedTable, offset: int, due: bool) -> bool:
        """Whether later records of a parked table must be parked too. Unparks the table if all are decided."""
        is_stuck = loop.is_stuck
        why = self.parked.missing.get(where, _why(loop) if is_stuck else parked.why)
        if why != parked.why:  # an operator fixed one cause, and there is another
            self.parked.tables[where] = await self.store.park(replace(parked, why=why), ())
        if due or is_stuck or where in self.parked.missing:
            return True
        if offset >= parked.next_offset and not self.frontier.rejects_before(where[1], parked.next_offset):
            await self._unpark(where, parked)
        return False

    async def _notice(self, where: Where, loop: TableLoop, offset: int, since_ms: int) -> None:
        """Store a notice that the table is stuck, unless one with the same reason is stored."""
        notice, why = self._noticed.get(where), _why(loop)
        if notice is None or notice.why != why:
            known = _empty(where, offset, since_ms, "") if notice is None else notice
            self._noticed[where] = await self.store.park(replace(known, why=why), ())

    def _is_over(self, where: Where, notice: ParkedTable, has_undecided: bool) -> bool:
        """Whether a notice must be removed, because its table is no longer stuck."""
        loop = self.served.loops.get(where[0])
        if loop is None:
            return not has_undecided and self.frontier.next_offset(where[1]) > notice.next_offset
        return not loop.is_stuck and (not has_undecided or not loop.is_unknown)

    def _begin(self, where: Where, loop: TableLoop, offset: int, since_ms: int) -> None:
        table, place = where
        frontier = self.frontier
        known = self._noticed.pop(where, None)
        empty = _empty(where, offset, since_ms if known is None else known.since_ms, _why(loop))
        if where not in self.late.places:
            read_to = frontier.next_offset(place)
            self.late.take_over(table, place, read_to, read_to)
        self.parked.tables[where] = empty
        self._given_to[where] = self._resumes_at[where] = frontier.reader_at(place, table)
        frontier.parked(place, table, offset)
        library_logger().error(
            "table parked", action="park", table=table, partition=place[1], offset=offset, reason=empty.why
        )

    async def _park(self, place: Partition, tables: list[TableName]) -> None:
        """Park the next records of `tables`: from the end of those already parked up to the main reader's position."""
        frontier = self.frontier
        name = f"parking/{place[1]}"
        try:
            while tables and not self.outbox.is_full:
                parked_to = {table: frontier.parked_to(place, table) for table in tables}
                start = min(parked_to.values())
                if start >= frontier.next_offset(place):
                    return
                found = await self.intake.read_again(name, PartitionOffset(*place, start))
                if found is None:
                    return
                async with self.served.turn:
                    end = min(found.next_offset, frontier.next_offset(place))
                    froms = {
                        table: max(offset, self.parked.tables[table, place].next_offset)
                        for table, offset in parked_to.items()
                    }
                    records = [raw for raw in found.records if raw.position.offset < end]
                    own = self.late.records_of(place, records, froms)
                if end <= start:
                    return
                for table, mine in own.items():
                    if end > parked_to[table] and not await self._is_stored((table, place), mine, end):
                        tables.remove(table)
        finally:
            await self.log.forget_reader(name)

    async def _is_stored(self, where: Where, mine: Sequence[_Own], end: int) -> bool:
        """Park or reject these records. Returns whether all are. If not, the next round retries this table."""
        table, place = where
        frontier = self.frontier
        fit, over = self._split(where, mine)
        if fit:
            try:
                await self._stored(where, fit)
            except (
                Invalid,
                OutcomeUnknown,
            ):  # one record may be at fault, and those after it then fail as out of order
                for item in fit:
                    if not await self._is_stored_or_rejected(where, item):
                        return False
        if over:
            self._reject(
                table, over, f"its parked intents have reached the limit of {self.limits.table_bytes_max} bytes"
            )
        frontier.parked(place, table, end)
        return True

    async def _stored(self, where: Where, items: Sequence[_Own]) -> None:
        next_offset = items[-1][0].position.offset + 1
        after = replace(self.parked.tables[where], next_offset=next_offset)
        self.parked.tables[where] = await self.store.park(after, [raw for raw, _ in items])
        self.frontier.parked(where[1], where[0], next_offset)

    async def _is_stored_or_rejected(self, where: Where, item: _Own) -> bool:
        table, place = where
        offset = item[0].position.offset
        try:
            await self._stored(where, [item])
        except Invalid as error:
            if offset < self._may_be_decided_to(where):
                library_logger().error("record not parked", action="retry", table=table, reason=str(error))
                return False
            self._reject(table, [item], f"this intent is too large to be parked ({error.message})")
            self.frontier.parked(place, table, offset + 1)  # otherwise the next pass would reject it again
        return True

    def _split(self, where: Where, mine: Sequence[_Own]) -> tuple[list[_Own], list[_Own]]:
        """Split records into those to park, up to the limit of parked bytes, and the rest, which is rejected.

        A record that the table has received is never rejected, since a root may have decided it.
        """
        size = self.parked.tables[where].size_in_bytes
        given_to = self._may_be_decided_to(where)
        for number, (raw, record) in enumerate(mine):
            size += record.size_in_bytes
            if size > self.limits.table_bytes_max and raw.position.offset >= given_to:
                return list(mine[:number]), list(mine[number:])
        return list(mine), []

    def _may_be_decided_to(self, where: Where) -> int:
        table, place = where
        return max(self._given_to.get(where, 0), self.frontier.handed_over_to(place, table))

    def _reject(self, table: TableName, over: Sequence[_Own], why: str) -> None:
        reason = (
            f"{table} is stuck, and {why}: fix the table, run `rootline quarantine lift {table}`, and publish again"
        )
        self.outbox.reject([with_recorded_rejection(raw, record, "table-parked", reason) for raw, record in over])

    async def _unpark(self, where: Where, parked: ParkedTable) -> None:
        await self.store.unpark(parked)
        table, place = where
        self.parked.remove(where)
        self._given_to.pop(where, None)
        self.frontier.unparked(place, table, at_least=self._resumes_at.pop(where, 0))
        library_logger().info("parked records decided", action="unpark", table=table, records=parked.records)


def _empty(where: Where, offset: int, since_ms: int, why: str) -> ParkedTable:
    table, (log, partition) = where
    return ParkedTable(table, log, partition, offset, since_ms, why, offset)


def _why(loop: TableLoop) -> str:
    if loop.phase is Phase.PAUSED:
        return written_reason(loop.why, is_quarantined=False)[:_WHY_CHARS_MAX]
    if loop.phase is Phase.QUARANTINED:
        return written_reason(loop.why, is_quarantined=True)[:_WHY_CHARS_MAX]
    if loop.is_unlistable:
        return "the store cannot list its head"
    return "its oldest intent gets no verdict"
