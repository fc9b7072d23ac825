"""What is on a topic, read by a client that is not ours; and a topic's limit, changed under our feet.

Owns: reading to the end. Does not own: the adapters under test.
Invariants: sees committed records only, each once, in order within a partition.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from rootline.adapters.kafka.topic_reader import KafkaLogArchive
from rootline.adapters.settings import KafkaSettings
from rootline.schemas.verdict import DeadLetter

_PATIENCE_S = 240.0


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
        partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
        for number in partitions:
            place = TopicPartition(topic, number)
            start, end = _range_of(consumer, place)
            if start == end:
                continue
            consumer.assign([TopicPartition(topic, number, start)])
            while True:
                message = consumer.poll(_PATIENCE_S)
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


def _range_of(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    """Its first offset and its end; a partition that was just made has no leader for a moment."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline_s:
        try:
            return consumer.get_watermark_offsets(place, timeout=60)
        except KafkaException as error:
            if error.args[0].code() not in (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE):
                raise
    raise AssertionError(f"{place} has no leader")


async def dead_letters_on(settings: KafkaSettings) -> list[DeadLetter]:
    """Every dead letter, in the order of their offsets on the intent log."""
    archive = KafkaLogArchive(settings)
    found = [letter async for portion in archive.dead_letters() for letter in portion]
    return sorted(found, key=lambda letter: letter.offset)
