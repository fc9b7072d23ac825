"""Reading the dead-letter topic, for people.

Owns: a look from the topic's beginning to its present end. Does not own: what a dead letter says
(`kafka_record_headers`), replay.
Invariants: commits no offset, so that looking changes nothing; ends, also while records keep coming.
"""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from rootline.adapters.kafka_clients import make_consumer, stop_consumer
from rootline.adapters.kafka_record_headers import dead_letter_of
from rootline.adapters.kafka_settings import KafkaSettings
from rootline.adapters.kafka_topics import topic_identity
from rootline.schemas.dead_letter import DeadLetter
from rootline.schemas.errors import Unavailable


class KafkaDeadLetters:
    """One look at a time; every look connects anew."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings

    async def dead_letters(self, *, limit: int = 1_000) -> list[DeadLetter]:
        """The newest `limit` of them, oldest first.

        Raises:
            Unavailable: `log-unavailable`.

        """
        topic = self._settings.dead_letters_topic
        found = await asyncio.to_thread(topic_identity, self._settings, topic)
        partitions = [TopicPartition(topic, number) for number in range(found.partitions)]
        consumer = make_consumer(self._settings, group_id=None, reset="earliest")
        try:
            await consumer.start()
            consumer.assign(partitions)
            return await self._newest(consumer, partitions, limit)
        except (KafkaError, TimeoutError) as error:
            reason = f"{type(error).__name__} {error!s:.200}"
            raise Unavailable("log-unavailable", f"{self._settings.url}: topic {topic}: {reason}") from None
        finally:
            await stop_consumer(consumer)

    async def close(self) -> None:
        """Nothing is held between looks."""

    async def _newest(
        self, consumer: AIOKafkaConsumer, partitions: list[TopicPartition], limit: int
    ) -> list[DeadLetter]:
        ends = await consumer.end_offsets(partitions)
        starts = await consumer.beginning_offsets(partitions)
        kept: list[tuple[int, DeadLetter]] = []
        for partition in partitions:
            consumer.seek(partition, max(starts[partition], ends[partition] - limit))
        while [held for held in partitions if await consumer.position(held) < ends[held]]:
            async with asyncio.timeout(self._settings.request_timeout_s):
                batches = await consumer.getmany(timeout_ms=1_000)
            for partition, records in batches.items():
                kept += [
                    (record.timestamp, dead_letter_of(record.key, record.value or b"", record.headers))
                    for record in records
                    if record.offset < ends[partition]
                ]
        kept.sort(key=lambda pair: (pair[0], pair[1].partition, pair[1].offset))
        return [letter for _, letter in kept[-limit:]]
