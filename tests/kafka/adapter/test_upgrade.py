"""`rootline upgrade` on Kafka: who is kept out, and from which offsets on newer things may be committed."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import InconsistentGroupProtocolError

from rootline.adapters.kafka.clients import make_consumer, start_consumer, stop_consumer
from rootline.adapters.kafka.frontier.records import read_frontiers
from rootline.adapters.kafka.group.upgrade import upgrade_topic
from rootline.adapters.kafka.group_offsets import bookmark_of, commit_offsets
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.adapters.kafka.topics import topic_identity
from rootline.adapters.upgraded import Upgraded
from rootline.schemas.errors import Invalid
from rootline.schemas.log_position import LogId
from tests.kafka.feeding import append, member_of, numbered


def identity(settings: KafkaSettings) -> LogId:
    return topic_identity(settings, settings.intents_topic).log


async def as_the_release_left_it(settings: KafkaSettings) -> LogId:
    """The group remembers what a coordinator of the first release remembers: offsets and a bookmark, no record."""
    log = await asyncio.to_thread(identity, settings)
    consumer = make_consumer(settings, group_id=settings.group_id, reset="none")
    await start_consumer(consumer, patience_s=30)
    try:
        places = {TopicPartition(settings.intents_topic, number): 0 for number in range(4)}
        await commit_offsets(consumer, {**places, bookmark_of(settings): 0}, log, generation=-1)
    finally:
        await stop_consumer(consumer, patience_s=10)
    return log


async def said_by_bookmark(settings: KafkaSettings) -> str:
    """The metadata as the first release reads them."""
    consumer = make_consumer(settings, group_id=settings.group_id, reset="none")
    await start_consumer(consumer, patience_s=30)
    try:
        place = bookmark_of(settings)
        found = await consumer._coordinator.fetch_committed_offsets([place])
        return str(found[place].metadata).rstrip("\0").removesuffix(" concluded")
    finally:
        await stop_consumer(consumer, patience_s=10)


async def join_as_the_release(settings: KafkaSettings) -> None:
    """Join the group by the library's own protocol, which the first release offers. Raises what the broker answers."""
    consumer: AIOKafkaConsumer = make_consumer(settings, group_id=settings.group_id, reset="none")
    await start_consumer(consumer, patience_s=30)
    try:
        consumer.subscribe([settings.intents_topic])
        await asyncio.wait_for(consumer.getmany(timeout_ms=20_000), 40)
        consumer._coordinator.check_errors()
    finally:
        await stop_consumer(consumer, patience_s=10)


async def test_a_new_group_is_upgraded_and_no_member_of_the_first_release_joins_it(settings: KafkaSettings) -> None:
    async with member_of(settings) as member:
        await member.until(lambda: bool(member.starts))
        assert member.assignment is not None
        assert member.assignment.before_upgrade == ()
        with pytest.raises(InconsistentGroupProtocolError):
            await join_as_the_release(settings)
    assert (await read_frontiers(settings, identity(settings))).upgraded_from == {}
    assert await said_by_bookmark(settings) != identity(settings)
    assert (await asyncio.to_thread(upgrade_topic, settings, apply=True)).upgraded is Upgraded.BEFORE


async def test_what_the_first_release_left_is_shared_until_the_upgrade(settings: KafkaSettings) -> None:
    log = await as_the_release_left_it(settings)
    await asyncio.to_thread(append, settings, 1, numbered(0, 3))
    async with member_of(settings) as member:
        await member.until(lambda: bool(member.starts))
        assert member.assignment is not None
        assert member.assignment.may_be_shared
        assert await said_by_bookmark(settings) == log, "the first release must be able to read it"
        status = await asyncio.to_thread(upgrade_topic, settings, apply=False)
        assert (status.upgraded, len(status.members)) == (Upgraded.NOT_YET, 1)
        with pytest.raises(Invalid, match="1 coordinators run") as caught:
            await asyncio.to_thread(upgrade_topic, settings, apply=True)
        assert caught.value.code == "group-active"
    assert (await asyncio.to_thread(upgrade_topic, settings, apply=True)).upgraded is Upgraded.NOW
    assert (await read_frontiers(settings, log)).upgraded_from == {0: 0, 1: 3, 2: 0, 3: 0}
    said = await said_by_bookmark(settings)
    assert said.startswith(log)
    assert "newer versions" in said
    async with member_of(settings) as member:
        await member.until(lambda: bool(member.starts))
        assert member.assignment is not None
        assert [(end.partition, end.next_offset) for end in member.assignment.before_upgrade] == [(1, 3)]
        assert not member.assignment.may_be_shared


async def test_an_upgrade_that_died_after_its_first_step_is_repeated(settings: KafkaSettings) -> None:
    log = await as_the_release_left_it(settings)
    assert (await asyncio.to_thread(upgrade_topic, settings, apply=True)).upgraded is Upgraded.NOW
    lost = settings.model_copy(update={"frontiers_topic": f"{settings.frontiers_topic}.lost"})
    async with member_of(lost) as member:  # as if the record had never been written
        await member.until(lambda: bool(member.starts))
        assert member.assignment is not None
        assert member.assignment.may_be_shared
        assert await said_by_bookmark(lost) != log, "the first release stays out"
    assert (await asyncio.to_thread(upgrade_topic, lost, apply=True)).upgraded is Upgraded.NOW
    assert (await read_frontiers(lost, log)).upgraded_from is not None
