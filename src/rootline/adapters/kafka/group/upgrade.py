"""`rootline upgrade` for a log on Kafka: from then on no coordinator of the first release can start.

Owns: the order of the steps. Does not own: what the group remembers (`group_offsets`), the record (`upgrade_record`).
Invariants: nothing changes while a coordinator runs, because the broker refuses the first step then; that step keeps
older versions out, and all others come after it; each step can be repeated.
"""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import IllegalGenerationError, KafkaError, RebalanceInProgressError, UnknownMemberIdError

from rootline.adapters.kafka.clients import make_consumer, start_consumer, stop_consumer
from rootline.adapters.kafka.frontier.records import frontier_publisher, read_frontiers
from rootline.adapters.kafka.frontier.upgrade_record import upgrade_outgoing
from rootline.adapters.kafka.group.empty_group import check_group_empty, group_active, group_members
from rootline.adapters.kafka.group_offsets import Stage, commit_offsets, group_memory, membership_of
from rootline.adapters.kafka.group_offsets import bookmark_of as place_of_bookmark
from rootline.adapters.kafka.log_errors import log_unavailable
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.adapters.kafka.start_rules import check_log
from rootline.adapters.kafka.topics import TopicIdentity, complete_topics, topic_identity
from rootline.adapters.upgraded import LakeUpgrade, Upgraded
from rootline.schemas.errors import OutcomeUnknown


def upgrade_topic(settings: KafkaSettings, *, apply: bool) -> LakeUpgrade:
    """How it is, and with `apply` raise it. Blocks; not on an event loop.

    Raises:
        Invalid: `group-active`, naming the coordinators that run. Fenced: `log-replaced`.
        Unavailable: `log-unavailable`.

    """
    return asyncio.run(_upgrade(settings, apply))


async def _upgrade(settings: KafkaSettings, apply: bool) -> LakeUpgrade:
    found = await asyncio.to_thread(topic_identity, settings, settings.intents_topic)
    await asyncio.to_thread(complete_topics, settings)
    recorded = await read_frontiers(settings, found.log)
    if recorded.upgraded_from is not None:
        return LakeUpgrade(found.log, Upgraded.BEFORE)
    if not apply:
        members = await asyncio.to_thread(group_members, settings)
        return LakeUpgrade(found.log, Upgraded.NOT_YET, members)
    await asyncio.to_thread(check_group_empty, settings)
    consumer = make_consumer(settings, group_id=settings.group_id, reset="none")
    try:
        await start_consumer(consumer, patience_s=settings.request_timeout_s)
        async with asyncio.timeout(settings.request_timeout_s):
            await _keep_older_ones_out(settings, consumer, found)
            places = [TopicPartition(settings.intents_topic, number) for number in range(found.partitions)]
            ends = await consumer.end_offsets(places)
        await _record(settings, found, {at.partition: end for at, end in ends.items()})
    except (UnknownMemberIdError, IllegalGenerationError, RebalanceInProgressError):
        raise group_active(settings, "a coordinator has just started") from None
    except (KafkaError, TimeoutError) as error:
        raise log_unavailable(settings, error, topic=settings.intents_topic) from None
    finally:
        await stop_consumer(consumer, patience_s=settings.request_timeout_s)
    return LakeUpgrade(found.log, Upgraded.NOW, await asyncio.to_thread(group_members, settings))


async def _keep_older_ones_out(settings: KafkaSettings, consumer: AIOKafkaConsumer, found: TopicIdentity) -> None:
    """The bookmark says more than the first release reads. From outside, a broker takes it while the group is empty."""
    memory = await group_memory(settings, consumer, ())
    check_log(settings.intents_topic, memory.bookmark, found.log)
    generation = membership_of(consumer)  # it has not joined
    place = place_of_bookmark(settings)
    await commit_offsets(consumer, {place: 0}, found.log, generation=generation, stage=Stage.UPGRADED)


async def _record(settings: KafkaSettings, found: TopicIdentity, ends: dict[int, int]) -> None:
    publisher = frontier_publisher(settings)
    try:
        await publisher.publish([upgrade_outgoing(settings, found.log, ends)])
    except OutcomeUnknown as error:
        raise log_unavailable(settings, error.message, topic=settings.frontiers_topic) from None
    finally:
        await publisher.close()
