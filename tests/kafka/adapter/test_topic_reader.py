"""Looking at a topic: past what is no record, after it was given more partitions, and while nobody answers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from rootline.adapters.kafka.topic_reader import KafkaTopicReader
from rootline.adapters.settings import KafkaSettings
from rootline.schemas.errors import Unavailable
from tests.services.kafka_service import KafkaService
from tests.services.toxiproxy import Toxiproxy

pytestmark = pytest.mark.services


def produce(settings: KafkaSettings, *values: bytes, key: bytes = b"k", partition: int = -1) -> None:
    producer = Producer({"bootstrap.servers": settings.servers(), "partitioner": "murmur2_random", "log_level": 0})
    left = list(values)
    while left:  # a partition that was just added may be unknown to the broker, and to the client
        failed: list[bytes] = []

        def told(error: KafkaError | None, message: Message, failed: list[bytes] = failed) -> None:
            if error is not None:
                failed.append(message.value() or b"")

        for value in left:
            try:
                producer.produce(settings.intents_topic, value, key, partition=partition, on_delivery=told)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:
                    raise
                failed.append(value)
        assert producer.flush(30) == 0
        left = failed


def transaction(settings: KafkaSettings, *values: bytes, end: Callable[[Producer], None]) -> None:
    producer = Producer(
        {"bootstrap.servers": settings.servers(), "transactional.id": settings.intents_topic, "log_level": 0}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(settings.intents_topic, value, b"k", partition=0)
    assert producer.flush(30) == 0
    end(producer)


async def newest_first(reader: KafkaTopicReader, key: bytes | None = None) -> list[bytes]:
    async with aclosing(reader.backwards(key=key, since_ms=0)) as portions:
        return [record.value async for portion in portions for record in portion]


async def test_what_was_aborted_and_the_marks_of_transactions_are_passed_over(kafka_service: KafkaService) -> None:
    settings = kafka_service.with_topics(partitions=1)
    reader = KafkaTopicReader(settings, settings.intents_topic)
    produce(settings, b"1")
    transaction(settings, *(b"no" for _ in range(400)), end=lambda producer: producer.abort_transaction(30))
    transaction(settings, b"2", b"3", end=lambda producer: producer.commit_transaction(30))
    produce(settings, b"4")
    transaction(settings, *(b"no" for _ in range(400)), end=lambda producer: producer.abort_transaction(30))

    assert await newest_first(reader) == [b"4", b"3", b"2", b"1"]


async def test_a_record_is_found_where_its_key_was_before_there_were_more_partitions(
    kafka_service: KafkaService,
) -> None:
    settings = kafka_service.with_topics(partitions=1)
    reader = KafkaTopicReader(settings, settings.intents_topic)
    produce(settings, b"old")
    admin = AdminClient({"bootstrap.servers": settings.servers(), "log_level": 0})
    (grown,) = admin.create_partitions([NewPartitions(settings.intents_topic, 7)]).values()
    grown.result(60)
    for partition in range(1, 7):
        produce(settings, b"other", key=b"other", partition=partition)

    def old(record: Any) -> int | None:
        return record.partition if record.value == b"old" else None

    assert await reader.first_since(0, b"k", old, records_max=10) == 0
    assert await reader.first_since(0, b"k", lambda _: None, records_max=10) is None
    assert sorted(await newest_first(reader)) == [b"old", *[b"other"] * 6]


async def test_a_broker_that_falls_silent_ends_the_look(kafka_service: KafkaService, toxiproxy: Toxiproxy) -> None:
    direct = kafka_service.with_topics(partitions=1, request_timeout_s=2)
    produce(direct, *(bytes(20_000) for _ in range(600)))
    with kafka_service.proxied(toxiproxy, direct) as (settings, proxy):
        reader = KafkaTopicReader(settings, settings.intents_topic)
        async with aclosing(reader.backwards(key=None, since_ms=0)) as portions:
            assert await anext(portions)
            proxy.add("timeout", stream="downstream", timeout=0)
            with pytest.raises(Unavailable) as failure:
                await anext(portions)

    assert failure.value.code == "log-unavailable"
    assert settings.intents_topic in failure.value.message
