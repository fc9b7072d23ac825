"""Verdicts and dead letters over a real broker, from the coordinator to the writers."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random

import pytest

from rootline.adapters.kafka.coordinator_log import KafkaVerdictSink
from rootline.adapters.kafka.writer_log import KafkaVerdictSource, KafkaWriterLog
from rootline.adapters.settings import KafkaSettings
from rootline.schemas.bytes.verdict_codec import decode_verdicts, encode_verdicts
from rootline.schemas.errors import Fenced, Unavailable
from rootline.schemas.identifiers import LogId, LogPosition
from rootline.schemas.verdict import as_asked
from tests.kafka.feeding import set_limit
from tests.kafka.reading import dead_letters_on, records_on
from tests.support.decided import letter_on, verdict_on

pytestmark = pytest.mark.services


async def test_a_verdict_reaches_everybody_who_waits_for_it(writer: KafkaWriterLog, verdicts: KafkaVerdictSink) -> None:
    position, other = await writer.publish_many([(b"k", b"1"), (b"k", b"2")])
    waiting = [asyncio.ensure_future(writer.wait_verdict(position, timeout_s=30)) for _ in range(3)]
    await asyncio.sleep(0)

    await verdicts.publish_verdicts([verdict_on(other), verdict_on(position)], [])

    assert await asyncio.gather(*waiting) == [verdict_on(position)] * 3
    assert await writer.wait_verdict(other, timeout_s=0) == verdict_on(other)


async def test_a_thousand_writers_wait_at_once(writer: KafkaWriterLog, verdicts: KafkaVerdictSink) -> None:
    positions = await writer.publish_many([(b"t%d" % (number % 8), b"%d" % number) for number in range(1_000)])
    waiting = [asyncio.ensure_future(writer.wait_verdict(position, timeout_s=30)) for position in positions]

    await verdicts.publish_verdicts([verdict_on(position) for position in reversed(positions)], [])

    assert await asyncio.gather(*waiting) == [verdict_on(position) for position in positions]


async def test_waiting_ends_in_none_when_there_is_no_verdict(writer: KafkaWriterLog) -> None:
    position = await writer.publish(b"k", b"v")

    assert await writer.wait_verdict(position, timeout_s=0) is None
    assert await writer.wait_verdict(position, timeout_s=0.01) is None


async def test_the_first_verdict_of_a_record_stays(writer: KafkaWriterLog, verdicts: KafkaVerdictSink) -> None:
    first, last = await writer.publish_many([(b"k", b"1"), (b"k", b"2")])
    await verdicts.publish_verdicts([verdict_on(first, version=1)], [])
    await verdicts.publish_verdicts([verdict_on(first, version=2)], [])
    await verdicts.publish_verdicts([verdict_on(last)], [])
    assert await writer.wait_verdict(last, timeout_s=30) == verdict_on(last)

    assert await writer.wait_verdict(first, timeout_s=0) == verdict_on(first, version=1)


async def test_a_verdict_from_before_the_start_is_not_waited_for(
    settings: KafkaSettings, verdicts: KafkaVerdictSink
) -> None:
    old = LogPosition(LogId("cluster/topic"), 0, 7)
    await verdicts.publish_verdicts([verdict_on(old)], [])
    source = KafkaVerdictSource(settings)
    await source.start()
    new = LogPosition(old.log, 0, 8)
    await verdicts.publish_verdicts([verdict_on(new)], [])

    assert await source.wait_verdict(new, timeout_s=30) == verdict_on(new)
    assert await source.wait_verdict(old, timeout_s=0) is None
    await source.close()


async def test_a_position_of_another_log_is_refused(writer: KafkaWriterLog) -> None:
    position = await writer.publish(b"k", b"v")

    with pytest.raises(Fenced) as refusal:
        await writer.wait_verdict(position._replace(log=LogId("cluster/another")), timeout_s=0)
    assert refusal.value.code == "log-replaced"


async def test_verdicts_of_a_table_share_records_under_its_key(
    settings: KafkaSettings, verdicts: KafkaVerdictSink
) -> None:
    places = [LogPosition(LogId("cluster/topic"), 3, offset) for offset in range(1_200)]
    decided = [verdict_on(place, table=f"demo.t{place.offset % 2}", message="x" * 500) for place in places]

    await verdicts.publish_verdicts(decided, [])

    held = records_on(settings, settings.verdicts_topic)
    assert {found.key for found in held} == {b"demo.t0", b"demo.t1"}
    assert len({found.partition for found in held if found.key == b"demo.t0"}) == 1
    assert len(held) < 8
    for table in (0, 1):
        told = [one for found in held if found.key == b"demo.t%d" % table for one in decode_verdicts(found.value)]
        assert told == decided[table::2]


async def test_a_record_that_is_no_verdict_and_one_without_headers_harm_nobody(
    settings: KafkaSettings, writer: KafkaWriterLog, verdicts: KafkaVerdictSink
) -> None:
    from confluent_kafka import Producer

    first, second = await writer.publish_many([(b"k", b"1"), (b"k", b"2")])
    producer = Producer({"bootstrap.servers": settings.servers(), "log_level": 0})
    producer.produce(settings.verdicts_topic, b"not Avro", b"k", partition=0)
    producer.produce(settings.verdicts_topic, None, b"k", partition=0)
    producer.produce(settings.verdicts_topic, encode_verdicts([verdict_on(first)]), b"k", partition=0)
    assert producer.flush(30) == 0
    await verdicts.publish_verdicts([verdict_on(second)], [])

    assert await writer.wait_verdict(first, timeout_s=30) == verdict_on(first)
    assert await writer.wait_verdict(second, timeout_s=30) == verdict_on(second)


async def test_who_waits_when_the_log_is_closed_is_told(settings: KafkaSettings) -> None:
    writer = KafkaWriterLog(settings)
    position = await writer.publish(b"k", b"v")
    waiting = asyncio.ensure_future(writer.wait_verdict(position, timeout_s=30))
    await asyncio.sleep(0)
    await writer.close()

    with pytest.raises(Unavailable, match="closed"):
        await waiting


async def test_a_dead_letter_has_the_original_bytes_and_the_headers_that_tools_know(
    settings: KafkaSettings, verdicts: KafkaVerdictSink
) -> None:
    position = LogPosition(LogId("cluster/topic"), 2, 41)
    own = (("traceparent", b"00-4bf9"), ("größe", b"\x00\xff"), ("traceparent", b""), ("empty", None))
    letters = [
        letter_on(position, bytes(range(256)), headers=own),
        letter_on(position._replace(offset=42), b"", key=None),
    ]

    await verdicts.publish_verdicts([], letters)

    found = next(found for found in records_on(settings, settings.dead_letters_topic) if found.value)
    assert (found.key, found.value) == (b"demo.flights", bytes(range(256)))
    assert found.headers == {
        "traceparent": b"",
        "größe": b"\x00\xff",
        "empty": b"",
        "__connect.errors.topic": settings.intents_topic.encode(),
        "__connect.errors.partition": b"2",
        "__connect.errors.offset": b"41",
        "__connect.errors.connector.name": settings.group_id.encode(),
        "__connect.errors.stage": b"VALUE_CONVERTER",
        "__connect.errors.exception.class.name": b"rootline.schemas.errors.Invalid",
        "__connect.errors.exception.message": letters[0].message.encode(),
        "rootline.code": b"undecodable",
        "rootline.intent-id": b"intent-41",
        "rootline.log": b"cluster/topic",
        "rootline.table": b"demo.flights",
        "rootline.headers": b"4",
    }
    assert await dead_letters_on(settings) == letters


async def test_the_largest_intent_fits_into_a_dead_letter_with_a_long_reason(
    settings: KafkaSettings, verdicts: KafkaVerdictSink
) -> None:
    position = LogPosition(LogId("cluster/topic"), 0, 1)
    letter = letter_on(position, bytes(1_048_000)).model_copy(update={"message": "é" * 100_000, "table": "t" * 9_000})

    await verdicts.publish_verdicts([verdict_on(position)], [letter])

    assert len(records_on(settings, settings.dead_letters_topic)[0].value) == 1_048_000


async def test_headers_that_do_not_fit_cost_no_byte_of_the_value(
    settings: KafkaSettings, verdicts: KafkaVerdictSink
) -> None:
    position = LogPosition(LogId("cluster/topic"), 0, 1)
    headers = (("small", b"1"), ("large", bytes(90_000)))
    letter = letter_on(position, bytes(1_048_000), headers=headers).model_copy(update={"message": "é" * 100_000})

    await verdicts.publish_verdicts([verdict_on(position)], [letter])

    (read,) = await dead_letters_on(settings)
    assert (len(read.value), read.headers) == (1_048_000, (("small", b"1"),))
    assert "is without 1 of 2 headers, 90005 bytes, for want of room: large" in read.message


async def test_what_a_writer_compressed_to_fit_is_kept_whole_whatever_its_size(
    settings: KafkaSettings, verdicts: KafkaVerdictSink
) -> None:
    position = LogPosition(LogId("cluster/topic"), 0, 1)
    letters = [letter_on(position, b"{" * 5_000_000), letter_on(position._replace(offset=2), b"small")]

    await verdicts.publish_verdicts([verdict_on(position)], letters)

    assert await dead_letters_on(settings) == letters


async def test_a_letter_is_compressed_as_far_back_as_its_record_was(
    settings: KafkaSettings, verdicts: KafkaVerdictSink
) -> None:
    letter = letter_on(LogPosition(LogId("cluster/topic"), 0, 1), random.randbytes(64_000) * 40)

    await verdicts.publish_verdicts([], [letter])

    assert await dead_letters_on(settings) == [letter]


async def test_of_a_record_that_no_topic_takes_a_digest_is_kept_and_the_others_are_kept_whole(
    settings: KafkaSettings, verdicts: KafkaVerdictSink
) -> None:
    position, value = LogPosition(LogId("cluster/topic"), 0, 1), random.randbytes(1_500_000)
    huge = letter_on(position, value, key=b"k" * 5_000, headers=(("large", bytes(90_000)),))
    small = letter_on(position._replace(offset=2), b"small")

    await verdicts.publish_verdicts([verdict_on(position)], [huge, small])

    left, kept = await dead_letters_on(settings)
    assert kept == small
    assert (left.key, left.value, left.headers) == (None, b"", ())
    assert (left.offset, left.code, left.table) == (1, huge.code, huge.table)
    assert left.message.startswith(huge.message)
    assert f"1500000 bytes, sha256 {hashlib.sha256(value).hexdigest()}" in left.message
    assert len(records_on(settings, settings.verdicts_topic)) == 1


async def test_a_topic_that_accepts_less_than_it_did_gets_every_letter_in_the_form_it_takes(
    settings: KafkaSettings, verdicts: KafkaVerdictSink
) -> None:
    position = LogPosition(LogId("cluster/topic"), 0, 1)
    values = [b"small", bytes(300_000), random.randbytes(300_000)]
    letters = [letter_on(position._replace(offset=offset), value) for offset, value in enumerate(values)]
    await verdicts.publish_verdicts([], [letter_on(position._replace(offset=9), b"the limit is known now")])
    await asyncio.to_thread(set_limit, settings, settings.dead_letters_topic, 100_000)

    await verdicts.publish_verdicts([verdict_on(position)], letters)

    found = {letter.offset: letter.value for letter in await dead_letters_on(settings) if letter.offset < 9}
    assert found == {0: b"small", 1: bytes(300_000), 2: b""}, "some of them perhaps more than once"
    told = records_on(settings, settings.verdicts_topic)
    assert len({record.value for record in told}) == 1, "the verdict too"


async def test_a_writer_that_asks_for_json_gets_its_verdict_in_both_forms(
    writer: KafkaWriterLog, verdicts: KafkaVerdictSink, settings: KafkaSettings
) -> None:
    first, second = await writer.publish_many([(b"k", b"1"), (b"k", b"2")])
    asked = as_asked(verdict_on(first), (("rootline-verdict", b"json"),))

    await verdicts.publish_verdicts([asked, as_asked(verdict_on(second), (("rootline-verdict", b"xml"),))], [])

    assert await writer.wait_verdict(first, timeout_s=30) == verdict_on(first)
    assert await writer.wait_verdict(second, timeout_s=30) == verdict_on(second)
    told = await asyncio.to_thread(records_on, settings, settings.verdicts_topic)
    [answer] = [record for record in told if record.headers.get("content-type") == b"application/json"]
    assert answer.key == verdict_on(first).table.encode()
    assert json.loads(answer.value) == verdict_on(first).model_dump(mode="json", exclude_none=True)
