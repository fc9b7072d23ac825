"""What others do to parked records and their names, on a real broker: late owners, operators, topics made again."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer

from rootline.adapters.kafka.frontier_codec import ParkingRecord, counting, lift_outgoing
from rootline.adapters.kafka.frontiers import read_frontiers
from rootline.adapters.kafka.topic_reader import KafkaTopicReader
from rootline.adapters.settings import KafkaSettings
from rootline.ports.intent_feed import Lift, ParkedRun, ParkedTable, RecordedRejection
from rootline.schemas.errors import OutcomeUnknown
from rootline.schemas.identifiers import LogId, LogPosition, LogRecord
from tests.kafka.adapter.test_parking_lot import TABLE, raw, read
from tests.kafka.feeding import Member, append, delete_topic, member_of, numbered
from tests.services.kafka_service import KafkaService

LOG = LogId("cluster/topic")
SETTINGS = KafkaSettings()


@pytest.mark.services
async def test_while_a_table_is_parked_rejections_of_others_need_room_only_until_the_offset_passes_them(
    kafka_service: KafkaService,
) -> None:
    settings = kafka_service.with_topics(partitions=1)
    append(settings, 0, numbered(0, 2_000))
    async with member_of(settings) as owner:
        await owner.until(lambda: len(owner.records) == 2_000)
        log = owner.log
        await owner.feed.parking.park(ParkedTable(TABLE, log, 0, 1_999, 5, "why", 0), [raw(log, 0), raw(log, 1_998)])

        def unreadable(n: int) -> RecordedRejection:
            return RecordedRejection(LogPosition(log, 0, n), "undecodable", f"{n:0300}")

        for start in range(0, 1_900, 100):
            await owner.feed.record_rejections([unreadable(n) for n in range(start, start + 100)])
            await owner.decided(0, start + 100)
        told = RecordedRejection(LogPosition(log, 0, 1_998), "table-unknown", "there is no table", TABLE)
        await owner.feed.record_rejections([told, unreadable(1_901)])
        await owner.decided(0, 2_000)
        await owner.feed.record_rejections([unreadable(1_999)])
        assert not owner.feed.paused()
    async with member_of(settings) as second:
        await second.until(lambda: second.assignment is not None)
        assert second.assignment is not None
        assert set(second.assignment.answered) == {told}


@pytest.mark.services
async def test_a_lift_that_is_asked_while_another_is_carried_out_is_carried_out_as_well(
    kafka_service: KafkaService,
) -> None:
    settings = kafka_service.with_topics(partitions=1)
    async with member_of(settings) as owner:
        await owner.until(lambda: owner.assignment is not None)
        lot, membership = owner.feed.parking, owner.feed._membership
        first = Lift(TABLE, owner.log, 0, name="one")
        second = Lift(TABLE, owner.log, 0, without_missing=True, first_offset=3, name="two")
        await membership.frontiers.publish([lift_outgoing(settings, first)])
        [found] = await lot.lifts()
        await membership.frontiers.publish([lift_outgoing(settings, second)])
        await lot.lifted(found)
        [left] = await lot.lifts()
        assert left.without_missing
        await lot.lifted(left)
        assert not await lot.lifts()


def record(name: str, epoch: int, *tables: ParkedTable, began: bool = False) -> ParkingRecord:
    return ParkingRecord(LOG, 3, name, epoch, {item.table: item for item in tables}, began)


def test_the_late_first_record_of_a_stalled_owner_brings_nothing_back_that_the_next_one_has_let_go() -> None:
    """Both have read the same, so both have the same epoch; only one of them began."""
    held = ParkedTable(TABLE, LOG, 3, 9, 1_000, "why", 3, 4, 70, 2_000, (ParkedRun("w", 5, 8),))
    stalled, owner = record("late", 6, held), record("owner", 6, began=True)
    assert counting([stalled, owner]) == counting([owner, stalled]) == {}


@pytest.mark.services
async def test_what_is_parked_after_the_topic_was_made_again_is_there_when_an_operator_goes_on(
    kafka_service: KafkaService,
) -> None:
    settings = kafka_service.with_topics(partitions=1)
    async with member_of(settings) as owner:
        await owner.until(lambda: owner.assignment is not None)
        log, lot = owner.log, owner.feed.parking
        held = await lot.park(ParkedTable(TABLE, log, 0, 40, 5, "why", 2), [raw(log, n) for n in range(2, 40)])
    delete_topic(settings, settings.parked_topic)
    async with member_of(settings) as second:
        await second.until(lambda: second.assignment is not None)
        lot = second.feed.parking
        held = await lot.park(replace(held, next_offset=50), [raw(log, 40), raw(log, 42)])
        held = await lot.park(replace(held, next_offset=60), [raw(log, 50)])
        left = await read(second, held, without_missing=True)
        assert [found.position.offset for found in left] == [40, 42, 50]


@pytest.mark.services
async def test_going_on_without_missing_records_skips_none_that_are_there(kafka_service: KafkaService) -> None:
    """An attempt to park that failed half-way has numbered a record as the next attempt numbers another one."""
    settings = kafka_service.with_topics(partitions=1)
    async with member_of(settings) as owner:
        await owner.until(lambda: owner.assignment is not None)
        log, lot = owner.log, owner.feed.parking
        held = await lot.park(ParkedTable(TABLE, log, 0, 3, 5, "why", 2), [raw(log, 2)])
        with pytest.raises(OutcomeUnknown):
            await lot.park(replace(held, next_offset=12), [raw(log, 5), too_large(log, 6), raw(log, 7)])
        held = await lot.park(replace(held, next_offset=12), [raw(log, 5)])
        held = await lot.park(replace(held, next_offset=12), [raw(log, n) for n in (7, 8, 10, 11)])
        for without_missing in (False, True):
            found = await read(owner, held, without_missing=without_missing)
            assert [each.position.offset for each in found] == [2, 5, 7, 8, 10, 11]


def too_large(log: LogId, offset: int) -> LogRecord:
    """For the topic, however it is compressed."""
    return raw(log, offset)._replace(value=Random(offset).randbytes(9_000_000))


async def parked_once(owner: Member) -> ParkedTable:
    await owner.until(lambda: len(owner.records) == 40)
    log = owner.log
    held = await owner.feed.parking.park(
        ParkedTable(TABLE, log, 0, 8, 5, "why", 2), [raw(log, offset) for offset in (2, 5, 7)]
    )
    await owner.decided(0, 40)
    return held


@pytest.mark.services
async def test_when_the_names_of_parked_records_are_lost_no_one_passes_over_them(
    kafka_service: KafkaService,
) -> None:
    settings = kafka_service.with_topics(partitions=1)
    append(settings, 0, numbered(0, 40))
    async with member_of(settings) as first:
        held = await parked_once(first)
    delete_topic(settings, settings.frontiers_topic)
    async with member_of(settings) as second:
        await second.until(lambda: second.assignment is not None)
        assert second.assignment is not None
        [again] = second.assignment.parked
        assert (again.table, again.records, again.first_offset, again.runs) == (TABLE, 3, 2, held.runs)
        assert [found.position.offset for found in await read(second, again)] == [2, 5, 7]
        await second.feed.parking.unpark(again)
    async with member_of(settings) as third:
        await third.until(lambda: third.assignment is not None)
        assert third.assignment is not None
        assert third.assignment.parked == ()


@pytest.mark.services
async def test_records_of_the_frontiers_topic_that_cannot_be_read_stop_no_one_and_lose_nothing(
    kafka_service: KafkaService,
) -> None:
    settings = kafka_service.with_topics(partitions=1)
    append(settings, 0, numbered(0, 40))
    async with member_of(settings) as first:
        held = await parked_once(first)
    own = [record.key async for portion in frontiers(settings) for record in portion]
    damage(settings, {*own, json.dumps([settings.group_id, held.log, 0, "answers", "n"]).encode(), b"[" * 100_000})
    async with member_of(settings) as second:
        await second.until(lambda: second.assignment is not None)
        assert second.assignment is not None
        [again] = second.assignment.parked
        assert (again.table, again.records, again.first_offset, again.runs) == (TABLE, 3, 2, held.runs)
        assert [found.position.offset for found in await read(second, again)] == [2, 5, 7]
        await second.feed.parking.unpark(again)
    assert not (await read_frontiers(settings, held.log)).unread
    async with member_of(settings) as third:
        await third.until(lambda: third.assignment is not None)
        assert third.assignment is not None
        assert third.assignment.parked == ()


def frontiers(settings: KafkaSettings) -> AsyncGenerator[Sequence[Any], None]:
    return KafkaTopicReader(settings, settings.frontiers_topic).backwards(key=None, since_ms=0)


def damage(settings: KafkaSettings, keys: set[bytes]) -> None:
    """Write something else under each of `keys`, where it takes the place of what was there."""
    producer = Producer({"bootstrap.servers": settings.servers(), "log_level": 0})
    for key in keys:
        producer.produce(settings.frontiers_topic, b'{"epoch":1e999,"runs":[]}', key)
    assert producer.flush(30) == 0
