"""Lets a partition's offset pass the records of a table that cannot go on: they are parked, and decided later.

Owns: looking for such tables, parking their records, forgetting them once they are decided, and an operator's lifts.
Does not own: the rule (`parking_rules`), where parked records are stored (the log's `ParkedStore`), reading them
(`late_tables`).
Invariants: the offset passes a record only after it is parked durably, or rejected and its rejection acknowledged; a
record that was given to a table is never rejected for want of room; parked records are forgotten only when every one
of them is decided and told.

Theory. A table is parked for each partition by itself. From then on it takes nothing of that partition from the main
reading: this loop reads the log again from the table's first undecided record on, stores what is the table's, and
moves the offset that the frontier counts for it. The table's own reader gives it the parked records first, whenever it
takes any. When they are all decided, the reader goes on with the log where this loop has come to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import structlog

from rootline.coordinator.protocol.machine_state import Phase
from rootline.coordinator.runtime.assignment.late_tables import LateOwner, LateTables, read_again
from rootline.coordinator.runtime.assignment.parking_rules import ParkingLimits, StuckSince, Where, WhoWentOn, is_due
from rootline.coordinator.runtime.records import told_again
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
    """What parking needs of the assignment."""

    environment: Environment

    def open_table(self, table: TableName, undecided: Iterable[PartitionOffset]) -> None:
        """Give the table a loop that knows nothing yet, in place of the one that it has.

        `undecided`: offsets from which its verdicts may not be acknowledged, perhaps before the partition's start.
        """
        ...

    def try_again(self, table: TableName) -> None:
        """Give the table a loop that knows nothing, and all its undecided records again."""
        ...


@dataclass(slots=True)
class Parking:
    """For one assignment. `noticed`: quarantined tables of which nothing is parked yet, as later owners are told."""

    owner: ParkingOwner
    late: LateTables
    lot: ParkedStore
    limits: ParkingLimits
    look_s: float
    went_on: WhoWentOn = field(default_factory=WhoWentOn)
    noticed: dict[Where, ParkedTable] = field(default_factory=dict)
    _stuck: StuckSince = field(default_factory=StuckSince)
    _given_to: dict[Where, int] = field(default_factory=dict)
    """Before this offset every record was given to the table when it was parked: a root may have it by now."""
    _goes_on_at: dict[Where, int] = field(default_factory=dict)
    """The same, as long as the loop that was given them is there: it must not get them again."""

    def take(self, parked: Sequence[ParkedTable], starts: Iterable[PartitionOffset]) -> None:
        """What earlier owners of these partitions have parked: it is read first, for its tables only."""
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
            self.late.leave(item.table, place, item.first_offset, start_of[place])
            frontier.parked(place, item.table, start_of[place])
            self.late.read(item.table, place)

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(self.look_s)
            asks_for_lifts = bool(self.late.parked or self.noticed)
            try:
                await self._look()
                if asks_for_lifts or self.late.parked or self.noticed:
                    await self._lift()
            except (Unavailable, OutcomeUnknown, Fenced, TimeoutError) as error:  # later, or others do it
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
            if notice is not None:  # an earlier owner's, perhaps
                stuck_since_s = min(stuck_since_s, now_s - (now_ms - notice.since_ms) / 1000)
            due = is_due(
                self.limits if parked is None else self._limits_of_parked,
                stuck_since_s=stuck_since_s,
                now_s=now_s,
                others_s=self.went_on.other_than(table),
                oldest_age_s=None if oldest_ms is None else (now_ms - oldest_ms) / 1000,
            )
            is_stuck = loop.is_stuck
            since_ms = now_ms - int(1000 * (now_s - since[where]))
            if parked is not None:
                why = self.late.missing.get(where, _why(loop) if is_stuck else parked.why)
                if why != parked.why:  # an operator mended one thing, and there is another
                    self.late.parked[where] = await self.lot.park(replace(parked, why=why), ())
                if due or is_stuck or where in self.late.missing:
                    to_park.setdefault(place, []).append(table)
                elif offset >= parked.next_offset and not self.owner.frontier.rejects_before(place, parked.next_offset):
                    await self._unpark(where, parked)
            elif due:
                self._begin(where, loop, offset, since_ms)
                to_park.setdefault(place, []).append(table)
            elif is_stuck and (notice is None or notice.why != _why(loop)):
                told = _empty(where, offset, since_ms, "") if notice is None else notice
                self.noticed[where] = await self.lot.park(replace(told, why=_why(loop)), ())
        for where, notice in list(self.noticed.items()):
            if self._is_over(where, notice, where in offsets):
                await self.lot.unpark(notice)
                del self.noticed[where]
        for place, tables in to_park.items():
            await self._park(place, tables)

    @property
    def _limits_of_parked(self) -> ParkingLimits:
        """Of a table that earlier owners have parked; each of them may have had it for a short time."""
        return replace(self.limits, patience_s=self.limits.patience_s / 10)

    def _is_over(self, where: Where, notice: ParkedTable, has_undecided: bool) -> bool:
        """Whether a notice says what is no longer so."""
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
            self.late.leave(table, place, read_to, read_to)
            self.late.read(table, place)
        self.late.parked[where] = empty
        self._given_to[where] = self._goes_on_at[where] = frontier.reader_at(place, table)
        frontier.parked(place, table, offset)
        structlog.get_logger().error(
            "table parked", action="park", table=table, partition=place[1], offset=offset, reason=empty.why
        )

    async def _park(self, place: Partition, tables: list[TableName]) -> None:
        """Store what is theirs from where each has come to, up to where the main reading is."""
        owner, frontier = self.owner, self.owner.frontier
        name = f"parking/{place[1]}"
        try:
            while tables and owner.has_room_for_rejections:
                come_to = {table: frontier.parked_to(place, table) for table in tables}
                start = min(come_to.values())
                if start >= frontier.next_offset(place):
                    return
                found = await read_again(owner, name, PartitionOffset(*place, start))
                if found is None:
                    return
                async with owner.turn:
                    end = min(found.next_offset, frontier.next_offset(place))
                    froms = {
                        table: max(offset, self.late.parked[table, place].next_offset)
                        for table, offset in come_to.items()
                    }
                    records = [raw for raw in found.records if raw.position.offset < end]
                    own = self.late.sorted_out(place, records, froms)
                if end <= start:
                    return
                for table, mine in own.items():
                    if end > come_to[table] and not await self._is_stored((table, place), mine, end):
                        tables.remove(table)
        finally:
            await owner.log.forget_reader(name)

    async def _is_stored(self, where: Where, mine: Sequence[_Own], end: int) -> bool:
        """Whether all of it is parked or rejected now; if not, this table is left for the next look."""
        table, place = where
        frontier = self.owner.frontier
        fit, over = self._split(where, mine)
        if fit:
            try:
                await self._stored(where, fit)
            except (Invalid, OutcomeUnknown):  # one of them, perhaps: then those behind it were out of order
                for item in fit:
                    if not await self._is_stored_or_rejected(where, item):
                        return False
        if over:
            self._reject(
                table, over, f"as many of its intents are parked as may be ({self.limits.table_bytes_max} bytes)"
            )
        frontier.parked(place, table, end)
        return True

    async def _stored(self, where: Where, items: Sequence[_Own]) -> None:
        next_offset = items[-1][0].position.offset + 1
        after = replace(self.late.parked[where], next_offset=next_offset)
        self.late.parked[where] = await self.lot.park(after, [raw for raw, _ in items])
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
            self.owner.frontier.parked(place, table, offset + 1)  # or it would be rejected again with what follows
        return True

    def _split(self, where: Where, mine: Sequence[_Own]) -> tuple[list[_Own], list[_Own]]:
        """What fits, and what does not; what the table was given may be decided, and must not be rejected."""
        held = self.late.parked[where].size_in_bytes
        given_to = self._may_be_decided_to(where)
        for number, (raw, record) in enumerate(mine):
            held += record.size_in_bytes
            if held > self.limits.table_bytes_max and raw.position.offset >= given_to:
                return list(mine[:number]), list(mine[number:])
        return list(mine), []

    def _may_be_decided_to(self, where: Where) -> int:
        table, place = where
        return max(self._given_to.get(where, 0), self.owner.frontier.handed_over_to(place, table))

    def _reject(self, table: TableName, over: Sequence[_Own], why: str) -> None:
        said = f"{table} cannot go on, and {why}: mend it, run `rootline quarantine lift {table}`, and publish again"
        for raw, record in over:
            self.owner.reject(told_again(raw, record, "table-parked", said))

    async def _unpark(self, where: Where, parked: ParkedTable) -> None:
        await self.lot.unpark(parked)
        table, place = where
        del self.late.parked[where]
        self.late.without_missing.discard(where)
        self._given_to.pop(where, None)
        self.owner.frontier.unparked(place, table, at_least=self._goes_on_at.pop(where, 0))
        structlog.get_logger().info("parked records decided", action="unpark", table=table, records=parked.records)

    async def _lift(self) -> None:
        for lift in await self.lot.lifts():
            where = (lift.table, (lift.log, lift.partition))
            if lift.without_missing and self._is_about(lift, where):
                self.late.without_missing.add(where)
            is_stopped = self.late.missing.pop(where, None) is not None
            loop = self.owner.tables.get(lift.table)
            if loop is not None and (is_stopped or loop.phase is Phase.QUARANTINED):
                structlog.get_logger().info("quarantine lifted", action="lift", table=lift.table)
                self.owner.try_again(lift.table)
            await self.lot.lifted(lift)

    def _is_about(self, lift: Lift, where: Where) -> bool:
        """Whether the operator, who goes on without records, saw what is parked now."""
        parked = self.late.parked.get(where)
        if parked is None or lift.first_offset is None:
            return where in self.late.missing
        return lift.first_offset == parked.first_offset

    def is_given_again(self, where: Where) -> None:
        """The table has a loop that knows nothing, and gets the undecided records again, the parked ones first."""
        self._goes_on_at.pop(where, None)


def _empty(where: Where, offset: int, since_ms: int, why: str) -> ParkedTable:
    table, (log, partition) = where
    return ParkedTable(table, log, partition, offset, since_ms, why, offset)


def _why(loop: TableLoop) -> str:
    if loop.phase is Phase.PAUSED:
        return written_reason(loop.why, is_quarantined=False)[:_WHY_CHARS_MAX]
    if loop.phase is Phase.QUARANTINED:
        return written_reason(loop.why, is_quarantined=True)[:_WHY_CHARS_MAX]
    if loop.is_unlistable:
        return "the store does not let its head be found"
    return "its oldest intent gets no verdict"
