"""Where writers wait for verdicts, when the log is Kafka: one consumer for any number of waiters.

Owns: the consumer and its task. Does not own: the waiters and the memory for late ones (`verdict_waiters`), what a
verdict says.
Invariants: it reads from before the moment when `start` returns, so it sees the verdict on every record that is
published after that; it continues after a broker was down; a record that cannot be read affects no other.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from rootline.adapters.kafka.clients import make_consumer, stop_consumer
from rootline.adapters.kafka.log_errors import log_unavailable
from rootline.adapters.kafka.record_headers import is_json, range_of
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.adapters.kafka.topics import topic_identity
from rootline.adapters.kafka.verdict_waiters import VerdictWaiters
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import LogPosition
from rootline.schemas.verdict import Verdict

_POLL_MS: Final = 1_000
_RECORDS_MAX: Final = 1_000
_RESTART_DELAY_S: Final = 0.5


class KafkaVerdictSource:
    """Connects with `start` or the first wait; for one event loop."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._topic = settings.verdicts_topic
        self._waiters = VerdictWaiters(settings.late_verdicts_bytes)
        self._positions: dict[TopicPartition, int] = {}
        self._consumer: AIOKafkaConsumer | None = None
        self._task: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._closed = False
        self._logger = structlog.get_logger("rootline.kafka")

    async def start(self) -> None:
        """Begin to read at the end of the topic; returns at once if it was started before.

        Raises:
            Unavailable: `log-unavailable`, no broker answers in time, or there is no such topic.

        """
        if self._task is not None:
            return
        async with self._starting:
            if self._closed:
                raise self._closed_error()
            if self._task is None:
                self._consumer = await self._started()
                self._task = asyncio.get_running_loop().create_task(self._run(), name="rootline verdicts")

    async def wait_verdict(self, position: LogPosition, *, timeout_s: float) -> Verdict | None:
        """The verdict on the record at `position`; `None` when none came in `timeout_s` seconds."""
        await self.start()
        return await self._waiters.wait(position, timeout_s)

    async def close(self) -> None:
        """Stop reading; remaining waiters get `Unavailable`."""
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
        """Continue known partitions. Others begin at their end at the start; later, being new, at their beginning."""
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
            except Exception as error:  # after any error, trying again serves waiters better than giving up
                self._logger.warning("verdicts are not read", action="verdicts-interrupted", reason=repr(error))
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
            if consumer.partitions_for_topic(self._topic) != {held.partition for held in consumer.assignment()}:
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
