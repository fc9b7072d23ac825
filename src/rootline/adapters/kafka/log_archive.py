"""A log on Kafka for inspection: what is still in it, newest first.

Owns: which topic has the answer to what, and where to look in it. Does not own: reading topics (`topic_reader`), what
headers say (`record_headers`, `dead_letter_headers`).
Invariants: those of the port; a record without anything of ours is skipped.

Verdicts and dead letters follow their record in time, so both are looked for from its append time on, and from a
little before it, because their times are their coordinator's and not the broker's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Final

from rootline.adapters.kafka.dead_letter_headers import dead_letter_of
from rootline.adapters.kafka.fetching.record_batches import STAND_IN_KEY
from rootline.adapters.kafka.record_headers import range_of
from rootline.adapters.kafka.records import log_records
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.adapters.kafka.topic_reader import KafkaTopicReader
from rootline.adapters.kafka.topics import topic_identity
from rootline.schemas.bytes.verdict_codec import decode_verdicts
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import LogPosition, LogRecord
from rootline.schemas.verdict import DeadLetter, Verdict

_CLOCKS_DIFFER_MS: Final = 600_000
_ANSWERS_MAX: Final = 100_000
"""How many verdict records or dead letters of one partition are searched for one."""


class KafkaLogArchive:
    """Every search opens a connection of its own; nothing is kept open in between."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._intents = KafkaTopicReader(settings, settings.intents_topic)
        self._verdicts = KafkaTopicReader(settings, settings.verdicts_topic)
        self._dead_letters = KafkaTopicReader(settings, settings.dead_letters_topic)

    async def records(
        self, *, key: bytes | None = None, since_ms: int = 0
    ) -> AsyncGenerator[Sequence[LogRecord], None]:
        """As the port says; with a `key`, those of its partition."""
        log = (await asyncio.to_thread(topic_identity, self._settings, self._settings.intents_topic)).log
        async with aclosing(self._intents.backwards(key=key, since_ms=since_ms)) as portions:
            async for portion in portions:
                yield log_records(log, portion)

    async def dead_letters(self, *, since_ms: int = 0) -> AsyncGenerator[Sequence[DeadLetter], None]:
        """As the port says."""
        async with aclosing(self._dead_letters.backwards(key=None, since_ms=since_ms)) as portions:
            async for portion in portions:
                yield [
                    dead_letter_of(held.key, held.value or b"", held.headers)
                    for held in portion
                    if held.key != STAND_IN_KEY
                ]

    async def verdict_on(self, record: LogRecord) -> Verdict | None:
        """As the port says."""
        return await self._verdicts.first_since(
            record.appended_ms - _CLOCKS_DIFFER_MS,
            record.key,
            lambda held: _verdict_in(held, record.position),
            records_max=_ANSWERS_MAX,
        )

    async def dead_letter_of(self, record: LogRecord) -> DeadLetter | None:
        """As the port says."""

        def chosen(held: Any) -> DeadLetter | None:
            letter = dead_letter_of(held.key, held.value or b"", held.headers)
            return letter if (letter.log, letter.partition, letter.offset) == record.position else None

        return await self._dead_letters.first_since(
            record.appended_ms - _CLOCKS_DIFFER_MS, record.key, chosen, records_max=_ANSWERS_MAX
        )

    async def close(self) -> None:
        """Does nothing: no connection is kept open."""


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
