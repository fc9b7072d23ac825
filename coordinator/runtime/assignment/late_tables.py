"""Separate readers for tables that have fallen behind the main reader or have parked records.

Owns: these readers, which read the parked records first and then the log until they reach the main reader, and the
names of the parked records.
Does not own: parking (`parking`), decoding and rejecting (`intake`), the tables' loops (`served_tables`), the rules of
the frontier (`frontier`).
Invariants: A table gets its records of a partition in order and without a gap. While records of a table are parked, it
gets none from the log. A record that is not an intent is rejected once, by the main reader or by a separate one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from rootline.coordinator.runtime.assignment.frontier import Frontier, Where
from rootline.coordinator.runtime.assignment.intake import Intake, RejectionOutbox
from rootline.coordinator.runtime.table.table_loop import TableLoop
from rootline.library_log import library_logger
from rootline.ports.intent_feed import CoordinatorLog, Lift, ParkedTable, Partition
from rootline.schemas.errors import Corrupt, Fenced, OutcomeUnknown, Unavailable
from rootline.schemas.identifiers import LogRecord, TableName
from rootline.schemas.parts.log import PartitionOffset
from rootline.tree.draft.batch import Record

_PARKED_READERS_MAX: Final = 4
"""The most tables that read parked records concurrently. Each uses a connection."""


class CatchUpPort(Protocol):
    """The part of the served tables that a separate reader uses."""

    @property
    def loops(self) -> Mapping[TableName, TableLoop]:
        """The loop of each table in memory. Every table with a separate reader has one."""
        ...

    @property
    def turn(self) -> asyncio.Lock:
        """The lock for handing out records. While a separate reader has it, the main reader hands out nothing."""
        ...

    def hand_over(self, loop: TableLoop, table: TableName, place: Partition, records: tuple[Record, ...]) -> None:
        """Hand records to the table, and note them as undecided."""
        ...

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run `work` as a task of the assignment."""
        ...

    async def wait_to_retry(self) -> None:
        """Wait before a retry."""
        ...


@dataclass(slots=True)
class ParkedRecords:
    """The parked records of each table and partition, as descriptions: the records stay where they are stored.

    If the store of parked records has lost some, the table waits for an operator, who may *lift* it: allow it to
    continue, perhaps without the missing records.
    """

    tables: dict[Where, ParkedTable] = field(default_factory=dict)
    missing: dict[Where, str] = field(default_factory=dict)
    """The reason for each table and partition whose parked records are missing, and which waits for an operator."""
    without_missing: set[Where] = field(default_factory=set)
    """The tables that an operator has allowed to continue without the missing records."""

    def remove(self, where: Where) -> None:
        """Note that all parked records are decided. That ends a permission to continue without missing records."""
        del self.tables[where]
        self.without_missing.discard(where)

    def lift(self, where: Where, lift: Lift) -> bool:
        """Let the reader retry, as an operator asked. Returns whether missing records had stopped it."""
        if lift.without_missing and self._is_about(lift, where):
            self.without_missing.add(where)
        return self.missing.pop(where, None) is not None

    def _is_about(self, lift: Lift, where: Where) -> bool:
        """Whether the operator's lift concerns the records that are parked now, and not earlier ones of the table."""
        parked = self.tables.get(where)
        if parked is None or lift.first_offset is None:
            return where in self.missing
        return lift.first_offset == parked.first_offset


@dataclass(slots=True)
class LateTables:
    """The separate readers of an assignment."""

    log: CoordinatorLog
    frontier: Frontier
    intake: Intake
    outbox: RejectionOutbox
    served: CatchUpPort
    parked: ParkedRecords
    _places: set[Where] = field(default_factory=set)
    _rejected_to: dict[Where, int] = field(default_factory=dict)
    _readers: dict[Where, asyncio.Task[None]] = field(default_factory=dict)
    _reading_parked: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_PARKED_READERS_MAX))

    @property
    def places(self) -> Collection[Where]:
        """The tables and partitions that have or will get a separate reader."""
        return self._places

    def take_over(self, table: TableName, place: Partition, offset: int, rejected_to: int) -> None:
        """Start a separate reader for `table` at `offset`. Stops the present one, if there is one.

        The main reader has rejected invalid records before `rejected_to`, so the separate reader skips them.
        """
        where = (table, place)
        self._places.add(where)
        self._rejected_to.setdefault(where, rejected_to)
        self.frontier.fell_behind(place, table, offset)
        self._read(table, place)

    def serves(self, table: TableName) -> bool:
        """Whether `table` has or will get a separate reader."""
        return bool(self._places_of(table))

    def restart(self, table: TableName) -> None:
        """Restart the table's separate readers at their positions. They may be waiting for a loop that has ended."""
        for place in self._places_of(table):
            self._read(table, place)

    def stop(self) -> None:
        """Stop all separate readers."""
        for where in list(self._readers):
            self._stop(where)

    def records_of(
        self, place: Partition, records: Sequence[LogRecord], tables: Mapping[TableName, int], *, all_new: bool = False
    ) -> dict[TableName, list[tuple[LogRecord, Record]]]:
        """Select the records of these tables, and reject those that are not intents.

        `tables`: table → the first offset wanted. The key of a record names its table. An invalid record that a reader
        has already rejected is skipped. With `all_new` nothing is skipped: the records were parked, and no other reader
        gets them.
        """
        own: dict[TableName, list[tuple[LogRecord, Record]]] = {table: [] for table in tables}
        keys = {table.encode(): table for table in tables}
        for raw in records:
            if raw.key is not None and raw.key not in keys:
                continue
            offset, found = raw.position.offset, self.intake.decoded(raw)
            if isinstance(found, Record):
                table = TableName(found.intent.table)
                if table in own and offset >= tables[table]:
                    own[table].append((raw, found))
            elif raw.key is not None:
                where = (keys[raw.key], place)
                if all_new or offset >= self._rejected_to.get(where, 0):  # otherwise it was rejected before
                    self._rejected_to[where] = max(offset + 1, self._rejected_to.get(where, 0))
                    self.outbox.reject([found])
        return own

    def _places_of(self, table: TableName) -> list[Partition]:
        return [place for place in self.frontier.places if (table, place) in self._places] if self._places else []

    def _read(self, table: TableName, place: Partition) -> None:
        where = (table, place)
        self._stop(where)
        reader = self._readers[where] = self.served.start(self._catch_up(table, place), f"reader of {table}")
        reader.add_done_callback(lambda done: self._forget(where, done))

    async def _catch_up(self, table: TableName, place: Partition) -> None:
        """Hand the table its records, the parked ones first, until it reaches the main reader."""
        frontier, served, where = self.frontier, self.served, (table, place)
        name = f"{table}/{place[1]}"
        try:
            while True:
                loop, parked = served.loops[table], self.parked.tables.get(where)
                position = frontier.reader_at(place, table)
                if parked is not None:
                    if where in self.parked.missing or position >= parked.next_offset or not loop.takes_records:
                        await served.wait_to_retry()
                    elif not loop.has_room:
                        await loop.wait_for_room()
                    else:
                        await self._read_parked(table, place, parked, position)
                    continue
                if position >= frontier.next_offset(place):
                    break
                await loop.wait_for_room()
                if self.outbox.is_full:
                    await served.wait_to_retry()
                    continue
                found = await self.intake.read_again(name, PartitionOffset(*place, position))
                if found is None or (not found.records and found.next_offset == position):
                    await served.wait_to_retry()
                    continue
                async with served.turn:
                    # no await until the end of the turn, so that the main reader hands out nothing in between and
                    # no record is skipped
                    if where in self.parked.tables:
                        continue
                    end = frontier.next_offset(place)
                    records = [raw for raw in found.records if raw.position.offset < end]
                    own = self.records_of(place, records, {table: position})[table]
                    if own:
                        served.hand_over(loop, table, place, tuple(record for _, record in own))
                    frontier.reread(place, table, min(found.next_offset, end))
            self._places.discard(where)
            self._rejected_to.pop(where, None)
            frontier.caught_up(place, table)
        finally:
            await self.log.forget_reader(name)

    async def _read_parked(self, table: TableName, place: Partition, parked: ParkedTable, position: int) -> None:
        store, frontier, served, where = self.log.parking, self.frontier, self.served, (table, place)
        if store is None:
            return
        skips = where in self.parked.without_missing
        try:
            async with (
                self._reading_parked,
                aclosing(store.parked_records(parked, position, without_missing=skips)) as portions,
            ):
                async for portion in portions:
                    async with served.turn:
                        loop = served.loops[table]
                        if not (loop.takes_records and loop.has_room):
                            return  # frees the connection for other tables
                        own = self.records_of(place, portion, {table: position}, all_new=True)[table]
                        if own:
                            served.hand_over(loop, table, place, tuple(record for _, record in own))
                        frontier.reread(place, table, portion[-1].position.offset + 1)
            frontier.reread(place, table, parked.next_offset)
        except (Unavailable, OutcomeUnknown, Fenced) as error:
            library_logger().warning("parked records unreadable", action="retry", table=table, reason=str(error))
            await served.wait_to_retry()
        except Corrupt as error:
            library_logger().error("parked records are missing", action="stop-table", table=table, reason=str(error))
            self.parked.missing[where] = error.message

    def _stop(self, where: Where) -> None:
        reader = self._readers.pop(where, None)
        if reader is not None:
            reader.cancel()

    def _forget(self, where: Where, done: asyncio.Task[None]) -> None:
        if self._readers.get(where) is done:
            del self._readers[where]
