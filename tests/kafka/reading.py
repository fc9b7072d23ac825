"""What is on a topic, read by a client that is not ours.

Owns: reading to the end. Does not own: the adapters under test.
Invariants: sees committed records only, each once, in order within a partition.
"""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

from rootline.adapters.kafka_settings import KafkaSettings


@dataclass(frozen=True)
class Found:
    partition: int
    offset: int
    key: bytes | None
    value: bytes
    headers: dict[str, bytes]
    timestamp_type: int


def records_on(settings: KafkaSettings, topic: str) -> list[Found]:
    """Every record of `topic` up to its present end."""
    consumer = Consumer(
        {
            "bootstrap.servers": settings.servers(),
            "group.id": "not used",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
    )
    found: list[Found] = []
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        for number in partitions:
            place = TopicPartition(topic, number)
            start, end = consumer.get_watermark_offsets(place, timeout=10)
            if start == end:
                continue
            consumer.assign([TopicPartition(topic, number, start)])
            while True:
                message = consumer.poll(10)
                assert message is not None, "the end was not reached"
                assert message.error() is None, message.error()
                headers = {name: value or b"" for name, value in message.headers() or ()}
                kind = message.timestamp()[0]
                offset = message.offset()
                assert offset is not None
                found.append(Found(number, offset, message.key(), message.value() or b"", headers, kind))
                if offset + 1 >= end:
                    break
    finally:
        consumer.close()
    return found
