"""Reading records again, outside the group, for tables that could not keep up.

Owns: one consumer for each of the few most recent readers. Does not own: what is read again, and why.
Invariants: no offset is committed and no group is joined; a read that follows another continues where that one ended;
an answer is in order and without a gap, and its next offset never passes a record that is not in it; an empty one says
that there was nothing when the read began.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from rootline.adapters.kafka.clients import FETCH_WAIT_MS, make_consumer, start_consumer, stop_consumer
from rootline.adapters.kafka.membership import KafkaMembership
from rootline.adapters.kafka.records import log_records
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.adapters.kafka.start_rules import check_log, check_ranges
from rootline.ports.intent_feed import Reread
from rootline.schemas.errors import RootlineError
from rootline.schemas.root_header import PartitionOffset

_READERS_MAX: Final = 4


class _Reader:
    """A consumer at some offset of one partition."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self.consumer = consumer
        self.at: TopicPartition | None = None
        self.next_offset = -1

    def stand_at(self, at: TopicPartition, offset: int) -> None:
        if at != self.at:
            self.consumer.assign([at])
            self.at = at
        elif offset == self.next_offset:
            return
        self.consumer.seek(at, offset)
        self.next_offset = offset


class KafkaRereaders:
    """For one event loop; connects with the first read."""

    def __init__(self, settings: KafkaSettings, membership: KafkaMembership) -> None:
        self._settings = settings
        self._membership = membership
        self._idle: OrderedDict[str, _Reader] = OrderedDict()
        self._turns = asyncio.Semaphore(_READERS_MAX)
        self._open = 0
        self._closed = False

    async def read(self, name: str, start: PartitionOffset, *, limit: int) -> Reread:
        """As `IntentFeed.read_again`."""
        check_log(self._settings.intents_topic, start.log, await self._membership.identity())
        async with self._turns:
            reader = await self._reader(name)
            try:
                found = await self._read(reader, start, limit)
            except BaseException as error:
                await self._give_up(reader)
                if isinstance(error, KafkaError | TimeoutError):
                    raise self._membership.translated(error) from None
                if isinstance(error, RootlineError) or not isinstance(error, Exception):
                    raise
                raise self._membership.unavailable(f"cannot be read: {error!r:.300}") from error
            if self._closed:
                await self._give_up(reader)
            else:
                self._idle[name] = reader
            return found

    async def forget(self, name: str) -> None:
        """This reader does not read again."""
        reader = self._idle.pop(name, None)
        if reader is not None:
            await self._give_up(reader)

    async def close(self) -> None:
        """Close the connections; a read that is under way closes its own."""
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
            await self._give_up(self._idle.popitem(last=False)[1])
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
        reader.stand_at(at, start.next_offset)
        clock = asyncio.get_running_loop().time
        deadline_s = clock() + self._settings.request_timeout_s + FETCH_WAIT_MS / 1_000
        heard = consumer.last_poll_timestamp(at)
        # the consumer asks ahead: the first answer may be to what it asked before something was appended
        answers_needed = 1 if heard is None else 2
        answers = 0
        while True:
            try:
                batches = await consumer.getmany(timeout_ms=FETCH_WAIT_MS, max_records=limit)
            except OffsetOutOfRangeError:
                await self._check_range(consumer, at, start)
                raise
            reader.next_offset = await consumer.position(at)  # does not yield: the position is known
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
        """Raise the reason why the offset is not there."""
        self._membership.doubt(is_odd=True)
        async with asyncio.timeout(self._settings.request_timeout_s):
            begins, ends = await consumer.beginning_offsets([at]), await consumer.end_offsets([at])
        check_ranges(at.topic, start.log, [(at.partition, start.next_offset, begins[at], ends[at])])

    async def _give_up(self, reader: _Reader) -> None:
        self._open -= 1
        await asyncio.shield(stop_consumer(reader.consumer, patience_s=self._settings.request_timeout_s))
