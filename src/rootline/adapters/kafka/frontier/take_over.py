"""How an assignment takes over the rejections that no root records.

Owns: the order of the steps. Does not own: the records (`frontier/answers`), where a partition starts (`start_rules`).
Invariants: the group accepts a commit between reading the topic and writing to it, and another one after that; an
assignment for which one of them fails does not begin.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping

from aiokafka import AIOKafkaConsumer, TopicPartition

from rootline.adapters.kafka.frontier.answers import AnswerRecord, next_record, outgoing, tombstone
from rootline.adapters.kafka.frontier.keeper import FrontierKeeper
from rootline.adapters.kafka.frontier.records import Recorded
from rootline.adapters.kafka.group_offsets import commit_offsets
from rootline.adapters.kafka.log_errors import log_unavailable
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.schemas.errors import OutcomeUnknown
from rootline.schemas.log_position import LogId


async def take_over(
    settings: KafkaSettings,
    keeper: FrontierKeeper,
    consumer: AIOKafkaConsumer,
    generation: int,
    log: LogId,
    recorded: Recorded,
    starts: Mapping[TopicPartition, int],
) -> dict[TopicPartition, AnswerRecord]:
    """The first record of each partition of this assignment, with what earlier owners have held.

    The commits also mark that the partitions are being read, or a crash before anything is decided would not be
    noticed.

    Raises:
        KafkaError: the group does not accept the commit. TimeoutError: no answer. Unavailable: `log-unavailable`.

    """
    if not starts:
        return {}
    async with asyncio.timeout(settings.request_timeout_s):
        await commit_offsets(consumer, starts, log, generation=generation)
    name, taken, gone = uuid.uuid4().hex, {}, []
    for at, start in starts.items():
        taken[at], before = next_record(recorded.answers, log, at.partition, name, start)
        gone += before
    try:
        await keeper.publish([outgoing(settings, record) for record in taken.values()])
        async with asyncio.timeout(settings.request_timeout_s):
            await commit_offsets(consumer, starts, log, generation=generation)
        if gone:
            await keeper.publish([tombstone(settings, record) for record in gone])
    except OutcomeUnknown as error:
        raise log_unavailable(settings, error.message, topic=settings.frontiers_topic) from None
    return taken
