"""Feeds that are asked on and on, as coordinators would, and records put where a test wants them.

Owns: driving feeds until something holds. Does not own: the adapter under test.
Invariants: a wait that never ends fails after a minute; every pause is the feed's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from rootline.adapters.kafka.intent_feed import KafkaIntentFeed
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.adapters.kafka.topics import create_topics, topic_identity
from rootline.ports.intent_feed import Assigned, Delivered, FeedEvent, Revoked
from rootline.schemas.errors import Unavailable
from rootline.schemas.log_position import LogId, LogRecord
from rootline.schemas.root_header import PartitionOffset

PATIENCE_S = 60


class Member:
    """A coordinator's reading. `records` since the last assignment; `answers`: whether revocations are answered."""

    def __init__(self, settings: KafkaSettings, *, answers: bool = True) -> None:
        self.feed = KafkaIntentFeed(settings)
        self.answers = answers
        self.starts: dict[int, int] = {}
        self.records: list[LogRecord] = []
        self.events: list[FeedEvent] = []
        self.failures: list[Unavailable] = []
        self.at_end = False

    @property
    def values(self) -> list[bytes]:
        return [record.value for record in self.records]

    @property
    def log(self) -> LogId:
        (assigned,) = [event for event in self.events[::-1] if isinstance(event, Assigned)][:1]
        return assigned.starts[0].log

    def offsets(self, partition: int) -> list[int]:
        return [record.position.offset for record in self.records if record.position.partition == partition]

    async def step(self, *, wait_s: float = 0.2, hold: bool = False) -> FeedEvent | None:
        """One event taken in; `None` when the log was unavailable."""
        try:
            event = await self.feed.next(wait_s=wait_s, hold=hold)
        except Unavailable as failure:
            self.failures.append(failure)
            await asyncio.sleep(0)
            return None
        if not isinstance(event, Delivered):
            self.events.append(event)
        match event:
            case Assigned(starts):
                self.starts = {start.partition: start.next_offset for start in starts}
                self.records, self.at_end = [], False
            case Delivered(records, at_end):
                self.records += records
                self.at_end = at_end
            case Revoked():
                self.starts = {}
                if self.answers:
                    await self.feed.released()
        return event

    async def until(self, done: Callable[[], bool], *, hold: bool = False) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not done():
                await self.step(hold=hold)

    async def decided(self, partition: int, next_offset: int) -> None:
        await self.feed.decided([PartitionOffset(self.log, partition, next_offset)])


async def together(*members: Member, done: Callable[[], bool]) -> None:
    """Drive these members until `done`."""
    async with asyncio.TaskGroup() as tasks:
        for member in members:
            tasks.create_task(member.until(done))


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
    """Records that somebody else's client wrote to one partition."""
    servers = {"bootstrap.servers": settings.servers(), "log_level": 0}
    producer = Producer(
        {**servers, "enable.idempotence": True, "linger.ms": 0, **options}
    )  # in order, whatever happens
    for value in values:
        producer.produce(settings.intents_topic, value, b"key", partition=partition)
    assert producer.flush(30) == 0


def admin_of(settings: KafkaSettings) -> AdminClient:
    """Keep it until its answers have come: they do not come to one that nobody holds."""
    return AdminClient({"bootstrap.servers": settings.servers(), "log_level": 0})


def remove_before(settings: KafkaSettings, partition: int, offset: int) -> None:
    """What retention does."""
    place = TopicPartition(settings.intents_topic, partition, offset)
    admin = admin_of(settings)
    admin.delete_records([place])[place].result(10)


def delete_topic(settings: KafkaSettings, topic: str | None = None) -> None:
    admin, name = admin_of(settings), topic or settings.intents_topic
    admin.delete_topics([name])[name].result(10)


def make_anew(settings: KafkaSettings, partitions: int = 4) -> LogId:
    """The intents topic deleted and created; its new identity."""
    delete_topic(settings)
    while settings.intents_topic not in create_topics(settings, partitions=partitions, replication_factor=1):
        pass  # the old one is still shown
    while True:
        try:
            return topic_identity(settings, settings.intents_topic).log
        except Unavailable:
            continue  # the new one is not shown yet


def add_partitions(settings: KafkaSettings, total: int) -> None:
    admin = admin_of(settings)
    admin.create_partitions([NewPartitions(settings.intents_topic, total)])[settings.intents_topic].result(10)


def set_committed(settings: KafkaSettings, partition: int, offset: int, metadata: str = "") -> None:
    """What an operator's tool does while nobody runs, or what somebody left."""
    place = TopicPartition(settings.intents_topic, partition, offset, metadata)
    request = ConsumerGroupTopicPartitions(settings.group_id, [place])
    admin = admin_of(settings)
    (future,) = admin.alter_consumer_group_offsets([request]).values()
    (answer,) = future.result(10).topic_partitions or ()
    assert answer.error is None


def committed(settings: KafkaSettings, partition: int) -> int:
    """What the group remembers; negative for nothing."""
    request = ConsumerGroupTopicPartitions(settings.group_id, [TopicPartition(settings.intents_topic, partition)])
    admin = admin_of(settings)
    (future,) = admin.list_consumer_group_offsets([request]).values()
    (answer,) = future.result(10).topic_partitions or ()
    return answer.offset


def expire_offsets(settings: KafkaSettings) -> None:
    """What brokers do when a group has had no members for `offsets.retention.minutes`."""
    admin = admin_of(settings)
    admin.delete_consumer_groups([settings.group_id])[settings.group_id].result(10)


def set_limit(settings: KafkaSettings, topic: str, size: int | None) -> None:
    """`max.message.bytes` of a topic, or what it was."""
    operation = AlterConfigOpType.DELETE if size is None else AlterConfigOpType.SET
    value = None if size is None else str(size)
    entry = ConfigEntry("max.message.bytes", value, incremental_operation=operation)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = admin_of(settings)
    admin.incremental_alter_configs([resource])[resource].result(10)
