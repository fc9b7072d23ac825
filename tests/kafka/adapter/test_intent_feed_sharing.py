"""Coordinators that share a log: partitions move between them, and no record is lost on the way."""

from __future__ import annotations

import asyncio
import sys
import textwrap

import pytest

from rootline.adapters.settings import KafkaSettings
from rootline.ports.intent_feed import Assigned, Delivered, Revoked
from rootline.schemas.errors import Unavailable
from rootline.schemas.parts.log import PartitionOffset
from tests.kafka.feeding import Member, add_partitions, append, committed, member_of, numbered
from tests.services.kafka_service import KafkaService
from tests.support.feed_driver import PATIENCE_S, together

pytestmark = pytest.mark.services
ALL = {0, 1, 2, 3}


def shared(*members: Member) -> bool:
    """Whether every partition has one owner, and all have some."""
    owned = [number for member in members for number in member.starts]
    return sorted(owned) == sorted(ALL) and all(member.starts for member in members)


async def test_two_members_share_the_partitions_and_one_that_leaves_gives_its_own_back(settings: KafkaSettings) -> None:
    for partition in ALL:
        append(settings, partition, numbered(0, 10))
    async with member_of(settings) as stays:
        await stays.until(lambda: len(stays.records) == 40)
        for partition in ALL:
            await stays.decided(partition, partition)
        leaves = Member(settings)
        await together(stays, leaves, done=lambda: shared(stays, leaves))
        assert stays.starts | leaves.starts == {0: 0, 1: 1, 2: 2, 3: 3}

        mine = next(iter(leaves.starts))
        await leaves.decided(mine, 9)
        await leaves.feed.close()
        await stays.until(lambda: set(stays.starts) == ALL)
        assert stays.starts[mine] == 9
        await stays.until(lambda: stays.at_end)
        for partition in ALL - {mine}:
            assert stays.offsets(partition) == list(range(partition, 10))
        assert stays.offsets(mine) == [9]


def has_nothing(member: Member) -> bool:
    """Whether an assignment without partitions came."""
    return any(isinstance(event, Assigned) and not event.starts for event in member.events)


async def test_more_members_than_partitions_leave_one_with_an_empty_assignment(kafka_service: KafkaService) -> None:
    settings = kafka_service.with_topics(partitions=1)
    async with member_of(settings) as first, member_of(settings) as second:
        await first.until(lambda: first.at_end)
        await together(first, second, done=lambda: has_nothing(first) or has_nothing(second))
        idle = first if has_nothing(first) else second
        await together(first, second, done=lambda: first.at_end and second.at_end)
        assert (idle.starts, idle.records) == ({}, [])


@pytest.fixture
def unhurried(kafka_service: KafkaService) -> KafkaSettings:
    """A revocation may wait for longer than a busy machine needs for the steps of a test."""
    return kafka_service.with_topics(rebalance_deadline_s=60)


async def test_partitions_go_only_after_their_owner_has_released_them(unhurried: KafkaSettings) -> None:
    append(unhurried, 0, numbered(0, 10))
    async with member_of(unhurried, answers=False) as owner, member_of(unhurried) as other:
        await owner.until(lambda: len(owner.records) == 10)
        await together(owner, other, done=lambda: Revoked(60.0) in owner.events)
        append(unhurried, 0, numbered(10, 20))
        for _ in range(5):
            await asyncio.gather(owner.step(), other.step())
        assert (other.events, len(owner.records)) == ([], 10)  # neither does the owner get more

        start = PartitionOffset(owner.log, 0, 8)
        await owner.feed.decided([start])
        await owner.feed.released()
        await together(owner, other, done=lambda: shared(owner, other))
        assert (owner.starts | other.starts)[0] == 8


async def test_who_does_not_answer_in_time_loses_the_partitions_all_the_same(kafka_service: KafkaService) -> None:
    settings = kafka_service.with_topics(rebalance_deadline_s=0.3)
    append(settings, 0, numbered(0, 10))
    async with member_of(settings, answers=False) as owner, member_of(settings) as other:
        await owner.until(lambda: len(owner.records) == 10)
        log = owner.log
        await together(owner, other, done=lambda: shared(owner, other))
        lost = next(iter(other.starts))
        with pytest.raises(Unavailable, match="they were not committed"):
            await owner.feed.decided([PartitionOffset(log, lost, 1)])
        assert committed(settings, lost) == 0, "where the new owner began"
        await owner.feed.released()  # too late, and no harm


async def test_a_long_release_outlasts_the_deadline_of_requests(kafka_service: KafkaService) -> None:
    settings = kafka_service.with_topics(request_timeout_s=0.5, rebalance_deadline_s=30)
    async with member_of(settings, answers=False) as owner, member_of(settings) as other:
        await owner.until(lambda: owner.at_end)
        await together(owner, other, done=lambda: Revoked(30.0) in owner.events)
        for _ in range(10):
            await asyncio.gather(owner.step(), other.step())
        await owner.feed.released()
        owner.answers = True
        await together(owner, other, done=lambda: shared(owner, other))


async def test_a_revocation_that_nobody_has_heard_of_waits_for_the_next_call(unhurried: KafkaSettings) -> None:
    async with member_of(unhurried) as owner, member_of(unhurried) as other:
        await owner.until(lambda: owner.at_end)
        for _ in range(6):  # longer than until the next heartbeat
            await other.step(wait_s=0.25)
        assert other.events == []
        await together(owner, other, done=lambda: Revoked(60.0) in owner.events)
        await together(owner, other, done=lambda: shared(owner, other))


async def test_a_held_member_hears_of_the_revocation(settings: KafkaSettings) -> None:
    append(settings, 0, numbered(0, 10))
    async with member_of(settings) as owner, member_of(settings) as other:
        await owner.until(lambda: owner.at_end)
        async with asyncio.timeout(PATIENCE_S):
            while Revoked(10.0) not in owner.events:
                await asyncio.gather(owner.step(deliver=False), other.step())
        await together(owner, other, done=lambda: shared(owner, other))


@pytest.fixture
def patient(kafka_service: KafkaService) -> KafkaSettings:
    """The broker waits for a member longer than any test does."""
    return kafka_service.with_topics(session_timeout_s=600, rebalance_deadline_s=600)


async def test_closing_in_the_middle_of_a_rebalance_leaves_at_once(patient: KafkaSettings) -> None:
    async with member_of(patient, answers=False) as owner:
        await owner.until(lambda: owner.at_end)
        newcomer = Member(patient)
        await together(owner, newcomer, done=lambda: Revoked(600.0) in owner.events)
        await asyncio.wait_for(newcomer.feed.close(), PATIENCE_S)  # its request to join is still with the broker
        await owner.feed.released()
        owner.answers = True
        await owner.until(lambda: set(owner.starts) == ALL)


async def test_an_owner_that_closes_instead_of_answering_hands_over_at_once(patient: KafkaSettings) -> None:
    async with member_of(patient) as other:
        owner = Member(patient, answers=False)
        await owner.until(lambda: owner.at_end)
        await together(owner, other, done=lambda: Revoked(600.0) in owner.events)
        await asyncio.wait_for(owner.feed.close(), PATIENCE_S)
        await other.until(lambda: set(other.starts) == ALL)


async def test_no_record_is_lost_while_partitions_move_all_the_time(kafka_service: KafkaService) -> None:
    """Each partition's records come, from what is remembered on, without a gap, whoever has it."""
    # for so long the broker waits for a member that ended before it heard the id that the broker gave it
    settings = kafka_service.with_topics(session_timeout_s=6, delivery_timeout_s=60)
    total = 4_000
    writing = [asyncio.ensure_future(asyncio.to_thread(append, settings, at, numbered(0, total))) for at in ALL]
    frontier = dict.fromkeys(ALL, 0)

    async def live(calls: int) -> None:
        async with member_of(settings) as member:
            for _ in range(calls):
                event = await member.step(wait_s=0.05)
                if isinstance(event, Assigned):
                    assert all(start.next_offset >= frontier[start.partition] for start in event.starts)
                if isinstance(event, Delivered) and event.records:
                    await note(member, event)

    async def note(member: Member, event: Delivered) -> None:
        moved: dict[int, int] = {}
        for record in event.records:
            _, partition, offset = record.position
            assert record.value == b"%d" % offset
            moved[partition] = offset + 1
        for partition in moved:
            offsets = member.offsets(partition)
            start = next(held for held in member.events[::-1] if isinstance(held, Assigned))
            first = next(held.next_offset for held in start.starts if held.partition == partition)
            assert offsets == list(range(first, first + len(offsets)))
        try:
            await member.feed.decided([PartitionOffset(member.log, at, offset) for at, offset in moved.items()])
        except Unavailable:
            return
        for partition, offset in moved.items():
            frontier[partition] = max(frontier[partition], offset)

    async with asyncio.timeout(PATIENCE_S):
        while min(frontier.values()) < total:
            await asyncio.gather(live(40), live(20), live(10))
    await asyncio.gather(*writing)
    assert [committed(settings, partition) for partition in ALL] == [total] * 4


async def test_a_partition_that_is_added_is_read_from_its_beginning(kafka_service: KafkaService) -> None:
    settings = kafka_service.with_topics(partitions=1, identity_max_age_s=0.2)
    append(settings, 0, [b"0"])
    async with member_of(settings) as member:
        await member.until(lambda: member.values == [b"0"])
        await member.decided(0, 1)
        add_partitions(settings, 2)
        append(settings, 1, numbered(0, 5))
        await member.until(lambda: len(member.records) == 5)
        assert (member.starts, member.offsets(1)) == ({0: 1, 1: 0}, [0, 1, 2, 3, 4])


async def test_a_member_with_a_name_comes_back_to_its_partitions(settings: KafkaSettings) -> None:
    names = [settings.model_copy(update={"group_instance_id": name}) for name in ("a", "b")]
    async with member_of(names[0]) as first:
        second = Member(names[1])
        await together(first, second, done=lambda: shared(first, second))
        before, heard = dict(second.starts), len(first.events)
        await second.feed.close()
        async with member_of(names[1]) as again:
            await together(first, again, done=lambda: bool(again.starts))
            assert again.starts == before
            assert len(first.events) == heard  # whose partitions never moved


@pytest.mark.slow
async def test_a_member_that_is_killed_loses_its_partitions_to_the_others(kafka_service: KafkaService) -> None:
    settings = kafka_service.with_topics(session_timeout_s=6)
    for partition in ALL:
        append(settings, partition, numbered(0, 10))
    script = """
        import asyncio, sys
        from tests.kafka.feeding import KafkaSettings, Member

        async def main():
            member = Member(KafkaSettings.model_validate_json(sys.argv[1]))
            await member.until(lambda: len(member.records) == 40)
            for partition in range(4):
                await member.decided(partition, 3)
            print("reading", flush=True)
            await member.until(lambda: False)

        asyncio.run(main())
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        textwrap.dedent(script),
        settings.model_dump_json(),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            while await process.stdout.readline() != b"reading\n":  # its log is there as well
                assert not process.stdout.at_eof()
    finally:
        process.kill()
        await process.wait()
    async with member_of(settings) as member:
        await member.until(lambda: len(member.records) == 28)
        assert [member.offsets(partition) for partition in ALL] == [list(range(3, 10))] * 4
