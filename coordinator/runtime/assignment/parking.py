"""Parking: storing the records of a stuck table aside, so that the offset of its partition can pass them.

Owns: finding stuck tables, parking their records, removing decided ones, and the lifts of an operator.
Does not own: the rule (`parking_rules`), the storage of parked records (the log's `ParkedStore`), reading them
(`late_tables`).
Invariants: The offset passes a record only after the record is parked durably, or its rejection is acknowledged. A
record that was handed to a table is never rejected for lack of room. Parked records are removed only after the verdicts
on all of them are published.

Theory. A table is parked separately for each partition. While it is parked, it gets nothing of that partition from the
main reader. This loop re-reads the log from the table's first undecided record on, stores the table's records, and
advances the offset by which the table bounds the frontier. The table's own reader hands it the parked records first, as
soon as it takes any. When all of them are decided, that reader continues with the log where parking has stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import structlog

from rootline.coordinator.protocol.machine_state import Phase
from rootline.coordinator.runtime.assignment.late_tables import LateOwner, LateTables, read_again
from rootline.coordinator.runtime.assignment.parking_rules import LastProgress, ParkingLimits, StuckSince, Where, is_due
from rootline.coordinator.runtime.records import with_recorded_rejection
from rootline.coordinator.runtime.table.table_loop import TableLoop
from rootline.coordinator.runtime.table.table_states import written_reason
from rootline.ports.environment import Environment
from rootline.ports.intent_feed import Lift, ParkedStore, ParkedTable, Partition
from rootline.schemas.errors import Fenced, Invalid, OutcomeUnknown, Unavailable
from rootline.schemas.identifiers import LogRecord, TableName
from rootline.schemas.root_header import PartitionOffset
from rootline.tree.draft.batch import Record

_WHY_CHARS_MAX = 400
_Own = tuple[LogRecord, Record]


class ParkingOwner(LateOwner, Protocol):
    """The part of the assignment that parking uses."""

    environment: Environment

    def open_table(self, table: TableName, undecided: Iterable[PartitionOffset]) -> None:
        """Start a new loop for the table, in place of the present one.

        `undecided` has the first offset of each partition whose verdict may not be acknowledged. It may be before the
        offset at which the assignment started.
        """
        ...

    def restart_table(self, table: TableName) -> None:
        """Start a new loop for the table, and hand it all of its undecided records again."""
        ...


@dataclass(slots=True)
class Parking:
    """The parking loop of one assignment.

    `noticed` has stuck tables without parked records. Their notices are stored, so that later owners know of them.
    """

    owner: ParkingOwner
    late: LateTables
    parked_store: ParkedStore
    limits: ParkingLimits
    look_s: float
    last_progress: LastProgress = field(default_factory=LastProgress)
    noticed: dict[Where, ParkedTable] = field(default_factory=dict)
    _stuck: StuckSince = field(default_factory=StuckSince)
    _given_to: dict[Where, int] = field(default_factory=dict)
    """The offset before which all records had been handed to the table when it was parked. A root may contain them."""
    _resumes_at: dict[Where, int] = field(default_factory=dict)
    """The same offset while the loop that received these records exists, since it must not get them again."""

    def take(self, parked: Sequence[ParkedTable], starts: Iterable[PartitionOffset]) -> None:
        """Take over the records that earlier owners of these partitions have parked, and start reading them."""
        start_of = {(log, partition): offset for log, partition, offset in starts}
        frontier, opened = self.owner.frontier, set()
        for item in parked:
            place = (item.log, item.partition)
            where = (item.table, place)
            if not item.records:
                self.noticed[where] = item
                continue
            if item.table not in opened:
                opened.add(item.table)
                own = [each for each in parked if each.table == item.table and each.records]
                firsts = [PartitionOffset(each.log, each.partition, each.first_offset) for each in own]
                self.owner.open_table(item.table, firsts)
            self.late.parked[where] = item
            self.late.take_over(item.table, place, item.first_offset, start_of[place])
            frontier.parked(place, item.table, start_of[place])
            self.late.read(item.table, place)

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(self.look_s)
            asks_for_lifts = bool(self.late.parked or self.noticed)
            try:
                await self._look()
                if asks_for_lifts or self.late.parked or self.noticed:
                    await self._lift()
            except (
                Unavailable,
                OutcomeUnknown,
                Fenced,
                TimeoutError,
            ) as error:  # the next round retries, or another owner does
                structlog.get_logger().warning("parking delayed", action="retry", reason=str(error))

    async def _look(self) -> None:
        now_s, now_ms = self.owner.environment.monotonic_s(), self.owner.environment.now_ms()
        offsets = self.owner.frontier.undecided()
        since = self._stuck.look(offsets, now_s)
        to_park: dict[Partition, list[TableName]] = {}
        for where, offset in offsets.items():
            table, place = where
            loop, parked = self.owner.tables.get(table), self.late.parked.get(where)
            if loop is None:
                continue
            oldest_ms = loop.pending_since_ms if parked is None else parked.oldest_ms
            notice = self.noticed.get(where)
            stuck_since_s = since[where]
            if notice is not None:  # it may be from an earlier owner
                stuck_since_s = min(stuck_since_s, now_s - (now_ms - notice.since_ms) / 1000)
            due = is_due(
                self.limits if parked is None else self._limits_of_parked,
                stuck_since_s=stuck_since_s,
                now_s=now_s,
                others_s=self.last_progress.other_than(table),
                oldest_age_s=None if oldest_ms is None else (now_ms - oldest_ms) / 1000,
            )
            is_stuck = loop.is_stuck
            since_ms = now_ms - int(1000 * (now_s - since[where]))
            if parked is not None:
                why = self.late.missing.get(where, _why(loop) if is_stuck else parked.why)
                if why != parked.why:  # an operator fixed one cause, and there is another
                    self.late.parked[where] = await self.parked_store.park(replace(parked, why=why), ())
                if due or is_stuck or where in self.late.missing:
                    to_park.setdefault(place, []).append(table)
                elif offset >= parked.next_offset and not self.owner.frontier.rejects_before(place, parked.next_offset):
                    await self._unpark(where, parked)
            elif due:
                self._begin(where, loop, offset, since_ms)
                to_park.setdefault(place, []).append(table)
            elif is_stuck and (notice is None or notice.why != _why(loop)):
                known = _empty(where, offset, since_ms, "") if notice is None else notice
                self.noticed[where] = await self.parked_store.park(replace(known, why=_why(loop)), ())
        for where, notice in list(self.noticed.items()):
            if self._is_over(where, notice, where in offsets):
                await self.parked_store.unpark(notice)
                del self.noticed[where]
        for place, tables in to_park.items():
            await self._park(place, tables)

    @property
    def _limits_of_parked(self) -> ParkingLimits:
        """The limits for a table with parked records, with less patience, since each owner may have it only briefly."""
        return replace(self.limits, patience_s=self.limits.patience_s / 10)

    def _is_over(self, where: Where, notice: ParkedTable, has_undecided: bool) -> bool:
        """Whether a notice is outdated, because its table is no longer stuck."""
        loop = self.owner.tables.get(where[0])
        if loop is None:
            return not has_undecided and self.owner.frontier.next_offset(where[1]) > notice.next_offset
        return not loop.is_stuck and (not has_undecided or not loop.is_unknown)

    def _begin(self, where: Where, loop: TableLoop, offset: int, since_ms: int) -> None:
        table, place = where
        frontier = self.owner.frontier
        known = self.noticed.pop(where, None)
        empty = _empty(where, offset, since_ms if known is None else known.since_ms, _why(loop))
        if where not in self.late.places:
            read_to = frontier.next_offset(place)
            self.late.take_over(table, place, read_to, read_to)
            self.late.read(table, place)
        self.late.parked[where] = empty
        self._given_to[where] = self._resumes_at[where] = frontier.reader_at(place, table)
        frontier.parked(place, table, offset)
        structlog.get_logger().error(
            "table parked", action="park", table=table, partition=place[1], offset=offset, reason=empty.why
        )

    async def _park(self, place: Partition, tables: list[TableName]) -> None:
        """Park the records of `tables`, from the end of each table's parked records up to the main reader."""
        owner, frontier = self.owner, self.owner.frontier
        name = f"parking/{place[1]}"
        try:
            while tables and owner.has_room_for_rejections:
                parked_to = {table: frontier.parked_to(place, table) for table in tables}
                start = min(parked_to.values())
                if start >= frontier.next_offset(place):
                    return
                found = await read_again(owner, name, PartitionOffset(*place, start))
                if found is None:
                    return
                async with owner.turn:
                    end = min(found.next_offset, frontier.next_offset(place))
                    froms = {
                        table: max(offset, self.late.parked[table, place].next_offset)
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
            await owner.log.forget_reader(name)

    async def _is_stored(self, where: Where, mine: Sequence[_Own], end: int) -> bool:
        """Whether all of these records are parked or rejected. If not, the next round retries this table."""
        table, place = where
        frontier = self.owner.frontier
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
        after = replace(self.late.parked[where], next_offset=next_offset)
        self.late.parked[where] = await self.parked_store.park(after, [raw for raw, _ in items])
        self.owner.frontier.parked(where[1], where[0], next_offset)

    async def _is_stored_or_rejected(self, where: Where, item: _Own) -> bool:
        table, place = where
        offset = item[0].position.offset
        try:
            await self._stored(where, [item])
        except Invalid as error:
            if offset < self._may_be_decided_to(where):
                structlog.get_logger().error("record not parked", action="retry", table=table, reason=str(error))
                return False
            self._reject(table, [item], f"this intent is too large to be parked ({error.message})")
            self.owner.frontier.parked(place, table, offset + 1)  # otherwise the next pass would reject it again
        return True

    def _split(self, where: Where, mine: Sequence[_Own]) -> tuple[list[_Own], list[_Own]]:
        """Split records into those that fit the limit and those to reject.

        Records that were handed to the table are never rejected, since they may be decided.
        """
        size = self.late.parked[where].size_in_bytes
        given_to = self._may_be_decided_to(where)
        for number, (raw, record) in enumerate(mine):
            size += record.size_in_bytes
            if size > self.limits.table_bytes_max and raw.position.offset >= given_to:
                return list(mine[:number]), list(mine[number:])
        return list(mine), []

    def _may_be_decided_to(self, where: Where) -> int:
        table, place = where
        return max(self._given_to.get(where, 0), self.owner.frontier.handed_over_to(place, table))

    def _reject(self, table: TableName, over: Sequence[_Own], why: str) -> None:
        reason = (
            f"{table} is stuck, and {why}: fix the table, run `rootline quarantine lift {table}`, and publish again"
        )
        for raw, record in over:
            self.owner.reject(with_recorded_rejection(raw, record, "table-parked", reason))

    async def _unpark(self, where: Where, parked: ParkedTable) -> None:
        await self.parked_store.unpark(parked)
        table, place = where
        del self.late.parked[where]
        self.late.without_missing.discard(where)
        self._given_to.pop(where, None)
        self.owner.frontier.unparked(place, table, at_least=self._resumes_at.pop(where, 0))
        structlog.get_logger().info("parked records decided", action="unpark", table=table, records=parked.records)

    async def _lift(self) -> None:
        for lift in await self.parked_store.lifts():
            where = (lift.table, (lift.log, lift.partition))
            if lift.without_missing and self._is_about(lift, where):
                self.late.without_missing.add(where)
            is_stopped = self.late.missing.pop(where, None) is not None
            loop = self.owner.tables.get(lift.table)
            if loop is not None and (is_stopped or loop.phase is Phase.QUARANTINED):
                structlog.get_logger().info("quarantine lifted", action="lift", table=lift.table)
                self.owner.restart_table(lift.table)
            await self.parked_store.lifted(lift)

    def _is_about(self, lift: Lift, where: Where) -> bool:
        """Whether a lift without missing records was given for the records that are parked at present."""
        parked = self.late.parked.get(where)
        if parked is None or lift.first_offset is None:
            return where in self.late.missing
        return lift.first_offset == parked.first_offset

    def note_restart(self, where: Where) -> None:
        """Note that the table has a new loop, which gets all undecided records again, the parked ones first."""
        self._resumes_at.pop(where, None)


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
