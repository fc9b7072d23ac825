"""The lot of parked records of one member of the group: stored first, then named, then confirmed by the group.

Owns: the order of these steps. Does not own: the records (`parking/parked_topic`), their names (`parking/records`),
membership.
Invariants: what is named is stored; what was named counts only after the group has accepted a commit of the same
generation, so that every later owner has read it (decision 0043); records are removed only after the names that lack
them were confirmed in that way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from rootline.adapters.kafka.frontier.records import read_frontiers
from rootline.adapters.kafka.group_offsets import commit_offsets
from rootline.adapters.kafka.membership import KafkaMembership, Place
from rootline.adapters.kafka.parking.parked_topic import ParkedTopic
from rootline.adapters.kafka.parking.records import (
    PARKING_RECORD_BYTES_MAX,
    ParkingRecord,
    lift_outgoing,
    parking_outgoing,
)
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.ports.intent_feed import Lift, ParkedRun, ParkedTable
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import LogId, LogRecord, TableName


class KafkaParkedStore:
    """For one event loop. `committing`: held for each commit of this member."""

    def __init__(self, settings: KafkaSettings, membership: KafkaMembership, committing: asyncio.Lock) -> None:
        self._settings = settings
        self._membership = membership
        self._committing = committing
        self._turn = asyncio.Lock()
        self._topic = ParkedTopic(settings)
        self._failed: set[tuple[TableName, LogId, int]] = set()

    async def park(self, parked: ParkedTable, records: Sequence[LogRecord]) -> ParkedTable:
        """As `ParkedStore.park`."""
        async with self._turn:
            place = self._place(parked)
            if records:
                name, attempt = place.parked.name, (parked.table, parked.log, parked.partition)
                begins_run = attempt in self._failed
                self._failed.add(attempt)  # unless all of it is done: a run has nothing of an attempt that failed
                run = await self._topic.store(parked, records, name)
                parked = replace(
                    parked,
                    records=parked.records + len(records),
                    size_in_bytes=parked.size_in_bytes + sum(map(_size, records)),
                    oldest_ms=parked.oldest_ms if parked.records else records[0].appended_ms,
                    first_offset=parked.first_offset if parked.records else records[0].position.offset,
                    runs=(*parked.runs, run) if begins_run else _joined(parked.runs, run),
                )
            await self._write(parked, {**place.parked.tables, parked.table: parked})
            if records:
                self._failed.discard((parked.table, parked.log, parked.partition))
            return parked

    async def parked_records(
        self, parked: ParkedTable, from_offset: int, *, without_missing: bool
    ) -> AsyncGenerator[Sequence[LogRecord], None]:
        """As `ParkedStore.parked_records`."""
        self._place(parked)
        portions = self._topic.read(parked, from_offset, without_missing=without_missing)
        try:
            async for portion in portions:
                yield portion
        finally:
            await portions.aclose()

    async def unpark(self, parked: ParkedTable) -> None:
        """As `ParkedStore.unpark`."""
        async with self._turn:
            tables = {table: held for table, held in self._place(parked).parked.tables.items() if table != parked.table}
            await self._write(parked, tables)
            if parked.runs:
                left = [run.first for held in tables.values() for run in held.runs]
                end = min([*left, 1 + max(run.last for run in parked.runs)])
                await self._topic.remove_before(parked.partition, end, log=parked.log)

    async def lifts(self) -> Sequence[Lift]:
        """As `ParkedStore.lifts`."""
        log = self._membership.log
        if log is None:
            return ()
        recorded = await read_frontiers(self._settings, log, warns=False)  # asked again and again
        own = {at.partition for at in self._membership.places}
        return [lift for lift in recorded.lifts if lift.partition in own]

    async def lifted(self, lift: Lift) -> None:
        """As `ParkedStore.lifted`; only an owner whom the group knows may say so."""
        await self._confirm(lift.log, lift.partition, self._membership.generation)
        await self._membership.frontiers.publish([lift_outgoing(self._settings, lift, done=True)])

    async def close(self) -> None:
        """Close the connection."""
        await self._topic.close()

    def _place(self, parked: ParkedTable) -> _Parking:
        membership = self._membership
        place = membership.places.get(TopicPartition(self._settings.intents_topic, parked.partition))
        if place is None or place.parked is None or membership.log != parked.log or membership.consumer is None:
            raise self._not_mine(parked.partition)
        return _Parking(place, place.parked)

    async def _write(self, parked: ParkedTable, tables: Mapping[TableName, ParkedTable]) -> None:
        membership = self._membership
        generation, held = membership.generation, self._place(parked)
        after = replace(held.parked, tables=dict(tables), began=True)
        outgoing = parking_outgoing(self._settings, after)
        if len(outgoing.value or b"") > PARKING_RECORD_BYTES_MAX:
            raise membership.unavailable(
                f"over {PARKING_RECORD_BYTES_MAX} bytes would name the parked tables of partition "
                f"{parked.partition}: see `rootline quarantine list`"
            )
        await membership.frontiers.publish([outgoing])
        await self._confirm(parked.log, parked.partition, generation)
        held.place.parked = after

    async def _confirm(self, log: LogId, partition: int, generation: int) -> None:
        """The group accepts a commit of this generation: what was written before, later owners have read."""
        membership = self._membership
        consumer = membership.consumer
        at = TopicPartition(self._settings.intents_topic, partition)
        place = membership.places.get(at)
        if place is None or consumer is None or membership.log != log or membership.generation != generation:
            raise self._not_mine(partition)
        try:
            async with asyncio.timeout(self._settings.request_timeout_s), self._committing:
                offset = max(place.committed, place.sent)  # it never goes back
                await commit_offsets(consumer, {at: offset}, log, generation=generation)
        except (KafkaError, TimeoutError) as error:
            raise membership.translated(error) from None
        if membership.generation != generation or membership.places.get(at) is not place:
            raise self._not_mine(partition)

    def _not_mine(self, partition: int) -> Unavailable:
        return self._membership.unavailable(f"partition {partition} does not belong to this member (any more)")


class _Parking:
    """A partition of this member, and what is parked of it."""

    def __init__(self, place: Place, parked: ParkingRecord) -> None:
        self.place = place
        self.parked = parked


def _joined(runs: tuple[ParkedRun, ...], run: ParkedRun) -> tuple[ParkedRun, ...]:
    if runs and runs[-1].writer == run.writer and run.first > runs[-1].last:  # else the topic was made again
        return (*runs[:-1], replace(runs[-1], last=run.last))
    return (*runs, run)


def _size(raw: LogRecord) -> int:
    return len(raw.key or b"") + len(raw.value) + sum(len(name) + len(value or b"") for name, value in raw.headers)
