"""Reading again, beside the group."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from rootline.adapters.settings import KafkaSettings
from rootline.ports.intent_feed import Reread
from rootline.schemas.errors import Fenced
from rootline.schemas.identifiers import LogId
from rootline.schemas.parts.log import PartitionOffset
from tests.kafka.feeding import Member, append, member_of, numbered, remove_before

pytestmark = pytest.mark.services


@pytest.fixture
async def member(settings: KafkaSettings) -> AsyncIterator[Member]:
    append(settings, 0, numbered(0, 1_000))
    async with member_of(settings) as made:
        await made.until(lambda: len(made.records) == 1_000)
        yield made


async def reread(member: Member, reader: str, offset: int, limit: int = 300) -> Reread:
    return await member.feed.read_again(reader, PartitionOffset(member.log, 0, offset), limit=limit)


async def test_reads_that_follow_each_other_find_every_record_once(member: Member) -> None:
    found: list[bytes] = []
    position = 5
    while position < 1_000:
        answer = await reread(member, "r", position)
        assert 0 < len(answer.records) <= 300
        assert answer.next_offset == answer.records[-1].position.offset + 1
        found += [record.value for record in answer.records]
        position = answer.next_offset
    assert found == numbered(5, 1_000)
    assert found == member.values[5:]


async def test_a_reader_that_goes_back_or_forth_reads_there(member: Member) -> None:
    for offset in (500, 0, 999, 3, 300, 303):
        answer = await reread(member, "r", offset, limit=1)
        assert [record.position.offset for record in answer.records] == [offset]


async def test_a_reader_may_change_its_partition(settings: KafkaSettings, member: Member) -> None:
    append(settings, 3, [b"other"])
    assert (await reread(member, "r", 10, limit=1)).records[0].value == b"10"
    other = await member.feed.read_again("r", PartitionOffset(member.log, 3, 0), limit=1)
    assert (other.records[0].value, other.records[0].position.partition) == (b"other", 3)
    assert (await reread(member, "r", 11, limit=1)).records[0].value == b"11"


async def test_at_the_end_the_answer_is_empty_and_moves_nothing(settings: KafkaSettings, member: Member) -> None:
    assert await reread(member, "r", 1_000) == Reread((), 1_000)
    append(settings, 0, [b"more"])
    assert [record.value for record in (await reread(member, "r", 1_000)).records] == [b"more"]


async def test_more_readers_than_connections_take_turns(member: Member) -> None:
    async def read_all(reader: str) -> int:
        position = 0
        while position < 1_000:
            position = (await reread(member, reader, position)).next_offset
        return position

    assert await asyncio.gather(*(read_all(f"r{number}") for number in range(9))) == [1_000] * 9


async def test_a_forgotten_reader_may_come_back(member: Member) -> None:
    await reread(member, "r", 0)
    await member.feed.forget_reader("r")
    await member.feed.forget_reader("never there")
    assert (await reread(member, "r", 7, limit=1)).records[0].value == b"7"


async def test_a_read_that_was_cancelled_is_done_again(member: Member) -> None:
    for turns in range(30):
        reading = asyncio.ensure_future(reread(member, "r", 10, limit=1))
        for _ in range(turns):
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait([reading])
    assert (await reread(member, "r", 10, limit=1)).records[0].value == b"10"


async def test_it_neither_moves_the_main_reading_nor_what_is_remembered(
    settings: KafkaSettings, member: Member
) -> None:
    await member.decided(0, 50)
    await reread(member, "r", 0)
    append(settings, 0, [b"more"])
    await member.until(lambda: len(member.records) == 1_001)
    assert member.values[-1] == b"more"


async def test_another_log_is_refused(member: Member) -> None:
    with pytest.raises(Fenced) as refusal:
        await member.feed.read_again("r", PartitionOffset(LogId("cluster/other"), 0, 0), limit=1)
    assert refusal.value.code == "log-replaced"


async def test_what_retention_removed_is_named(settings: KafkaSettings, member: Member) -> None:
    remove_before(settings, 0, 100)
    with pytest.raises(Fenced, match=r"partition 0 lost offsets 40 to 99 \(60\)") as refusal:
        await reread(member, "r", 40)
    assert refusal.value.code == "offset-out-of-range"
    assert (await reread(member, "r", 100, limit=1)).records[0].value == b"100"


async def test_what_the_log_never_had_is_refused(member: Member) -> None:
    with pytest.raises(Fenced) as refusal:
        await reread(member, "r", 1_001)
    assert refusal.value.code == "log-behind-root"
