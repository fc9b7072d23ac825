"""The committed offsets of the group of coordinators, and the start of each partition that follows from them.

Owns: committed offsets with their metadata, the bookmark, the decision where a partition starts or must not be read any
further, and its message for an operator. Does not own: reading the facts (`membership`), when an offset may be
committed (`progress`), correcting offsets (`administration`).
Invariants: Every commit names the identity of its log and the generation that it belongs to. After a rebalance the
broker refuses it, and it is never retried in the newer generation. The start is never the log's end by default. Offsets
of one log are never used for another. Records that were removed before they were decided are reported, never skipped
silently.

A broker deletes a group's offsets of a topic together with the topic. To detect a topic that was created again while
no coordinator ran, the identity is stored a second time: as the metadata of a bookmark at offset 0 of the dead
letters' topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CommitFailedError, KafkaError
from aiokafka.structs import OffsetAndMetadata

from rootline.adapters.settings import KafkaSettings
from rootline.library_log import library_logger
from rootline.schemas.errors import Fenced
from rootline.schemas.identifiers import LogId


class Stage(StrEnum):
    """The state of the reader that committed an offset. It follows the log's identity in the metadata."""

    READING = ""
    CONCLUDED = " concluded"  # the reader stopped normally
    UPGRADED = " (upgraded: only newer versions of Rootline may read it; do not accept it with an older one)"
    """Only in the bookmark. The first release treats it as another log's, and shows it when it refuses to start."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed offset. `log` is `None` if another tool has set it."""

    offset: int
    log: LogId | None
    stage: Stage = Stage.READING


@dataclass(frozen=True, slots=True)
class GroupMemory:
    """The committed offsets of some partitions, and the topic's identity in the bookmark.

    `is_upgraded`: the bookmark has the form that makes coordinators of the first release refuse to start.
    """

    offsets: Mapping[TopicPartition, Committed]
    bookmark: LogId | None
    is_upgraded: bool = False


async def group_memory(
    settings: KafkaSettings, consumer: AIOKafkaConsumer, partitions: Iterable[TopicPartition]
) -> GroupMemory:
    """Read the committed offsets from the group's broker. There is no deadline.

    librdkafka is not used for this. It expects a zero byte at the end of metadata, and without one it also returns the
    bytes that follow in memory.
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
    """The consumer's generation in the group. Every rebalance begins a new one."""
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
    """Commit these offsets of `log`, in one attempt.

    Raises:
        KafkaError: not committed, or the outcome is unknown.
    """
    coordinator = consumer._coordinator
    await coordinator.ensure_coordinator_known()
    async with coordinator._commit_lock:
        if coordinator.generation != generation:
            raise CommitFailedError("the group was rebalanced")
        held = {partition: OffsetAndMetadata(offset, log + stage.value) for partition, offset in offsets.items()}
        await coordinator._do_commit_offsets(None, held)


async def write_bookmark(settings: KafkaSettings, consumer: AIOKafkaConsumer, log: LogId, *, generation: int) -> bool:
    """Store `log` as the topic's identity, and return whether that succeeded. It serves only diagnosis."""
    try:
        async with asyncio.timeout(settings.request_timeout_s):
            await commit_offsets(consumer, {bookmark_of(settings): 0}, log, generation=generation, stage=Stage.UPGRADED)
    except (KafkaError, TimeoutError) as error:
        logger = library_logger("rootline.kafka")
        logger.info("the log's identity was not stored", action="bookmark", reason=repr(error))
        return False
    return True


def bookmark_of(settings: KafkaSettings) -> TopicPartition:
    """The partition of the bookmark."""
    return TopicPartition(settings.dead_letters_topic, 0)


def _committed(held: OffsetAndMetadata) -> Committed:
    said = held.metadata.rstrip("\0")
    stage = next((stage for stage in (Stage.CONCLUDED, Stage.UPGRADED) if said.endswith(stage.value)), Stage.READING)
    return Committed(held.offset, LogId(said.removesuffix(stage.value)) or None, stage)


_ACCEPT: Final = "stop the coordinators, run `rootline topics accept`, and start them again"


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """The known offsets of a partition: the committed one, and the range in the log (`end` exclusive).

    `recorded`: its offset in the frontiers' topic, which outlives the committed one.
    """

    partition: int
    committed: Committed | None
    begin: int
    end: int
    recorded: int | None = None


def replaced(topic: str, known: LogId, found: LogId) -> Fenced:
    """The error for a topic that was created again."""
    return Fenced(
        "log-replaced",
        f"topic {topic} was created again: the group has offsets of {known}, but now it is {found}. Records of the "
        f"old topic without a verdict are lost. To read the new one from its beginning, {_ACCEPT}",
    )


def check_log(topic: str, known: LogId | None, found: LogId) -> None:
    """Raise `Fenced` (`log-replaced`) when `found` is not the log that was `known`."""
    if known is not None and known != found:
        raise replaced(topic, known, found)


def starts_of(topic: str, log: LogId, bookmark: LogId | None, facts: Sequence[PartitionFacts]) -> dict[int, int]:
    """The offset at which the reading of each partition starts.

    Raises:
        Fenced: `log-replaced`, `log-behind-root`, `offset-out-of-range`.
    """
    for known in (bookmark, *(held.committed.log for held in facts if held.committed is not None)):
        check_log(topic, known, log)
    check_known(topic, facts)
    check_ranges(topic, log, [(held.partition, start_of(held), held.begin, held.end) for held in facts])
    return {held.partition: start_of(held) for held in facts}


def known_offset(facts: PartitionFacts) -> int | None:
    """The offset before which everything is decided, from the committed offset and the frontiers' topic."""
    remembered = None if facts.committed is None else facts.committed.offset
    return max((known for known in (remembered, facts.recorded) if known is not None), default=None)


def start_of(facts: PartitionFacts) -> int:
    """The offset at which a partition is read from: the known offset, or the partition's beginning."""
    known = known_offset(facts)
    return facts.begin if known is None else known


def is_lost(facts: PartitionFacts) -> bool:
    """Whether records were removed, and nothing shows that they were decided."""
    return known_offset(facts) is None and facts.begin > 0


def is_being_read(committed: Committed | None) -> bool:
    """Whether the last coordinator that committed has not marked that it stopped normally."""
    return committed is not None and committed.log is not None and committed.stage is Stage.READING


def poison_candidates_of(facts: Sequence[PartitionFacts]) -> dict[int, int]:
    """Partitions whose last reader crashed → the offset after the records that it may have been decoding."""
    return {held.partition: held.end for held in facts if is_being_read(held.committed) and start_of(held) < held.end}


def check_known(topic: str, facts: Sequence[PartitionFacts]) -> None:
    """Raise `Fenced` (`offset-out-of-range`) if the records of a partition may have been removed undecided."""
    lost = "; ".join(f"partition {held.partition} begins at {held.begin}" for held in facts if is_lost(held))
    if lost:
        raise Fenced(
            "offset-out-of-range",
            f"topic {topic}: {lost}, and neither the group nor the frontiers' topic knows how far it was decided: the "
            f"records before may have been removed undecided. Ask writers without a verdict to publish again. To "
            f"continue with the remaining records, {_ACCEPT}",
        )


def check_ranges(topic: str, log: LogId, ranges: Sequence[tuple[int, int, int, int]]) -> None:
    """Raise unless each offset is in the log. `ranges`: partition, offset, begin, end.

    Raises:
        Fenced: `log-behind-root`, `offset-out-of-range`.
    """
    for partition, offset, _, end in ranges:
        if offset > end:
            raise Fenced(
                "log-behind-root",
                f"topic {topic}, partition {partition}: offset {offset} was decided, but the log {log} ends at {end}: "
                "it was truncated or restored from a backup. Restore the log, or create the topic again",
            )
    removed = [held for held in ranges if held[1] < held[2]]
    if removed:
        lost = "; ".join(
            f"partition {partition} lost offsets {offset} to {begin - 1} ({begin - offset})"
            for partition, offset, begin, _ in removed
        )
        raise Fenced(
            "offset-out-of-range",
            f"topic {topic}: retention removed records that may be undecided: {lost}. A blocked table kept the "
            "offset from advancing (other tables may be decided). `rootline quarantine list` may name it. Ask writers "
            f"without a verdict to publish again. To continue with the remaining records, {_ACCEPT}",
        )
