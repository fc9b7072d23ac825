"""A long backlog of small intents on a real topic, made quickly.

Owns: the intents, and getting them onto the topic. Does not own: the coordinator that works through them.
Invariants: an intent adds one file and removes the one that was added to its table a while before, so that all tables
together have `LIVE_FILES` however long the backlog is; each is its writer's next intent, so none is answered as known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from confluent_kafka import KafkaException, Producer

from benchmarks.sample_table import create_record, data_file, definition
from rootline.adapters.settings import KafkaSettings
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.bytes.root.statistics_codec import StatisticsCodec
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import Intent, IntentKind, RemovedFile

LIVE_FILES: Final = 1_000
_DIGITS: Final = 12
_FIRST_SEQUENCE: Final = 1 << 20
_SEQUENCE_BYTES: Final = 4
_POLL_EVERY: Final = 10_000


def table_of(number: int) -> TableName:
    """Table `number`'s name."""
    return TableName(f"backlog.table{number:04d}")


def produce(settings: KafkaSettings, *, tables: int, intents: int) -> None:
    """Create `tables` tables, then publish `intents` intents for them in turn; all are on the topic when this returns.

    Raises:
        RuntimeError: some did not arrive.

    """
    producer = Producer(
        {
            "bootstrap.servers": settings.servers(),
            "enable.idempotence": True,
            "compression.type": "zstd",
            "linger.ms": 20,
            "queue.buffering.max.messages": 200_000,
            "partitioner": "murmur2_random",
        }
    )
    failed: list[str] = []
    for count, (key, value) in enumerate(_records(tables, intents)):
        while True:
            try:
                producer.produce(
                    settings.intents_topic,
                    value,
                    key,
                    on_delivery=lambda error, _: failed.append(str(error)) if error is not None else None,
                )
                break
            except BufferError:
                producer.poll(0.1)
        if count % _POLL_EVERY == 0:
            producer.poll(0)
    try:
        left = producer.flush(120)
    except KafkaException as error:
        raise RuntimeError(f"the backlog did not arrive on the topic: {error}") from error
    if left or failed:
        raise RuntimeError(f"of the backlog {left + len(failed)} records did not arrive: {failed[:1]}")


def _records(tables: int, intents: int) -> Iterator[tuple[bytes, bytes]]:
    templates = [_Template(number, max(1, LIVE_FILES // tables)) for number in range(tables)]
    for template in templates:
        yield template.key, template.create
    for number in range(intents):
        template = templates[number % tables]
        yield template.key, template.record(number // tables)


class _Template:
    """One table's intents, all of one length: only digits and the writer's sequence differ."""

    def __init__(self, number: int, live: int) -> None:
        table = definition(number + 1)
        self._live = live
        self._name = table_of(number)
        self.key = self._name.encode()
        self.create = create_record(table, self._name)
        codec = StatisticsCodec(table.tracked_fields)
        self._first = self._encoded(codec, removes=False)
        self._later = self._encoded(codec, removes=True)

    def record(self, number: int) -> bytes:
        """Intent `number`."""
        own = _digits(number)
        template, old = (self._first, "") if number < self._live else (self._later, _digits(number - self._live))
        made = template.replace(_MARK_OWN, own.encode()).replace(_MARK_OLD, old.encode())
        return made.replace(_MARK_SEQUENCE, _varint(_FIRST_SEQUENCE + number))

    def _encoded(self, codec: StatisticsCodec, *, removes: bool) -> bytes:
        added = data_file(1, codec).model_copy(update={"location": f"data/{_MARK_OWN.decode()}.parquet"})
        removed = (RemovedFile(location=f"data/{_MARK_OLD.decode()}.parquet"),) if removes else ()
        return encode_intent(
            Intent(
                intent_id=f"intent-{_MARK_OWN.decode()}",
                table=self._name,
                kind=IntentKind.OVERWRITE,
                writer_id="backlog",
                writer_sequence=_MARKED_SEQUENCE,
                add_data_files=(added,),
                remove_files=removed,
            )
        )


def _digits(number: int) -> str:
    return f"{number:0{_DIGITS}d}"


def _varint(number: int) -> bytes:
    """Avro's, of `_SEQUENCE_BYTES` bytes."""
    zigzag = number << 1
    groups = [zigzag >> 7 * place & 0x7F for place in range(_SEQUENCE_BYTES)]
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


_MARK_OWN: Final = b"<<<<own>>>>>"
_MARK_OLD: Final = b"<<<<old>>>>>"
_MARKED_SEQUENCE: Final = 0x7ABCDEF
_MARK_SEQUENCE: Final = _varint(_MARKED_SEQUENCE)
assert len(_MARK_OWN) == len(_MARK_OLD) == _DIGITS
