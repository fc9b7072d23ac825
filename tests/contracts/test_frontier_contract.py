"""Where a shared log is read when its group has forgotten everything: nothing that is undecided is skipped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rootline.ports.intent_feed import RecordedRejection
from rootline.schemas.errors import Fenced, Unavailable
from rootline.schemas.identifiers import LogPosition
from tests.contracts.feeds import SHARED, LogUnderTest, Reader
from tests.contracts.test_intent_feed_contract import decide, made, numbered, parameters
from tests.support.feed_driver import PATIENCE_S


@pytest.fixture(params=parameters(SHARED))
async def shared(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LogUnderTest]:
    async for log in made(request, tmp_path):
        yield log


async def stopped(reader: Reader, *decided: LogPosition) -> None:
    """It has read everything, these are decided, and it has left."""
    await reader.ended()
    if decided:
        await decide(reader, *decided)
    assert reader.starts is not None
    ends = {at.partition: at._replace(next_offset=at.next_offset) for at in reader.starts.values()}
    ends |= {at.partition: ends[at.partition]._replace(next_offset=at.offset + 1) for at in decided}
    await reader.feed.concluded(list(ends.values()))
    await reader.feed.close()


async def forget(log: LogUnderTest) -> None:
    await asyncio.to_thread(log.expire_offsets)


async def refusal_of(reader: Reader) -> Fenced:
    async def asked_on_and_on() -> None:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                await reader.step()

    with pytest.raises(Fenced) as refusal:
        await asked_on_and_on()
    assert reader.records == []
    return refusal.value


async def test_when_the_groups_offsets_expired_reading_goes_on_where_the_frontier_was(shared: LogUnderTest) -> None:
    positions = await shared.publish(*numbered(0, 10))
    await stopped(shared.reader(), *positions[:6])
    await forget(shared)

    reader = shared.reader()
    await reader.ended()

    assert reader.values == numbered(6, 10)


async def test_when_offsets_and_undecided_records_expired_together_the_log_is_refused(shared: LogUnderTest) -> None:
    positions = await shared.publish(*numbered(0, 3))
    await stopped(shared.reader(), *positions)
    lost = await shared.publish(*numbered(3, 8))
    await asyncio.to_thread(shared.remove_before, lost[0].partition, lost[-1].offset + 1)
    await forget(shared)

    refusal = await refusal_of(shared.reader())

    assert refusal.code == "offset-out-of-range"
    assert f"partition {lost[0].partition} lost offsets {lost[0].offset} to {lost[-1].offset}" in refusal.message


async def test_an_idle_log_whose_decided_records_expired_with_the_offsets_goes_on(shared: LogUnderTest) -> None:
    positions = await shared.publish(*numbered(0, 5))
    await stopped(shared.reader(), *positions)
    await asyncio.to_thread(shared.remove_before, positions[0].partition, positions[-1].offset + 1)
    await forget(shared)
    later = await shared.publish(*numbered(5, 7))

    reader = shared.reader()
    await reader.ended()

    assert reader.values == numbered(5, 7)
    assert reader.starts is not None
    assert reader.starts[later[0].partition].next_offset == later[0].offset


async def test_a_log_of_which_nothing_is_known_and_whose_beginning_is_gone_is_refused(shared: LogUnderTest) -> None:
    positions = await shared.publish(*numbered(0, 5))
    await asyncio.to_thread(shared.remove_before, positions[0].partition, 3)

    refusal = await refusal_of(shared.reader())

    assert refusal.code == "offset-out-of-range"
    assert f"partition {positions[0].partition} begins at 3" in refusal.message


async def test_rejections_that_were_held_are_told_to_the_next_reader_and_the_one_after(shared: LogUnderTest) -> None:
    positions = await shared.publish(*numbered(0, 6))
    first = shared.reader()
    await first.ended()
    answers = [RecordedRejection(at, "table-unknown", f"there is no table {at.offset % 2}") for at in positions[1:5]]
    await first.feed.record_rejections(answers[:2])
    await asyncio.gather(*(first.feed.record_rejections([answer]) for answer in answers[2:]))
    await first.feed.close()

    for _ in range(2):
        reader = shared.reader()
        await reader.assigned()
        assert list(reader.answered) == answers
        await reader.feed.close()


async def test_what_was_held_outlives_the_groups_offsets_and_ends_where_the_frontier_is(shared: LogUnderTest) -> None:
    positions = await shared.publish(*numbered(0, 6))
    first = shared.reader()
    await first.ended()
    answers = [RecordedRejection(at, "table-unknown", "there is no such table") for at in positions]
    await first.feed.record_rejections(answers)
    await stopped(first, *positions[:2])
    await forget(shared)

    reader = shared.reader()
    await reader.assigned()

    assert list(reader.answered) == answers[2:]


async def test_a_partition_without_room_for_more_answers_is_not_read_until_its_frontier_moves(
    shared: LogUnderTest,
) -> None:
    positions = await shared.publish(*numbered(0, 40), keys=8)
    reader = shared.reader()
    await reader.ended()
    place = positions[0][:2]
    own = [at for at in positions if at[:2] == place]
    answers = [
        RecordedRejection(LogPosition(*place, own[-1].offset + number), "undecodable", f"{number:0300}")
        for number in range(1_000)
    ]
    for start in range(0, 600, 100):
        await reader.feed.record_rejections(answers[start : start + 100])
    assert list(reader.feed.paused()) == []
    with pytest.raises(Unavailable, match=f"partition.*{place[1]}"):
        await reader.feed.record_rejections(answers[600:])
    assert list(reader.feed.paused()) == [place]

    below = RecordedRejection(own[-2], "table-unknown", "the offset cannot pass the others without it")
    await reader.feed.record_rejections([below])

    more = await shared.publish(*numbered(40, 80), keys=8)
    others = [at for at in more if at[:2] != place]
    assert 0 < len(others) < len(more)
    await reader.until(lambda: len(reader.records) == len(positions) + len(others))
    await reader.step()
    assert not {at for at in more if at[:2] == place} & {record.position for record in reader.records}

    await decide(reader, *own)
    await reader.until(lambda: len(reader.records) == len(positions) + len(more))
    assert reader.in_order()
    assert list(reader.feed.paused()) == []


async def test_a_reader_whose_partitions_went_to_others_is_told_so_when_it_asks(shared: LogUnderTest) -> None:
    await shared.publish(*numbered(0, 4))
    first = shared.reader()
    await first.ended()
    generation = first.last_assignment.generation
    await asyncio.gather(*(first.feed.confirm(generation) for _ in range(5)))

    second = shared.reader()
    await asyncio.gather(
        first.until(lambda: first.last_assignment.generation != generation),
        second.until(lambda: second.assignment is not None),
    )

    with pytest.raises(Unavailable):
        await first.feed.confirm(generation)
    await first.feed.confirm(first.last_assignment.generation)
