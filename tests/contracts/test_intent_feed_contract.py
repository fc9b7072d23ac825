"""What every feed of a coordinator does, whatever log is behind it, and what those do that several share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from rootline.ports.intent_feed import Assigned, Delivered, Revoked
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import LogId, LogPosition
from rootline.schemas.parts.log import PartitionOffset
from tests.contracts.feeds import DURABLE, LOGS, SHARED, LogUnderTest, Maker, Reader
from tests.support.decided import verdict_on
from tests.support.feed_driver import together


def parameters(makers: dict[str, Maker]) -> list[object]:
    return [pytest.param(name, marks=pytest.mark.services if name == "kafka" else ()) for name in makers]


async def made(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[LogUnderTest]:
    async with AsyncExitStack() as stack:
        log = LOGS[request.param](request, folder, stack)
        stack.push_async_callback(log.close)
        yield log


@pytest.fixture(params=parameters(LOGS))
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LogUnderTest]:
    async for log in made(request, tmp_path):
        yield log


@pytest.fixture(params=parameters(DURABLE))
async def durable(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LogUnderTest]:
    async for log in made(request, tmp_path):
        yield log


@pytest.fixture(params=parameters(SHARED))
async def shared(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LogUnderTest]:
    async for log in made(request, tmp_path):
        yield log


def numbered(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


async def decide(reader: Reader, *positions: LogPosition) -> None:
    """Verdicts on these, and everything before and with them is remembered."""
    await reader.feed.publish_verdicts([verdict_on(position) for position in positions], [])
    ends: dict[tuple[LogId, int], int] = {}
    for log, partition, offset in positions:
        ends[log, partition] = max(ends.get((log, partition), 0), offset + 1)
    await reader.feed.decided([PartitionOffset(*place, offset) for place, offset in ends.items()])


async def test_the_assignment_comes_first_and_starts_with_the_first_record(log: LogUnderTest) -> None:
    positions = await log.publish(*numbered(0, 5))
    reader = log.reader()

    await reader.until(lambda: len(reader.records) == 5)

    assert reader.kinds == [Assigned]
    assert reader.starts is not None
    assert reader.starts[positions[0].partition] == PartitionOffset(*positions[0])
    assert [record.position for record in reader.records] == positions
    assert reader.values == numbered(0, 5)


async def test_records_of_each_partition_come_in_order_each_once(log: LogUnderTest) -> None:
    positions = await log.publish(*numbered(0, 3_000), keys=17)
    reader = log.reader()
    await reader.until(lambda: len(reader.records) >= 3_000)
    positions += await log.publish(*numbered(3_000, 3_100), keys=17)
    await reader.until(lambda: len(reader.records) >= 3_100)

    assert reader.in_order()
    assert {record.position for record in reader.records} == set(positions)


async def test_an_empty_log_is_at_its_end_at_once(log: LogUnderTest) -> None:
    reader = log.reader()
    await reader.assigned()

    assert await reader.feed.next(wait_s=60.0) == Delivered((), at_end=True)
    assert await reader.feed.next(wait_s=0.0) == Delivered((), at_end=True)


async def test_the_end_is_not_told_before_all_that_was_there_has_come(log: LogUnderTest) -> None:
    await log.publish(*numbered(0, 3_000), keys=5)
    reader = log.reader()
    await reader.assigned()
    while len(reader.records) < 3_000:
        await reader.step()
        assert len(reader.records) == 3_000 or not reader.at_end
    await reader.until(lambda: reader.at_end)


async def test_while_held_nothing_comes_and_afterwards_nothing_is_missing(log: LogUnderTest) -> None:
    reader = log.reader()
    await reader.assigned()
    for number in range(5):
        await log.publish(*numbered(10 * number, 10 * number + 10))
        for _ in range(2):
            assert await reader.feed.next(wait_s=0.01, deliver=False) == Delivered((), at_end=False)
    await reader.until(lambda: len(reader.records) == 50)

    assert reader.values == numbered(0, 50)


async def test_calls_that_are_cancelled_lose_nothing(log: LogUnderTest) -> None:
    reader = log.reader()
    await reader.ended()
    for number in range(40):
        calling = asyncio.ensure_future(reader.feed.next(wait_s=5.0))
        for _ in range(number % 4):
            await asyncio.sleep(0)
        await log.publish(b"%d" % number)
        for _ in range(number % 3):
            await asyncio.sleep(0)
        calling.cancel()
        await asyncio.wait([calling])
        if not calling.cancelled() and isinstance(event := calling.result(), Delivered):
            reader.records += event.records
    await reader.until(lambda: len(reader.records) >= 40)

    assert reader.values == numbered(0, 40)


async def test_who_reads_next_starts_with_the_first_undecided_record(log: LogUnderTest) -> None:
    positions = await log.publish(*numbered(0, 10))
    first = log.reader()
    await first.until(lambda: len(first.records) == 10)
    await decide(first, *positions[:4])
    await first.feed.close()

    second = log.reader()
    await second.until(lambda: len(second.records) == 6)

    assert second.values == numbered(4, 10)


async def test_what_was_not_decided_is_read_again_by_the_next(log: LogUnderTest) -> None:
    await log.publish(*numbered(0, 10))
    first = log.reader()
    await first.until(lambda: len(first.records) == 10)
    await first.feed.close()

    second = log.reader()
    await second.until(lambda: len(second.records) == 10)

    assert second.values == numbered(0, 10)


async def test_what_is_remembered_never_goes_back(log: LogUnderTest) -> None:
    positions = await log.publish(*numbered(0, 10))
    first = log.reader()
    await first.until(lambda: len(first.records) == 10)
    await decide(first, *positions[:6])
    await first.feed.decided([PartitionOffset(*positions[3])])
    await first.feed.close()

    second = log.reader()
    await second.until(lambda: len(second.records) == 4)

    assert second.values == numbered(6, 10)


async def test_records_are_read_again_from_anywhere_beside_the_main_reading(log: LogUnderTest) -> None:
    positions = await log.publish(*numbered(0, 20))
    reader = log.reader()
    await reader.until(lambda: len(reader.records) == 20)
    start = PartitionOffset(*positions[5])

    some = await reader.feed.read_again("somebody", start, limit=4)
    more = await reader.feed.read_again("somebody", start._replace(next_offset=some.next_offset), limit=100)
    rest = await reader.feed.read_again("somebody", start._replace(next_offset=more.next_offset), limit=100)
    await reader.feed.forget_reader("somebody")

    assert [record.value for record in some.records] == numbered(5, 9)
    assert [record.value for record in more.records] == numbered(9, 20)
    assert rest.records == ()
    assert rest.next_offset == more.next_offset == positions[-1].offset + 1
    assert [record.position for record in some.records] == positions[5:9]
    await log.publish(b"20")
    await reader.until(lambda: len(reader.records) == 21)
    assert reader.values == numbered(0, 21)


async def test_readers_that_read_again_at_once_do_not_disturb_each_other(log: LogUnderTest) -> None:
    positions = await log.publish(*numbered(0, 300))
    reader = log.reader()
    await reader.assigned()

    async def read_all(name: str, position: LogPosition) -> list[bytes]:
        found: list[bytes] = []
        while position.offset <= positions[-1].offset:
            again = await reader.feed.read_again(name, PartitionOffset(*position), limit=70)
            found += [record.value for record in again.records]
            position = position._replace(offset=again.next_offset)
        await reader.feed.forget_reader(name)
        return found

    found = await asyncio.gather(*(read_all(f"reader-{n}", positions[40 * n]) for n in range(7)))

    assert found == [numbered(40 * n, 300) for n in range(7)]


async def test_the_end_is_told_of_this_log_and_no_other(log: LogUnderTest) -> None:
    positions = await log.publish(*numbered(0, 7))
    reader = log.reader()
    await reader.assigned()

    assert await reader.feed.end_offset(reader.log, positions[0].partition) == positions[-1].offset + 1
    assert await reader.feed.end_offset(LogId("another/log"), positions[0].partition) is None
    newer = await log.publish(b"one more")
    assert await reader.feed.end_offset(reader.log, newer[0].partition) == newer[0].offset + 1, "not what it once was"


async def test_the_lag_is_what_was_not_handed_out(log: LogUnderTest) -> None:
    positions = await log.publish(*numbered(0, 7))
    reader = log.reader()
    assert sum((await reader.feed.lag()).values()) == 0, "nothing is known before the assignment"
    await reader.assigned()

    before = await reader.feed.lag()
    await reader.until(lambda: len(reader.records) == 7)
    after = await reader.feed.lag()

    assert reader.starts is not None
    assert before == {(reader.log, place): 7 if place == positions[0].partition else 0 for place in reader.starts}
    assert set(after.values()) == {0}


async def test_a_verdict_reaches_the_writer_who_waits_for_it(log: LogUnderTest) -> None:
    position, other = await log.publish(b"1", b"2")
    reader = log.reader()
    await reader.until(lambda: len(reader.records) == 2)
    waiting = asyncio.ensure_future(log.writers.wait_verdict(position, timeout_s=30))
    await asyncio.sleep(0)

    await reader.feed.publish_verdicts([verdict_on(position), verdict_on(other)], [])

    assert await waiting == verdict_on(position)


# logs that outlive who reads them


async def test_who_follows_a_reader_that_ended_without_a_word_is_told_what_it_may_have_had(
    durable: LogUnderTest,
) -> None:
    positions = await durable.publish(*numbered(0, 10))
    first = durable.reader()
    await first.until(lambda: len(first.records) == 10)
    assert first.poison_candidates == (), "nobody read before"
    await decide(first, *positions[:4])
    await first.feed.close()

    second = durable.reader()
    await second.assigned()

    assert second.poison_candidates == (PartitionOffset(*positions[-1])._replace(next_offset=positions[-1].offset + 1),)


async def test_who_follows_a_reader_that_ended_in_good_order_need_not_be_wary(durable: LogUnderTest) -> None:
    positions = await durable.publish(*numbered(0, 10))
    first = durable.reader()
    await first.until(lambda: len(first.records) == 10)
    assert first.starts is not None
    await decide(first, *positions[:4])
    place = positions[0].partition
    ends = {**first.starts, place: PartitionOffset(*positions[4])}
    await first.feed.concluded(list(ends.values()))
    await first.feed.close()

    second = durable.reader()
    await second.until(lambda: len(second.records) == 6)

    assert second.poison_candidates == ()
    assert second.values == numbered(4, 10)


# logs that several coordinators share


async def test_several_readers_read_every_record_between_them(shared: LogUnderTest) -> None:
    readers = [shared.reader() for _ in range(2)]
    await together(*readers, done=lambda: all(reader.starts and len(reader.starts) == 2 for reader in readers))
    positions = await shared.publish(*numbered(0, 500), keys=40)

    await together(*readers, done=lambda: sum(len(reader.records) for reader in readers) >= 500)

    assert sorted(place for reader in readers for place in reader.starts or ()) == [0, 1, 2, 3]
    assert all(reader.in_order() for reader in readers)
    assert sorted(record.position for reader in readers for record in reader.records) == sorted(positions)


async def test_who_joins_gets_nothing_before_the_others_have_let_go(shared: LogUnderTest) -> None:
    positions = await shared.publish(*numbered(0, 10))
    first, second = shared.reader(answers=False), shared.reader()
    await first.until(lambda: len(first.records) == 10)

    await together(first, second, done=lambda: Revoked in first.kinds)
    for _ in range(3):
        await second.step(wait_s=0.01)
    assert second.starts is None
    await decide(first, *positions[:7])
    await first.feed.released()
    first.answers = True
    await together(first, second, done=lambda: bool(first.starts and second.starts))

    owner = first if positions[0].partition in (first.starts or ()) else second
    await together(first, second, done=lambda: len(owner.records) >= 3)
    assert owner.values == numbered(7, 10), "what was decided while it let go counts"


async def test_who_has_no_room_for_records_hears_of_a_rebalance_all_the_same(shared: LogUnderTest) -> None:
    positions = await shared.publish(*numbered(0, 10))
    first, second = shared.reader(), shared.reader()
    await first.assigned()

    async def hold() -> None:
        while not (first.starts and Revoked in first.kinds and second.starts):
            await first.step(deliver=False)
            assert first.records == []

    holding = asyncio.ensure_future(hold())
    await together(second, done=holding.done)
    await holding
    await together(first, second, done=lambda: len(first.records) + len(second.records) >= 10)

    owner = first if positions[0].partition in (first.starts or ()) else second
    assert owner.values == numbered(0, 10)


async def test_what_is_decided_of_partitions_that_went_is_not_remembered(shared: LogUnderTest) -> None:
    positions = await shared.publish(*numbered(0, 10))
    first, second = shared.reader(), shared.reader()
    await first.until(lambda: len(first.records) == 10)
    # whoever has the partition afterwards, the other one must not speak for it
    await together(first, second, done=lambda: bool(first.starts and second.starts))
    place = positions[0].partition
    other, owner = (first, second) if place in (second.starts or ()) else (second, first)

    await other.feed.publish_verdicts([verdict_on(position) for position in positions], [])
    with pytest.raises(Unavailable, match="log-unavailable"):
        await other.feed.decided([PartitionOffset(*positions[-1])])
    for reader in (owner, other):
        await reader.feed.close()

    third = shared.reader()
    await third.until(lambda: len(third.records) == 10)
    assert third.values == numbered(0, 10)


async def test_who_leaves_hands_over_and_more_readers_than_partitions_get_nothing(shared: LogUnderTest) -> None:
    readers = [shared.reader() for _ in range(5)]

    def each_has(*shares: int) -> bool:
        found = sorted(len(reader.starts) for reader in readers if reader.starts is not None)
        return found == list(shares)

    await together(*readers, done=lambda: each_has(0, 1, 1, 1, 1))
    left = [reader for reader in readers if reader.starts][:3]
    for reader in left:
        await reader.feed.close()
        readers.remove(reader)
    await together(*readers, done=lambda: each_has(2, 2))
    positions = await shared.publish(*numbered(0, 50), keys=20)
    await together(*readers, done=lambda: sum(len(reader.records) for reader in readers) >= 50)

    assert sorted(record.position for reader in readers for record in reader.records) == sorted(positions)
