"""Publishes records on Kafka durably, and reports the outcome of each attempt exactly.

Owns: one idempotent producer, its deadline, its replacement. Does not own: the records (`writer_log`,
`coordinator_log`, `frontiers`).
Invariants: A record is on all in-sync replicas before its offset is returned. A record that may have been appended is
never reported as failed. Records of one key keep their order, even when the producer is replaced.

A batch that a broker refuses leaves a gap in an idempotent producer's sequence numbers, and every later batch of that
partition would be refused as out of order. So the producer is drained, and a new one replaces it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    KafkaError,
    MessageSizeTooLargeError,
    TopicAuthorizationFailedError,
)
from aiokafka.structs import RecordMetadata

from rootline.adapters.kafka.clients import log_unavailable, make_producer, reason_of, stop_producer
from rootline.adapters.settings import KafkaSettings
from rootline.schemas.errors import OutcomeUnknown
from rootline.schemas.identifiers import Headers

_REFUSALS: Final = (MessageSizeTooLargeError, TopicAuthorizationFailedError)
"""Errors that prove that nothing was appended."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to publish."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None  # `None`: chosen by the key


class RecordTooLarge(Exception):
    """A record is over the size limit of the producer or of the topic. Nothing of the call was appended."""


class SomeTooLarge(OutcomeUnknown):
    """Some records of a call are over the topic's size limit. The others were appended."""


class KafkaPublisher:
    """A publisher for one event loop.

    `record_bytes_max` is called when a producer is created. It may block.
    """

    def __init__(
        self, settings: KafkaSettings, record_bytes_max: Callable[[], int], *, compression: str | None = None
    ) -> None:
        self._settings = settings
        self._record_bytes_max = record_bytes_max
        self._compression = compression
        self._producer: AIOKafkaProducer | None = None
        self._making: asyncio.Task[AIOKafkaProducer] | None = None
        self._awaiting = 0
        self._retiring: set[asyncio.Task[None]] = set()
        self._closed = False

    def connect_soon(self) -> None:
        """Start to connect in the background, so that the first records need not wait for it."""
        if self._producer is None and self._making is None and not self._closed:
            self._making = asyncio.get_running_loop().create_task(self._made())
            self._making.add_done_callback(self._settle)

    async def publish(self, records: Sequence[Outgoing]) -> list[tuple[int, int]]:
        """Append records, and return the partition and offset of each. Records of one key keep their order.

        Raises:
            RecordTooLarge: nothing was appended.
            Unavailable: `log-unavailable`, nothing was appended.
            OutcomeUnknown: `publish-unknown`, none, some or all were appended.
        """
        deadline = asyncio.get_running_loop().time() + self._settings.delivery_timeout_s
        sent: list[asyncio.Future[RecordMetadata]] = []
        reason: str | None = None
        try:
            async with asyncio.timeout_at(deadline):
                producer = await self._ready()
                for record in records:
                    sent.append(await self._hand_over(producer, record))
        except TimeoutError:
            reason = f"no broker accepted the records within {self._settings.delivery_timeout_s:g} s"
        except MessageSizeTooLargeError as error:
            reason = str(error)
            if not sent:
                raise RecordTooLarge(reason) from None
        except KafkaError as error:
            reason = reason_of(error, self._settings)
        if reason is not None and not sent:
            raise log_unavailable(self._settings, reason)
        if sent:
            await asyncio.wait(sent, timeout=max(deadline - asyncio.get_running_loop().time(), 0.001))
        return self._places(records, sent, reason)

    async def close(self) -> None:
        """Wait for pending records until the deadline, then close the connections."""
        self._closed = True
        making = self._making
        if making is not None:
            if self._awaiting:
                await asyncio.wait([making], timeout=self._settings.request_timeout_s)
            making.cancel()
            await asyncio.wait([making])
        producer, self._producer = self._producer, None
        if producer is not None:
            await stop_producer(producer, patience_s=self._settings.request_timeout_s)
        if self._retiring:
            await asyncio.wait(self._retiring)

    async def _hand_over(self, producer: AIOKafkaProducer, record: Outgoing) -> asyncio.Future[RecordMetadata]:
        try:
            future: asyncio.Future[RecordMetadata] = await producer.send(
                record.topic, record.value, key=record.key, partition=record.partition, headers=list(record.headers)
            )
        except MessageSizeTooLargeError:
            raise
        except KafkaError:  # the sender has ended, so the producer is unusable
            self._retire(producer)
            raise
        future.add_done_callback(partial(self._settled, producer))
        return future

    def _settled(self, producer: AIOKafkaProducer, future: asyncio.Future[RecordMetadata]) -> None:
        """Retire the producer if a record failed, perhaps after its caller stopped waiting."""
        if not future.cancelled() and future.exception() is not None:
            self._retire(producer)

    def _places(
        self, records: Sequence[Outgoing], sent: Sequence[asyncio.Future[RecordMetadata]], reason: str | None
    ) -> list[tuple[int, int]]:
        failed = [
            (record.topic, error)
            for record, future in zip(records, sent, strict=False)
            if future.done() and (error := future.exception()) is not None
        ]
        errors = [error for _, error in failed]
        if reason is None and len(errors) == len(sent) and all(isinstance(error, _REFUSALS) for error in errors):
            if errors and isinstance(errors[0], MessageSizeTooLargeError):
                raise RecordTooLarge(f"a batch of {len(sent)} records is over the topic's max.message.bytes")
            if errors:
                raise log_unavailable(self._settings, errors[0], topic=failed[0][0])
        late = sum(not future.done() for future in sent)
        if late:
            reason = f"{late} records were not acknowledged within {self._settings.delivery_timeout_s:g} s"
        elif errors:
            reason = f"topic {failed[0][0]}: {reason_of(errors[0], self._settings)}"
        places = [] if reason else [(future.result().partition, future.result().offset) for future in sent]
        if any(offset < 0 for _, offset in places):
            reason = "a broker already has the records, and does not know their offsets"
        if reason:
            only_size = not late and errors and all(isinstance(error, MessageSizeTooLargeError) for error in errors)
            raise (SomeTooLarge if only_size else OutcomeUnknown)(
                "publish-unknown", f"{self._settings.url}: {reason}. Publish the same records again, which is safe"
            )
        return places

    async def _ready(self) -> AIOKafkaProducer:
        if self._producer is not None:
            return self._producer
        self.connect_soon()
        making = self._making
        if making is None:
            raise log_unavailable(self._settings, "the log was closed")
        self._awaiting += 1
        try:
            return await asyncio.shield(making)  # a cancelled caller must not cancel the connection for the others
        except asyncio.CancelledError:
            if making.cancelled():
                raise log_unavailable(self._settings, "the log was closed") from None
            raise
        finally:
            self._awaiting -= 1

    async def _made(self) -> AIOKafkaProducer:
        if self._retiring:  # its pending records precede new ones
            await asyncio.wait(self._retiring)
        producer = self._producer = await self._started()
        return producer

    def _settle(self, making: asyncio.Task[AIOKafkaProducer]) -> None:
        self._making = None
        if not making.cancelled():
            making.exception()  # retrieved: a waiting caller raises it, or the first record tries to connect again

    async def _started(self) -> AIOKafkaProducer:
        size = await asyncio.to_thread(self._record_bytes_max)
        producer = make_producer(self._settings, record_bytes_max=size, compression=self._compression)
        try:
            await producer.start()
        except BaseException:
            await asyncio.shield(stop_producer(producer, patience_s=1))
            raise
        return producer

    def _retire(self, producer: AIOKafkaProducer) -> None:
        if self._producer is not producer:
            return
        self._producer = None
        task = asyncio.get_running_loop().create_task(
            stop_producer(producer, patience_s=self._settings.delivery_timeout_s)
        )
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)
