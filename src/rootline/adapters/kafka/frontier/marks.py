"""The check that a partition still has the record last read from it: a log that went back and grew again has not.

Owns: the mark of a record, and reading the records that marks name. Does not own: when marks are written (`keeper`),
where (`records`).
Invariants: a record that retention has removed proves nothing; of each partition one record is read, of all at once.

Source: decision 0106.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition

from rootline.adapters.kafka.clients import FETCH_WAIT_MS, make_consumer, start_consumer, stop_consumer
from rootline.adapters.kafka.records import log_records
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.schemas.errors import Fenced
from rootline.schemas.identifiers import LogId, LogRecord, mark_of


class Mark(NamedTuple):
    """A record of a partition, by what tells it from any other at its offset."""

    offset: int
    mark: bytes


def mark_of_record(record: LogRecord) -> Mark | None:
    """The mark of the record, or `None` if only its position is known."""
    return None if record.not_read else Mark(record.position.offset, mark_of(record.value, record.appended_ms))


async def check_marks(
    settings: KafkaSettings,
    log: LogId,
    marks: Mapping[int, Mark],
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> None:
    """Compare the records that `marks` name with the log.

    `begins`, `ends`: of the partitions to check.

    Raises:
        Fenced: `log-behind-root`.
        KafkaError, TimeoutError: the log does not answer.

    """
    due = {at: marks[at.partition] for at in ends if at.partition in marks and marks[at.partition].offset >= begins[at]}
    for at, mark in due.items():
        if mark.offset >= ends[at]:
            raise _went_back(log, at, mark, f"ends at {ends[at]}")
    if not due:
        return
    consumer = make_consumer(settings, group_id=None, reset="none", reads_all=True)
    await start_consumer(consumer, patience_s=settings.request_timeout_s)
    try:
        async with asyncio.timeout(settings.request_timeout_s + FETCH_WAIT_MS / 1_000):
            await _compare(consumer, log, due)
    finally:
        await asyncio.shield(stop_consumer(consumer, patience_s=settings.request_timeout_s))


async def _compare(consumer: AIOKafkaConsumer, log: LogId, due: dict[TopicPartition, Mark]) -> None:
    consumer.assign(list(due))
    for at, mark in due.items():
        consumer.seek(at, mark.offset)
    while due:
        batches: Mapping[TopicPartition, Sequence[Any]] = await consumer.getmany(
            timeout_ms=FETCH_WAIT_MS, max_records=1
        )
        for at, found in batches.items():
            mark, [record] = due.pop(at), log_records(log, found)
            consumer.pause(at)
            if record.position.offset != mark.offset or mark_of_record(record) not in (mark, None):
                raise _went_back(log, at, mark, "has another record there, or none")
        for at, mark in due.items():
            if await consumer.position(at) > mark.offset:
                raise _went_back(log, at, mark, "has no record there")


def _went_back(log: LogId, at: TopicPartition, mark: Mark, but: str) -> Fenced:
    return Fenced(
        "log-behind-root",
        f"topic {at.topic}, partition {at.partition}: the record at offset {mark.offset} was read, but the log {log} "
        f"{but}: it was truncated or restored from a backup, and has grown since. Restore the log, or create the topic "
        "again",
    )
