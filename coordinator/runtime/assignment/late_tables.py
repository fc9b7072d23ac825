"""A reader of its own for each table that does not keep up with the main reading, or that has parked records.

Owns: these readers: the parked records first, then the log, until each is where the main reading is. Does not own: what
is parked (`parking`), the frontier's rules (`frontier`).
Invariants: a table gets its records of a partition in order and without a gap; while records of it are parked it gets
none from the log; what is no intent is rejected once, by the main reading or by a reader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import structlog

from rootline.coordinator.runtime.assignment.frontier import Frontier
from rootline.coordinator.runtime.assignment.parking_rules import Where
from rootline.coordinator.runtime.records import Rejection
from rootline.coordinator.runtime.table.table_loop import TableLoop
from rootline.ports.intent_feed import CoordinatorLog, ParkedTable, Partition, Reread
from rootline.schemas.errors import Corrupt, Fenced, OutcomeUnknown, Unavailable
from rootline.schemas.identifiers import LogRecord, TableName
from rootline.schemas.root_header import PartitionOffset
from rootline.tree.draft.batch import Record

READ_MAX: Final = 256
_PARKED_READERS_MAX: Final = 4
"""How many tables read their parked records at once; each reader has a connection."""


class LateOwner(Protocol):
    """What a reader needs of the assignment."""

    log: CoordinatorLog
    frontier: Frontier
    turn: asyncio.Lock
    tables: dict[TableName, TableLoop]

    async def examine(self, records: Sequence[LogRecord]) -> None:
        """Try the records that may have ended a process."""
        ...

    def decoded(self, raw: LogRecord) -> Record | Rejection:
        """The intent, or the rejection that takes its place."""
        ...

    def reject(self, rejection: Rejection) -> None:
        """Publish it, and hold the frontier back until then."""
        ...

    @property
    def has_room_for_rejections(self) -> bool:
        """Whether more may be rejected now."""
        ...

    def hand_over(self, loop: TableLoop, table: TableName, place: Partition, records: tuple[Record, ...]) -> None:
        """Give the table records, and note that they are undecided."""
        ...

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run it as a task of the assignment."""
        ...

    async def pause(self) -> None:
        """Wait a moment before trying again."""
        ...


@dataclass(slots=True)
class LateTables:
    """`places`: where a reader serves a table, or will. `parked`: what is parked, kept up to date by `Parking`.

    `missing`: places whose parked records are not all there, and why; they wait for an operator.
    """

    owner: LateOwner
    places: set[Where] = field(default_factory=set)
    parked: dict[Where, ParkedTable] = field(default_factory=dict)
    missing: dict[Where, str] = field(default_factory=dict)
    without_missing: set[Where] = field(default_factory=set)
    _rejected_to: dict[Where, int] = field(default_factory=dict)
    _readers: dict[Where, asyncio.Task[None]] = field(default_factory=dict)
    _reading_parked: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_PARKED_READERS_MAX))

    def leave(self, table: TableName, place: Partition, offset: int, rejected_to: int) -> None:
        """The main reading gives `table` nothing from `offset` on; before `rejected_to` it rejected what it must."""
        where = (table, place)
        self.places.add(where)
        self._rejected_to.setdefault(where, rejected_to)
        self.owner.frontier.fell_behind(place, table, offset)

    def read(self, table: TableName, place: Partition) -> None:
        """Start the table's reader where it was left; one that runs is replaced."""
        where = (table, place)
        self._stop(where)
        reader = self._readers[where] = self.owner.start(self._catch_up(table, place), f"reader of {table}")
        reader.add_done_callback(lambda done: self._forget(where, done))

    def places_of(self, table: TableName) -> list[Partition]:
        """Where a reader of its own serves `table`, or will."""
        return [place for place in self.owner.frontier.places if (table, place) in self.places] if self.places else []

    def stop(self) -> None:
        """Read no more."""
        for where in list(self._readers):
            self._stop(where)

    def sorted_out(
        self, place: Partition, records: Sequence[LogRecord], tables: Mapping[TableName, int], *, all_new: bool = False
    ) -> dict[TableName, list[tuple[LogRecord, Record]]]:
        """The records of these tables, each from an offset on; what is no intent under their keys is rejected.

        `all_new`: also what the main reading, or a reader, has passed before: of a parked record that must be told.
        """
        own: dict[TableName, list[tuple[LogRecord, Record]]] = {table: [] for table in tables}
        keys = {table.encode(): table for table in tables}
        for raw in records:
            if raw.key is not None and raw.key not in keys:
                continue
            offset, found = raw.position.offset, self.owner.decoded(raw)
            if isinstance(found, Record):
                table = TableName(found.intent.table)
                if table in own and offset >= tables[table]:
                    own[table].append((raw, found))
            elif raw.key is not None:
                where = (keys[raw.key], place)
                if all_new or offset >= self._rejected_to.get(where, 0):  # else it was rejected before
                    self._rejected_to[where] = max(offset + 1, self._rejected_to.get(where, 0))
                    self.owner.reject(found)
        return own

    async def _catch_up(self, table: TableName, place: Partition) -> None:
        """Hand the table its records, the parked ones first, until the main reading is no further."""
        owner, where = self.owner, (table, place)
        name = f"{table}/{place[1]}"
        try:
            while True:
                loop, parked = owner.tables[table], self.parked.get(where)
                position = owner.frontier.reader_at(place, table)
                if parked is not None:
                    if where in self.missing or position >= parked.next_offset or not loop.takes_records:
                        await owner.pause()
                    elif not loop.has_room:
                        await loop.wait_for_room()
                    else:
                        await self._read_parked(table, place, parked, position)
                    continue
                if position >= owner.frontier.next_offset(place):
                    break
                await loop.wait_for_room()
                if not owner.has_room_for_rejections:
                    await owner.pause()
                    continue
                found = await read_again(owner, name, PartitionOffset(*place, position))
                if found is None or (not found.records and found.next_offset == position):
                    await owner.pause()
                    continue
                async with owner.turn:
                    # no await from here to the end of the turn: the main reading hands out nothing in between, so that
                    # no record falls between the two
                    if where in self.parked:
                        continue
                    end = owner.frontier.next_offset(place)
                    records = [raw for raw in found.records if raw.position.offset < end]
                    own = self.sorted_out(place, records, {table: position})[table]
                    if own:
                        owner.hand_over(loop, table, place, tuple(record for _, record in own))
                    owner.frontier.reread(place, table, min(found.next_offset, end))
            self.places.discard(where)
            self._rejected_to.pop(where, None)
            owner.frontier.caught_up(place, table)
        finally:
            await owner.log.forget_reader(name)

    async def _read_parked(self, table: TableName, place: Partition, parked: ParkedTable, position: int) -> None:
        lot, owner, where = self.owner.log.parking, self.owner, (table, place)
        if lot is None:
            return
        skips = where in self.without_missing
        try:
            async with (
                self._reading_parked,
                aclosing(lot.parked_records(parked, position, without_missing=skips)) as portions,
            ):
                async for portion in portions:
                    async with owner.turn:
                        loop = owner.tables[table]
                        if not (loop.takes_records and loop.has_room):
                            return  # others may use the connection meanwhile
                        own = self.sorted_out(place, portion, {table: position}, all_new=True)[table]
                        if own:
                            owner.hand_over(loop, table, place, tuple(record for _, record in own))
                        owner.frontier.reread(place, table, portion[-1].position.offset + 1)
            owner.frontier.reread(place, table, parked.next_offset)
        except (Unavailable, OutcomeUnknown, Fenced) as error:
            structlog.get_logger().warning("parked records unreadable", action="retry", table=table, reason=str(error))
            await owner.pause()
        except Corrupt as error:
            structlog.get_logger().error(
                "parked records are missing", action="stop-table", table=table, reason=str(error)
            )
            self.missing[where] = error.message

    def _stop(self, where: Where) -> None:
        reader = self._readers.pop(where, None)
        if reader is not None:
            reader.cancel()

    def _forget(self, where: Where, done: asyncio.Task[None]) -> None:
        if self._readers.get(where) is done:
            del self._readers[where]


async def read_again(owner: LateOwner, name: str, start: PartitionOffset) -> Reread | None:
    """The log from an offset on; `None` when it cannot be read now."""
    try:
        found = await owner.log.read_again(name, start, limit=READ_MAX)
        await owner.examine(found.records)
        return found
    except (Unavailable, OutcomeUnknown, Fenced) as error:  # what is fenced, the main reading finds out as well
        structlog.get_logger().warning("log unreadable", action="retry", reader=name, reason=str(error))
        return None
