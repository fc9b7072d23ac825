"""Separate readers for tables that have fallen behind the main reader or have parked records.

Owns: these readers, which read the parked records first and then the log until they reach the main reader.
Does not own: parking (`parking`), the rules of the frontier (`frontier`).
Invariants: A table gets its records of a partition in order and without a gap. While records of a table are parked, it
gets none from the log. A record that is not an intent is rejected once, by the main reader or by a separate one.
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
"""The most tables that read parked records concurrently. Each uses a connection."""


class LateOwner(Protocol):
    """The part of the assignment that a separate reader uses."""

    log: CoordinatorLog
    frontier: Frontier
    turn: asyncio.Lock
    tables: dict[TableName, TableLoop]

    async def examine(self, records: Sequence[LogRecord]) -> None:
        """Decode records that may have crashed a process in a separate process first."""
        ...

    def decoded(self, raw: LogRecord) -> Record | Rejection:
        """The intent of a record, or its rejection."""
        ...

    def reject(self, rejection: Rejection) -> None:
        """Publish a rejection. It blocks the frontier until it is acknowledged."""
        ...

    @property
    def has_room_for_rejections(self) -> bool:
        """Whether the buffer of rejections has room."""
        ...

    def hand_over(self, loop: TableLoop, table: TableName, place: Partition, records: tuple[Record, ...]) -> None:
        """Hand records to the table, and note them as undecided."""
        ...

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run `work` as a task of the assignment."""
        ...

    async def pause(self) -> None:
        """Wait before a retry."""
        ...


@dataclass(slots=True)
class LateTables:
    """The separate readers of an assignment.

    * `places`: the tables and partitions that have or will get a separate reader.
    * `parked`: the parked records, updated by `Parking`.
    * `missing`: places with missing parked records, and the reason. They wait for an operator.
    * `without_missing`: places where an operator allowed to continue without the missing records.
    """

    owner: LateOwner
    places: set[Where] = field(default_factory=set)
    parked: dict[Where, ParkedTable] = field(default_factory=dict)
    missing: dict[Where, str] = field(default_factory=dict)
    without_missing: set[Where] = field(default_factory=set)
    _rejected_to: dict[Where, int] = field(default_factory=dict)
    _readers: dict[Where, asyncio.Task[None]] = field(default_factory=dict)
    _reading_parked: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_PARKED_READERS_MAX))

    def take_over(self, table: TableName, place: Partition, offset: int, rejected_to: int) -> None:
        """Serve `table` by a separate reader from `offset` on.

        The main reader has rejected invalid records before `rejected_to`, so the separate reader skips them.
        """
        where = (table, place)
        self.places.add(where)
        self._rejected_to.setdefault(where, rejected_to)
        self.owner.frontier.fell_behind(place, table, offset)

    def read(self, table: TableName, place: Partition) -> None:
        """Start the table's reader at its position, in place of one that runs."""
        where = (table, place)
        self._stop(where)
        reader = self._readers[where] = self.owner.start(self._catch_up(table, place), f"reader of {table}")
        reader.add_done_callback(lambda done: self._forget(where, done))

    def places_of(self, table: TableName) -> list[Partition]:
        """The partitions for which `table` has or will get a separate reader."""
        return [place for place in self.owner.frontier.places if (table, place) in self.places] if self.places else []

    def stop(self) -> None:
        """Stop all separate readers."""
        for where in list(self._readers):
            self._stop(where)

    def records_of(
        self, place: Partition, records: Sequence[LogRecord], tables: Mapping[TableName, int], *, all_new: bool = False
    ) -> dict[TableName, list[tuple[LogRecord, Record]]]:
        """Select the records of these tables, and reject those that are not intents.

        `tables`: table → the first offset wanted. A record belongs to a table by its key. A record that a reader has
        already rejected is skipped. With `all_new` it is rejected too, because the rejection of a parked record must be
        published.
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
                if all_new or offset >= self._rejected_to.get(where, 0):  # otherwise it was rejected before
                    self._rejected_to[where] = max(offset + 1, self._rejected_to.get(where, 0))
                    self.owner.reject(found)
        return own

    async def _catch_up(self, table: TableName, place: Partition) -> None:
        """Hand the table its records, the parked ones first, until it reaches the main reader."""
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
                    # no await until the end of the turn, so that the main reader hands out nothing in between and
                    # no record is skipped
                    if where in self.parked:
                        continue
                    end = owner.frontier.next_offset(place)
                    records = [raw for raw in found.records if raw.position.offset < end]
                    own = self.records_of(place, records, {table: position})[table]
                    if own:
                        owner.hand_over(loop, table, place, tuple(record for _, record in own))
                    owner.frontier.reread(place, table, min(found.next_offset, end))
            self.places.discard(where)
            self._rejected_to.pop(where, None)
            owner.frontier.caught_up(place, table)
        finally:
            await owner.log.forget_reader(name)

    async def _read_parked(self, table: TableName, place: Partition, parked: ParkedTable, position: int) -> None:
        store, owner, where = self.owner.log.parking, self.owner, (table, place)
        if store is None:
            return
        skips = where in self.without_missing
        try:
            async with (
                self._reading_parked,
                aclosing(store.parked_records(parked, position, without_missing=skips)) as portions,
            ):
                async for portion in portions:
                    async with owner.turn:
                        loop = owner.tables[table]
                        if not (loop.takes_records and loop.has_room):
                            return  # frees the connection for other tables
                        own = self.records_of(place, portion, {table: position}, all_new=True)[table]
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
    """Read the log from an offset on. Returns `None` if it cannot be read at present."""
    try:
        found = await owner.log.read_again(name, start, limit=READ_MAX)
        await owner.examine(found.records)
        return found
    except (Unavailable, OutcomeUnknown, Fenced) as error:  # the main reader detects fencing too
        structlog.get_logger().warning("log unreadable", action="retry", reader=name, reason=str(error))
        return None
