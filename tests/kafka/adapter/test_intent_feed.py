"""One coordinator reads the log from a real broker."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import Producer

from rootline.adapters.kafka.topics import topic_identity
from rootline.adapters.settings import KafkaSettings
from rootline.ports.intent_feed import Assigned, Delivered
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import LogId, LogPosition
from rootline.schemas.parts.log import PartitionOffset
from tests.kafka.feeding import Member, append, committed, member_of, numbered
from tests.services.kafka_service import PASSWORD, KafkaService
from tests.support.feed_driver import PATIENCE_S

pytestmark = pytest.mark.services


async def test_the_assignment_comes_first_and_starts_at_the_beginning_never_at_the_end(settings: KafkaSettings) -> None:
    append(settings, 2, numbered(0, 3))
    async with member_of(settings) as member:
        await member.until(lambda: len(member.records) == 3)

        log = topic_identity(settings, settings.intents_topic).log
        [told] = member.events
        assert isinstance(told, Assigned)
        assert told.starts == tuple(PartitionOffset(log, number, 0) for number in range(4))
        assert (told.poison_candidates, told.answered, told.parked) == ((), (), ())
        assert (told.retention_s, told.generation) == (settings.intents_retention_min_hours * 3_600, 1)
        assert [record.position for record in member.records] == [LogPosition(log, 2, offset) for offset in range(3)]


async def test_records_of_each_partition_come_in_order_each_once(settings: KafkaSettings) -> None:
    for partition in range(4):
        append(settings, partition, numbered(0, 2_000))
    async with member_of(settings) as member:
        await member.until(lambda: len(member.records) >= 8_000)
        assert [member.offsets(partition) for partition in range(4)] == [list(range(2_000))] * 4
        await member.until(lambda: member.at_end)
        assert len(member.records) == 8_000


async def test_no_call_hands_out_more_than_a_thousand_records_or_so(settings: KafkaSettings) -> None:
    append(settings, 0, numbered(0, 3_000))
    async with member_of(settings) as member:
        sizes = []
        while len(member.records) < 3_000:
            event = await member.step()
            if isinstance(event, Delivered):
                sizes.append(len(event.records))
    assert max(sizes) <= 1_024


async def test_a_record_is_handed_out_as_it_is(settings: KafkaSettings) -> None:
    producer = Producer({"bootstrap.servers": settings.servers(), "log_level": 0})
    headers = [("content-type", b"application/json"), ("twice", b"1"), ("twice", b"2"), ("null", None)]
    producer.produce(settings.intents_topic, b"v", None, partition=0, headers=headers, timestamp=1)
    producer.produce(settings.intents_topic, None, b"key", partition=0)
    assert producer.flush(30) == 0
    async with member_of(settings) as member:
        await member.until(lambda: len(member.records) == 2)

    first, second = member.records
    assert (first.key, first.value, list(first.headers)) == (None, b"v", headers)
    assert (second.key, second.value, list(second.headers)) == (b"key", b"", [])
    assert first.appended_ms > 1_700_000_000_000  # the log's own time, not the writer's


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4", "snappy", "zstd"])
async def test_any_compression_that_clients_have_is_read(settings: KafkaSettings, codec: str) -> None:
    values = [b"%d " % number * 100 for number in range(50)]
    append(settings, 0, values, **{"compression.type": codec, "linger.ms": "50"})
    async with member_of(settings) as member:
        await member.until(lambda: len(member.records) == 50)
        assert member.values == values


async def test_the_next_member_starts_where_decided_said(settings: KafkaSettings) -> None:
    append(settings, 1, numbered(0, 10))
    async with member_of(settings) as member:
        await member.until(lambda: len(member.records) == 10)
        await member.decided(1, 7)
    async with member_of(settings) as member:
        await member.until(lambda: len(member.records) == 3)

        assert member.starts == {0: 0, 1: 7, 2: 0, 3: 0}
        assert member.offsets(1) == [7, 8, 9]


async def test_what_is_remembered_never_goes_back(settings: KafkaSettings) -> None:
    append(settings, 1, numbered(0, 10))
    async with member_of(settings) as member:
        await member.until(lambda: len(member.records) == 10)
        await member.decided(1, 7)
        await member.decided(1, 3)
        assert committed(settings, 1) == 7
        await asyncio.gather(*(member.decided(1, offset) for offset in (9, 8, 10, 5)))
        assert committed(settings, 1) == 10


async def test_only_own_partitions_of_this_log_are_remembered(settings: KafkaSettings) -> None:
    append(settings, 1, numbered(0, 10))
    async with member_of(settings) as member:
        await member.until(lambda: len(member.records) == 10)
        foreign = [PartitionOffset(member.log, 99, 1), PartitionOffset(LogId("cluster/other"), 0, 1)]
        with pytest.raises(Unavailable, match=r"\[99, 0\]"):
            await member.feed.decided([*foreign, PartitionOffset(member.log, 1, 4)])
        assert (committed(settings, 0), committed(settings, 1)) == (0, 4)


async def test_an_empty_log_is_at_its_end_at_once(settings: KafkaSettings) -> None:
    async with member_of(settings) as member:
        await member.until(lambda: bool(member.events))
        event = await member.step(wait_s=PATIENCE_S)
        assert event == Delivered((), at_end=True)
        assert await member.step(wait_s=0) == Delivered((), at_end=True)


async def test_records_are_at_the_end_when_nothing_follows_them(settings: KafkaSettings) -> None:
    append(settings, 0, numbered(0, 5))
    async with member_of(settings) as member:
        await member.until(lambda: len(member.records) == 5)
        assert member.at_end
        append(settings, 0, numbered(5, 6))
        await member.until(lambda: len(member.records) == 6)
        assert member.offsets(0) == [0, 1, 2, 3, 4, 5]


async def test_while_held_nothing_comes_and_afterwards_nothing_is_missing(settings: KafkaSettings) -> None:
    append(settings, 0, numbered(0, 3_000))
    async with member_of(settings) as member:
        await member.until(lambda: len(member.records) > 0)
        for number in range(30):
            before = len(member.records)
            for _ in range(3):
                assert await member.step(wait_s=0.01, deliver=False) == Delivered((), at_end=False)
            append(settings, 0, numbered(3_000 + number, 3_001 + number))
            await member.until(lambda before=before: len(member.records) > before)  # type: ignore[misc]
        await member.until(lambda: len(member.records) == 3_030)
        assert member.offsets(0) == list(range(3_030))


async def test_a_record_that_came_just_before_the_hold_comes_after_it(settings: KafkaSettings) -> None:
    async with member_of(settings) as member:
        await member.until(lambda: member.at_end)
        for number in range(10):
            await member.step(wait_s=0.01)  # which leaves a request for records behind
            await asyncio.to_thread(append, settings, 0, numbered(number, number + 1))
            await member.feed.end_offset(member.log, 0)  # answered after that request
            await member.step(wait_s=0, deliver=False)
            await member.until(lambda number=number: len(member.records) == number + 1)  # type: ignore[misc]
        assert member.offsets(0) == list(range(10))


async def test_a_record_that_came_when_nobody_asked_any_more_comes_next(settings: KafkaSettings) -> None:
    async with member_of(settings) as member:
        await member.until(lambda: member.at_end)
        for number in range(10):
            waiting = asyncio.ensure_future(member.feed.next(wait_s=PATIENCE_S))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            await asyncio.to_thread(append, settings, 0, numbered(number, number + 1))
            await member.feed.end_offset(member.log, 0)
            await member.until(lambda number=number: len(member.records) == number + 1)  # type: ignore[misc]
        assert member.offsets(0) == list(range(10))


async def test_calls_that_are_cancelled_lose_nothing(settings: KafkaSettings) -> None:
    async with member_of(settings) as member:
        await member.until(lambda: member.at_end)
        writing = asyncio.ensure_future(asyncio.to_thread(append, settings, 0, numbered(0, 20_000)))
        turns = 0
        async with asyncio.timeout(PATIENCE_S):
            while len(member.records) < 20_000:
                calling = asyncio.ensure_future(member.feed.next(wait_s=1))
                for _ in range(turns % 5):
                    await asyncio.sleep(0)
                calling.cancel()
                await asyncio.wait([calling])
                if not calling.cancelled() and isinstance(event := calling.result(), Delivered):
                    member.records += event.records
                turns += 1
        await writing
    assert member.offsets(0) == list(range(20_000))


async def test_the_lag_is_what_was_not_handed_out(settings: KafkaSettings) -> None:
    append(settings, 0, numbered(0, 5))
    async with member_of(settings) as member:
        assert await member.feed.lag() == {}
        await member.until(lambda: bool(member.events))
        ahead = await member.feed.lag()
        assert {partition: lag for (_, partition), lag in ahead.items()} == {0: 5, 1: 0, 2: 0, 3: 0}
        await member.until(lambda: len(member.records) == 5)
        assert set((await member.feed.lag()).values()) == {0}


async def test_the_end_is_told_of_this_log_and_no_other(settings: KafkaSettings) -> None:
    append(settings, 0, numbered(0, 5))
    async with member_of(settings) as member:
        await member.until(lambda: bool(member.events))
        assert await member.feed.end_offset(member.log, 0) == 5
        assert await member.feed.end_offset(LogId("cluster/other"), 0) is None


async def test_a_closed_feed_says_so(settings: KafkaSettings) -> None:
    async with member_of(settings) as member:
        await member.until(lambda: bool(member.events))
    with pytest.raises(Unavailable, match="closed"):
        await member.feed.next(wait_s=0)
    await member.feed.close()


async def test_a_feed_that_was_never_asked_closes(settings: KafkaSettings) -> None:
    await Member(settings).feed.close()


async def test_a_coordinator_reads_through_tls_and_a_login(
    kafka_service: KafkaService, settings: KafkaSettings
) -> None:
    append(settings, 0, numbered(0, 5))
    async with member_of(kafka_service.secure(settings)) as member:
        await member.until(lambda: len(member.records) == 5)
        await member.decided(0, 5)
        start = PartitionOffset(member.log, 0, 2)
        assert [record.value for record in (await member.feed.read_again("r", start, limit=2)).records] == [b"2", b"3"]
    assert committed(settings, 0) == 5
    assert PASSWORD not in str(member.failures)
