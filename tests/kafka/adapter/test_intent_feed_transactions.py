"""Records of transactions: committed ones come, aborted ones and markers only move positions."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from confluent_kafka import Producer

from rootline.adapters.settings import KafkaSettings
from rootline.ports.intent_feed import Delivered
from rootline.schemas.parts.log import PartitionOffset
from tests.kafka.feeding import append, ended, member_of, numbered

pytestmark = pytest.mark.services


class Transaction:
    """One that is open: its records are written."""

    def __init__(self, settings: KafkaSettings, partition: int, values: Sequence[bytes]) -> None:
        self._producer = Producer(
            {"bootstrap.servers": settings.servers(), "transactional.id": settings.group_id, "log_level": 0}
        )
        self._producer.init_transactions(30)
        self._producer.begin_transaction()
        for value in values:
            self._producer.produce(settings.intents_topic, value, b"key", partition=partition)
        assert self._producer.flush(30) == 0
        self._place = settings, partition

    def commit(self) -> None:
        ended(*self._place, lambda: self._producer.commit_transaction(30))

    def abort(self) -> None:
        ended(*self._place, lambda: self._producer.abort_transaction(30))


async def test_an_open_transaction_holds_back_what_follows_and_yet_is_the_end(settings: KafkaSettings) -> None:
    append(settings, 0, [b"before"])
    transaction = Transaction(settings, 0, [b"in", b"side"])
    append(settings, 0, [b"after"])
    async with member_of(settings) as member:
        await member.until(lambda: len(member.records) == 1)
        assert member.at_end
        assert isinstance(await member.step(), Delivered)
        assert member.values == [b"before"]
        assert await member.feed.end_offset(member.log, 0) == 1

        transaction.commit()
        await member.until(lambda: len(member.records) == 4)
        assert member.values == [b"before", b"in", b"side", b"after"]
        assert member.offsets(0) == [0, 1, 2, 3]
        await member.until(lambda: member.at_end)  # behind the marker


async def test_what_follows_the_last_record_and_is_none_is_said_to_be_passed(settings: KafkaSettings) -> None:
    Transaction(settings, 0, [b"in"]).commit()
    async with member_of(settings) as member:
        await member.until(lambda: len(member.records) == 1)
        event = await member.step()
        while not (isinstance(event, Delivered) and event.passed):
            event = await member.step()
        assert event.passed == (PartitionOffset(member.log, 0, 2),)


async def test_aborted_records_never_come_and_are_no_lag(settings: KafkaSettings) -> None:
    Transaction(settings, 0, numbered(0, 100)).abort()
    async with member_of(settings) as member:
        await member.until(lambda: member.at_end)
        assert member.records == []
        assert set((await member.feed.lag()).values()) == {0}
        append(settings, 0, [b"after"])
        await member.until(lambda: len(member.records) == 1)
        assert (member.values, member.offsets(0)) == ([b"after"], [101])


async def test_a_member_that_starts_on_a_marker_is_at_the_end(settings: KafkaSettings) -> None:
    Transaction(settings, 0, [b"1", b"2"]).commit()
    async with member_of(settings) as member:
        await member.until(lambda: len(member.records) == 2)
        await member.decided(0, 2)
    async with member_of(settings) as member:
        await member.until(lambda: member.at_end)
        assert (member.starts[0], member.records) == (2, [])


async def test_reading_again_passes_what_is_no_record(settings: KafkaSettings) -> None:
    Transaction(settings, 0, [b"0", b"1"]).commit()
    Transaction(settings, 0, [b"3", b"4"]).abort()
    append(settings, 0, [b"6"])
    async with member_of(settings) as member:
        await member.until(lambda: bool(member.events))
        first = await member.feed.read_again("r", PartitionOffset(member.log, 0, 0), limit=2)
        assert [record.value for record in first.records] == [b"0", b"1"]
        assert first.next_offset == 2
        second = await member.feed.read_again("r", PartitionOffset(member.log, 0, 2), limit=2)
        assert [record.position.offset for record in second.records] == [6]
        assert second.next_offset == 7


async def test_reading_again_stops_before_an_open_transaction(settings: KafkaSettings) -> None:
    append(settings, 0, [b"0"])
    transaction = Transaction(settings, 0, [b"1"])
    async with member_of(settings) as member:
        await member.until(lambda: bool(member.events))
        start = PartitionOffset(member.log, 0, 1)
        empty = await member.feed.read_again("r", start, limit=10)
        assert (empty.records, empty.next_offset) == ((), 1)
        transaction.commit()
        found = await member.feed.read_again("r", start, limit=10)
        assert [record.value for record in found.records] == [b"1"]
