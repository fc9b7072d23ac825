"""A coordinator's feed of a log on Kafka: one member of the consumer group that shares the partitions.

Owns: taking records from the library and delivering them, pausing, detecting the end and missing answers, re-reading
outside the group for tables that could not keep up. Does not own: which partitions are read and from when
(`membership`), committed offsets (`progress`).
Invariants: All invariants of the port `IntentFeed`. A record that was taken from the library is delivered, or it is
kept for the next call, even if a call is cancelled. After any failure, each partition continues after the last record
that was delivered, whatever the library's position. Re-reading commits no offset and joins no group. It continues where
the previous read ended, its records are in order and without a gap, and its next offset never passes a record that it
has not returned.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError
from typing_extensions import override

from rootline.adapters.kafka.clients import FETCH_WAIT_MS, make_consumer, start_consumer, stop_consumer
from rootline.adapters.kafka.group_offsets import check_log, check_ranges
from rootline.adapters.kafka.membership import KafkaMembership, Place
from rootline.adapters.kafka.pauses import KafkaPauses
from rootline.adapters.kafka.progress import AnswerHolder, KafkaParkedStore, KafkaProgress
from rootline.adapters.kafka.record_batches import log_records, suspect
from rootline.adapters.settings import KafkaSettings
from rootline.ports.intent_feed import Delivered, FeedEvent, IntentFeed, Partition, Pause, RecordedRejection, Reread
from rootline.ports.intent_log import KnowsItsLake
from rootline.schemas.bytes.record_headers import Lake
from rootline.schemas.errors import RootlineError
from rootline.schemas.identifiers import LogId, LogRecord, TableName
from rootline.schemas.parts.log import PartitionOffset

_READERS_MAX: Final = 4


class _Reader:
    """A consumer at an offset of one partition."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self.consumer = consumer
        self.at: TopicPartition | None = None
        self.next_offset = -1

    def seek(self, at: TopicPartition, offset: int) -> None:
        if at != self.at:
            self.consumer.assign([at])
            self.at = at
        elif offset == self.next_offset:
            return
        self.consumer.seek(at, offset)
        self.next_offset = offset


class KafkaRereaders:
    """Reads records a second time. For one event loop. Connects at the first read."""

    def __init__(self, settings: KafkaSettings, membership: KafkaMembership) -> None:
        self._settings = settings
        self._membership = membership
        self._idle: OrderedDict[str, _Reader] = OrderedDict()
        self._turns = asyncio.Semaphore(_READERS_MAX)
        self._open = 0
        self._closed = False

    async def read(self, name: str, start: PartitionOffset, *, limit: int) -> Reread:
        """Read some records of a partition, as `IntentFeed.read_again` describes."""
        check_log(self._settings.intents_topic, start.log, await self._membership.identity())
        async with self._turns:
            reader = await self._reader(name)
            try:
                found = await self._read(reader, start, limit)
            except BaseException as error:
                await self._close(reader)
                if isinstance(error, KafkaError | TimeoutError):
                    raise self._membership.translated(error) from None
                if isinstance(error, RootlineError) or not isinstance(error, Exception):
                    raise
                raise self._membership.unavailable(f"cannot be read: {error!r:.300}") from error
            if self._closed:
                await self._close(reader)
            else:
                self._idle[name] = reader
            return found

    async def forget(self, name: str) -> None:
        """Close the connection of the reader `name`, which no longer reads."""
        reader = self._idle.pop(name, None)
        if reader is not None:
            await self._close(reader)

    async def close(self) -> None:
        """Close the connections of idle readers. A read in flight closes its own connection when it ends."""
        self._closed = True
        await asyncio.gather(*(self.forget(name) for name in list(self._idle)))

    async def _reader(self, name: str) -> _Reader:
        """The reader of this name: an idle one, or a new one."""
        if self._closed:
            raise self._membership.unavailable("the log was closed")
        reader = self._idle.pop(name, None)
        if reader is not None:
            return reader
        while self._open >= _READERS_MAX and self._idle:
            await self._close(self._idle.popitem(last=False)[1])
        consumer = make_consumer(self._settings, group_id=None, reset="none", reads_all=True)
        self._open += 1
        try:
            await start_consumer(consumer, patience_s=self._settings.request_timeout_s)
        except BaseException as error:
            self._open -= 1
            if isinstance(error, KafkaError | TimeoutError):
                raise self._membership.translated(error) from None
            raise
        return _Reader(consumer)

    async def _read(self, reader: _Reader, start: PartitionOffset, limit: int) -> Reread:
        consumer, at = reader.consumer, TopicPartition(self._settings.intents_topic, start.partition)
        reader.seek(at, start.next_offset)
        clock = asyncio.get_running_loop().time
        deadline_s = clock() + self._settings.request_timeout_s + FETCH_WAIT_MS / 1_000
        heard = consumer.last_poll_timestamp(at)
        # the consumer fetches ahead, so the first answer may be to a request from before the last append
        answers_needed = 1 if heard is None else 2
        answers = 0
        while True:
            try:
                batches = await consumer.getmany(timeout_ms=FETCH_WAIT_MS, max_records=limit)
            except OffsetOutOfRangeError:
                await self._check_range(consumer, at, start)
                raise
            reader.next_offset = await consumer.position(at)  # does not yield, because the position is known
            if batches:
                records = tuple(log_records(start.log, batches[at]))
                return Reread(records, reader.next_offset)
            before, heard = heard, consumer.last_poll_timestamp(at)
            answers += heard != before
            if answers >= answers_needed and reader.next_offset >= (consumer.last_stable_offset(at) or 0):
                return Reread((), reader.next_offset)
            if clock() > deadline_s:
                if not answers:
                    raise TimeoutError
                return Reread((), reader.next_offset)

    async def _check_range(self, consumer: AIOKafkaConsumer, at: TopicPartition, start: PartitionOffset) -> None:
        """Raise the reason why the offset does not exist."""
        self._membership.doubt(suspects_offsets=True)
        async with asyncio.timeout(self._settings.request_timeout_s):
            begins, ends = await consumer.beginning_offsets([at]), await consumer.end_offsets([at])
        check_ranges(at.topic, start.log, [(at.partition, start.next_offset, begins[at], ends[at])])

    async def _close(self, reader: _Reader) -> None:
        self._open -= 1
        await asyncio.shield(stop_consumer(reader.consumer, patience_s=self._settings.request_timeout_s))


_RECORDS_MAX: Final = 256
"""Decoding them takes one turn of the loop. More would block the process for a tenth of a second."""
_POLL_MS: Final = 1_000
_GLANCE_S: Final = 0.1
"""Seconds between checks whether only entries that are not delivered follow, such as the end of a transaction."""
_APART_S: Final = 5.0
"""Seconds after a failure in which partitions are read one by one."""
_REJOIN_AFTER_S: Final = 120.0
"""Seconds without an answer after which the consumer is replaced, because brokers may have new addresses. Not sooner,
because the group waits for a member that could not leave when it joins again."""

_Batches = dict[TopicPartition, list[Any]]


class KafkaIntentFeed(IntentFeed, KnowsItsLake):
    """The feed of one coordinator. For one event loop. Connects at the first `next`."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._membership = KafkaMembership(settings, self._wake, self._lose)
        self._progress = KafkaProgress(settings, self._membership)
        self._answers = AnswerHolder(settings, self._membership, self._progress.turn)
        self.parking = KafkaParkedStore(settings, self._membership, self._progress.turn)
        self._rereaders = KafkaRereaders(settings, self._membership)
        self._pauses = KafkaPauses(settings)
        self._woken: asyncio.Future[None] | None = None
        self._polling: asyncio.Task[_Batches] | None = None
        self._pausing: frozenset[TopicPartition] | None = None
        """The partitions that the library does not fetch now. `None`: it fetches none of them."""
        self._told_end = False
        self._apart_until_s = 0.0
        self._heard: list[int | None] | None = None
        self._heard_at_s = 0.0

    @override
    async def next(self, *, wait_s: float, deliver: bool = True) -> FeedEvent:
        """The next event, as the port describes. Unexpected failures in the background are raised unchanged."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + wait_s
        while True:
            self._woken = loop.create_future()
            event = self._membership.advance()
            if event is not None:
                return event
            if self._membership.is_settled:
                self._pause(deliver)
            if self._membership.may_read and deliver:
                delivered = await self._read()
                if delivered is not None:
                    return delivered
            left_s = deadline_s - loop.time()
            if left_s <= 0:
                self._raise_silence(deliver)
                return Delivered((), at_end=self._told_end and deliver)
            await asyncio.wait([self._woken], timeout=min(left_s, _GLANCE_S))

    @override
    async def introduce(self, lake: Lake) -> None:
        """Name the lake of the caller. If the group serves another lake, the first `next` raises `Invalid`."""
        self._membership.lake = lake

    @override
    async def released(self) -> None:
        self._membership.released()

    @override
    async def decided(self, up_to: Sequence[PartitionOffset]) -> None:
        await self._progress.decided(up_to)

    @override
    async def concluded(self, up_to: Sequence[PartitionOffset]) -> None:
        await self._progress.concluded(up_to)

    @override
    async def record_rejections(self, rejections: Sequence[RecordedRejection]) -> None:
        await self._answers.record_rejections(rejections)

    @override
    async def confirm(self, generation: int) -> None:
        """Check, by a commit in that generation of the group, that the partitions are still assigned."""
        await self._progress.confirm(generation)

    @override
    def paused(self) -> Sequence[Partition]:
        log = self._membership.log
        return () if log is None else [(log, at.partition) for at in sorted(self._answers.without_room())]

    @override
    async def pauses(self) -> Sequence[Pause]:
        return await self._pauses.pauses()

    @override
    async def read_again(self, reader: str, start: PartitionOffset, *, limit: int) -> Reread:
        """Re-read records, as the port describes. Also raises the `Fenced` errors of `next`."""
        return await self._rereaders.read(reader, start, limit=limit)

    @override
    async def forget_reader(self, reader: str) -> None:
        await self._rereaders.forget(reader)

    @override
    async def end_offset(self, log: LogId, partition: int) -> int | None:
        """The last stable offset of the partition."""
        if await self._membership.identity() != log:
            return None
        at = TopicPartition(self._settings.intents_topic, partition)
        return (await self._ends([at]))[at]

    @override
    async def confirmed_version(self, table: TableName) -> int | None:
        """Always `None`, because it would take a search of the verdicts' topic."""
        return None

    @override
    async def lag(self) -> Mapping[Partition, int]:
        membership = self._membership
        log, places = membership.log, list(membership.places)
        if not places or log is None:
            return {}
        ends = await self._ends(places)
        return {
            (log, at.partition): max(0, ends[at] - await self._position(at, place))
            for at, place in membership.places.items()
            if at in ends
        }

    async def close(self) -> None:
        """Leave the group without delay, and close the connections."""
        try:
            await self._membership.close()
        finally:
            await self._rereaders.close()
            await self.parking.close()
            await self._pauses.close()

    async def _read(self) -> Delivered | None:
        """The next records, or the report that there are no more, or `None` if nothing is new."""
        batches = await self._batches()
        if not batches:
            at_end = await self._at_end()
            is_news = at_end and not self._told_end
            self._told_end = at_end
            passed = await self._passed()
            return Delivered((), at_end=at_end, passed=passed) if is_news or passed else None
        log, places = self._membership.log, self._membership.places
        assert log is not None
        records: list[LogRecord] = []
        for at, found in batches.items():
            records += log_records(log, found)
            places[at].next_offset, places[at].last = found[-1].offset + 1, records[-1]
        self._heard_at_s = asyncio.get_running_loop().time()
        self._told_end = await self._at_end()
        return Delivered(tuple(records), at_end=self._told_end)

    async def _batches(self) -> _Batches:
        """The records that have arrived. It never yields to the loop, so it cannot be cancelled halfway."""
        consumer, now_s = self._membership.consumer, asyncio.get_running_loop().time()
        assert consumer is not None
        if now_s < self._apart_until_s:
            return await self._batches_apart(consumer)
        batches: _Batches = {}
        try:
            if self._polling is None:
                batches = await consumer.getmany(timeout_ms=0, max_records=_RECORDS_MAX)
            elif self._polling.done():
                polling, self._polling = self._polling, None
                batches = polling.result()
        except OffsetOutOfRangeError:
            self._go_back(self._membership.places)
            self._membership.doubt(suspects_offsets=True)
            return {}
        except Exception:  # the failed partition is unknown, and the batches of the others are lost too
            self._go_back(self._membership.places)
            self._apart_until_s = now_s + _APART_S
            return {}
        if not batches and self._polling is None:
            polling = asyncio.ensure_future(consumer.getmany(timeout_ms=_POLL_MS, max_records=_RECORDS_MAX))
            polling.add_done_callback(lambda _: self._wake())
            self._polling = polling
        return batches

    async def _batches_apart(self, consumer: AIOKafkaConsumer) -> _Batches:
        """Read one partition and one record at a time, so that an unreadable record does not delay the others."""
        failure: Exception | None = None
        batches: _Batches = {}
        share = max(1, _RECORDS_MAX // max(1, len(self._membership.places)))
        for at in self._membership.places:
            found: list[Any] = []
            try:
                while len(found) < share and (one := await consumer.getmany(at, timeout_ms=0, max_records=1)):
                    found += one[at]
            except Exception as error:
                failure = error
                suspect(consumer, at)
                if not found:
                    self._go_back([at])
            if found:
                batches[at] = found
        if batches:
            return batches
        if failure is not None:
            self._apart_until_s = asyncio.get_running_loop().time() + _APART_S
            raise self._membership.unavailable(f"cannot be read: {failure!r:.300}") from failure
        return {}

    async def _at_end(self) -> bool:
        consumer, places = self._membership.consumer, self._membership.places
        assert consumer is not None
        for at, place in places.items():
            end = max(place.end, consumer.last_stable_offset(at) or 0)
            if place.next_offset < end and await self._position(at, place) < end:
                return False
        return True

    async def _passed(self) -> tuple[PartitionOffset, ...]:
        """Advance partitions past log entries that are not records, and return the new positions.

        Such entries end a transaction, for instance. If the committed offset stayed before them, records would seem to
        be lost once retention removes them.
        """
        log, moved = self._membership.log, []
        assert log is not None
        for at, place in self._membership.places.items():
            position = await self._position(at, place)
            if position > place.next_offset:
                place.next_offset = position
                moved.append(PartitionOffset(log, at.partition, position))
        return tuple(moved)

    async def _position(self, at: TopicPartition, place: Place) -> int:
        """The offset after the last delivered record, and after following entries that are not records."""
        consumer = self._membership.consumer
        if consumer is None or (self._polling is not None and self._polling.done()):
            return place.next_offset
        position: int = await consumer.position(at)  # does not yield, because the position is known
        return max(place.next_offset, position)

    def _pause(self, deliver: bool) -> None:
        wanted = self._answers.without_room() if deliver else None
        if wanted == self._pausing:
            return
        consumer, places = self._membership.consumer, self._membership.places
        assert consumer is not None
        is_more = wanted is None or (self._pausing is not None and not wanted <= self._pausing)
        self._pausing = wanted
        consumer.pause(*(places if wanted is None else wanted))
        consumer.resume(*(() if wanted is None else places.keys() - wanted))
        if not is_more:
            return
        if self._polling is not None and not self._polling.done():  # the library keeps the records that it has fetched
            self._polling.cancel()
            self._polling = None

    def _lose(self) -> None:
        """Deliver no more records, because the partitions are being assigned to other members."""
        self._pausing = None
        self._told_end = False
        self._heard = None
        self._stop_polling()

    def _go_back(self, partitions: Iterable[TopicPartition]) -> None:
        """Seek back to undelivered records, because the library may have moved past them."""
        self._stop_polling()
        consumer, places = self._membership.consumer, self._membership.places
        assert consumer is not None
        for at in partitions:
            consumer.seek(at, places[at].next_offset)

    def _stop_polling(self) -> None:
        polling, self._polling = self._polling, None
        if polling is not None and not polling.cancel() and not polling.cancelled():
            polling.exception()  # retrieved, or asyncio would log it

    def _raise_silence(self, deliver: bool) -> None:
        """Raise if no broker has answered for `request_timeout_s`, or during a rebalance for as long as one may take.

        Every answer to a fetch updates the time that the library reports for its partition.
        """
        membership, now_s = self._membership, asyncio.get_running_loop().time()
        consumer, places, limit_s = membership.consumer, membership.places, self._settings.request_timeout_s
        heard: list[int | None] = []
        if membership.is_settled and consumer is not None:
            heard = [consumer.last_poll_timestamp(at) for at in places]
        else:
            limit_s += self._settings.session_timeout_s + self._settings.rebalance_deadline_s
        if not deliver or heard != self._heard or (membership.is_settled and not places):
            self._heard, self._heard_at_s = heard, now_s
            return
        silent_s = now_s - self._heard_at_s
        if silent_s > max(_REJOIN_AFTER_S, limit_s):
            membership.rejoin(f"no answer for {silent_s:.0f} s")
        if silent_s > limit_s:
            raise membership.unavailable(f"no broker has answered for {silent_s:.0f} s")

    async def _ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        membership = self._membership
        if membership.consumer is None:
            raise membership.unavailable("not connected")
        try:
            async with asyncio.timeout(self._settings.request_timeout_s):
                ends: Mapping[TopicPartition, int] = await membership.consumer.end_offsets(partitions)
        except (KafkaError, TimeoutError) as error:
            raise membership.translated(error) from None
        return ends

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
