"""Publishing intents on a real broker."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from rootline.adapters.kafka.topics import create_topics, topic_identity
from rootline.adapters.kafka.writer_log import KafkaIntentSink
from rootline.adapters.settings import KafkaSettings
from rootline.schemas.errors import Invalid, Unavailable
from rootline.schemas.identifiers import oldest_file_of
from tests.kafka.feeding import set_limit
from tests.kafka.reading import records_on
from tests.services.kafka_service import KafkaService
from tests.services.service_process import HOST, free_port

pytestmark = pytest.mark.services


async def test_a_published_record_is_on_the_log_at_the_position_that_was_told(
    sink: KafkaIntentSink, settings: KafkaSettings
) -> None:
    position = await sink.publish(b"demo.flights", b"\xc3\x01value")

    (found,) = records_on(settings, settings.intents_topic)
    assert (found.partition, found.offset) == (position.partition, position.offset)
    assert (found.key, found.value) == (b"demo.flights", b"\xc3\x01value")
    assert position.log == topic_identity(settings, settings.intents_topic).log


async def test_what_a_writer_says_of_its_files_is_a_header_beside_that_of_json(
    sink: KafkaIntentSink, settings: KafkaSettings
) -> None:
    await sink.publish(b"demo.flights", b"\xc3\x01value", oldest_file_ms=17)
    await sink.publish(b"demo.flights", b"{}", oldest_file_ms=18)
    await sink.publish(b"demo.flights", b"{}")

    held = [tuple(found.headers.items()) for found in records_on(settings, settings.intents_topic)]
    assert [oldest_file_of(headers) for headers in held] == [17, 18, None]
    assert [len(headers) for headers in held] == [1, 2, 1]


async def test_records_of_one_key_keep_their_order_and_nothing_is_lost_among_many_publishers(
    sink: KafkaIntentSink, settings: KafkaSettings
) -> None:
    async def write(key: bytes) -> None:
        for number in range(20):
            await sink.publish(key, b"%s %d" % (key, number))

    await asyncio.gather(*(write(b"table-%d" % number) for number in range(20)))

    held = records_on(settings, settings.intents_topic)
    assert len(held) == 400
    for number in range(20):
        key = b"table-%d" % number
        assert [found.value for found in held if found.key == key] == [b"%s %d" % (key, n) for n in range(20)]


async def test_what_is_said_of_a_content_is_a_header_beside_the_one_that_names_json(
    sink: KafkaIntentSink, settings: KafkaSettings
) -> None:
    await sink.publish_many([(b"k", b"{}", b"said"), (b"k", b"\xc3\x01value", b"said"), (b"k", b"\xc3\x01value", None)])
    headers = [dict(found.headers) for found in records_on(settings, settings.intents_topic)]
    assert headers == [
        {"content-type": b"application/json", "rootline.content": b"said"},
        {"rootline.content": b"said"},
        {},
    ]


async def test_several_records_are_appended_together_each_key_in_order(
    sink: KafkaIntentSink, settings: KafkaSettings
) -> None:
    records = [(b"k%d" % (number % 3), b"%d" % number) for number in range(300)]

    positions = await sink.publish_many(records)

    held = {
        (found.partition, found.offset): (found.key, found.value)
        for found in records_on(settings, settings.intents_topic)
    }
    assert [held[position.partition, position.offset] for position in positions] == records
    for key in (b"k0", b"k1", b"k2"):
        offsets = [place.offset for place, record in zip(positions, records, strict=True) if record[0] == key]
        assert offsets == sorted(offsets)
    assert await sink.publish_many([]) == []


async def test_every_client_puts_a_key_into_the_same_partition(sink: KafkaIntentSink, settings: KafkaSettings) -> None:
    keys = [f"namespace{number}.tablé{number * 7919}".encode() for number in range(200)]
    ours = {key: (await sink.publish(key, b"ours")).partition for key in keys}
    theirs: dict[bytes, int] = {}
    producer = Producer(
        {"bootstrap.servers": settings.servers(), "partitioner": "murmur2_random", "log_level": 0, "linger.ms": 5}
    )
    for key in keys:
        producer.produce(
            settings.intents_topic,
            b"theirs",
            key,
            on_delivery=lambda _, message: theirs.__setitem__(message.key(), message.partition()),
        )
    assert producer.flush(30) == 0

    assert theirs == ours
    assert set(ours.values()) == {0, 1, 2, 3}


async def test_an_intent_over_the_limit_is_refused_and_the_next_one_goes_through(
    sink: KafkaIntentSink, settings: KafkaSettings
) -> None:
    with pytest.raises(Invalid, match="1000006 bytes") as refusal:
        await sink.publish_many([(b"k", b"small"), (b"table", bytes(1_000_001))])

    assert refusal.value.code == "intent-too-large"
    largest = await sink.publish(b"table", bytes(999_995))
    assert len(records_on(settings, settings.intents_topic)) == 1
    assert largest.offset == 0


async def test_a_limit_that_was_lowered_refuses_what_is_over_it_and_harms_nothing_else(
    sink: KafkaIntentSink, settings: KafkaSettings
) -> None:
    await sink.publish(b"k", b"before")
    set_limit(settings, settings.intents_topic, 20_000)

    with pytest.raises(Invalid) as refusal:
        await sink.publish(b"k", bytes(30_000))
    positions = [await sink.publish(b"k", b"after %d" % number) for number in range(3)]

    assert refusal.value.code == "intent-too-large"
    assert [position.offset for position in positions] == [1, 2, 3]


async def test_a_topic_made_anew_is_another_log(kafka_service: KafkaService) -> None:
    settings = kafka_service.with_topics(partitions=1, identity_max_age_s=3_600, delivery_timeout_s=20)
    sink = KafkaIntentSink(settings)
    try:
        before = [await sink.publish(b"k", b"%d" % number) for number in range(3)]
        admin = AdminClient({"bootstrap.servers": settings.servers(), "log_level": 0})
        admin.delete_topics([settings.intents_topic])[settings.intents_topic].result(60)
        create_topics(settings, partitions=1, replication_factor=1)

        after = await sink.publish(b"k", b"new")
    finally:
        await sink.close()

    assert after.offset == 0
    assert after.log == topic_identity(settings, settings.intents_topic).log
    assert after.log != before[0].log


async def test_without_a_broker_nothing_was_appended_and_that_is_what_is_said() -> None:
    settings = KafkaSettings(bootstrap_servers=f"{HOST}:{free_port()}", request_timeout_s=0.5, delivery_timeout_s=1)
    sink = KafkaIntentSink(settings)
    with pytest.raises(Unavailable) as failure:
        await sink.publish(b"k", b"v")
    await sink.close()

    assert failure.value.code == "log-unavailable"
    assert settings.servers() in failure.value.message


async def test_a_topic_that_does_not_exist_is_named_and_not_made(kafka_service: KafkaService) -> None:
    settings = kafka_service.settings()
    sink = KafkaIntentSink(settings)
    for _ in range(2):
        with pytest.raises(
            Unavailable, match=f"no topic {settings.intents_topic}: create it with `rootline topics create`"
        ):
            await sink.publish(b"k", b"v")
    await sink.close()


async def test_a_closed_sink_refuses(sink: KafkaIntentSink) -> None:
    await sink.publish(b"k", b"v")
    await sink.close()

    with pytest.raises(Unavailable, match="closed"):
        await sink.publish(b"k", b"v")


async def test_json_is_named_as_such_and_its_name_counts_towards_the_limit(
    sink: KafkaIntentSink, settings: KafkaSettings
) -> None:
    await sink.publish_many([(b"k", b' {"kind": "append"}'), (b"k", b"\xc3\x01 {")])

    headers = {found.value: found.headers for found in records_on(settings, settings.intents_topic)}
    assert headers == {b' {"kind": "append"}': {"content-type": b"application/json"}, b"\xc3\x01 {": {}}
    with pytest.raises(Invalid, match="1000001 bytes") as refusal:
        await sink.publish(b"table", b"{" + bytes(999_967))
    assert refusal.value.code == "intent-too-large"
    await sink.publish(b"table", b"{" + bytes(999_966))
