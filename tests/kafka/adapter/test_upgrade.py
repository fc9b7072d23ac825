"""A group that the first release has read is refused until it is upgraded; that release is kept out of all others."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import InconsistentGroupProtocolError

from rootline.adapters.kafka.administration import KafkaTopics
from rootline.adapters.kafka.clients import make_consumer, start_consumer, stop_consumer
from rootline.adapters.kafka.frontiers import frontier_publisher, read_frontiers
from rootline.adapters.kafka.group_offsets import Stage, bookmark_of, commit_offsets
from rootline.adapters.kafka.membership import upgrade_outgoing
from rootline.adapters.kafka.topics import topic_exists, topic_identity
from rootline.adapters.settings import KafkaSettings
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import LogId
from tests.kafka.feeding import append, committed, member_of, numbered, remove_before


def identity(settings: KafkaSettings) -> LogId:
    return topic_identity(settings, settings.intents_topic).log


async def as_the_release_left_it(settings: KafkaSettings, bookmark: Stage = Stage.READING) -> LogId:
    """The group remembers what a coordinator of the first release remembers: offsets and a bookmark, no record."""
    log = await asyncio.to_thread(identity, settings)
    consumer = make_consumer(settings, group_id=settings.group_id, reset="none")
    await start_consumer(consumer, patience_s=30)
    try:
        places = {TopicPartition(settings.intents_topic, number): 0 for number in range(4)}
        await commit_offsets(consumer, places, log, generation=-1)
        await commit_offsets(consumer, {bookmark_of(settings): 0}, log, generation=-1, stage=bookmark)
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
    consumer._partition_assignment_strategy = (RoundRobinPartitionAssignor,)
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
        with pytest.raises(InconsistentGroupProtocolError):
            await join_as_the_release(settings)
    assert (await read_frontiers(settings, identity(settings))).is_upgraded
    said = await said_by_bookmark(settings)
    assert said.startswith(f"{identity(settings)} (upgraded: only newer versions")


async def test_a_group_that_nobody_upgraded_is_refused_and_nothing_is_written(settings: KafkaSettings) -> None:
    log = await as_the_release_left_it(settings)
    await asyncio.to_thread(append, settings, 1, numbered(0, 3))
    await asyncio.to_thread(remove_before, settings, 1, 2)
    unmade = {
        "frontiers_topic": f"{settings.frontiers_topic}.unmade",
        "parked_topic": f"{settings.parked_topic}.unmade",
    }
    for of in (settings, settings.model_copy(update=unmade)):
        async with member_of(of) as member:
            with pytest.raises(
                Invalid, match=rf"group {of.group_id} .*`rootline upgrade` of commit caa9e5f4"
            ) as caught:
                await member.until(lambda member=member: bool(member.starts))  # type: ignore[misc]
        assert caught.value.code == "setting-invalid"
        with pytest.raises(Invalid, match="nothing shows that it was upgraded"):
            await asyncio.to_thread(KafkaTopics(of).accept, apply=True)
    assert await said_by_bookmark(settings) == log
    assert await asyncio.to_thread(committed, settings, 1) == 0
    assert not (await read_frontiers(settings, log)).is_upgraded
    assert not any([await asyncio.to_thread(topic_exists, settings, topic) for topic in unmade.values()])


async def test_where_the_record_is_lost_the_bookmark_says_that_the_group_was_upgraded(settings: KafkaSettings) -> None:
    log = await as_the_release_left_it(settings, Stage.UPGRADED)
    async with member_of(settings) as member:
        await member.until(lambda: bool(member.starts))
        with pytest.raises(InconsistentGroupProtocolError):
            await join_as_the_release(settings)
    assert (await read_frontiers(settings, log)).is_upgraded


async def test_a_record_of_an_upgrade_is_enough_where_the_bookmark_is_an_older_one(settings: KafkaSettings) -> None:
    """Coordinators before this version wrote it without the suffix every so often."""
    log = await as_the_release_left_it(settings)
    publisher = frontier_publisher(settings)
    try:
        await publisher.publish([upgrade_outgoing(settings, log)])
    finally:
        await publisher.close()
    async with member_of(settings) as member:
        await member.until(lambda: bool(member.starts))
    assert "newer versions" in await said_by_bookmark(settings)
