"""A writer's side of a log on Kafka: publishing intents, and waiting for verdicts.

Owns: keys to partitions (Kafka's own murmur2, as in every client), positions with the topic's identity, the header
that marks JSON, the signature, one consumer of verdicts for any number of waiters, a buffer for early verdicts. Does
not own: delivery (`publisher`), the contents of an intent or of a verdict.
Invariants: No verdict on a record of this process is missed, however early it arrives: reading begins before the first
record is published. A position names the topic of its record, never an older one of the same name. A position of
another log is refused. An intent over the limit is refused before anything is sent. The first verdict on a position
counts while it is buffered. Memory is bounded. Verdicts without a waiter in this process are kept as bytes and not
decoded, because every writer reads the verdicts of all writers. Reading continues after a broker was down, and a record
that cannot be read affects no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from typing_extensions import override

from rootline.adapters.kafka.clients import log_unavailable, make_consumer, stop_consumer
from rootline.adapters.kafka.publisher import KafkaPublisher, Outgoing, RecordTooLarge
from rootline.adapters.kafka.record_headers import VerdictRange, is_json, range_of
from rootline.adapters.kafka.topics import record_bytes_max, topic_identity
from rootline.adapters.settings import KafkaSettings
from rootline.adapters.system_environment import publishing
from rootline.library_log import library_logger
from rootline.ports.intent_log import IntentSink, KnowsItsLake, NewRecord, VerdictSource, check_identity
from rootline.schemas.bytes.intent_codec import CONTENT_TYPE_HEADER, JSON_CONTENT_TYPE, begins_like_json
from rootline.schemas.bytes.record_headers import (
    Lake,
    content_headers,
    lake_header,
    signature_header,
    signed_at_header,
    trace_headers,
)
from rootline.schemas.bytes.verdict_codec import decode_verdicts
from rootline.schemas.errors import Invalid, OutcomeUnknown, Unavailable
from rootline.schemas.identifiers import Headers, LogId, LogPosition, oldest_file_header
from rootline.schemas.verdict import Verdict

_RECORD_OVERHEAD_BYTES: Final = 128
"""More than a batch of one record adds to its key, value and header."""
_JSON_HEADERS: Final[Headers] = ((CONTENT_TYPE_HEADER, JSON_CONTENT_TYPE),)


class KafkaIntentSink(IntentSink):
    """Publishes intents. For one event loop. Connects at the first record."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._topic = settings.intents_topic
        self._key = settings.signing_key()
        self._record_bytes_max = settings.intent_bytes_max
        self._publisher = KafkaPublisher(settings, self._ask_record_bytes_max)
        self.known_identity: LogId | None = None
        self.lake: Lake | None = None
        self._asked_at = 0.0
        self._refreshing: asyncio.Task[None] | None = None
        self._asking = asyncio.Lock()
        self._highest: dict[int, int] = {}

    async def identity(self) -> LogId:
        """The log's `<cluster id>/<topic id>`. After `identity_max_age_s` it is refreshed in the background.

        Raises:
            Unavailable: `log-unavailable`.
        """
        if self.known_identity is None:
            async with self._asking:
                if self.known_identity is None:  # no other caller asked while this one waited
                    return await self._ask_identity()
        age_s = asyncio.get_running_loop().time() - self._asked_at
        if age_s > self._settings.identity_max_age_s and (self._refreshing is None or self._refreshing.done()):
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh())
        return self.known_identity

    @override
    async def publish_many(
        self, records: Sequence[NewRecord], *, oldest_file_ms: int | None = None
    ) -> list[LogPosition]:
        """Append records. Records of one key keep their order.

        Raises:
            Invalid: `intent-too-large`, nothing was appended.
            Unavailable: `log-unavailable`, nothing was appended.
            OutcomeUnknown: `publish-unknown`, none, some or all were appended. It is safe to publish all again.

        """
        if not records:
            return []
        with publishing(records[0][0], len(records)) as trace:
            claim = (*oldest_file_header(oldest_file_ms), *trace_headers(trace), *lake_header(self.lake))
            return await self._publish(records, claim)

    async def _publish(self, records: Sequence[NewRecord], claim: Headers) -> list[LogPosition]:
        outgoing = [self._outgoing(key, value, (*content_headers(*said), *claim)) for key, value, *said in records]
        largest = max(map(_record_size, outgoing))
        self._check_size(largest)
        log = await self.identity()
        highest = dict(self._highest)
        try:
            places = await self._publisher.publish(outgoing)
        except RecordTooLarge as error:
            await asyncio.to_thread(self._ask_record_bytes_max)
            self._check_size(largest)
            advice = f"{error}. Publish again, in smaller batches from now on"
            raise log_unavailable(self._settings, advice) from None
        if any(offset <= highest.get(partition, -1) for partition, offset in places):
            log = await self._identity_after_the_end(places)
        for partition, offset in places:
            self._highest[partition] = max(offset, self._highest.get(partition, -1))
        return [LogPosition(log, partition, offset) for partition, offset in places]

    async def close(self) -> None:
        """Wait for pending records, then close the connections."""
        await self._publisher.close()
        if self._refreshing is not None:
            await asyncio.wait([self._refreshing])

    async def _refresh(self) -> None:
        async with self._asking:
            self._asked_at = asyncio.get_running_loop().time()
            with contextlib.suppress(Unavailable):  # publishing would fail too, and the next refresh is soon
                await self._ask_identity()

    async def _identity_after_the_end(self, places: Sequence[tuple[int, int]]) -> LogId:
        """The identity of the topic that replaced this one. Offsets below earlier ones have proved that."""
        try:
            async with self._asking:
                return await self._ask_identity()
        except Unavailable as error:
            raise OutcomeUnknown(
                "publish-unknown", f"{error.message}. The topic was created again, with {len(places)} of the records"
            ) from None

    async def _ask_identity(self) -> LogId:
        found = await asyncio.to_thread(topic_identity, self._settings, self._topic)
        if found.log != self.known_identity:
            self._highest.clear()
        self.known_identity = found.log
        self._asked_at = asyncio.get_running_loop().time()
        return found.log

    def _ask_record_bytes_max(self) -> int:
        allowed = record_bytes_max(self._settings, self._topic)
        wanted = self._settings.intent_bytes_max + _RECORD_OVERHEAD_BYTES
        self._record_bytes_max = min(self._settings.intent_bytes_max, (allowed or wanted) - _RECORD_OVERHEAD_BYTES)
        return min(wanted, allowed or wanted)

    def _outgoing(self, key: bytes, value: bytes, said: Headers) -> Outgoing:
        if self._key is not None:
            said = (*said, *signed_at_header(time.time_ns() // 1_000_000))
            said = (*said, *signature_header(*self._key, value, said))
        return Outgoing(self._topic, key, value, (*_JSON_HEADERS, *said) if begins_like_json(value) else said)

    def _check_size(self, size: int) -> None:
        if size > self._record_bytes_max:
            raise _too_large(f"{size} bytes with its key, of {self._record_bytes_max} allowed")


def _record_size(record: Outgoing) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def _too_large(what: str) -> Invalid:
    return Invalid(
        "intent-too-large", f"intent: {what}. Split it, or write a leaf manifest and publish a reference to it"
    )


_Place = tuple[str, int]


@dataclass(slots=True)
class _Remembered:
    """A verdict record, decoded once a waiter has asked for one of its verdicts."""

    first: int
    last: int
    value: bytes
    verdicts: dict[int, Verdict] | None = None

    def verdict(self, place: _Place, offset: int) -> Verdict | None:
        if not self.first <= offset <= self.last:
            return None
        if self.verdicts is None:
            decoded = (item for item in decode_verdicts(self.value) if (item.log, item.partition) == place)
            self.verdicts = {item.offset: item for item in decoded}
        return self.verdicts.get(offset)


class VerdictWaiters:
    """The waiters of one event loop. `bytes_max` limits the records that are buffered for later waiters."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._waiting: dict[_Place, dict[int, set[asyncio.Future[Verdict]]]] = {}
        self._kept: dict[_Place, deque[_Remembered]] = {}
        self._order: deque[_Place] = deque()
        self._reached: dict[_Place, int] = {}

    @property
    def kept_bytes(self) -> int:
        """The buffered bytes."""
        return self._bytes

    async def wait(self, position: LogPosition, timeout_s: float) -> Verdict | None:
        """The verdict on `position`, from the buffer or within `timeout_s` seconds."""
        place, offset = (position.log, position.partition), position.offset
        found = self._late(place, offset)
        if found is not None or timeout_s <= 0:
            return found
        future: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(place, {})
        waiting.setdefault(offset, set()).add(future)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    return await future
            return None
        finally:
            futures = waiting.get(offset)
            if futures is not None:
                futures.discard(future)
                if not futures:
                    del waiting[offset]

    def arrived(self, value: bytes, covers: VerdictRange | None) -> None:
        """Wake the waiters for the verdicts of a record, and buffer it for later waiters.

        `covers`: the offsets in the record's headers. Without them, it is decoded now. Raises `Invalid` if it cannot be
        decoded.
        """
        if covers is not None:
            self._remember((covers.log, covers.partition), _Remembered(covers.first, covers.last, value))
            return
        for verdict in decode_verdicts(value):  # from another program, without our headers
            held = _Remembered(verdict.offset, verdict.offset, b"", {verdict.offset: verdict})
            self._remember((verdict.log, verdict.partition), held)

    def fail(self, error: Exception) -> None:
        """Give `error` to every waiter."""
        for waiting in self._waiting.values():
            for futures in waiting.values():
                for future in futures:
                    if not future.done():
                        future.set_exception(error)

    def _remember(self, place: _Place, record: _Remembered) -> None:
        self._notify(place, record)
        self._kept.setdefault(place, deque()).append(record)
        self._order.append(place)
        self._bytes += _verdict_size(record)
        self._reached[place] = max(record.last, self._reached.get(place, -1))
        while self._bytes > self._bytes_max and self._order:
            oldest = self._order.popleft()
            kept = self._kept[oldest]
            self._bytes -= _verdict_size(kept.popleft())
            if not kept:
                del self._kept[oldest]

    def _notify(self, place: _Place, record: _Remembered) -> None:
        waiting = self._waiting.get(place)
        if not waiting:
            return
        for offset in [offset for offset in waiting if record.first <= offset <= record.last]:
            verdict = record.verdict(place, offset)
            if verdict is not None:
                for future in waiting[offset]:
                    if not future.done():
                        future.set_result(verdict)

    def _late(self, place: _Place, offset: int) -> Verdict | None:
        if offset > self._reached.get(place, -1):  # the usual case: no verdict that late has arrived yet
            return None
        for record in self._kept.get(place, ()):
            verdict = record.verdict(place, offset)
            if verdict is not None:
                return verdict
        return None


def _verdict_size(record: _Remembered) -> int:
    return len(record.value) + 256  # plus the overhead of the Python objects


_POLL_MS: Final = 1_000
_RECORDS_MAX: Final = 1_000
_RESTART_DELAY_S: Final = 0.5


class KafkaVerdictSource(VerdictSource):
    """Reads verdicts. For one event loop. Connects at `start` or at the first wait."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._topic = settings.verdicts_topic
        self._waiters = VerdictWaiters(settings.late_verdicts_bytes)
        self._positions: dict[TopicPartition, int] = {}
        self._consumer: AIOKafkaConsumer | None = None
        self._task: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._closed = False
        self._logger = library_logger("rootline.kafka")

    async def start(self) -> None:
        """Begin to read at the topic's end. Returns without waiting if it was started before.

        Raises:
            Unavailable: `log-unavailable`, no broker answers in time, or the topic does not exist.
        """
        if self._task is not None:
            return
        async with self._starting:
            if self._closed:
                raise self._closed_error()
            if self._task is None:
                self._consumer = await self._started()
                self._task = asyncio.get_running_loop().create_task(self._run(), name="rootline verdicts")

    @override
    async def wait_verdict(self, position: LogPosition, *, timeout_s: float) -> Verdict | None:
        await self.start()
        return await self._waiters.wait(position, timeout_s)

    async def close(self) -> None:
        """Stop reading. The remaining waiters get `Unavailable`."""
        self._closed = True
        async with self._starting:
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait([self._task])
            if self._consumer is not None:
                await stop_consumer(self._consumer)
                self._consumer = None
        self._waiters.fail(self._closed_error())

    async def _started(self) -> AIOKafkaConsumer:
        consumer = make_consumer(self._settings, group_id=None, reset="earliest")
        try:
            async with asyncio.timeout(self._settings.request_timeout_s):
                await consumer.start()
                await self._assign(consumer)
        except BaseException as error:
            await asyncio.shield(stop_consumer(consumer))
            if isinstance(error, KafkaError | TimeoutError):
                raise log_unavailable(self._settings, error, topic=self._topic) from None
            raise
        return consumer

    async def _assign(self, consumer: AIOKafkaConsumer) -> None:
        """Assign all partitions of the topic to the consumer.

        At the start, they are read from their end. Later, known partitions continue, and added ones are read from their
        beginning.
        """
        found = await asyncio.to_thread(topic_identity, self._settings, self._topic)
        partitions = [TopicPartition(self._topic, number) for number in range(found.partitions)]
        consumer.assign(partitions)
        if not self._positions:
            self._positions = dict(await consumer.end_offsets(partitions))
        for partition in partitions:
            consumer.seek(partition, self._positions.setdefault(partition, 0))

    async def _run(self) -> None:
        while True:
            try:
                if self._consumer is None:
                    self._consumer = await self._started()
                await self._read(self._consumer)
            except Exception as error:  # a retry serves waiters better than stopping, whatever the error
                self._logger.warning(
                    "reading of verdicts interrupted", action="verdicts-interrupted", reason=repr(error)
                )
                if self._consumer is not None:
                    with contextlib.suppress(KafkaError):
                        await stop_consumer(self._consumer)
                    self._consumer = None
                await asyncio.sleep(_RESTART_DELAY_S)

    async def _read(self, consumer: AIOKafkaConsumer) -> None:
        while True:
            for partition, records in (await consumer.getmany(timeout_ms=_POLL_MS, max_records=_RECORDS_MAX)).items():
                for record in records:
                    self._take(record)
                self._positions[partition] = records[-1].offset + 1
            if consumer.partitions_for_topic(self._topic) != {at.partition for at in consumer.assignment()}:
                await self._assign(consumer)  # the topic has more partitions than before

    def _take(self, record: Any) -> None:
        if is_json(record.headers):
            return
        try:
            self._waiters.arrived(record.value or b"", range_of(record.headers))
        except Exception as error:
            place = f"{record.topic}/{record.partition}/{record.offset}"
            self._logger.warning("not a verdict record", action="verdict-skipped", place=place, reason=repr(error))

    def _closed_error(self) -> Unavailable:
        return log_unavailable(self._settings, "the log was closed", topic=self._topic)


class KafkaWriterLog(IntentSink, VerdictSource, KnowsItsLake):
    """A writer's side of a log. For one event loop. Connects at the first record or wait."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._sink = KafkaIntentSink(settings)
        self._verdicts = KafkaVerdictSource(settings)

    @override
    async def introduce(self, lake: Lake) -> None:
        """Name the lake in every record from now on. Coordinators reject records that name another lake."""
        self._sink.lake = lake

    @override
    async def publish_many(
        self, records: Sequence[NewRecord], *, oldest_file_ms: int | None = None
    ) -> list[LogPosition]:
        await self._verdicts.start()
        return await self._sink.publish_many(records, oldest_file_ms=oldest_file_ms)

    @override
    async def wait_verdict(self, position: LogPosition, *, timeout_s: float) -> Verdict | None:
        """The verdict on the record at `position`, or `None` if none arrives within `timeout_s` seconds.

        Raises:
            Fenced: `log-replaced`. Unavailable: `log-unavailable`.
        """
        check_identity(self._sink.known_identity or await self._sink.identity(), position.log)
        return await self._verdicts.wait_verdict(position, timeout_s=timeout_s)

    async def close(self) -> None:
        """Wait for pending records, then close the connections."""
        try:
            await self._sink.close()
        finally:
            await self._verdicts.close()
