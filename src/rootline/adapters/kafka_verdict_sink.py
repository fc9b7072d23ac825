"""Where a coordinator publishes what it decided, when the log is Kafka.

Owns: verdicts into records, dead letters with the original bytes. Does not own: delivery (`kafka_publisher`), when a
verdict may be published.
Invariants: all of a call is acknowledged by every in-sync replica before it returns; a verdict record holds verdicts of
one table on one partition of one log, under the table's key; a dead letter's key and value are the record's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rootline.adapters.kafka_publisher import KafkaPublisher, Outgoing, RecordTooLarge
from rootline.adapters.kafka_record_headers import headers_of_dead_letter, headers_of_verdicts
from rootline.adapters.kafka_settings import KafkaSettings
from rootline.adapters.kafka_topics import DEAD_LETTER_ROOM_BYTES, record_bytes_max
from rootline.schemas.dead_letter import DeadLetter
from rootline.schemas.errors import Unavailable
from rootline.schemas.verdict import Verdict
from rootline.schemas.verdict_codec import encode_verdicts

_VERDICTS_IN_A_RECORD: Final = 500
_BYTES_IN_A_RECORD: Final = 400_000


class KafkaVerdictSink:
    """Connects with the first verdict; for one event loop."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._publisher = KafkaPublisher(settings, self._ask_record_bytes_max)

    async def publish_verdicts(self, verdicts: Sequence[Verdict], dead_letters: Sequence[DeadLetter]) -> None:
        """Durable when it returns; the same verdict again changes nothing for who waits.

        Raises:
            Unavailable: `log-unavailable`: nothing was published; or a dead letter is over its topic's limit.
            OutcomeUnknown: `publish-unknown`, some may have been published; publish all again.

        """
        records = [*self._dead_letter_records(dead_letters), *self._verdict_records(verdicts)]
        if not records:
            return
        try:
            await self._publisher.publish(records)
        except RecordTooLarge as error:
            raise Unavailable(
                "log-unavailable",
                f"{self._settings.url}: topic {self._settings.dead_letters_topic} or {self._settings.verdicts_topic} "
                f"does not take a record ({error}): raise its max.message.bytes, `rootline topics check` says to what",
            ) from None

    async def close(self) -> None:
        """Let pending records arrive, then give connections back."""
        await self._publisher.close()

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

    def _dead_letter_records(self, letters: Sequence[DeadLetter]) -> Iterator[Outgoing]:
        for letter in letters:
            headers = headers_of_dead_letter(
                letter, topic=self._settings.intents_topic, connector=self._settings.group_id
            )
            yield Outgoing(self._settings.dead_letters_topic, letter.key, letter.value, headers)

    def _ask_record_bytes_max(self) -> int:
        """The dead-letter topic's own limit: whatever was on the log must fit through."""
        allowed = record_bytes_max(self._settings, self._settings.dead_letters_topic)
        return allowed or self._settings.intent_bytes_max + DEAD_LETTER_ROOM_BYTES
