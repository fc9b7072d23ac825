"""Pauses on Kafka: the calls of an operator, and the view that follows them.

Owns: these calls, a consumer of the frontiers' topic that stays connected, and its position. Does not own: the records
(`frontier_codec`), carrying out pauses (coordinators).
Invariants: The begin or the end of a pause is durable before the call returns, whether or not coordinators run. An
answer includes everything that was written before the question. Each record is read once. After a failure the whole
topic is read again. Between two questions nothing is fetched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from rootline.adapters.kafka.clients import log_unavailable, make_consumer, start_consumer, stop_consumer
from rootline.adapters.kafka.control_records import PAUSED, Unreadable, control_key
from rootline.adapters.kafka.frontier_codec import pause_of, pause_outgoing
from rootline.adapters.kafka.frontiers import publish_alone
from rootline.adapters.kafka.topics import complete_topics, topic_identity
from rootline.adapters.settings import KafkaSettings
from rootline.ports.intent_feed import Pause
from rootline.schemas.identifiers import TableName

_POLL_MS: Final = 500


class KafkaPauses:
    """The pauses by operators, read as they change. For one event loop. Connects at the first question."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._consumer: AIOKafkaConsumer | None = None
        self._places: list[TopicPartition] = []
        self._known: dict[TableName, Pause] = {}
        self._turn = asyncio.Lock()

    async def pauses(self) -> Sequence[Pause]:
        """Read the pauses that are in force. Raises `Unavailable` (`log-unavailable`)."""
        async with self._turn:
            try:
                async with asyncio.timeout(self._settings.request_timeout_s):
                    await self._read_on(self._consumer or await self._connected())
            except (KafkaError, TimeoutError) as error:
                await self._disconnect()
                raise log_unavailable(self._settings, error, topic=self._settings.frontiers_topic) from None
            return tuple(self._known.values())

    async def pause(self, pause: Pause) -> None:
        """Begin a pause, durably. Raises `Unavailable` (`log-unavailable`)."""
        await asyncio.to_thread(complete_topics, self._settings)
        await publish_alone(self._settings, [pause_outgoing(self._settings, pause, over=False)])

    async def resume(self, pause: Pause) -> None:
        """End a pause, durably. Raises `Unavailable` (`log-unavailable`)."""
        await publish_alone(self._settings, [pause_outgoing(self._settings, pause, over=True)])

    async def close(self) -> None:
        """Close the connection."""
        async with self._turn:
            await self._disconnect()

    async def _connected(self) -> AIOKafkaConsumer:
        topic = self._settings.frontiers_topic
        identity = await asyncio.to_thread(topic_identity, self._settings, topic)
        places = [TopicPartition(topic, number) for number in range(identity.partitions)]
        consumer = make_consumer(self._settings, group_id=None, reset="none", reads_all=True)
        await start_consumer(consumer, patience_s=self._settings.request_timeout_s)
        self._consumer, self._places = consumer, places
        consumer.assign(places)
        consumer.pause(*places)
        for at, begin in (await consumer.beginning_offsets(places)).items():
            consumer.seek(at, begin)
        return consumer

    async def _read_on(self, consumer: AIOKafkaConsumer) -> None:
        ends = await consumer.end_offsets(self._places)
        for at in self._places:
            if await consumer.position(at) >= ends[at]:
                continue
            consumer.resume(at)
            while await consumer.position(at) < ends[at]:
                for record in (await consumer.getmany(at, timeout_ms=_POLL_MS)).get(at, ()):
                    self._take(record)
            consumer.pause(at)

    def _take(self, record: Any) -> None:
        try:
            key = control_key(self._settings.group_id, record.key)
        except Unreadable:
            return  # the next assignment logs it
        if key is None or key.kind != PAUSED:
            return
        if record.value is None:
            self._known.pop(TableName(key.names[0]), None)
        else:
            pause, _ = pause_of(key, record.value)
            self._known[pause.table] = pause

    async def _disconnect(self) -> None:
        consumer, self._consumer, self._known = self._consumer, None, {}
        if consumer is not None:
            await asyncio.shield(stop_consumer(consumer, patience_s=self._settings.request_timeout_s))
