"""What the group of coordinators remembers of each partition, and under which identity of the topic.

Owns: committed offsets with their metadata, the bookmark. Does not own: where a partition is read from
(`start_rules`), when an offset may be committed.
Invariants: every commit names the identity of its log and the membership that it is made under: after a rebalance the
broker refuses it, and it is never retried under the newer membership.

A broker forgets a group's offsets of a topic together with the topic. To notice a topic that was created again while no
coordinator ran, the identity is stored a second time: as the metadata of a bookmark at offset 0 of the dead letters'
topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CommitFailedError, KafkaError
from aiokafka.structs import OffsetAndMetadata

from rootline.adapters.kafka.settings import KafkaSettings
from rootline.schemas.identifiers import LogId


class Stage(StrEnum):
    """The state of the reader that committed an offset; follows the log's identity in the metadata."""

    READING = ""
    CONCLUDED = " concluded"  # it ended there normally
    UPGRADED = " (upgraded: only newer versions of Rootline may read it; do not accept it with an older one)"
    """Only in the bookmark: the first release takes it for another log's, and shows it in its refusal to start."""


@dataclass(frozen=True, slots=True)
class Committed:
    """An offset that the group remembers. `log` is `None` if another tool set it."""

    offset: int
    log: LogId | None
    stage: Stage = Stage.READING


@dataclass(frozen=True, slots=True)
class GroupMemory:
    """The offsets that are remembered of some partitions, and the topic's identity in the bookmark.

    `is_upgraded`: the bookmark keeps the first release out.
    """

    offsets: Mapping[TopicPartition, Committed]
    bookmark: LogId | None
    is_upgraded: bool = False


async def group_memory(
    settings: KafkaSettings, consumer: AIOKafkaConsumer, partitions: Iterable[TopicPartition]
) -> GroupMemory:
    """Ask the broker that coordinates the group; no deadline.

    librdkafka is not used for this: it returns metadata together with what follows it in memory, because it assumes a
    zero at the end, as in what it writes itself.
    """
    place = bookmark_of(settings)
    found = await consumer._coordinator.fetch_committed_offsets([*partitions, place])
    known = {at: _committed(held) for at, held in found.items()}
    bookmark = known.pop(place, None)
    return (
        GroupMemory(known, None)
        if bookmark is None
        else GroupMemory(known, bookmark.log, bookmark.stage is Stage.UPGRADED)
    )


def membership_of(consumer: AIOKafkaConsumer) -> int:
    """The generation of the group that the consumer is in; every rebalance begins a new one."""
    generation: int = consumer._coordinator.generation
    return generation


async def commit_offsets(
    consumer: AIOKafkaConsumer,
    offsets: Mapping[TopicPartition, int],
    log: LogId,
    *,
    generation: int,
    stage: Stage = Stage.READING,
) -> None:
    """Remember these offsets of `log`; one attempt.

    Raises:
        KafkaError: not remembered, or not for certain.

    """
    coordinator = consumer._coordinator
    await coordinator.ensure_coordinator_known()
    async with coordinator._commit_lock:
        if coordinator.generation != generation:
            raise CommitFailedError("the group was rebalanced")
        held = {partition: OffsetAndMetadata(offset, log + stage.value) for partition, offset in offsets.items()}
        await coordinator._do_commit_offsets(None, held)


async def write_bookmark(settings: KafkaSettings, consumer: AIOKafkaConsumer, log: LogId, *, generation: int) -> bool:
    """Store `log` as the topic's identity; whether that succeeded. Only a diagnosis needs it."""
    try:
        async with asyncio.timeout(settings.request_timeout_s):
            await commit_offsets(consumer, {bookmark_of(settings): 0}, log, generation=generation, stage=Stage.UPGRADED)
    except (KafkaError, TimeoutError) as error:
        logger = structlog.get_logger("rootline.kafka")
        logger.info("the log's identity was not stored", action="bookmark", reason=repr(error))
        return False
    return True


def bookmark_of(settings: KafkaSettings) -> TopicPartition:
    """Where the bookmark is."""
    return TopicPartition(settings.dead_letters_topic, 0)


def _committed(held: OffsetAndMetadata) -> Committed:
    said = held.metadata.rstrip("\0")
    stage = next((stage for stage in (Stage.CONCLUDED, Stage.UPGRADED) if said.endswith(stage.value)), Stage.READING)
    return Committed(held.offset, LogId(said.removesuffix(stage.value)) or None, stage)
