"""How the group of coordinators is, seen from outside: who has which partition, and what waits there.

Owns: asking for it. Does not own: parked records and pauses (`parking_lot`, `pausing`).
Invariants: joins no group and commits nothing; one request for all partitions of each kind, and one record read of each
partition on which something waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError as ClientError
from aiokafka.partitioner import DefaultPartitioner
from confluent_kafka import KafkaError, KafkaException

from rootline.adapters.kafka.clients import make_admin, make_consumer, start_consumer, stop_consumer
from rootline.adapters.kafka.group_offsets import group_memory
from rootline.adapters.kafka.log_errors import log_unavailable
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.adapters.kafka.topics import topic_identity

_POLL_MS = 500


@dataclass(frozen=True, slots=True)
class GroupState:
    """`members`: each with its host. Partition → its member; partition → records past what the group remembers.

    `waiting`: with when the first of them was appended, ms, if it could be read.
    """

    members: tuple[str, ...]
    partitions: int
    owners: Mapping[int, str]
    waiting: Mapping[int, tuple[int, int | None]]

    def partition_of(self, key: str) -> int:
        """The partition of records with this key."""
        numbers = list(range(self.partitions))
        number: int = DefaultPartitioner()(key.encode(), numbers, numbers)
        return number


def group_state(settings: KafkaSettings) -> GroupState:
    """How it is now. Blocks; not on an event loop. Raises `Unavailable` (`log-unavailable`)."""
    partitions = topic_identity(settings, settings.intents_topic).partitions
    owners = _owners(settings)
    waiting = asyncio.run(_waiting(settings, partitions))
    members = tuple(sorted(set(owners.values())))
    by_partition = {number: member for number, member in owners.items() if number >= 0}
    return GroupState(members, partitions, by_partition, waiting)


def _owners(settings: KafkaSettings) -> dict[int, str]:
    """Partition → member; a member without partitions is under a negative number."""
    admin = make_admin(settings)  # while it is there: without it no answer ever comes
    asked = admin.describe_consumer_groups([settings.group_id], request_timeout=settings.request_timeout_s)
    try:
        members = asked[settings.group_id].result(settings.request_timeout_s + 1).members
    except TimeoutError as error:
        raise log_unavailable(settings, error) from None
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return {}
        raise log_unavailable(settings, error) from None
    owners: dict[int, str] = {}
    for number, member in enumerate(members, 1):
        name = f"{member.host} ({member.group_instance_id or member.member_id})"
        own = [at.partition for at in member.assignment.topic_partitions if at.topic == settings.intents_topic]
        owners |= dict.fromkeys(own or [-number], name)
    return owners


async def _waiting(settings: KafkaSettings, partitions: int) -> dict[int, tuple[int, int | None]]:
    places = [TopicPartition(settings.intents_topic, number) for number in range(partitions)]
    # the name of the group is for asking what it remembers; without a subscription a consumer does not join
    consumer = make_consumer(settings, group_id=settings.group_id, reset="none", reads_all=True)
    try:
        async with asyncio.timeout(settings.request_timeout_s):
            await start_consumer(consumer, patience_s=settings.request_timeout_s)
            memory = await group_memory(settings, consumer, places)
            begins, ends = await asyncio.gather(consumer.beginning_offsets(places), consumer.end_offsets(places))
            nexts = {
                at: max(begins[at], memory.offsets[at].offset) if at in memory.offsets else begins[at] for at in places
            }
            behind = [at for at in places if nexts[at] < ends[at]]
            oldest = await _appended(consumer, {at: nexts[at] for at in behind}) if behind else {}
    except (ClientError, TimeoutError) as error:
        raise log_unavailable(settings, error, topic=settings.intents_topic) from None
    finally:
        await stop_consumer(consumer, patience_s=settings.request_timeout_s)
    return {at.partition: (ends[at] - nexts[at], oldest.get(at)) for at in behind}


async def _appended(consumer: AIOKafkaConsumer, nexts: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """When the first record from each offset on was appended, ms; what does not come soon is left out."""
    consumer.assign(list(nexts))
    for at, offset in nexts.items():
        consumer.seek(at, offset)
    found: dict[TopicPartition, int] = {}
    for _ in range(4):
        for at, records in (await consumer.getmany(timeout_ms=_POLL_MS)).items():
            found.setdefault(at, records[0].timestamp)
            consumer.pause(at)
        if len(found) == len(nexts):
            break
    return found
