"""The topic of parked records: each is the writer's own record, with a header that gives its position on the log.

The *names* of a partition are a record in the frontiers' topic. It lists the parked tables and where their records are.

Owns: the form of a record, storing, reading the records of one table in order, removing those at the front, and
rebuilding lost names from the topic. Does not own: the form of names (`frontier_codec`), when records are stored
(`progress`).
Invariants: A parked record has its own key, value and headers, and its own position and append time. A record of
another writer, and a record that was stored twice, are skipped. The records of a table are numbered. Unless an operator
permits it, no record after a missing number is returned. A partition that the group has read has names, perhaps an
empty list. Without them, no parked record is skipped silently: a table may receive decided records again, but never
misses an undecided one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as AdminPartition

from rootline.adapters.kafka.clients import log_unavailable, make_admin, reading_consumer
from rootline.adapters.kafka.control_records import PARKED, Unreadable, control_row, count, text, whole
from rootline.adapters.kafka.frontier_codec import ParkingRecord
from rootline.adapters.kafka.frontiers import Recorded
from rootline.adapters.kafka.group_offsets import PartitionFacts
from rootline.adapters.kafka.publisher import KafkaPublisher, Outgoing, RecordTooLarge, SomeTooLarge
from rootline.adapters.kafka.topic_reader import KafkaTopicReader
from rootline.adapters.kafka.topics import complete_topics, topic_identity
from rootline.adapters.settings import KafkaSettings
from rootline.library_log import library_logger
from rootline.ports.intent_feed import ParkedRun, ParkedTable
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.identifiers import LogId, LogPosition, LogRecord, TableName

_HEADER: Final = "rootline.parked"
_ANY_SIZE: Final = 2**31 - 1
_READ_MAX: Final = 256
_POLL_MS: Final = 500


class ParkedHeader(NamedTuple):
    """The header of a parked record.

    It contains the writer, the number of the record in its table, and the record's position on the log.
    """

    group: str
    writer: str
    number: int
    table: str
    log: LogId
    partition: int
    offset: int
    appended_ms: int
    has_key: bool


class ParkedTopic:
    """The topic of parked records. For one event loop. Connects at the first use."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._publisher = KafkaPublisher(settings, lambda: _ANY_SIZE)
        self._partitions = 0

    async def store(self, parked: ParkedTable, records: Sequence[LogRecord], writer: str) -> ParkedRun:
        """Append records of a table after its parked records, durably.

        Raises:
            Unavailable: `log-unavailable`. OutcomeUnknown: `publish-unknown`. Invalid: `table-parked`, a record is too
                large.
        """
        if parked.partition >= self._partitions:
            await asyncio.to_thread(complete_topics, self._settings)
            found = await asyncio.to_thread(topic_identity, self._settings, self._settings.parked_topic)
            self._partitions = found.partitions
            if parked.partition >= found.partitions:
                raise log_unavailable(
                    self._settings,
                    f"topic {self._settings.parked_topic} has {found.partitions} partitions, so no record of partition "
                    f"{parked.partition} can be parked. See `rootline topics check`",
                    topic=self._settings.parked_topic,
                )
        sent = [
            _outgoing(self._settings, parked, raw, writer, parked.records + number)
            for number, raw in enumerate(records)
        ]
        try:
            places = await self._publisher.publish(sent)
        except (RecordTooLarge, SomeTooLarge) as error:
            raise Invalid("table-parked", f"topic {self._settings.parked_topic}: {error}") from None
        return ParkedRun(writer, places[0][1], places[-1][1])

    async def read(
        self, parked: ParkedTable, from_offset: int, *, without_missing: bool
    ) -> AsyncGenerator[list[LogRecord], None]:
        """Read the parked records as `ParkedStore.parked_records`."""
        at = TopicPartition(self._settings.parked_topic, parked.partition)
        expected, last = 0, -1
        try:
            async with reading_consumer(self._settings) as consumer:
                consumer.assign([at])
                async with asyncio.timeout(self._settings.request_timeout_s):
                    begin, end = (await consumer.beginning_offsets([at]))[at], (await consumer.end_offsets([at]))[at]
                for run in parked.runs:
                    position = max(run.first, begin)
                    consumer.seek(at, position)
                    while position <= min(run.last, end - 1):
                        found, position = await self._portion(consumer, at, position, run.last)
                        portion: list[LogRecord] = []
                        for held in found:
                            said = parked_header_of(held.headers)
                            if said is None or not self._is_of(parked, run, said) or said.offset <= last:
                                continue
                            if said.number != expected and not (without_missing and said.number > expected):
                                continue  # from an attempt that failed, or the record before is missing
                            expected, last = said.number + 1, said.offset
                            if said.offset >= from_offset:
                                portion.append(_record(held, said))
                        if portion:
                            yield portion
                if expected < parked.records and not without_missing:
                    raise self._missing(parked, expected)
        except (KafkaError, TimeoutError) as error:
            raise log_unavailable(self._settings, error, topic=at.topic) from None

    async def remove_before(self, partition: int, offset: int, *, log: LogId) -> None:
        """Remove records before `offset`, up to the first one of another group or log. A failure is only logged."""
        at = TopicPartition(self._settings.parked_topic, partition)
        try:
            end = await self._own_until(at, offset, log)
            if end > 0:
                await asyncio.to_thread(self._remove, partition, end)
        except (KafkaError, KafkaException, TimeoutError) as error:
            logger = library_logger("rootline.kafka")
            logger.info("parked records not removed", action="remove-parked", partition=partition, reason=str(error))

    async def close(self) -> None:
        """Wait for pending records, then close the connection."""
        await self._publisher.close()

    async def _portion(
        self, consumer: AIOKafkaConsumer, at: TopicPartition, position: int, last: int
    ) -> tuple[list[Any], int]:
        """Read the next fetched records from `position` on, up to `last`.

        Returns the records, and the position from which to continue.
        """
        deadline_s = asyncio.get_running_loop().time() + self._settings.request_timeout_s
        while True:
            try:
                batches = await consumer.getmany(at, timeout_ms=_POLL_MS, max_records=_READ_MAX)
            except OffsetOutOfRangeError:  # removed meanwhile
                return [], last + 1
            after: int = await consumer.position(at)
            if batches or after > position:
                return [held for held in batches.get(at, ()) if held.offset <= last], after
            if asyncio.get_running_loop().time() > deadline_s:
                raise TimeoutError(f"no parked record arrived for {self._settings.request_timeout_s:g} s")

    def _is_of(self, parked: ParkedTable, run: ParkedRun, said: ParkedHeader) -> bool:
        own = (self._settings.group_id, run.writer, parked.table, parked.log, parked.partition)
        return own == (said.group, said.writer, said.table, said.log, said.partition) and (
            parked.first_offset <= said.offset < parked.next_offset and said.number < parked.records
        )

    def _missing(self, parked: ParkedTable, number: int) -> Corrupt:
        return Corrupt(
            "parked-missing",
            f"{parked.table}: of {parked.records} parked records of partition {parked.partition}, number {number + 1} "
            f"is not in topic {self._settings.parked_topic} any more. Restore the topic, or run "
            f"`rootline quarantine lift {parked.table} --without-missing`",
        )

    async def _own_until(self, at: TopicPartition, offset: int, log: LogId) -> int:
        """The offset of the first record of another group or log, or `offset` if none precedes it."""
        async with reading_consumer(self._settings) as consumer:
            consumer.assign([at])
            async with asyncio.timeout(self._settings.request_timeout_s):
                position = (await consumer.beginning_offsets([at]))[at]
            consumer.seek(at, position)
            while position < offset:
                found, after = await self._portion(consumer, at, position, offset - 1)
                for held in found:
                    said = parked_header_of(held.headers)
                    if said is None or (said.group, said.log) != (self._settings.group_id, log):
                        return int(held.offset)
                position = after
            return offset

    def _remove(self, partition: int, offset: int) -> None:
        place = AdminPartition(self._settings.parked_topic, partition, offset)
        admin = make_admin(self._settings)
        admin.delete_records([place], request_timeout=self._settings.request_timeout_s)[place].result()


def _outgoing(settings: KafkaSettings, parked: ParkedTable, raw: LogRecord, writer: str, number: int) -> Outgoing:
    log, partition, offset = raw.position
    has_key = raw.key is not None
    said = ParkedHeader(
        settings.group_id, writer, number, parked.table, log, partition, offset, raw.appended_ms, has_key
    )
    header = (_HEADER, json.dumps(said).encode())
    return Outgoing(
        settings.parked_topic, parked.table.encode(), raw.value, (*raw.headers, header), partition=partition
    )


def parked_header_of(headers: Sequence[tuple[str, bytes | None]]) -> ParkedHeader | None:
    """Decode the header of a parked record, or return `None` for another record.

    It is the last header, because the record's own headers precede it.
    """
    if not headers or headers[-1][0] != _HEADER:
        return None
    try:
        group, writer, number, table, log, partition, offset, appended_ms, has_key = control_row(headers[-1][1], 9)
        return ParkedHeader(
            text(group),
            text(writer),
            count(number),
            text(table),
            LogId(text(log)),
            count(partition),
            count(offset),
            whole(appended_ms),
            has_key is True,
        )
    except Unreadable:
        return None


def _record(held: Any, said: ParkedHeader) -> LogRecord:
    position = LogPosition(said.log, said.partition, said.offset)
    key = held.key if said.has_key else None
    return LogRecord(position, key, held.value or b"", said.appended_ms, tuple(held.headers[:-1]))


_ALL: Final = 2**62
_WHY: Final = "the frontiers' topic was deleted, emptied or damaged, and no longer named the parked records"


async def with_rebuilt_names(
    settings: KafkaSettings, log: LogId, recorded: Recorded, facts: Sequence[PartitionFacts]
) -> Recorded:
    """Add to `recorded` the names of partitions whose names are missing or unreadable.

    They are rebuilt from the topic of parked records, and only for partitions that the group has read.

    Raises:
        Unavailable: `log-unavailable`.
    """
    named = {record.partition for record in recorded.parked if not recorded.is_unread(record.partition, PARKED)}
    read = {held.partition for held in facts if held.committed is not None and held.committed.log == log}
    if not read - named:
        return recorded
    found = await _found(settings, log, read - named)
    for record in found:
        library_logger("rootline.kafka").warning(
            "rebuilt names of parked records",
            action="park",
            partition=record.partition,
            tables={table: parked.records for table, parked in record.tables.items()},
            reason=_WHY,
        )
    return replace(recorded, parked=(*recorded.parked, *(_beside(record, recorded.parked) for record in found)))


def _beside(found: ParkingRecord, known: Iterable[ParkingRecord]) -> ParkingRecord:
    """`found` with the epoch of the newest readable names, so that both count."""
    epoch = max((record.epoch for record in known if record.partition == found.partition), default=0)
    return replace(found, epoch=epoch, began=True)


async def _found(settings: KafkaSettings, log: LogId, partitions: Collection[int]) -> list[ParkingRecord]:
    tables: dict[tuple[int, TableName], _Found] = {}

    def take(record: Any) -> None:
        said = parked_header_of(record.headers)
        if said is not None and (said.group, said.log) == (settings.group_id, log) and said.partition in partitions:
            place = (said.partition, TableName(said.table))
            tables.setdefault(place, _Found()).take(record.offset, record.timestamp, len(record.value or b""), said)

    await KafkaTopicReader(settings, settings.parked_topic).first_since(0, None, take, records_max=_ALL)
    return [
        ParkingRecord(log, number, "found again", 0, _by_table(parked))
        for number in sorted({partition for partition, _ in tables})
        if (parked := [held.named() for (partition, _), held in tables.items() if partition == number])
    ]


def _by_table(found: Iterable[ParkedTable]) -> dict[TableName, ParkedTable]:
    return {parked.table: parked for parked in found}


@dataclass(slots=True)
class _Found:
    """The parked records of one table that were found so far, with consecutive numbers.

    A later record with the number 0 replaces them all, because the table was parked again.
    """

    runs: list[ParkedRun] = field(default_factory=list)
    first: tuple[ParkedHeader, int] | None = None
    last: ParkedHeader | None = None
    size_in_bytes: int = 0
    _skipped: bool = False

    def take(self, offset: int, stored_ms: int, size: int, said: ParkedHeader) -> None:
        if self.last is None or (said.number == 0 and said.offset > self.last.offset):
            self.runs, self.first, self.last, self.size_in_bytes = [], (said, stored_ms), None, 0
        elif said.number != self.last.number + 1 or said.offset <= self.last.offset:
            self._skipped = True  # from an attempt that failed, or from a stalled owner
            return
        if self.runs and self.runs[-1].writer == said.writer and not self._skipped:
            self.runs[-1] = replace(self.runs[-1], last=offset)
        else:
            self.runs.append(ParkedRun(said.writer, offset, offset))
        self.last, self._skipped = said, False
        self.size_in_bytes += size

    def named(self) -> ParkedTable:
        assert self.first is not None
        assert self.last is not None
        first, since_ms = self.first
        return ParkedTable(
            table=TableName(first.table),
            log=first.log,
            partition=first.partition,
            next_offset=self.last.offset + 1,
            since_ms=since_ms,
            why=_WHY,
            first_offset=first.offset,
            records=self.last.number + 1,
            size_in_bytes=self.size_in_bytes,
            oldest_ms=first.appended_ms,
            runs=tuple(self.runs),
        )
