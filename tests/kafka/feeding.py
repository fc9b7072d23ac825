"""Feeds on a real broker, and what happens to their topic: records, retention, partitions, limits.

Owns: changes of topics and groups through other clients. Does not own: the adapter under test, driving a feed
(`tests.support.feed_driver`).
Invariants: each change has happened when its function returns.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache

from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    OffsetSpec,
    ResourceType,
)

from rootline.adapters.kafka.group_offsets import Stage
from rootline.adapters.kafka.intent_feed import KafkaIntentFeed
from rootline.adapters.kafka.topics import create_topics, record_bytes_max, topic_identity
from rootline.adapters.settings import KafkaSettings
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import LogId
from rootline.schemas.parts.log import PartitionOffset
from tests.support.feed_driver import FeedDriver

_PATIENCE_S = 240.0


class Member(FeedDriver):
    """A coordinator's reading; `starts`: partition → next offset at the assignment in force, nothing without one."""

    def __init__(self, settings: KafkaSettings, *, answers: bool = True) -> None:
        super().__init__(KafkaIntentFeed(settings), answers=answers)

    @property
    def starts(self) -> dict[int, int]:
        starts = () if self.assignment is None else self.assignment.starts
        return {start.partition: start.next_offset for start in starts}

    def offsets(self, partition: int) -> list[int]:
        return [record.position.offset for record in self.records if record.position.partition == partition]

    async def decided(self, partition: int, next_offset: int) -> None:
        await self.feed.decided([PartitionOffset(self.log, partition, next_offset)])


@asynccontextmanager
async def member_of(settings: KafkaSettings, *, answers: bool = True) -> AsyncIterator[Member]:
    """A member that leaves at the end."""
    member = Member(settings, answers=answers)
    try:
        yield member
    finally:
        await member.feed.close()


def numbered(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def append(settings: KafkaSettings, partition: int, values: Sequence[bytes], **options: str) -> None:
    """Write records to one partition, as a foreign client does."""
    producer = _producer(settings.servers(), tuple(options.items()))
    for value in values:
        producer.produce(settings.intents_topic, value, b"key", partition=partition)
    assert producer.flush(_PATIENCE_S) == 0


@lru_cache(maxsize=8)
def _producer(servers: str, options: tuple[tuple[str, str], ...]) -> Producer:
    """A producer that tests share: one that keeps the order whatever happens has its id only after half a second."""
    ordered = {"enable.idempotence": True, "linger.ms": 0, "reconnect.backoff.max.ms": 200, "log_level": 0}
    return Producer({"bootstrap.servers": servers, **ordered, **dict(options)})


def admin_of(settings: KafkaSettings) -> AdminClient:
    """An admin client; keep a reference to it until its answers have come, or they never do."""
    return AdminClient({"bootstrap.servers": settings.servers(), "log_level": 0})


def ended(settings: KafkaSettings, partition: int, end: Callable[[], None]) -> None:
    """End a transaction, and wait for its marker: brokers write it after their answer."""
    admin, place = admin_of(settings), TopicPartition(settings.intents_topic, partition)

    def end_offset() -> int:
        return admin.list_offsets({place: OffsetSpec.latest()})[place].result(60).offset

    before = end_offset()
    end()
    until_shown(lambda: end_offset() > before, "the marker of a transaction")


def remove_before(settings: KafkaSettings, partition: int, offset: int) -> None:
    """What retention does."""
    place = TopicPartition(settings.intents_topic, partition, offset)
    admin = admin_of(settings)
    admin.delete_records([place])[place].result(60)


def delete_topic(settings: KafkaSettings, topic: str | None = None) -> None:
    _producer.cache_clear()  # it would go on with what it knows of the deleted one
    admin, name = admin_of(settings), topic or settings.intents_topic
    admin.delete_topics([name])[name].result(60)


def make_anew(settings: KafkaSettings, partitions: int = 4) -> LogId:
    """The intents topic deleted and created; its new identity."""
    before = topic_identity(settings, settings.intents_topic).log
    delete_topic(settings)
    topic = settings.intents_topic

    def is_made() -> bool:  # not while the old one is still shown
        return topic in create_topics(settings, partitions=partitions, replication_factor=1)

    until_shown(is_made, f"{topic} is gone")
    until_shown(lambda: topic_identity(settings, topic).log != before, f"{topic} is another one")
    return topic_identity(settings, topic).log


def add_partitions(settings: KafkaSettings, total: int) -> None:
    admin = admin_of(settings)
    admin.create_partitions([NewPartitions(settings.intents_topic, total)])[settings.intents_topic].result(60)
    until_shown(lambda: topic_identity(settings, settings.intents_topic).partitions >= total, f"{total} partitions")
    _producer.cache_clear()  # it knows of fewer


def until_shown(holds: Callable[[], bool], what: str) -> None:
    """Brokers hear a little later of what their controller has done."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while True:
        with contextlib.suppress(Unavailable):
            if holds():
                return
        assert time.monotonic() < deadline_s, f"not shown by the brokers: {what}"


def set_bookmark(settings: KafkaSettings, log: LogId) -> None:
    """Set the group's bookmark, as a coordinator does: no coordinator of the first release reads the log."""
    _set_offset(settings, TopicPartition(settings.dead_letters_topic, 0, 0, log + Stage.UPGRADED))


def set_committed(settings: KafkaSettings, partition: int, offset: int, metadata: str = "") -> None:
    """Set the group's offset, as an operator's tool does while no member runs."""
    _set_offset(settings, TopicPartition(settings.intents_topic, partition, offset, metadata))


def _set_offset(settings: KafkaSettings, place: TopicPartition) -> None:
    request = ConsumerGroupTopicPartitions(settings.group_id, [place])
    admin = admin_of(settings)
    (future,) = admin.alter_consumer_group_offsets([request]).values()
    (answer,) = future.result(60).topic_partitions or ()
    assert answer.error is None


def committed(settings: KafkaSettings, partition: int) -> int:
    """What the group remembers; negative for nothing."""
    request = ConsumerGroupTopicPartitions(settings.group_id, [TopicPartition(settings.intents_topic, partition)])
    admin = admin_of(settings)
    (future,) = admin.list_consumer_group_offsets([request]).values()
    (answer,) = future.result(60).topic_partitions or ()
    return answer.offset


def expire_offsets(settings: KafkaSettings) -> None:
    """What brokers do when a group has had no members for `offsets.retention.minutes`."""
    admin = admin_of(settings)
    admin.delete_consumer_groups([settings.group_id])[settings.group_id].result(60)


def set_limit(settings: KafkaSettings, topic: str, size: int | None) -> None:
    """`max.message.bytes` of a topic; `None`: not what was set here, but what holds for all topics."""
    before = record_bytes_max(settings, topic)
    operation = AlterConfigOpType.DELETE if size is None else AlterConfigOpType.SET
    value = None if size is None else str(size)
    entry = ConfigEntry("max.message.bytes", value, incremental_operation=operation)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = admin_of(settings)
    admin.incremental_alter_configs([resource])[resource].result(60)

    def is_set() -> bool:
        now = record_bytes_max(settings, topic)
        return now not in (None, before) if size is None else now == size

    until_shown(is_set, f"the limit of {topic}")
