"""Whether older versions of Rootline may be in the group, and the protocol that keeps them out.

Owns: that protocol, and finding out at the first connection. Does not own: `rootline upgrade` (`upgrade`), joining
(`membership`), the record (`upgrade_record`).
Invariants: a group that older versions may be in is joined as they join it; of an upgraded one the broker refuses every
member that does not know the newer protocol; a group that remembers nothing is a new one, and begins upgraded.

Source: docs/decisions/0076.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from rootline.adapters.kafka.frontier.keeper import FrontierKeeper
from rootline.adapters.kafka.frontier.records import Recorded
from rootline.adapters.kafka.frontier.upgrade_record import upgrade_outgoing
from rootline.adapters.kafka.group_offsets import group_memory
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.schemas.log_position import LogId


class Standing(Enum):
    """Who may be in the group."""

    SHARED = auto()
    """Versions as old as the first release, too."""
    UPGRADED = auto()


class UpgradedAssignor(RoundRobinPartitionAssignor):  # type: ignore[misc]
    """As the library's own, under a name that the first release does not offer."""

    name = "rootline-2"


async def standing_of(
    settings: KafkaSettings,
    keeper: FrontierKeeper,
    consumer: AIOKafkaConsumer,
    log: LogId,
    recorded: Recorded,
    partitions: int,
) -> Standing:
    """The group's standing; a group that has never read this log, or any, is upgraded with this call.

    Raises:
        KafkaError: no answer. Unavailable: `log-unavailable`. OutcomeUnknown: `publish-unknown`; asking again is safe.

    """
    if recorded.upgraded_from is not None:
        return Standing.UPGRADED
    if recorded.frontiers or recorded.answers or recorded.parked:
        return Standing.SHARED
    places = [TopicPartition(settings.intents_topic, number) for number in range(partitions)]
    memory = await group_memory(settings, consumer, places)
    if memory.offsets or memory.bookmark is not None:
        return Standing.SHARED
    await keeper.publish([upgrade_outgoing(settings, log, {})])
    return Standing.UPGRADED


def join_as(consumer: AIOKafkaConsumer, standing: Standing) -> None:
    """Offer the protocol of the group's standing; after the consumer has started, before it joins."""
    if standing is Standing.UPGRADED:
        consumer._coordinator._assignors = (UpgradedAssignor,)


def upgraded_from(recorded: Recorded, partitions: Mapping[int, int]) -> dict[int, int | None]:
    """Partition → the first offset that no older version has read; `None`: older ones may read all."""
    known = recorded.upgraded_from
    return {partition: None if known is None else known.get(partition, 0) for partition in partitions}
