"""The frontiers' topic: for each partition of a log, an offset below which everything is decided.

Owns: the form of a frontier and of the mark of the last record read, reading the whole topic, writing, the task that
writes frontiers soon after the group has committed them, the steps by which an assignment takes over rejections and
parked tables. Does not own: the other records (`frontier_codec`), the start of a partition (`group_offsets`), the
topic's configuration (`topics`).
Invariants: A frontier is a lower bound: it is written only after the group has committed the same offset or a later
one. A record of another group or of another topic id is never used. An unreadable record is skipped, and the newest
readable one of its key counts (decision 0108). The latest frontier is written automatically within ten seconds, or at
the next success, and a failure delays nothing else. In a takeover, the group accepts one commit between reading the
topic and writing to it, and another one after the write, or the assignment does not begin. The mark of a
record that retention has removed is not checked. The marked records are read with one consumer, one record of each
partition (decision 0106).

A frontier may be lost, written late, or overwritten by a stalled coordinator. Then records are read again, but none are
lost: a partition starts at the greatest known offset, and a log that begins above that offset is refused, not skipped.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition

from rootline.adapters.kafka.clients import FETCH_WAIT_MS, log_unavailable, reading_consumer
from rootline.adapters.kafka.control_records import (
    ANSWERS,
    FRONTIER,
    LAKE,
    LIFT,
    PARKED,
    PAUSED,
    UPGRADED,
    ControlKey,
    Skipped,
    Unreadable,
    control_body,
    control_key,
    count,
    rows,
    text,
)
from rootline.adapters.kafka.frontier_codec import (
    AnswerRecord,
    ParkingRecord,
    answer_record_of,
    lake_of,
    lift_of,
    next_parking_record,
    next_record,
    outgoing,
    parking_outgoing,
    parking_record_of,
    pause_of,
    tombstone,
)
from rootline.adapters.kafka.group_offsets import commit_offsets
from rootline.adapters.kafka.publisher import KafkaPublisher, Outgoing
from rootline.adapters.kafka.record_batches import log_records
from rootline.adapters.kafka.topic_reader import KafkaTopicReader
from rootline.adapters.settings import KafkaSettings
from rootline.library_log import library_logger
from rootline.ports.intent_feed import Assigned, Lift, Pause
from rootline.schemas.bytes.record_headers import Lake
from rootline.schemas.errors import Fenced, OutcomeUnknown, RootlineError
from rootline.schemas.identifiers import LogId, LogRecord, mark_of
from rootline.schemas.parts.log import PartitionOffset


class Mark(NamedTuple):
    """The offset of a record, and a digest (`mark`) that distinguishes it from any other record at that offset."""

    offset: int
    mark: bytes


def mark_of_record(record: LogRecord) -> Mark | None:
    """The mark of the record, or `None` for a record whose content was not read."""
    return None if record.not_read else Mark(record.position.offset, mark_of(record.value, record.appended_ms))


async def check_marks(
    settings: KafkaSettings,
    log: LogId,
    marks: Mapping[int, Mark],
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> None:
    """Check that the records that `marks` names are still in the log.

    `begins`, `ends`: the offsets of the partitions to check.

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
    async with (
        reading_consumer(settings) as consumer,
        asyncio.timeout(settings.request_timeout_s + FETCH_WAIT_MS / 1_000),
    ):
        await _compare(consumer, log, due)


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
        f"{but}: it was truncated or restored from a backup. Restore the log, or create the topic again",
    )


_RECORD_BYTES_MAX: Final = 1_000_000
_ALL: Final = 2**62
_NEXT_OFFSET: Final = "next-offset"
NO_MARKS: Final[Mapping[int, Mark]] = {}
_LAST_READ: Final = "last-read"


def frontier_record(
    settings: KafkaSettings, log: LogId, partition: int, next_offset: int, mark: Mark | None = None
) -> Outgoing:
    """The Kafka record of a frontier. All records of this partition before `next_offset` are decided.

    `mark`: identifies the last record that was read.
    """
    key = json.dumps([settings.group_id, log, partition]).encode()
    body: dict[str, Any] = {_NEXT_OFFSET: next_offset}
    if mark is not None:
        body[_LAST_READ] = [mark.offset, mark.mark.hex()]
    return Outgoing(settings.frontiers_topic, key, json.dumps(body).encode())


def frontier_of(value: bytes) -> tuple[int, Mark | None]:
    """The offset in a frontier, and the mark of the record that was read last. Raises `Unreadable`."""
    body = control_body(value)
    last_read = body.get(_LAST_READ)
    if last_read is None:
        return count(body.get(_NEXT_OFFSET)), None
    [[offset, mark]] = rows([last_read], 2)
    try:
        return count(body.get(_NEXT_OFFSET)), Mark(count(offset), bytes.fromhex(text(mark)))
    except ValueError:
        raise Unreadable(f"`{_LAST_READ}` has no mark") from None


@dataclass(frozen=True, slots=True)
class Recorded:
    """The contents of the topic for one log. `frontiers`: partition → the greatest recorded offset."""

    frontiers: Mapping[int, int]
    answers: tuple[AnswerRecord, ...]
    parked: tuple[ParkingRecord, ...] = ()
    lifts: tuple[Lift, ...] = ()
    is_upgraded: bool = False
    """Whether the topic records that no coordinator of the first release reads the log."""
    pauses: tuple[Pause, ...] = ()
    lake: Lake | None = None
    """The lake to which the group's coordinators commit. `None`: not recorded yet."""
    marks: Mapping[int, Mark] = field(default_factory=dict)
    """Partition → the record that was read last, from its newest frontier."""
    unread: Mapping[bytes, tuple[str, int]] = field(default_factory=dict)
    """Keys of rejections and parked tables whose newest record cannot be read → kind and partition."""

    def is_unread(self, partition: int, kind: str | None = None) -> bool:
        """Whether a record of the partition cannot be read. `kind`: of this kind only."""
        return any(of == partition and kind in (None, held) for held, of in self.unread.values())


async def read_frontiers(settings: KafkaSettings, log: LogId, *, warns: bool = True) -> Recorded:
    """Read the frontiers topic up to its current end. `warns`: log the records that cannot be read.

    Raises:
        Unavailable: `log-unavailable`, no broker answers, or the topic does not exist.
    """
    reading = FrontierReading(settings.group_id, log)
    reader = KafkaTopicReader(settings, settings.frontiers_topic)
    await reader.first_since(0, None, reading.take, records_max=_ALL)
    if warns:
        reading.skipped.log()
    return reading.recorded()


class FrontierReading:
    """Collects the newest readable record of each key. A tombstone removes it, an unreadable record does not."""

    def __init__(self, group_id: str, log: LogId) -> None:
        self.skipped = Skipped()
        self._group_id = group_id
        self._log = log
        self._frontiers: dict[int, int] = {}
        self._marks: dict[int, Mark | None] = {}
        self._lakes: dict[bytes, Lake] = {}
        self._answers: dict[bytes, AnswerRecord] = {}
        self._parked: dict[bytes, ParkingRecord] = {}
        self._lifts: dict[bytes, Lift] = {}
        self._pauses: dict[bytes, Pause] = {}
        self._is_upgraded = False
        self._unread: dict[bytes, tuple[str, int]] = {}

    def take(self, record: Any) -> None:
        """Add the next record of the topic, whatever its form."""
        key = None
        try:
            key = control_key(self._group_id, record.key)
            if key is not None and key.log in (self._log, None):
                self._unread.pop(record.key, None)
                self._take(key, record)
        except Unreadable as why:
            self.skipped.note(record, why)
            if key is not None and key.kind in (ANSWERS, PARKED):
                self._unread[record.key] = (key.kind, key.partition)

    def recorded(self) -> Recorded:
        """The records of this group and this log."""
        return Recorded(
            self._frontiers,
            tuple(self._answers.values()),
            tuple(self._parked.values()),
            tuple(self._lifts.values()),
            self._is_upgraded,
            tuple(self._pauses.values()),
            next(iter(self._lakes.values()), None),
            {partition: mark for partition, mark in self._marks.items() if mark is not None},
            self._unread,
        )

    def _take(self, key: ControlKey, record: Any) -> None:
        raw, value = record.key, record.value
        if value is None:
            for held in (self._answers, self._parked, self._lifts, self._pauses, self._lakes):
                held.pop(raw, None)
            return
        if key.kind == FRONTIER:
            offset, self._marks[key.partition] = frontier_of(value)
            self._frontiers[key.partition] = max(offset, self._frontiers.get(key.partition, 0))
        elif key.kind == LAKE:
            self._lakes.setdefault(raw, lake_of(value))
        elif key.kind == UPGRADED:
            control_body(value)  # its offsets are not used any more
            self._is_upgraded = True
        elif key.kind == ANSWERS:
            self._answers[raw] = answer_record_of(key, value)
        elif key.kind == PARKED:
            self._parked[raw] = parking_record_of(key, value)
        elif key.kind == LIFT:
            self._lifts[raw] = lift_of(key, value)
        elif key.kind == PAUSED:
            self._pauses[raw], why = pause_of(key, value)
            if why is not None:
                self.skipped.note(record, why)


def frontier_publisher(settings: KafkaSettings) -> KafkaPublisher:
    """The publisher of the topic's records. It connects at the first record."""
    return KafkaPublisher(settings, lambda: _RECORD_BYTES_MAX)


async def publish_alone(settings: KafkaSettings, records: Sequence[Outgoing]) -> None:
    """Publish records to the frontiers' topic on a connection that is closed afterwards.

    Raises:
        Unavailable: `log-unavailable`. Publishing the records again is safe.
    """
    publisher = frontier_publisher(settings)
    try:
        await publisher.publish(records)
    except OutcomeUnknown as error:
        raise log_unavailable(settings, error.message, topic=settings.frontiers_topic) from None
    finally:
        await publisher.close()


async def write_frontiers(
    settings: KafkaSettings,
    publisher: KafkaPublisher,
    log: LogId,
    offsets: Mapping[int, int],
    marks: Mapping[int, Mark] = NO_MARKS,
) -> None:
    """Write these offsets durably. `marks`: the record that was read last of each partition, where known.

    Raises:
        Unavailable: `log-unavailable`. OutcomeUnknown: `publish-unknown`, it is safe to write again.
    """
    records = [frontier_record(settings, log, number, offset, marks.get(number)) for number, offset in offsets.items()]
    await publisher.publish(records)


_PAUSE_S: Final = 10.0
"""Seconds between two writes. After a crash in between, the last frontier is still a lower bound."""


class FrontierKeeper:
    """Writes the frontiers of one member's partitions in the background. For one event loop."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._publisher = frontier_publisher(settings)
        self._noted: dict[tuple[LogId, int], int] = {}
        self._marks: dict[LogId, dict[int, Mark]] = {}
        self._writing: asyncio.Task[None] | None = None
        self._publishing: set[asyncio.Task[Any]] = set()
        self._closing = asyncio.Event()

    def note(self, log: LogId, offsets: Mapping[int, int], marks: Mapping[int, Mark] = NO_MARKS) -> None:
        """Write offsets that the group has committed, soon. `marks`: the last record read of each partition."""
        self._marks.setdefault(log, {}).update(marks)
        for partition, offset in offsets.items():
            self._noted[log, partition] = max(offset, self._noted.get((log, partition), 0))
        if self._noted and self._writing is None and not self._closing.is_set():
            self._writing = asyncio.get_running_loop().create_task(self._write(), name="rootline frontiers")

    async def flush(self) -> None:
        """Write the noted offsets, in one attempt."""
        if not self._noted:
            return
        noted, self._noted = self._noted, {}
        by_log: dict[LogId, dict[int, int]] = {}
        for (log, partition), offset in noted.items():
            by_log.setdefault(log, {})[partition] = offset
        try:
            for log, offsets in by_log.items():
                marks = self._marks.get(log, NO_MARKS)
                await write_frontiers(self._settings, self._publisher, log, offsets, marks)
        except RootlineError as error:
            for place, offset in noted.items():  # for the next attempt, unless a later offset was noted meanwhile
                self._noted[place] = max(offset, self._noted.get(place, 0))
            logger = library_logger("rootline.kafka")
            logger.info("frontiers not written", action="retry", reason=str(error))

    async def publish(self, records: Sequence[Outgoing]) -> None:
        """Publish other records of the topic durably. Raises the errors of `KafkaPublisher.publish`."""
        publishing = asyncio.get_running_loop().create_task(self._publisher.publish(records))
        self._publishing.add(publishing)
        publishing.add_done_callback(self._published)
        await asyncio.shield(publishing)  # a rebalance must not cancel a connection attempt

    def forget(self) -> None:
        """Discard the noted offsets, because the new owners of the partitions write their own."""
        self._noted.clear()
        self._marks.clear()

    async def close(self) -> None:
        """Stop writing, and close the connection. A write in flight ends first, or after its deadline."""
        self._noted.clear()
        self._closing.set()
        writing = self._writing
        if writing is not None:
            await asyncio.wait([writing], timeout=self._settings.request_timeout_s)
            writing.cancel()
            await asyncio.wait([writing])
        if self._publishing:
            await asyncio.wait(self._publishing, timeout=self._settings.request_timeout_s)
        await self._publisher.close()

    def _published(self, task: asyncio.Task[Any]) -> None:
        self._publishing.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, or asyncio would log it

    async def _write(self) -> None:
        """Write until no offset is noted. The next call of `note` starts this task again."""
        while self._noted:
            await self.flush()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PAUSE_S):
                    await self._closing.wait()
                    break
        self._writing = None


UNREAD_STEP: Final = 1_000_000
"""The step to the next epoch if a record could not be read. Its owner, whose epoch is unknown, may still write."""


@dataclass(frozen=True, slots=True)
class TakenOver:
    """The first records of an assignment for one partition."""

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
    """Write the first records of this assignment, with the rejections and parked tables of earlier owners.

    Commits the start of each partition before the write and after it. The commits also mark that the partitions are
    being read. Otherwise a crash before anything is decided would not be noticed.

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
        gone += [tombstone(settings, record) for record in parked_before]
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
    generation: int,
    pauses: Iterable[Pause],
) -> Assigned:
    """The event of this assignment.

    `starts`: partition → the offset where it starts. `poison_candidates`: partition → the offset
    after the records that a crashed reader may have been decoding.
    """
    return Assigned(
        tuple(PartitionOffset(log, number, start) for number, start in starts.items()),
        tuple(PartitionOffset(log, number, end) for number, end in poison_candidates.items()),
        tuple(answer for own in taken.values() for _, answer in sorted(own.answers.answers.items())),
        tuple(parked for own in taken.values() for parked in own.parked.tables.values()),
        retention_s,
        generation,
        tuple(pauses),
    )
