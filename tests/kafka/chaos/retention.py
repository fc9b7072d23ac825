"""What retention and operators do to a log in use: offsets that expire with their records, one partition more.

Owns: these changes of topics and groups. Does not own: when they come (`faults`).
Invariants: no record goes that the frontiers' topic does not say is decided; a reader of the topics has read what goes.
"""

from __future__ import annotations

import asyncio

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import NewPartitions

from rootline.adapters.kafka.frontiers import read_frontiers
from rootline.adapters.kafka.topics import topic_identity
from rootline.adapters.settings import KafkaSettings
from tests.kafka.chaos.crowd import elapsed
from tests.kafka.feeding import admin_of
from tests.kafka.topic_watch import Watch

_ANSWER_S = 30.0


def add_partition(settings: KafkaSettings) -> int:
    """One more; how many there are now."""
    admin = admin_of(settings)
    topic = settings.intents_topic
    count = len(admin.list_topics(topic, timeout=_ANSWER_S).topics[topic].partitions) + 1
    admin.create_partitions([NewPartitions(topic, count)])[topic].result(_ANSWER_S)
    return count


async def expire(settings: KafkaSettings, watch: Watch) -> int:
    """Forget the group's offsets, and every record below the frontier; no member may be there. Says how many went."""
    log = (await asyncio.to_thread(topic_identity, settings, settings.intents_topic)).log
    frontiers = (await read_frontiers(settings, log)).frontiers
    await asyncio.to_thread(watch.catch_up)
    went = await asyncio.to_thread(_remove_below, settings, {n: offset for n, offset in frontiers.items() if offset})
    while not await asyncio.to_thread(_forgot_group, settings):  # until the last member's session has ended
        await elapsed(0.2)
    watch.forget_offsets()
    return went


def _remove_below(settings: KafkaSettings, frontiers: dict[int, int]) -> int:
    admin = admin_of(settings)
    places = [TopicPartition(settings.intents_topic, number, offset) for number, offset in frontiers.items()]
    removed = {place: found.result(_ANSWER_S) for place, found in admin.delete_records(places).items()}
    return sum(found.low_watermark for found in removed.values())


def _forgot_group(settings: KafkaSettings) -> bool:
    admin = admin_of(settings)
    try:
        admin.delete_consumer_groups([settings.group_id])[settings.group_id].result(_ANSWER_S)
    except KafkaException as error:
        if error.args[0].name() in ("NON_EMPTY_GROUP", "_TIMED_OUT", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"):
            return False
        if error.args[0].name() != "GROUP_ID_NOT_FOUND":
            raise
    return True
