"""Where a coordinator publishes what it decided, when the log is Kafka.

Owns: verdicts into records, dead letters with the original bytes. Does not own: delivery (`publisher`), when a
verdict may be published, what a dead letter's headers say (`dead_letter_headers`).
Invariants: all of a call is acknowledged by every in-sync replica before it returns; a verdict record holds verdicts of
one table on one partition of one log, under the table's key; a dead letter's key and value are the record's own, whole.

A topic limits what it stores, and a writer may have compressed: a record can be larger than any topic takes as it is.
The dead letter of such a record is compressed too, by a producer of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from rootline.adapters.kafka.dead_letter_headers import headers_of_dead_letter
from rootline.adapters.kafka.log_errors import log_unavailable
from rootline.adapters.kafka.publisher import KafkaPublisher, Outgoing, RecordTooLarge
from rootline.adapters.kafka.record_headers import headers_of_verdicts
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.adapters.kafka.topics import DEAD_LETTER_ROOM_BYTES, record_bytes_max
from rootline.schemas.bytes.log.verdict_codec import encode_verdicts
from rootline.schemas.dead_letter import DeadLetter
from rootline.schemas.verdict import Verdict

_VERDICTS_IN_A_RECORD: Final = 500
_BYTES_IN_A_RECORD: Final = 400_000
_BATCH_BYTES: Final = 128
"""More than what a batch of one record adds to its key, value and headers."""
_OUR_HEADERS_BYTES: Final = 16_384
"""More than our own headers take with a short message."""
_ANY_SIZE: Final = 2**31 - 1


class KafkaVerdictSink:
    """Connects with the first verdict, unless it was told to before; for one event loop."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._letter_bytes_max: int | None = None
        self._publisher = KafkaPublisher(settings, self._ask_record_bytes_max)
        self._compressing = KafkaPublisher(settings, lambda: _ANY_SIZE, compression="gzip")

    def connect_soon(self) -> None:
        """Begin to connect, so that the first verdict need not wait for it."""
        self._publisher.connect_soon()

    async def publish_verdicts(self, verdicts: Sequence[Verdict], dead_letters: Sequence[DeadLetter]) -> None:
        """Durable when it returns; the same verdict again changes nothing for who waits.

        Raises:
            Unavailable: `log-unavailable`: nothing was published; or a dead letter is over its topic's limit.
            OutcomeUnknown: `publish-unknown`, some may have been published; publish all again.

        """
        try:
            records = [*await self._dead_letter_records(dead_letters), *self._verdict_records(verdicts)]
            if records:
                await self._publisher.publish(records)
        except RecordTooLarge as error:
            self._letter_bytes_max = None  # the topic takes less than it did: ask before the next attempt
            raise log_unavailable(
                self._settings,
                f"topic {self._settings.dead_letters_topic} or {self._settings.verdicts_topic} "
                f"does not take a record ({error}): raise its max.message.bytes, `rootline topics check` says to what",
            ) from None

    async def close(self) -> None:
        """Let pending records arrive, then give connections back."""
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

    def _verdict_record(self, table: str, verdicts: Sequence[Verdict]) -> Iterator[Outgoing]:
        value = encode_verdicts(verdicts)
        if len(value) > _BYTES_IN_A_RECORD and len(verdicts) > 1:  # long messages
            middle = len(verdicts) // 2
            yield from self._verdict_record(table, verdicts[:middle])
            yield from self._verdict_record(table, verdicts[middle:])
            return
        yield Outgoing(self._settings.verdicts_topic, table.encode(), value, headers_of_verdicts(verdicts))

    async def _dead_letter_records(self, letters: Sequence[DeadLetter]) -> list[Outgoing]:
        """Records of `letters`; those that only fit compressed are published when this returns."""
        if not letters:
            return []
        if self._letter_bytes_max is None:
            self._letter_bytes_max = await asyncio.to_thread(self._ask_record_bytes_max)
        fitting: list[Outgoing] = []
        oversize: list[Outgoing] = []
        for letter in letters:
            room = self._letter_bytes_max - _BATCH_BYTES - len(letter.key or b"") - len(letter.value)
            fits = room >= _OUR_HEADERS_BYTES
            headers = headers_of_dead_letter(
                letter,
                topic=self._settings.intents_topic,
                connector=self._settings.group_id,
                bytes_max=room if fits else DEAD_LETTER_ROOM_BYTES,
            )
            record = Outgoing(self._settings.dead_letters_topic, letter.key, letter.value, headers)
            (fitting if fits else oversize).append(record)
        if oversize:
            await self._compressing.publish(oversize)
        return fitting

    def _ask_record_bytes_max(self) -> int:
        """The dead-letter topic's own limit: whatever was on the log must fit through."""
        allowed = record_bytes_max(self._settings, self._settings.dead_letters_topic)
        return allowed or self._settings.intent_bytes_max + DEAD_LETTER_ROOM_BYTES
