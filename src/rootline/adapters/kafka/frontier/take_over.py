"""How an assignment takes over the rejections that no root records, and what is parked.

Owns: the order of the steps. Does not own: the records (`frontier/answers`, `parking/records`), where a partition
starts (`start_rules`).
Invariants: the group accepts a commit between reading the topic and writing to it, and another one after that; an
assignment for which one of them fails does not begin.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition

from rootline.adapters.kafka.frontier.answers import AnswerRecord, next_record, outgoing, tombstone
from rootline.adapters.kafka.frontier.keeper import FrontierKeeper
from rootline.adapters.kafka.frontier.records import Recorded
from rootline.adapters.kafka.group_offsets import commit_offsets
from rootline.adapters.kafka.log_errors import log_unavailable
from rootline.adapters.kafka.parking.records import (
    ParkingRecord,
    next_parking_record,
    parking_outgoing,
    parking_tombstone,
)
from rootline.adapters.kafka.publisher import Outgoing
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.ports.intent_feed import Assigned, Pause
from rootline.schemas.errors import OutcomeUnknown
from rootline.schemas.identifiers import LogId
from rootline.schemas.root_header import PartitionOffset

UNREAD_STEP: Final = 1_000_000
"""The next epoch is so much higher where a record was not read: it had an epoch, and its owner may write once more."""


@dataclass(frozen=True, slots=True)
class TakenOver:
    """The first records of one partition of an assignment."""

    answers: AnswerRecord
    parked: ParkingRecord


async def take_over(
    settings: KafkaSettings,
    keeper: FrontierKeeper,
    consumer: AIOKafkaConsumer,
    generation: int,
    log: LogId,
    recorded: Recorded,
    starts: Mapping[TopicPartition, int],
) -> dict[TopicPartition, TakenOver]:
    """The first records of each partition of this assignment, with what earlier owners have held and parked.

    The commits also mark that the partitions are being read, or a crash before anything is decided would not be
    noticed.

    Raises:
        KafkaError: the group does not accept the commit. TimeoutError: no answer. Unavailable: `log-unavailable`.

    """
    if not starts:
        return {}
    async with asyncio.timeout(settings.request_timeout_s):
        await commit_offsets(consumer, starts, log, generation=generation)
    name, taken, gone = uuid.uuid4().hex, dict[TopicPartition, TakenOver](), []
    for at, start in starts.items():
        step = UNREAD_STEP if recorded.is_unread(at.partition) else 1
        parked, parked_before = next_parking_record(recorded.parked, log, at.partition, name[:12], step=step)
        tables = tuple(parked.tables.values())
        answers, before = next_record(recorded.answers, log, at.partition, name, start, tables, step=step)
        taken[at] = TakenOver(answers, parked)
        gone += [tombstone(settings, record) for record in before]
        gone += [parking_tombstone(settings, record) for record in parked_before]
        gone += [
            Outgoing(settings.frontiers_topic, key, None)
            for key, (_, of) in recorded.unread.items()
            if of == at.partition
        ]
    first = [
        record
        for own in taken.values()
        for record in (outgoing(settings, own.answers), parking_outgoing(settings, own.parked))
    ]
    try:
        await keeper.publish(first)
        async with asyncio.timeout(settings.request_timeout_s):
            await commit_offsets(consumer, starts, log, generation=generation)
        if gone:
            await keeper.publish(gone)
    except OutcomeUnknown as error:
        raise log_unavailable(settings, error.message, topic=settings.frontiers_topic) from None
    return taken


def assigned_with(
    log: LogId,
    starts: Mapping[int, int],
    poison_candidates: Mapping[int, int],
    taken: Mapping[TopicPartition, TakenOver],
    retention_s: float,
    term: int,
    pauses: Iterable[Pause],
) -> Assigned:
    """The event that tells of this assignment; partition → offset where it starts, and where suspects end."""
    return Assigned(
        tuple(PartitionOffset(log, number, start) for number, start in starts.items()),
        tuple(PartitionOffset(log, number, end) for number, end in poison_candidates.items()),
        tuple(answer for own in taken.values() for _, answer in sorted(own.answers.answers.items())),
        tuple(parked for own in taken.values() for parked in own.parked.tables.values()),
        retention_s,
        term,
        tuple(pauses),
    )
