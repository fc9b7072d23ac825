"""A log that must not be read on: each refusal says what happened, what was lost, and how to go on."""

from __future__ import annotations

import asyncio

import pytest

from rootline.adapters.kafka.frontiers import Mark, frontier_publisher, read_frontiers, write_frontiers
from rootline.adapters.kafka.membership import upgrade_outgoing
from rootline.adapters.kafka.topics import create_topics, topic_identity
from rootline.adapters.settings import KafkaSettings
from rootline.ports.intent_feed import Revoked
from rootline.schemas.errors import Fenced, RootlineError
from rootline.schemas.identifiers import LogId
from rootline.schemas.parts.log import PartitionOffset
from tests.kafka.feeding import (
    Member,
    append,
    delete_topic,
    expire_offsets,
    make_anew,
    member_of,
    numbered,
    remove_before,
    set_bookmark,
    set_committed,
)
from tests.services.kafka_service import KafkaService
from tests.support.feed_driver import PATIENCE_S

pytestmark = pytest.mark.services


async def refusal_of(member: Member, *, deliver: bool = True) -> Fenced:
    """What the member is refused with, if it is asked on and on."""
    with pytest.raises(Fenced) as refusal:
        await member.until(lambda: False, deliver=deliver)
    with pytest.raises(Fenced) as again:
        await member.step()
    assert again.value is refusal.value
    return refusal.value


async def record(settings: KafkaSettings, log: LogId, offsets: dict[int, int]) -> None:
    publisher = frontier_publisher(settings)
    try:
        await publisher.publish([upgrade_outgoing(settings, log)])
        await write_frontiers(settings, publisher, log, offsets)
    finally:
        await publisher.close()


async def until_recorded(settings: KafkaSettings, log: LogId, offset: int) -> None:
    """The frontiers' topic has this offset of partition 0, or a later one."""
    async with asyncio.timeout(PATIENCE_S):
        while (await read_frontiers(settings, log)).frontiers.get(0, -1) < offset:
            pass


async def settled(settings: KafkaSettings, *, decided: int = 0) -> LogId:
    """A member has read, and has said what was decided of partition 0."""
    async with member_of(settings) as member:
        await member.until(lambda: member.at_end)
        if decided:
            await member.decided(0, decided)
        return member.log


@pytest.mark.parametrize("grown_to", [0, 2, 50])
async def test_a_topic_made_anew_while_nobody_ran_is_refused_however_far_it_has_grown(
    settings: KafkaSettings, grown_to: int
) -> None:
    append(settings, 0, numbered(0, 10))
    old = await settled(settings, decided=5)
    new = await asyncio.to_thread(make_anew, settings)
    append(settings, 0, numbered(0, grown_to))

    async with member_of(settings) as member:
        refusal = await refusal_of(member)

    assert refusal.code == "log-replaced"
    assert old in refusal.message
    assert new in refusal.message
    assert "`rootline topics accept`" in refusal.message
    assert (member.events, member.records) == ([], [])


async def test_a_topic_made_anew_is_refused_although_nothing_was_decided_yet(settings: KafkaSettings) -> None:
    await settled(settings)
    await asyncio.to_thread(make_anew, settings)
    async with member_of(settings) as member:
        assert (await refusal_of(member)).code == "log-replaced"


async def test_an_offset_that_outlived_its_topic_is_never_compared(settings: KafkaSettings) -> None:
    """Brokers remove a topic's offsets with it, if they are there at that time."""
    append(settings, 0, numbered(0, 10))
    set_committed(settings, 0, 5, "cluster/another-topic")
    async with member_of(settings) as member:
        refusal = await refusal_of(member)
    assert refusal.code == "log-replaced"
    assert "cluster/another-topic" in refusal.message


async def test_an_offset_that_an_operators_tool_has_set_is_taken(settings: KafkaSettings) -> None:
    append(settings, 0, numbered(0, 10))
    set_committed(settings, 0, 5)
    async with member_of(settings) as member:
        await member.until(lambda: member.at_end)
        assert member.offsets(0) == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("grown_to", [0, 50])
async def test_a_topic_made_anew_while_it_is_read_is_refused_and_none_of_its_records_is_handed_out(
    settings: KafkaSettings, grown_to: int
) -> None:
    append(settings, 0, numbered(0, 10))
    async with member_of(settings) as member:
        await member.until(lambda: len(member.records) == 10)
        old, before = member.log, member.values

        def make() -> LogId:
            new = make_anew(settings)
            append(settings, 0, [b"new"] * grown_to)
            return new

        making = asyncio.ensure_future(asyncio.to_thread(make))
        refusal = await refusal_of(member)

        assert refusal.code == "log-replaced"
        assert old in refusal.message
        assert await making in refusal.message
        assert set(member.values) <= set(before)


async def test_a_topic_made_anew_while_reading_was_held_is_refused(kafka_service: KafkaService) -> None:
    settings = kafka_service.with_topics(identity_max_age_s=0.2)
    append(settings, 0, numbered(0, 10))
    async with member_of(settings) as member:
        await member.until(lambda: len(member.records) == 10)
        making = asyncio.ensure_future(asyncio.to_thread(make_anew, settings))
        assert (await refusal_of(member, deliver=False)).code == "log-replaced"
        await making


async def test_while_the_topic_is_missing_the_log_is_unavailable(kafka_service: KafkaService) -> None:
    settings = kafka_service.with_topics(identity_max_age_s=0.2)
    async with member_of(settings) as member:
        await member.until(lambda: member.at_end)
        await asyncio.to_thread(delete_topic, settings)
        said = f"there is no topic {settings.intents_topic}: create it with `rootline topics create`"
        # before that, requests to a partition that is just removed fail
        await member.until(lambda: len(member.failures) >= 3 and said in str(member.failures[-1]))
        assert all(failure.code == "log-unavailable" for failure in member.failures)
        assert not member.starts or member.events[-1] == Revoked(10.0)

        await asyncio.to_thread(create_topics, settings, partitions=4, replication_factor=1)
        assert (await refusal_of(member)).code == "log-replaced"


async def test_a_topic_that_is_made_after_the_start_is_read(kafka_service: KafkaService) -> None:
    settings = kafka_service.settings()
    async with member_of(settings) as member:
        await member.until(lambda: bool(member.failures))
        await asyncio.to_thread(create_topics, settings, partitions=4, replication_factor=1)
        append(settings, 0, numbered(0, 3))
        await member.until(lambda: len(member.records) == 3)


async def test_what_retention_removed_while_nobody_ran_is_named(settings: KafkaSettings) -> None:
    append(settings, 0, numbered(0, 20))
    await settled(settings, decided=5)
    remove_before(settings, 0, 12)
    async with member_of(settings) as member:
        refusal = await refusal_of(member)

    assert refusal.code == "offset-out-of-range"
    assert "partition 0 lost offsets 5 to 11 (7)" in refusal.message
    assert "`rootline topics accept`" in refusal.message


async def test_what_retention_removed_before_it_was_read_is_named(settings: KafkaSettings) -> None:
    append(settings, 0, [bytes(10_000)] * 3_000)  # more than a member fetches ahead
    async with member_of(settings) as member:
        await member.until(lambda: len(member.records) > 0)
        await member.step(wait_s=0, deliver=False)
        remove_before(settings, 0, 2_900)
        refusal = await refusal_of(member)

    assert refusal.code == "offset-out-of-range"
    read = len(member.records)
    assert f"partition 0 lost offsets {read} to 2899 ({2_900 - read})" in refusal.message


async def test_retention_up_to_what_was_decided_loses_nothing(settings: KafkaSettings) -> None:
    append(settings, 0, numbered(0, 20))
    await settled(settings, decided=12)
    remove_before(settings, 0, 12)
    async with member_of(settings) as member:
        await member.until(lambda: member.at_end)
        assert member.offsets(0) == list(range(12, 20))


async def test_without_anything_remembered_a_log_whose_beginning_is_gone_is_refused(settings: KafkaSettings) -> None:
    append(settings, 0, numbered(0, 20))
    remove_before(settings, 0, 12)
    async with member_of(settings) as member:
        refusal = await refusal_of(member)
    assert refusal.code == "offset-out-of-range"
    assert "partition 0 begins at 12, and neither the group nor the frontiers' topic knows" in refusal.message
    assert "`rootline topics accept`" in refusal.message


async def test_an_installation_that_has_only_the_groups_offsets_goes_on_and_has_a_frontier_from_then_on(
    settings: KafkaSettings,
) -> None:
    """As after the frontiers' topic was deleted: offsets of the group, retention up to one of them."""
    append(settings, 0, numbered(0, 20))
    log = topic_identity(settings, settings.intents_topic).log
    set_committed(settings, 0, 12, log)
    set_bookmark(settings, log)
    remove_before(settings, 0, 12)
    delete_topic(settings, settings.frontiers_topic)
    async with member_of(settings) as member:
        await member.until(lambda: member.at_end)
        assert member.offsets(0) == list(range(12, 20))
        await until_recorded(settings, log, 12)

    expire_offsets(settings)
    async with member_of(settings) as member:
        await member.until(lambda: member.at_end)
        assert member.offsets(0) == list(range(12, 20))


async def test_a_frontier_of_another_topic_id_is_never_used(settings: KafkaSettings) -> None:
    append(settings, 0, numbered(0, 10))
    await settled(settings, decided=8)
    log = topic_identity(settings, settings.intents_topic).log
    await until_recorded(settings, log, 0)
    await asyncio.to_thread(make_anew, settings)
    expire_offsets(settings)
    append(settings, 0, numbered(0, 3))
    async with member_of(settings) as member:
        await member.until(lambda: member.at_end)
        assert member.offsets(0) == [0, 1, 2]


async def test_a_log_that_ends_before_its_frontier_is_refused_although_the_group_forgot(
    settings: KafkaSettings,
) -> None:
    append(settings, 0, numbered(0, 10))
    log = topic_identity(settings, settings.intents_topic).log
    await record(settings, log, {0: 11})
    async with member_of(settings) as member:
        refusal = await refusal_of(member)
    assert refusal.code == "log-behind-root"
    assert "offset 11 was decided" in refusal.message


async def test_a_log_that_has_another_record_where_the_last_one_was_read_is_refused(settings: KafkaSettings) -> None:
    append(settings, 0, numbered(0, 10))
    async with member_of(settings) as member:
        await member.until(lambda: member.at_end)
        log = member.log
        await member.feed.concluded([PartitionOffset(log, 0, 8)])
    mark = (await read_frontiers(settings, log)).marks[0]
    assert mark.offset == 9
    async with member_of(settings) as member:
        await member.until(lambda: member.at_end)
        assert member.offsets(0) == [8, 9], "it is the same log"
    publisher = frontier_publisher(settings)
    # brokers cut no log off on demand, so the mark is of the record that was there before they did
    await write_frontiers(settings, publisher, log, {0: 8}, {0: Mark(9, b"another!")})
    await publisher.close()
    async with member_of(settings) as member:
        refusal = await refusal_of(member)
    assert refusal.code == "log-behind-root"
    assert "the record at offset 9 was read" in refusal.message


async def test_an_older_frontier_that_a_stalled_coordinator_wrote_last_loses_nothing(settings: KafkaSettings) -> None:
    append(settings, 0, numbered(0, 10))
    log = topic_identity(settings, settings.intents_topic).log
    await settled(settings, decided=8)
    await record(settings, log, {0: 2})
    async with member_of(settings) as member:
        await member.until(lambda: member.at_end)
        assert member.offsets(0) == [8, 9], "the group knows better"
        await until_recorded(settings, log, 8)


async def test_a_log_that_ends_before_what_was_decided_is_refused(settings: KafkaSettings) -> None:
    append(settings, 0, numbered(0, 10))
    log = topic_identity(settings, settings.intents_topic).log
    set_committed(settings, 0, 11, log)
    set_bookmark(settings, log)
    async with member_of(settings) as member:
        refusal = await refusal_of(member)
    assert refusal.code == "log-behind-root"
    assert "offset 11 was decided" in refusal.message
    assert "ends at 10" in refusal.message


async def test_a_session_that_brokers_do_not_allow_names_the_setting(kafka_service: KafkaService) -> None:
    settings = kafka_service.with_topics(session_timeout_s=0.5)
    async with member_of(settings) as member:
        with pytest.raises(RootlineError, match=r"session_timeout_s is 0\.5") as failure:
            await member.until(lambda: False)
    assert failure.value.code == "setting-invalid"
