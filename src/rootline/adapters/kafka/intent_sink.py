"""Where writers publish, when the log is Kafka.

Owns: keys to partitions (Kafka's own murmur2, as every client does it), positions under the topic's identity, the
header that names JSON as such, the signature. Does not own: delivery (`publisher`), what an intent holds.
Invariants: a position names the topic that the record went to, and not an older one of the same name; an intent over
the limit is refused before anything is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Final

from rootline.adapters.kafka.log_errors import log_unavailable
from rootline.adapters.kafka.publisher import KafkaPublisher, Outgoing, RecordTooLarge
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.adapters.kafka.topics import record_bytes_max, topic_identity
from rootline.adapters.tracing import publishing
from rootline.ports.intent_log import NewRecord
from rootline.schemas.bytes.intent_codec import CONTENT_TYPE_HEADER, JSON_CONTENT_TYPE, begins_like_json
from rootline.schemas.bytes.record_headers import (
    Lake,
    content_headers,
    lake_header,
    signature_header,
    signed_at_header,
    trace_headers,
)
from rootline.schemas.errors import Invalid, OutcomeUnknown, Unavailable
from rootline.schemas.identifiers import Headers, LogId, LogPosition, oldest_file_header

_RECORD_OVERHEAD_BYTES: Final = 128
"""More than what a batch of one record adds to its key, value and header."""
_JSON_HEADERS: Final[Headers] = ((CONTENT_TYPE_HEADER, JSON_CONTENT_TYPE),)


class KafkaIntentSink:
    """Connects with the first record; for one event loop."""

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
        """`<cluster id>/<topic id>`; after `identity_max_age_s` it is also asked for again in the background.

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

    async def publish(self, key: bytes, value: bytes, *, oldest_file_ms: int | None = None) -> LogPosition:
        """Append one record; durable when it returns."""
        return (await self.publish_many([(key, value)], oldest_file_ms=oldest_file_ms))[0]

    async def publish_many(
        self, records: Sequence[NewRecord], *, oldest_file_ms: int | None = None
    ) -> list[LogPosition]:
        """Append records, those of one key in order.

        Raises:
            Invalid: `intent-too-large`, nothing was appended.
            Unavailable: `log-unavailable`, nothing was appended.
            OutcomeUnknown: `publish-unknown`, none, some or all were appended; publishing all again is safe.

        """
        if not records:
            return []
        with publishing(records[0][0], len(records)) as trace:
            claim = (*oldest_file_header(oldest_file_ms), *trace_headers(trace), *lake_header(self.lake))
            return await self._publish(records, claim)

    async def _publish(self, records: Sequence[NewRecord], claim: Headers) -> list[LogPosition]:
        outgoing = [self._outgoing(key, value, (*content_headers(*said), *claim)) for key, value, *said in records]
        largest = max(map(_size, outgoing))
        self._check_size(largest)
        log = await self.identity()
        highest = dict(self._highest)
        try:
            places = await self._publisher.publish(outgoing)
        except RecordTooLarge as error:
            await asyncio.to_thread(self._ask_record_bytes_max)
            self._check_size(largest)
            advice = f"{error}; publish again, in smaller batches from now on"
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
            with contextlib.suppress(Unavailable):  # publishing would fail too, and the next refresh comes soon
                await self._ask_identity()

    async def _identity_after_the_end(self, places: Sequence[tuple[int, int]]) -> LogId:
        """Offsets went back: this is a new topic."""
        try:
            async with self._asking:
                return await self._ask_identity()
        except Unavailable as error:
            raise OutcomeUnknown(
                "publish-unknown", f"{error.message}; the topic was created again, and {len(places)} records are on it"
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


def _size(record: Outgoing) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def _too_large(what: str) -> Invalid:
    return Invalid(
        "intent-too-large", f"intent: {what}: split it, or write a leaf manifest and publish a reference to it"
    )
