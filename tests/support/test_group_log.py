"""The group in memory does to its readers what Kafka's does, and fails the test of who does what must never be."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from rootline.ports.intent_feed import Assigned, Delivered, FeedEvent, Revoked
from rootline.schemas.errors import Fenced, Unavailable
from rootline.schemas.identifiers import LogId
from rootline.schemas.parts.log import PartitionOffset
from rootline.testing.virtual_loop import run_virtually
from tests.support.decided import letter_on, verdict_on
from tests.support.group_log import GroupLog
from tests.support.group_member import GroupMember


def virtually(work: Coroutine[Any, Any, None]) -> None:
    run_virtually(work)


async def turning(member: GroupMember) -> FeedEvent:
    """The next event that is not empty."""
    async with asyncio.timeout(10_000.0):
        while True:
            event = await member.next(wait_s=100.0)
            if not isinstance(event, Delivered) or event.records:
                return event


async def assigned(member: GroupMember) -> dict[int, int]:
    """Where it starts, after it has let go of what it had."""
    while not isinstance(event := await turning(member), Assigned):
        if isinstance(event, Revoked):
            await member.released()
    return {partition: offset for _, partition, offset in event.starts}


async def shared_out(log: GroupLog, *members: GroupMember) -> list[list[int]]:
    """What each has, once everybody has its share."""
    shares: dict[str, list[int]] = {}

    def is_done() -> bool:
        given = sorted(partition for own in shares.values() for partition in own)
        return given == list(range(log.partitions)) and len(shares) == len(members)

    async def drive(member: GroupMember) -> None:
        while not is_done():
            match await member.next(wait_s=0.01):
                case Assigned(starts):
                    shares[member.reader] = [start.partition for start in starts]
                case Revoked():
                    shares.clear()
                    await member.released()

    await asyncio.gather(*(drive(member) for member in members))
    return [shares[member.reader] for member in members]


def up_to(log: GroupLog, partition: int, offset: int) -> list[PartitionOffset]:
    return [PartitionOffset(log.log_id, partition, offset)]


def test_records_of_a_key_share_a_partition_and_those_without_go_round() -> None:
    async def main() -> None:
        log = GroupLog(4)
        keyed = [await log.publish(b"k%d" % (number % 3), b"v") for number in range(30)]
        assert [position.partition for position in keyed] == [log.partition_of(b"k%d" % (n % 3)) for n in range(30)]
        keyless = [await log.publish(None, b"v") for _ in range(4)]
        assert {position.partition for position in keyless} == {0, 1, 2, 3}

    virtually(main())


def test_a_reader_that_does_not_let_go_in_time_is_thrown_out_and_may_come_back() -> None:
    async def main() -> None:
        log = GroupLog(2, rebalance_timeout_s=30.0)
        slow, quick = log.member("slow"), log.member("quick")
        assert await assigned(slow) == {0: 0, 1: 0}
        joining = asyncio.ensure_future(assigned(quick))
        assert await turning(slow) == Revoked(30.0)
        assert await joining == {0: 0, 1: 0}, "all of them, after the deadline"
        assert asyncio.get_running_loop().time() == pytest.approx(30.0)
        await slow.released()
        assert await turning(quick) == Revoked(30.0), "it has come back"
        await quick.released()
        assert sorted([*await assigned(slow), *await assigned(quick)]) == [0, 1]

    virtually(main())


def test_a_reader_that_was_thrown_out_without_hearing_of_it_is_told_to_let_go_when_it_asks() -> None:
    async def main() -> None:
        log = GroupLog(2, rebalance_timeout_s=30.0, session_timeout_s=10.0)
        zombie, heir = log.member("zombie"), log.member("heir")
        position = log.append(b"k", b"v", partition=0)
        await assigned(zombie)
        log.pause("zombie")
        assert await assigned(heir) == {0: 0, 1: 0}
        assert asyncio.get_running_loop().time() == pytest.approx(10.0), "a session is shorter than a rebalance"
        await zombie.publish_verdicts([verdict_on(position)], [])
        log.resume("zombie")
        with pytest.raises(Unavailable, match="not this reader's"):
            await zombie.decided(up_to(log, 0, 1))
        assert log.remembered(0) is None
        assert isinstance(await turning(zombie), Revoked)
        await zombie.released()
        assert isinstance(await turning(heir), Revoked)
        await heir.released()
        assert len(await assigned(zombie)) == 1

    virtually(main())


def test_a_pause_shorter_than_a_session_changes_nothing() -> None:
    async def main() -> None:
        log = GroupLog(2, session_timeout_s=10.0)
        member = log.member("a")
        await assigned(member)
        log.pause("a")
        calling = asyncio.ensure_future(member.next(wait_s=1.0))
        await asyncio.sleep(9.0)
        assert not calling.done(), "nothing is heard meanwhile"
        log.resume("a")
        assert await calling == Delivered((), at_end=True)
        await asyncio.sleep(100.0)
        assert log.owns("a") == [0, 1]

    virtually(main())


def test_a_process_that_crashed_keeps_its_seat_for_a_session_even_if_it_is_started_again() -> None:
    async def main() -> None:
        log = GroupLog(1, session_timeout_s=10.0)
        first = log.member("a")
        await assigned(first)
        log.crash("a")
        await first.close()
        assert await assigned(log.member("a")) == {0: 0}
        assert asyncio.get_running_loop().time() == pytest.approx(10.0)

    virtually(main())


def test_who_leaves_is_not_waited_for() -> None:
    async def main() -> None:
        log = GroupLog(1)
        first, second = log.member("a"), log.member("b")
        await assigned(first)
        await first.close()
        assert await assigned(second) == {0: 0}
        assert asyncio.get_running_loop().time() == 0.0

    virtually(main())


def test_what_is_given_while_the_next_rebalance_begins_is_let_go_of_unseen() -> None:
    async def main() -> None:
        log = GroupLog(4, rebalance_timeout_s=30.0)
        members = [log.member(name) for name in "ab"]
        await shared_out(log, *members)
        log.rebalance()
        for member in members:
            assert isinstance(await turning(member), Revoked)
            await member.released()
        log.rebalance()
        await shared_out(log, *members)
        assert asyncio.get_running_loop().time() < 1.0, "nobody was thrown out"

    virtually(main())


def test_every_rebalance_gives_a_partition_to_somebody_else() -> None:
    async def main() -> None:
        log = GroupLog(3)
        members = [log.member(name) for name in "abc"]
        before = await shared_out(log, *members)
        for _ in range(5):
            log.rebalance()
            after = await shared_out(log, *members)
            assert all(not set(old) & set(new) for old, new in zip(before, after, strict=True))
            assert log.owners() == {own[0]: member.reader for own, member in zip(after, members, strict=True)}
            before = after

    virtually(main())


def test_nothing_is_remembered_past_a_record_without_a_verdict_or_its_dead_letter() -> None:
    async def main() -> None:
        log = GroupLog(1)
        member = log.member("a")
        first, second, third = (log.append(b"k", b"v") for _ in range(3))
        await assigned(member)
        await member.publish_verdicts([verdict_on(first), verdict_on(third)], [])
        await member.decided(up_to(log, 0, 1))
        for offset in (2, 3):
            with pytest.raises(AssertionError, match="no acknowledged verdict"):
                await member.decided(up_to(log, 0, offset))
        await member.publish_verdicts([verdict_on(second, message="no")], [])
        with pytest.raises(AssertionError, match="no acknowledged verdict"):
            await member.decided(up_to(log, 0, 3))
        await member.publish_verdicts([], [letter_on(second, b"v")])
        await member.decided(up_to(log, 0, 3))
        with pytest.raises(AssertionError, match="ends at 3"):
            await member.decided(up_to(log, 0, 4))
        assert log.remembered(0) == 3
        assert len(log.violations) == 4

    virtually(main())


def test_a_record_never_gets_another_verdict() -> None:
    async def main() -> None:
        log = GroupLog(1)
        member, other = log.member("a"), log.member("b")
        position = log.append(b"k", b"v")
        await member.publish_verdicts([verdict_on(position, version=3)], [])
        await other.publish_verdicts([verdict_on(position, version=3)], [])
        with pytest.raises(AssertionError, match="two verdicts"):
            await other.publish_verdicts([verdict_on(position, version=4)], [])
        assert await log.wait_verdict(position, timeout_s=0) == verdict_on(position, version=3)

    virtually(main())


def test_verdicts_may_arrive_without_their_dead_letters_or_without_being_acknowledged() -> None:
    async def main() -> None:
        failing = ["letters"]

        async def fail(operation: str, reader: str) -> None:
            if operation in failing:
                raise Unavailable("log-unavailable", "the broker restarts")

        log = GroupLog(1, before=fail, after=fail)
        member, position = log.member("a"), log.append(b"k", b"v")
        for failing[0] in ("letters", "verdicts"):
            with pytest.raises(Unavailable):
                await member.publish_verdicts([verdict_on(position, message="no")], [letter_on(position, b"v")])
        failing.clear()
        assert log.undecided() == [position]
        await member.publish_verdicts([verdict_on(position, message="no")], [letter_on(position, b"v")])
        assert log.undecided() == []

    virtually(main())


def test_offsets_without_a_record_are_passed_over() -> None:
    async def main() -> None:
        log = GroupLog(1, read_max=2)
        member = log.member("a")
        log.skip(0, 2)
        log.append(b"k", b"1")
        log.skip(0, 3)
        log.append(b"k", b"2")
        log.append(b"k", b"3")
        log.skip(0)
        await assigned(member)
        found: list[int] = []
        while not found or found[-1] != 7:
            event = await turning(member)
            assert isinstance(event, Delivered)
            found += [record.position.offset for record in event.records]
        assert found == [2, 6, 7]
        assert await member.next(wait_s=100.0) == Delivered((), at_end=True)
        assert await member.lag() == {(log.log_id, 0): 0}
        again = await member.read_again("r", up_to(log, 0, 3)[0], limit=10)
        assert ([record.position.offset for record in again.records], again.next_offset) == ([6, 7], 8)

    virtually(main())


def test_what_retention_took_before_it_was_decided_is_said_and_not_passed() -> None:
    async def main() -> None:
        log = GroupLog(1, read_max=4)
        for _ in range(20):
            log.append(b"k", b"v")
        member = log.member("a")
        await assigned(member)
        await turning(member)
        log.truncate_before(0, 10)
        with pytest.raises(Fenced) as main_reading:
            await turning(member)
        with pytest.raises(Fenced) as reading_again:
            await member.read_again("r", up_to(log, 0, 4)[0], limit=1)
        heir = log.member("b")
        await member.close()
        assert {main_reading.value.code, reading_again.value.code} == {"offset-out-of-range"}
        log.accept()
        assert await assigned(heir) == {0: 10}

    virtually(main())


def test_a_log_that_was_made_anew_is_not_read_until_an_operator_has_accepted_it() -> None:
    async def main() -> None:
        log = GroupLog(1)
        old, position = log.log_id, log.append(b"k", b"v")
        member = log.member("a")
        await assigned(member)
        await turning(member)
        log.recreate()
        assert log.log_id != old
        for reader in (member, log.member("b")):
            with pytest.raises(Fenced) as reading:
                await turning(reader)
            assert reading.value.code == "log-replaced"
            await reader.close()
        with pytest.raises(Fenced):
            await member.publish_verdicts([verdict_on(position)], [])
        assert await member.end_offset(old, 0) is None
        assert await member.end_offset(LogId(log.log_id), 0) == 0
        log.accept()
        assert await assigned(log.member("c")) == {0: 0}

    virtually(main())


def test_a_log_that_was_restored_from_a_backup_is_not_read() -> None:
    async def main() -> None:
        log = GroupLog(1)
        positions = [log.append(b"k", b"v") for _ in range(5)]
        member = log.member("a")
        await assigned(member)
        await member.publish_verdicts([verdict_on(position) for position in positions], [])
        await member.decided(up_to(log, 0, 5))
        await member.close()
        log.cut_after(0, 3)
        with pytest.raises(Fenced) as reading:
            await turning(log.member("b"))
        assert reading.value.code == "log-behind-root"

    virtually(main())


def test_another_partition_makes_everybody_let_go_and_somebody_has_it() -> None:
    async def main() -> None:
        log = GroupLog(2)
        members = [log.member(name) for name in "ab"]
        await shared_out(log, *members)
        assert log.add_partition() == 2
        assert sorted(map(len, await shared_out(log, *members))) == [1, 2]

    virtually(main())
