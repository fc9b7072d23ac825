"""What a log's archive shows to who looks, on SQLite and on a real broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import pytest

from rootline.adapters.kafka.coordinator_log import KafkaVerdictSink
from rootline.adapters.kafka.topic_reader import KafkaLogArchive
from rootline.adapters.kafka.writer_log import KafkaIntentSink
from rootline.adapters.sqlite.intent_log import SqliteIntentLog
from rootline.adapters.sqlite.log_archive import SqliteLogArchive
from rootline.ports.intent_log import IntentSink, LogArchive, VerdictSink
from rootline.schemas.identifiers import LogPosition, LogRecord
from rootline.schemas.verdict import DeadLetter
from tests.support.decided import letter_on, verdict_on


@dataclass(frozen=True)
class Log:
    sink: IntentSink
    verdicts: VerdictSink
    archive: LogArchive

    async def records(self, *, key: bytes | None = None, since_ms: int = 0) -> list[LogRecord]:
        return [
            record
            async for portion in self.archive.records(key=key, since_ms=since_ms)
            for record in portion
            if key in (None, record.key)
        ]

    async def dead_letters(self) -> list[DeadLetter]:
        return [letter async for portion in self.archive.dead_letters() for letter in portion]


@pytest.fixture(params=["sqlite", pytest.param("kafka", marks=pytest.mark.services)])
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Log]:
    if request.param == "sqlite":
        held = SqliteIntentLog(tmp_path)
        archive = SqliteLogArchive(tmp_path)
        yield Log(held, held, archive)
        await archive.close()
        await held.close()
        return
    settings = request.getfixturevalue("kafka_service").with_topics(partitions=2)
    sink, verdicts = KafkaIntentSink(settings), KafkaVerdictSink(settings)
    yield Log(sink, verdicts, KafkaLogArchive(settings))
    await sink.close()
    await verdicts.close()


def letter_of(position: LogPosition) -> DeadLetter:
    return letter_on(position, b"v", headers=(("traceparent", b"1"),))


async def test_an_empty_log_shows_nothing(log: Log) -> None:
    assert await log.records() == []
    assert await log.records(key=b"k", since_ms=1) == []
    assert await log.dead_letters() == []


async def test_records_of_a_key_are_shown_whole_and_newest_first(log: Log) -> None:
    published = [(b"demo.t%d" % (number % 3), b"%d" % number) for number in range(2_500)]
    positions = await log.sink.publish_many(published)

    for key in (b"demo.t0", b"demo.t1", b"demo.t2"):
        expected = [(at, value) for at, (name, value) in zip(positions, published, strict=True) if name == key]
        assert [(record.position, record.value) for record in await log.records(key=key)] == expected[::-1]
    shown = await log.records()
    times = [record.appended_ms for record in shown]
    assert times == sorted(times, reverse=True)
    assert sorted((record.position, record.key, record.value) for record in shown) == sorted(
        (at, *pair) for at, pair in zip(positions, published, strict=True)
    )
    assert all(record.appended_ms > 1_600_000_000_000 for record in shown)


async def test_a_look_may_end_early(log: Log) -> None:
    positions = await log.sink.publish_many([(b"k", b"%d" % number) for number in range(2_500)])

    async with aclosing(log.archive.records(key=b"k")) as portions:
        async for portion in portions:
            assert portion[0].position == positions[-1]
            break


async def test_what_was_appended_before_a_moment_is_left_out(log: Log) -> None:
    await log.sink.publish(b"k", b"old")
    (old,) = await log.records()
    newest = old
    while newest.appended_ms == old.appended_ms:
        await log.sink.publish(b"k", b"new")
        newest = (await log.records(key=b"k"))[0]

    since = await log.records(since_ms=old.appended_ms + 1)
    assert newest in since
    assert old not in since
    assert old in await log.records(since_ms=old.appended_ms)
    assert await log.records(key=b"k", since_ms=newest.appended_ms + 3_600_000) == []


async def test_large_records_come_a_few_at_a_time(log: Log) -> None:
    for number in range(12):
        await log.sink.publish(b"k", bytes([number]) * 900_000)

    sizes = [len(portion) async for portion in log.archive.records(key=b"k")]

    assert sum(sizes) == 12
    assert [record.value[0] for record in await log.records(key=b"k")] == list(range(12))[::-1]


async def test_the_verdict_on_a_record_is_found_among_many(log: Log) -> None:
    positions = await log.sink.publish_many([(b"demo.flights", b"%d" % number) for number in range(600)])
    for start in range(0, 600, 100):
        await log.verdicts.publish_verdicts(
            [verdict_on(at) for at in positions[start : start + 100] if at.offset % 7], []
        )
    records = {record.position: record for record in await log.records()}

    found = next(at for at in positions[450:] if at.offset % 7)
    none = next(at for at in positions[450:] if not at.offset % 7)
    assert await log.archive.verdict_on(records[found]) == verdict_on(found)
    assert await log.archive.verdict_on(records[none]) is None


async def test_the_dead_letter_of_a_record_is_found_among_many(log: Log) -> None:
    positions = await log.sink.publish_many([(b"demo.flights", b"%d" % number) for number in range(50)])
    await log.verdicts.publish_verdicts([], [letter_of(at) for at in positions[10:40]])
    records = {record.position: record for record in await log.records()}

    assert await log.archive.dead_letter_of(records[positions[17]]) == letter_of(positions[17])
    assert await log.archive.dead_letter_of(records[positions[9]]) is None
    assert await log.archive.dead_letter_of(records[positions[40]]) is None
    assert await log.dead_letters() == [letter_of(at) for at in positions[10:40]][::-1]
