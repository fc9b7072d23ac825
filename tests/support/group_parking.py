"""Parked records of a group log, in memory: what one reader parks, the next owner of the partition is told.

Owns: what is parked, and whose it is. Does not own: membership (`group_member`).
Invariants: only the owner of a partition in the present generation changes what is parked of it; what is parked is in
the order of the log; nothing is forgotten that is not settled, which fails the test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from rootline.ports.intent_feed import Lift, ParkedTable
from rootline.schemas.errors import Corrupt, Invalid, OutcomeUnknown, Unavailable
from rootline.schemas.identifiers import LogId, LogRecord, TableName
from tests.support.partitioned_log import PartitionedLog

Place = tuple[LogId, int]
_PORTION = 7


@dataclass(slots=True)
class ParkedRecords:
    """Of all tables and partitions; outlives the readers."""

    tables: dict[tuple[Place, TableName], tuple[ParkedTable, list[LogRecord]]] = field(default_factory=dict)
    lifts: list[Lift] = field(default_factory=list)
    history: list[str] = field(default_factory=list)
    too_large: set[int] = field(default_factory=set)
    """Offsets of records that the lot does not take; those that are sent with one of them may or may not be there."""
    unanswered: Counter[int] = field(default_factory=Counter)
    """Offset of a record → how often the lot does not answer when that one is sent first."""

    def of(self, log: LogId, partition: int) -> list[ParkedTable]:
        """What is parked of a partition."""
        return [parked for (place, _), (parked, _) in self.tables.items() if place == (log, partition)]

    def has(self, record: LogRecord) -> bool:
        """Whether this record is parked."""
        place = record.position[:2]
        held = (records for (own, _), (_, records) in self.tables.items() if own == place)
        return any(record.position == parked.position for records in held for parked in records)

    def lift(self, table: TableName, *, without_missing: bool = False) -> None:
        """What `rootline quarantine lift` does."""
        for ((log, partition), name), (parked, _) in list(self.tables.items()):
            if name == table:
                self.lifts.append(Lift(table, log, partition, without_missing, parked.first_offset))

    def lose(self, table: TableName, offset: int) -> None:
        """A parked record is gone."""
        for (_, name), (_, records) in self.tables.items():
            if name == table:
                records[:] = [record for record in records if record.position.offset != offset]


@dataclass(slots=True)
class GroupParking:
    """One reader's side. `owns`: whether a partition is its own now."""

    contents: PartitionedLog
    parked: ParkedRecords
    owns: Callable[[LogId, int], bool]
    hook: Callable[[str], Awaitable[None]]
    after: Callable[[str], Awaitable[None]]

    async def park(self, parked: ParkedTable, records: Sequence[LogRecord]) -> ParkedTable:
        """As the port says."""
        await self.hook("park")
        self._check(parked)
        if records and self.parked.unanswered[records[0].position.offset]:
            self.parked.unanswered[records[0].position.offset] -= 1
            raise Unavailable("log-unavailable", "no answer")
        if any(record.position.offset in self.parked.too_large for record in records):
            if len(records) > 1:
                raise OutcomeUnknown("publish-unknown", "one is too large, and the others are out of order")
            raise Invalid("table-parked", "it is too large")
        key = ((parked.log, parked.partition), parked.table)
        before = self.parked.tables.get(key, (parked, []))[1]
        last = before[-1].position.offset if before else -1
        new = [record for record in records if record.position.offset > last]
        held = [*before, *new]
        made = replace(
            parked,
            records=len(held),
            size_in_bytes=sum(len(record.value) for record in held),
            oldest_ms=held[0].appended_ms if held else None,
            first_offset=held[0].position.offset if held else parked.first_offset,
        )
        self.parked.tables[key] = (made, held)
        self.parked.history.append(f"park {parked.table} {len(records)}")
        await self.after("park")
        return made

    async def parked_records(
        self, parked: ParkedTable, from_offset: int, *, without_missing: bool
    ) -> AsyncGenerator[Sequence[LogRecord], None]:
        """As the port says; `records` counts them, so that a missing one is noticed."""
        await self.hook("read_parked")
        _, records = self.parked.tables.get(((parked.log, parked.partition), parked.table), (parked, []))
        if len(records) < parked.records and not without_missing:
            raise Corrupt("parked-missing", f"{parked.table}: {parked.records - len(records)} parked records are gone")
        wanted = [record for record in records if from_offset <= record.position.offset < parked.next_offset]
        for start in range(0, len(wanted), _PORTION):
            yield wanted[start : start + _PORTION]
            await self.hook("read_parked")

    async def unpark(self, parked: ParkedTable) -> None:
        """As the port says."""
        await self.hook("unpark")
        self._check(parked)
        held = self.parked.tables.pop(((parked.log, parked.partition), parked.table), None)
        for record in () if held is None else held[1]:
            if record.position.offset >= parked.next_offset:
                continue  # the reader never heard that it is parked, so it has not passed it either
            settled = self.contents.is_settled(record.position)
            self.contents.must(settled, f"{record.position} was unparked, and has no acknowledged verdict")
        self.parked.history.append(f"unpark {parked.table}")
        await self.after("unpark")

    async def lifts(self) -> Sequence[Lift]:
        """As the port says."""
        await self.hook("lifts")
        return [lift for lift in self.parked.lifts if self.owns(lift.log, lift.partition)]

    async def lifted(self, lift: Lift) -> None:
        """As the port says."""
        await self.hook("lifted")
        self.parked.lifts.remove(lift)

    def _check(self, parked: ParkedTable) -> None:
        if not self.owns(parked.log, parked.partition):
            raise Unavailable("log-unavailable", f"partition {parked.partition} is not this reader's")
