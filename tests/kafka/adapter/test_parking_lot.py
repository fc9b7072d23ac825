"""The lot of parked records on a real broker: what is named is stored, and read as it was, by whoever owns it then."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from rootline.adapters.kafka.frontier_codec import (
    ParkingRecord,
    counting,
    lift_outgoing,
    next_parking_record,
    parking_outgoing,
)
from rootline.adapters.kafka.frontiers import FrontierReading, Recorded
from rootline.adapters.kafka.publisher import KafkaPublisher, Outgoing
from rootline.adapters.settings import KafkaSettings
from rootline.ports.intent_feed import Lift, ParkedRun, ParkedTable
from rootline.schemas.errors import Corrupt, Unavailable
from rootline.schemas.identifiers import LogId, LogPosition, LogRecord, TableName
from tests.kafka.feeding import Member, append, member_of, numbered
from tests.services.kafka_service import KafkaService

LOG = LogId("cluster/topic")
TABLE, OTHER = TableName("a.b"), TableName("c.d")
SETTINGS = KafkaSettings()


def parked(next_offset: int = 9, log: LogId = LOG, table: TableName = TABLE, partition: int = 3) -> ParkedTable:
    return ParkedTable(table, log, partition, next_offset, 1_000, "why", 3)


def full() -> ParkedTable:
    return ParkedTable(TABLE, LOG, 3, 9, 1_000, "why", 3, 4, 70, 2_000, (ParkedRun("w", 5, 8), ParkedRun("v", 9, 9)))


def record(name: str, epoch: int, *tables: ParkedTable) -> ParkingRecord:
    return ParkingRecord(LOG, 3, name, epoch, {item.table: item for item in tables})


def read_back(sent: Outgoing, group_id: str = SETTINGS.group_id, log: LogId = LOG) -> Recorded:
    reading = FrontierReading(group_id, log)
    reading.take(SimpleNamespace(topic="frontiers", partition=0, offset=0, key=sent.key, value=sent.value))
    return reading.recorded()


def test_a_record_of_what_is_parked_is_read_as_it_was_written_and_by_no_other_group_or_log() -> None:
    written = record("one", 7, full(), parked(table=OTHER))
    sent = parking_outgoing(SETTINGS, written)
    assert read_back(sent).parked == (written,)
    assert read_back(sent, log=LogId("cluster/other")).parked == ()
    assert read_back(sent, "other").parked == ()


def test_what_a_stalled_owner_names_after_the_next_one_began_counts_for_no_one() -> None:
    stalled = record("one", 4, parked())
    owner, gone = next_parking_record([stalled], LOG, 3, "two")
    assert owner == record("two", 5, parked())
    assert gone == [stalled]
    late = record("one", 4, parked(50), parked(table=OTHER))
    assert counting([late, owner]) == {TABLE: parked()}
    assert next_parking_record([owner], LOG, 2, "x") == (ParkingRecord(LOG, 2, "x", 1, {}), [])


def test_a_lift_is_read_as_it_was_written_until_it_was_carried_out() -> None:
    lift = Lift(TABLE, LOG, 3, without_missing=True)
    sent = lift_outgoing(SETTINGS, lift)
    assert read_back(sent).lifts == (lift,)
    done = lift_outgoing(SETTINGS, lift, done=True)
    assert (done.key, read_back(done).lifts) == (sent.key, ())
    assert read_back(sent, log=LogId("x")).lifts == ()


def raw(log: LogId, offset: int, partition: int = 0) -> LogRecord:
    """A record of a table, with headers of its own."""
    headers = (("own", b"1"), ("own", None), ("rootline.parked", b"[]"))
    key = None if offset % 2 else TABLE.encode()
    return LogRecord(LogPosition(log, partition, offset), key, b"value-%d" % offset, 1_000 + offset, headers)


async def read(member: Member, item: ParkedTable, start: int = 0, *, without_missing: bool = False) -> list[LogRecord]:
    portions = member.feed.parking.parked_records(item, start, without_missing=without_missing)
    return [found async for portion in portions for found in portion]


async def append_late(settings: KafkaSettings, item: ParkedTable, records: Sequence[LogRecord], writer: str) -> None:
    """What another writer, or an attempt that seemed to fail, leaves in the topic."""
    publisher = KafkaPublisher(settings, lambda: 1_000_000)
    for number, found in enumerate(records):
        log, partition, offset = found.position
        said = [settings.group_id, writer, number, item.table, log, partition, offset, 1, True]
        header = ("rootline.parked", json.dumps(said).encode())
        await publisher.publish([Outgoing(settings.parked_topic, b"k", b"late", (header,), partition=partition)])
    await publisher.close()


@pytest.mark.services
async def test_parked_records_come_back_as_they_were_and_the_next_owner_is_told_of_them(
    kafka_service: KafkaService,
) -> None:
    settings = kafka_service.with_topics(partitions=1)
    append(settings, 0, numbered(0, 40))
    async with member_of(settings) as first:
        await first.until(lambda: len(first.records) == 40)
        log = first.log
        empty = ParkedTable(TABLE, log, 0, 2, 5, "why", 2)
        held = await first.feed.parking.park(
            ParkedTable(TABLE, log, 0, 8, 5, "why", 2), [raw(log, offset) for offset in (2, 5, 7)]
        )
        assert (held.records, held.first_offset, held.oldest_ms) == (3, 2, 1_002)
        await append_late(settings, held, [raw(log, offset) for offset in (2, 9, 10, 11)], "stalled")
        other = await first.feed.parking.park(ParkedTable(OTHER, log, 0, 9, 5, "why", 8), [raw(log, 8)])
        assert await read(first, held) == [raw(log, offset) for offset in (2, 5, 7)]
        await first.decided(0, 8)
    async with member_of(settings) as second:
        await second.until(lambda: second.assignment is not None)
        assert second.assignment is not None
        assert set(second.assignment.parked) == {held, other}
        assert second.assignment.retention_s == 168 * 3_600
        more = await second.feed.parking.park(
            ParkedTable(TABLE, log, 0, 12, 5, "why", 2, held.records, held.size_in_bytes, held.oldest_ms, held.runs),
            [raw(log, offset) for offset in (9, 11)],
        )
        assert len(more.runs) == 2
        assert await read(second, more) == [raw(log, offset) for offset in (2, 5, 7, 9, 11)]
        assert await read(second, more, 7) == [raw(log, offset) for offset in (7, 9, 11)]
        await second.feed.parking.unpark(other)
        assert await read(second, more) == [raw(log, offset) for offset in (2, 5, 7, 9, 11)]
        await second.feed.parking.unpark(more)
        with pytest.raises(Corrupt, match="number 1 is not in topic"):
            await read(second, more)
        await second.feed.parking.park(empty, ())
    async with member_of(settings) as third:
        await third.until(lambda: third.assignment is not None)
        assert third.assignment is not None
        assert third.assignment.parked == (empty,)


@pytest.mark.services
async def test_nothing_that_follows_a_missing_parked_record_is_given_until_an_operator_says_so(
    kafka_service: KafkaService,
) -> None:
    settings = kafka_service.with_topics(partitions=1)
    async with member_of(settings) as owner:
        await owner.until(lambda: owner.assignment is not None)
        log = owner.log
        lot = owner.feed.parking
        held = await lot.park(ParkedTable(TABLE, log, 0, 8, 5, "why", 2), [raw(log, 2), raw(log, 5)])
        held = await lot.park(
            ParkedTable(TABLE, log, 0, 20, 5, "why", 2, held.records, 1, 1, held.runs), [raw(log, 9), raw(log, 11)]
        )
        await asyncio.to_thread(lot._topic._remove, 0, held.runs[0].first + 1)
        with pytest.raises(Corrupt, match="number 1 is not in topic"):
            await read(owner, held)
        assert await read(owner, held, without_missing=True) == [raw(log, offset) for offset in (5, 9, 11)]


@pytest.mark.services
async def test_what_the_group_does_not_confirm_is_not_parked(kafka_service: KafkaService) -> None:
    """A process that stood still believes that it has the partitions; only the brokers know better."""
    settings = kafka_service.with_topics(partitions=1, session_timeout_s=6)
    append(settings, 0, numbered(0, 10))
    async with member_of(settings) as owner:
        await owner.until(lambda: len(owner.records) == 10)
        consumer = owner.feed._membership.consumer
        assert consumer is not None
        consumer._coordinator.generation += 1  # as if the others had gone on without it
        owner.feed._membership.generation += 1
        with pytest.raises(Unavailable):
            await owner.feed.parking.park(ParkedTable(TABLE, owner.log, 0, 8, 5, "why", 2), [raw(owner.log, 2)])
        with pytest.raises(Unavailable):
            await owner.feed.parking.lifted(Lift(TABLE, owner.log, 0))
    async with member_of(settings) as second:
        await second.until(lambda: second.assignment is not None)
