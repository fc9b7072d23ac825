"""Reads topics backwards from their end or forwards from a moment, and offers the log as an archive over that.

Owns: a consumer for each search, the part of a topic in memory, the topic and the offset at which a search starts. Does
not own: the contents of headers (`record_headers`).
Invariants: All invariants of the port `LogArchive`. No offset is committed and no group is joined. A search ends at the
end that the topic had when it began. A broker that does not answer for `request_timeout_s` ends the search. Records
that Rootline has not written are skipped.

Verdicts and dead letters follow their record in time. So both are searched from the record's append time on, and from a
little before it, because their times are from a coordinator's clock and not from the broker's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from typing import Any, Final, TypeVar

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from aiokafka.partitioner import DefaultPartitioner
from typing_extensions import override

from rootline.adapters.kafka.clients import log_unavailable, reading_consumer
from rootline.adapters.kafka.record_batches import STAND_IN_KEY, log_records
from rootline.adapters.kafka.record_headers import dead_letter_of, range_of
from rootline.adapters.kafka.topics import topic_identity
from rootline.adapters.settings import KafkaSettings
from rootline.ports.intent_log import LogArchive
from rootline.schemas.bytes.verdict_codec import decode_verdicts
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import LogPosition, LogRecord
from rootline.schemas.verdict import DeadLetter, Verdict

_PORTION_MIN: Final = 32
_PORTION_MAX: Final = 16_384
_PORTION_BYTES: Final = 50_000_000
"""The approximate limit of bytes in memory, over all partitions. After a larger portion, the next one is smaller."""
_POLL_MS: Final = 1_000
_Found = TypeVar("_Found")


@dataclass(slots=True)
class _Tail:
    """The position of a backward read in one partition. Offsets from `start` to before `end` are not fetched yet.

    `records`: the fetched records from `end` on that are not returned yet, the newest last.
    """

    at: TopicPartition
    start: int
    end: int
    partitions: int
    size: int = _PORTION_MIN
    records: list[Any] = field(default_factory=list)

    @property
    def newest(self) -> Any:
        return self.records[-1]

    def take(self, start: int, records: list[Any]) -> None:
        self.end, self.records = start, records
        held = sum(len(record.value or b"") + len(record.key or b"") for record in records)
        room = _PORTION_BYTES // self.partitions
        if held > room:
            self.size = max(1, self.size // 4)
        elif held < room // 2:
            self.size = min(_PORTION_MAX, 4 * self.size if held < room // 8 else 2 * self.size)


class KafkaTopicReader:
    """Searches one topic. Each search opens one connection."""

    def __init__(self, settings: KafkaSettings, topic: str) -> None:
        self._settings = settings
        self._topic = topic

    async def backwards(self, *, key: bytes | None, since_ms: int) -> AsyncGenerator[Sequence[Any], None]:
        """Read the records of all partitions, or of the partition of `key`, newest first by time, in portions.

        Raises:
            Unavailable: `log-unavailable`.
        """
        async with self._consumer(key) as (consumer, partitions):
            starts, ends = await self._starts(consumer, partitions, since_ms), await consumer.end_offsets(partitions)
            tails = [_Tail(at, start, ends[at], len(partitions)) for at, start in starts.items()]
            newest = [(-tail.newest.timestamp, tail.at) for tail in tails if await self._filled(consumer, tail)]
            heapify(newest)
            held = {tail.at: tail for tail in tails}
            portion: list[Any] = []
            while newest:
                tail = held[newest[0][1]]
                portion.append(tail.records.pop())
                if tail.records:
                    heapreplace(newest, (-tail.newest.timestamp, tail.at))
                    continue
                yield portion
                portion = []
                if await self._filled(consumer, tail):
                    heapreplace(newest, (-tail.newest.timestamp, tail.at))
                else:
                    heappop(newest)

    async def first_since(
        self, since_ms: int, key: bytes | None, chosen: Callable[[Any], _Found | None], *, records_max: int
    ) -> _Found | None:
        """Call `chosen` on each record since `since_ms`, and return the first result that is not `None`.

        The partition of `key` is read first, then the others, because the key had another partition while the topic had
        fewer of them. At most `records_max` records of each partition are read. Raises the errors of `backwards`.
        """
        async with self._consumer(None) as (consumer, partitions):
            starts, ends = await self._starts(consumer, partitions, since_ms), await consumer.end_offsets(partitions)
            for at in sorted(starts, key=lambda at: at.partition != _partition_of(key, partitions)):
                end = min(ends[at], starts[at] + records_max)
                async with aclosing(self._forwards(consumer, at, starts[at], end)) as records:
                    async for record in records:
                        found = chosen(record)
                        if found is not None:
                            return found
        return None

    @contextlib.asynccontextmanager
    async def _consumer(self, key: bytes | None) -> AsyncIterator[tuple[AIOKafkaConsumer, list[TopicPartition]]]:
        identity = await asyncio.to_thread(topic_identity, self._settings, self._topic)
        partitions = [TopicPartition(self._topic, number) for number in range(identity.partitions)]
        if key is not None:
            partitions = [partitions[_partition_of(key, partitions)]]
        try:
            async with reading_consumer(self._settings, reset="earliest") as consumer:
                consumer.assign(partitions)
                consumer.pause(*partitions)
                yield consumer, partitions
        except (KafkaError, TimeoutError) as error:
            raise log_unavailable(self._settings, error, topic=self._topic) from None

    async def _starts(
        self, consumer: AIOKafkaConsumer, partitions: Sequence[TopicPartition], since_ms: int
    ) -> Mapping[TopicPartition, int]:
        """Partition → its first offset since `since_ms`, without partitions that have no record since then."""
        async with asyncio.timeout(self._settings.request_timeout_s):
            if since_ms <= 0:
                beginnings: Mapping[TopicPartition, int] = await consumer.beginning_offsets(partitions)
                return beginnings
            found = await consumer.offsets_for_times(dict.fromkeys(partitions, since_ms))
        return {at: place.offset for at, place in found.items() if place is not None}

    async def _filled(self, consumer: AIOKafkaConsumer, tail: _Tail) -> bool:
        """Fetch the records before the last portion, and return whether there are any."""
        while not tail.records and tail.start < tail.end:
            start = max(tail.start, tail.end - tail.size)
            tail.take(start, [record async for record in self._forwards(consumer, tail.at, start, tail.end)])
        return bool(tail.records)

    async def _forwards(
        self, consumer: AIOKafkaConsumer, at: TopicPartition, start: int, end: int
    ) -> AsyncGenerator[Any, None]:
        """The committed records of one partition from `start` to before `end` that still exist."""
        consumer.seek(at, start)
        consumer.resume(at)
        clock = asyncio.get_running_loop().time
        heard_s, position = clock(), start
        while position < end:
            batches = await consumer.getmany(at, timeout_ms=_POLL_MS, max_records=end - start)
            for record in batches.get(at, ()):
                if record.offset < end:
                    yield record
            before, position = position, await consumer.position(at)
            if position != before:
                heard_s = clock()
            elif clock() - heard_s > self._settings.request_timeout_s:
                raise TimeoutError(f"no record arrived for {self._settings.request_timeout_s:g} s")
        consumer.pause(at)


def _partition_of(key: bytes | None, partitions: Sequence[TopicPartition]) -> int:
    if key is None:
        return 0
    numbers = [at.partition for at in partitions]
    number: int = DefaultPartitioner()(key, numbers, numbers)  # every client chooses the same partition
    return number


_CLOCKS_DIFFER_MS: Final = 600_000
_ANSWERS_MAX: Final = 100_000
"""The most verdict records or dead letters of one partition that a search reads."""


class KafkaLogArchive(LogArchive):
    """Searches a log's intents, verdicts and dead letters. Every search opens its own connection."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._intents = KafkaTopicReader(settings, settings.intents_topic)
        self._verdicts = KafkaTopicReader(settings, settings.verdicts_topic)
        self._dead_letters = KafkaTopicReader(settings, settings.dead_letters_topic)

    @override
    async def records(
        self, *, key: bytes | None = None, since_ms: int = 0
    ) -> AsyncGenerator[Sequence[LogRecord], None]:
        """Read as the port describes. With a `key`, only its partition is read."""
        log = (await asyncio.to_thread(topic_identity, self._settings, self._settings.intents_topic)).log
        async with aclosing(self._intents.backwards(key=key, since_ms=since_ms)) as portions:
            async for portion in portions:
                yield log_records(log, portion)

    @override
    async def dead_letters(self, *, since_ms: int = 0) -> AsyncGenerator[Sequence[DeadLetter], None]:
        async with aclosing(self._dead_letters.backwards(key=None, since_ms=since_ms)) as portions:
            async for portion in portions:
                yield [
                    dead_letter_of(held.key, held.value or b"", held.headers)
                    for held in portion
                    if held.key != STAND_IN_KEY
                ]

    @override
    async def verdict_on(self, record: LogRecord) -> Verdict | None:
        return await self._verdicts.first_since(
            record.appended_ms - _CLOCKS_DIFFER_MS,
            record.key,
            lambda held: _verdict_in(held, record.position),
            records_max=_ANSWERS_MAX,
        )

    @override
    async def dead_letter_of(self, record: LogRecord) -> DeadLetter | None:

        def chosen(held: Any) -> DeadLetter | None:
            letter = dead_letter_of(held.key, held.value or b"", held.headers)
            return letter if (letter.log, letter.partition, letter.offset) == record.position else None

        return await self._dead_letters.first_since(
            record.appended_ms - _CLOCKS_DIFFER_MS, record.key, chosen, records_max=_ANSWERS_MAX
        )

    @override
    async def close(self) -> None:
        """Do nothing, because no connection is kept open."""


def _verdict_in(held: Any, position: LogPosition) -> Verdict | None:
    covers = range_of(held.headers)
    if covers is not None and (
        (covers.log, covers.partition) != position[:2] or not covers.first <= position.offset <= covers.last
    ):
        return None
    try:
        verdicts = decode_verdicts(held.value or b"")
    except Invalid:
        return None
    return next((one for one in verdicts if (one.log, one.partition, one.offset) == position), None)
