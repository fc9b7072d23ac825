"""A coordinator's side of a log on Kafka: reading intents, publishing verdicts and dead letters.

Owns: both sides as one object, the translation of verdicts into records, dead letters with the original bytes. Does
not own: reading (`intent_feed`), delivery (`publisher`), when a verdict may be published, the contents of headers
(`record_headers`).
Invariants: All records of a call are acknowledged by every in-sync replica before it returns. A verdict record has
verdicts of one table on one partition of one log, under the table's key. The JSON form of a verdict is a separate
record. A dead letter has the record's own key and value, unless the topic does not accept them even compressed. No dead
letter delays another one or a verdict. Closing ends both sides, even if one of them fails.

A topic limits the size of its records, and a writer may have compressed a record that is too large for any topic
without compression. The dead letter of such a record is compressed with zstd, by a separate producer, because zstd has
the largest window of all codecs. If that is too large as well, the letter is published without the record's bytes
(decision 0108).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from aiokafka.codec import zstd_encode
from typing_extensions import override

from rootline.adapters.kafka.clients import log_unavailable
from rootline.adapters.kafka.intent_feed import KafkaIntentFeed
from rootline.adapters.kafka.publisher import KafkaPublisher, Outgoing, RecordTooLarge, SomeTooLarge
from rootline.adapters.kafka.record_headers import headers_of_dead_letter, headers_of_json_verdict, headers_of_verdicts
from rootline.adapters.kafka.topics import DEAD_LETTER_ROOM_BYTES, record_bytes_max
from rootline.adapters.settings import KafkaSettings
from rootline.library_log import library_logger
from rootline.ports.intent_feed import FeedEvent
from rootline.ports.intent_log import VerdictSink
from rootline.schemas.bytes.verdict_codec import encode_verdicts, json_verdict
from rootline.schemas.errors import Unavailable
from rootline.schemas.verdict import DeadLetter, JsonVerdict, Verdict, coordinates_only

_VERDICTS_IN_A_RECORD: Final = 500
_BYTES_IN_A_RECORD: Final = 400_000
_BATCH_BYTES: Final = 128
"""More than a batch of one record adds to its key, value and headers."""
_OUR_HEADERS_BYTES: Final = 16_384
"""More than our own headers take with a short message."""
_ANY_SIZE: Final = 2**31 - 1


class KafkaVerdictSink(VerdictSink):
    """Publishes verdicts. For one event loop. Connects at the first verdict, or when `connect_soon` is called."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._letter_bytes_max: int | None = None
        self._publisher = KafkaPublisher(settings, lambda: _ANY_SIZE)  # a topic's limit may be raised later
        self._compressing = KafkaPublisher(settings, lambda: _ANY_SIZE, compression="zstd")

    def connect_soon(self) -> None:
        """Start to connect in the background, so that the first verdict need not wait for it."""
        self._publisher.connect_soon()

    @override
    async def publish_verdicts(self, verdicts: Sequence[Verdict], dead_letters: Sequence[DeadLetter]) -> None:
        """Publish verdicts and dead letters durably. Publishing the same verdict again changes nothing for waiters.

        Raises:
            Unavailable: `log-unavailable`, the verdicts were not published. Some dead letters may have been.
            OutcomeUnknown: `publish-unknown`, some may have been published. Publish all of them again.
        """
        decided = list(self._verdict_records(verdicts))
        letters = await self._dead_letter_records(dead_letters)
        if letters:
            try:
                await self._publisher.publish([*letters, *decided])
                return
            except (RecordTooLarge, SomeTooLarge):  # it is not known for which letter
                self._letter_bytes_max = (
                    None  # the topic's limit is lower than before, so read it before the next attempt
                )
                for letter in dead_letters:
                    await self._publish_alone(letter)
        if decided:
            await self._publish_verdicts(decided)

    async def _publish_verdicts(self, records: Sequence[Outgoing]) -> None:
        try:
            await self._publisher.publish(records)
        except RecordTooLarge as error:
            advice = "raise its max.message.bytes to the value that `rootline topics check` shows"
            topic = self._settings.verdicts_topic
            raise log_unavailable(
                self._settings, f"topic {topic} does not accept a record ({error}): {advice}", topic=topic
            ) from None

    async def close(self) -> None:
        """Wait for pending records, then close the connections."""
        try:
            await self._publisher.close()
        finally:
            await self._compressing.close()

    def _verdict_records(self, verdicts: Sequence[Verdict]) -> Iterator[Outgoing]:
        groups: dict[tuple[str, str, int], list[Verdict]] = {}
        for verdict in verdicts:
            groups.setdefault((verdict.table, verdict.log, verdict.partition), []).append(verdict)
        for (table, _, _), group in groups.items():
            for start in range(0, len(group), _VERDICTS_IN_A_RECORD):
                yield from self._verdict_record(table, group[start : start + _VERDICTS_IN_A_RECORD])
        for verdict in verdicts:
            if isinstance(verdict, JsonVerdict):
                value, headers = json_verdict(verdict), headers_of_json_verdict(verdict)
                yield Outgoing(self._settings.verdicts_topic, verdict.table.encode(), value, headers)

    def _verdict_record(self, table: str, verdicts: Sequence[Verdict]) -> Iterator[Outgoing]:
        value = encode_verdicts(verdicts)
        if len(value) > _BYTES_IN_A_RECORD and len(verdicts) > 1:  # long messages
            middle = len(verdicts) // 2
            yield from self._verdict_record(table, verdicts[:middle])
            yield from self._verdict_record(table, verdicts[middle:])
            return
        yield Outgoing(self._settings.verdicts_topic, table.encode(), value, headers_of_verdicts(verdicts))

    async def _dead_letter_records(self, letters: Sequence[DeadLetter]) -> list[Outgoing]:
        """Publish, in reduced form, the letters that are too large for the topic. Return the records of the others."""
        if not letters:
            return []
        if self._letter_bytes_max is None:
            self._letter_bytes_max = await asyncio.to_thread(self._ask_record_bytes_max)
        fitting: list[Outgoing] = []
        for letter in letters:
            room = self._letter_bytes_max - _BATCH_BYTES - len(letter.key or b"") - len(letter.value)
            if room >= _OUR_HEADERS_BYTES:
                fitting.append(self._letter_record(letter, room))
            else:
                await self._publish_smaller(letter, self._letter_bytes_max)
        return fitting

    async def _publish_alone(self, letter: DeadLetter) -> None:
        try:
            await self._publisher.publish([self._letter_record(letter, DEAD_LETTER_ROOM_BYTES)])
        except RecordTooLarge:
            await self._publish_smaller(letter, _ANY_SIZE)

    async def _publish_smaller(self, letter: DeadLetter, bytes_max: int) -> None:
        """Publish a letter compressed, or if that is still too large, only the position of its record.

        `bytes_max`: the topic's limit when it was last read.
        """
        if len(await asyncio.to_thread(zstd_encode, letter.value)) <= bytes_max:
            try:
                await self._compressing.publish([self._letter_record(letter, DEAD_LETTER_ROOM_BYTES)])
                return
            except RecordTooLarge:
                pass
        allowed = self._letter_bytes_max = await asyncio.to_thread(self._ask_record_bytes_max)
        if allowed > bytes_max:
            await self._publish_alone(letter)
            return
        if allowed < _OUR_HEADERS_BYTES:
            raise self._no_letter(f"its max.message.bytes is {allowed}")
        library_logger().warning(
            "dead letter without its record",
            action="dead-letter",
            partition=letter.partition,
            offset=letter.offset,
            value_bytes=len(letter.value),
        )
        reduced = await asyncio.to_thread(coordinates_only, letter)
        try:
            await self._compressing.publish([self._letter_record(reduced, _OUR_HEADERS_BYTES)])
        except RecordTooLarge as error:
            raise self._no_letter(str(error)) from None

    def _no_letter(self, reason: str) -> Unavailable:
        topic = self._settings.dead_letters_topic
        advice = "raise its max.message.bytes to the value that `rootline topics check` shows"
        text = f"topic {topic} does not accept even the position of a record ({reason}): {advice}"
        return log_unavailable(self._settings, text, topic=topic)

    def _letter_record(self, letter: DeadLetter, headers_bytes_max: int) -> Outgoing:
        headers = headers_of_dead_letter(
            letter,
            topic=self._settings.intents_topic,
            connector=self._settings.group_id,
            bytes_max=headers_bytes_max,
        )
        return Outgoing(self._settings.dead_letters_topic, letter.key, letter.value, headers)

    def _ask_record_bytes_max(self) -> int:
        """The size limit of the dead letters' topic. If it is not known, a size that fits every intent."""
        allowed = record_bytes_max(self._settings, self._settings.dead_letters_topic)
        return allowed or self._settings.intent_bytes_max + DEAD_LETTER_ROOM_BYTES


class KafkaCoordinatorLog(KafkaIntentFeed):
    """The feed of intents that publishes verdicts too. The first `next` opens both connections."""

    def __init__(self, settings: KafkaSettings) -> None:
        super().__init__(settings)
        self._verdicts = KafkaVerdictSink(settings)

    @override
    async def next(self, *, wait_s: float, deliver: bool = True) -> FeedEvent:
        """Return the next event of the feed. The first call also starts the connection that publishes verdicts."""
        self._verdicts.connect_soon()
        return await super().next(wait_s=wait_s, deliver=deliver)

    async def publish_verdicts(self, verdicts: Sequence[Verdict], dead_letters: Sequence[DeadLetter]) -> None:
        """Publish verdicts and dead letters. They are durable when this returns."""
        await self._verdicts.publish_verdicts(verdicts, dead_letters)

    @override
    async def close(self) -> None:
        """Leave the group without delay, wait for pending verdicts, and close the connections."""
        try:
            await super().close()
        finally:
            await self._verdicts.close()
