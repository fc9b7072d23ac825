"""What every embedded intent log does, real or fake."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rootline.adapters.memory import MemoryIntentLog
from rootline.adapters.sqlite.intent_log import SqliteIntentLog
from rootline.ports.intent_log import IntentLog
from rootline.schemas.errors import Fenced
from rootline.schemas.identifiers import LogId, LogPosition
from rootline.schemas.verdict import DeadLetter
from tests.support.decided import verdict_on


@pytest.fixture(params=["memory", "sqlite"])
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[IntentLog]:
    made: IntentLog = MemoryIntentLog() if request.param == "memory" else SqliteIntentLog(tmp_path / ".rootline")
    yield made
    await made.close()


async def test_records_are_read_in_the_order_they_were_published(log: IntentLog) -> None:
    positions = [await log.publish(f"k{number}".encode(), f"v{number}".encode()) for number in range(5)]

    records = await log.read(positions[0].offset, limit=10, wait_s=0)

    assert [record.position for record in records] == positions
    assert [(record.key, record.value) for record in records] == [
        (f"k{n}".encode(), f"v{n}".encode()) for n in range(5)
    ]
    assert all(record.appended_ms > 1_600_000_000_000 for record in records)
    offsets = [position.offset for position in positions]
    assert offsets == list(range(offsets[0], offsets[0] + 5))


async def test_several_records_are_appended_together_and_in_order(log: IntentLog) -> None:
    positions = await log.publish_many([(b"a", b"1"), (b"a", b"2"), (b"b", b"\xc3\x01\x00")])

    records = await log.read(0, limit=10, wait_s=0)

    assert [(record.position, record.value) for record in records] == list(
        zip(positions, [b"1", b"2", b"\xc3\x01\x00"], strict=True)
    )
    assert await log.publish_many([]) == []


async def test_what_is_said_of_a_content_is_a_header_of_its_record(log: IntentLog) -> None:
    await log.publish_many([(b"a", b"1", b"said"), (b"a", b"2", None), (b"a", b"3")])
    records = await log.read(0, limit=10, wait_s=0)
    assert [record.headers for record in records] == [(("rootline.content", b"said"),), (), ()]


async def test_publishers_at_once_lose_nothing(log: IntentLog) -> None:
    positions = await asyncio.gather(*(log.publish(b"k", str(number).encode()) for number in range(300)))

    records = await log.read(0, limit=1_000, wait_s=0)

    assert {record.position: record.value for record in records} == {
        position: str(number).encode() for number, position in enumerate(positions)
    }


async def test_a_read_begins_where_it_is_told_and_stops_at_its_limit(log: IntentLog) -> None:
    positions = await log.publish_many([(b"k", str(number).encode()) for number in range(10)])

    records = await log.read(positions[4].offset, limit=3, wait_s=0)

    assert [record.value for record in records] == [b"4", b"5", b"6"]


async def test_a_read_past_the_end_waits_for_the_next_record(log: IntentLog) -> None:
    waiting = asyncio.ensure_future(log.read(await log.end_offset(), limit=10, wait_s=30))
    await asyncio.sleep(0)

    position = await log.publish(b"k", b"v")

    assert [record.position for record in await waiting] == [position]


async def test_a_read_past_the_end_comes_back_empty_in_the_end(log: IntentLog) -> None:
    await log.publish(b"k", b"v")

    assert await log.read(await log.end_offset(), limit=10, wait_s=0.01) == []
    assert await log.read(await log.end_offset(), limit=10, wait_s=0) == []


async def test_the_end_is_where_the_next_record_goes(log: IntentLog) -> None:
    end = await log.end_offset()
    position = await log.publish(b"k", b"v")

    assert position.offset == end
    assert await log.end_offset() == end + 1


async def test_the_identity_stays_and_is_in_every_position(log: IntentLog) -> None:
    identity = await log.identity()
    position = await log.publish(b"k", b"v")

    assert identity.startswith("embedded/")
    assert (position.log, position.partition) == (identity, 0)
    assert await log.identity() == identity


async def test_a_verdict_reaches_who_waits_for_it(log: IntentLog) -> None:
    position, other = await log.publish_many([(b"k", b"1"), (b"k", b"2")])
    waiting = asyncio.ensure_future(log.wait_verdict(position, timeout_s=30))
    also = asyncio.ensure_future(log.wait_verdict(position, timeout_s=30))
    await asyncio.sleep(0)

    await log.publish_verdicts([verdict_on(other), verdict_on(position)], [])

    assert await waiting == verdict_on(position)
    assert await also == verdict_on(position)
    assert await log.wait_verdict(other, timeout_s=0) == verdict_on(other)


async def test_waiting_for_a_verdict_ends_in_none_when_there_is_none(log: IntentLog) -> None:
    position = await log.publish(b"k", b"v")

    assert await log.wait_verdict(position, timeout_s=0) is None
    assert await log.wait_verdict(position, timeout_s=0.01) is None


async def test_a_wait_that_is_cancelled_leaves_the_others_waiting(log: IntentLog) -> None:
    position = await log.publish(b"k", b"v")
    cancelled = asyncio.ensure_future(log.wait_verdict(position, timeout_s=30))
    waiting = asyncio.ensure_future(log.wait_verdict(position, timeout_s=30))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)

    await log.publish_verdicts([verdict_on(position)], [])

    assert await waiting == verdict_on(position)


async def test_the_first_verdict_of_a_record_stays(log: IntentLog) -> None:
    position = await log.publish(b"k", b"v")
    await log.publish_verdicts([verdict_on(position, version=1)], [])

    await log.publish_verdicts([verdict_on(position, version=1)], [])
    await log.publish_verdicts([verdict_on(position, version=2)], [])

    assert await log.wait_verdict(position, timeout_s=0) == verdict_on(position, version=1)


async def test_the_first_undecided_record_is_the_lowest_one_without_a_verdict(log: IntentLog) -> None:
    assert await log.first_undecided() == await log.end_offset()
    first, second, third = await log.publish_many([(b"k", b"1"), (b"k", b"2"), (b"k", b"3")])
    assert await log.first_undecided() == first.offset

    await log.publish_verdicts([verdict_on(second)], [])
    assert await log.first_undecided() == first.offset

    await log.publish_verdicts([verdict_on(first)], [])
    assert await log.first_undecided() == third.offset

    await log.publish_verdicts([verdict_on(third)], [])
    assert await log.first_undecided() == await log.end_offset()


async def test_positions_of_another_log_are_refused(log: IntentLog) -> None:
    position = await log.publish(b"k", b"v")
    foreign = LogPosition(LogId("embedded/00000000-0000-0000-0000-000000000000"), 0, position.offset)

    with pytest.raises(Fenced) as waiting:
        await log.wait_verdict(foreign, timeout_s=0)
    with pytest.raises(Fenced) as publishing:
        await log.publish_verdicts([verdict_on(position), verdict_on(foreign)], [])

    assert (waiting.value.code, publishing.value.code) == ("log-replaced", "log-replaced")
    assert await log.wait_verdict(position, timeout_s=0) is None


async def test_dead_letters_keep_the_record_whole(log: IntentLog) -> None:
    position = await log.publish(b"key", bytes(range(256)))
    letter = DeadLetter(
        log=position.log,
        partition=0,
        offset=position.offset,
        intent_id="unknown",
        table=None,
        code="undecodable",
        message="neither Avro nor JSON",
        key=b"key",
        value=bytes(range(256)),
        headers=(("traceparent", bytes(range(256))), ("traceparent", b""), ("größe", None)),
    )

    await log.publish_verdicts([], [letter])
    await log.publish_verdicts([], [letter])

    assert isinstance(log, MemoryIntentLog | SqliteIntentLog)
    assert await log.dead_letters(limit=10) == [letter]


async def test_the_newest_dead_letters_are_told_oldest_first(log: IntentLog) -> None:
    positions = [await log.publish(b"k", b"v") for _ in range(5)]
    letters = [
        DeadLetter(
            log=position.log,
            partition=0,
            offset=position.offset,
            intent_id=f"intent-{position.offset}",
            table="demo.flights",
            code="row-conflict",
            message="two updates of one row",
            key=None,
            value=b"v",
        )
        for position in positions
    ]
    await log.publish_verdicts([], letters)

    assert isinstance(log, MemoryIntentLog | SqliteIntentLog)
    assert await log.dead_letters(limit=2) == letters[-2:]


async def test_the_highest_version_that_verdicts_named_is_known_for_each_table(log: IntentLog) -> None:
    first, second, third = await log.publish_many([(b"k", b"1"), (b"k", b"2"), (b"k", b"3")])
    table = verdict_on(first).table
    assert await log.confirmed_version(table) is None

    await log.publish_verdicts([verdict_on(second, version=7), verdict_on(first, version=4)], [])
    assert await log.confirmed_version(table) == 7
    await log.publish_verdicts([verdict_on(third, version=5)], [])
    assert await log.confirmed_version(table) == 7
    assert await log.confirmed_version("another.table") is None
