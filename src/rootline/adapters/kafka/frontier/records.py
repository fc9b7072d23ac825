"""The frontiers' topic: for each partition of a log, an offset below which everything is decided.

Owns: the form of a record, reading all of them, writing. Does not own: when one is written (`frontier/keeper`), where a
partition starts (`start_rules`), how the topic must be configured (`topics`).
Invariants: a record is a lower bound: it is written only after the group has remembered the same offset or a later one;
a record of another group or of another topic id is never used; one that cannot be read is skipped, and the newest
that can be read under its key counts (decision 0108).

A lost record, a late one, or one that a stalled coordinator writes over a newer one costs reading again, never records:
the start of a partition is the greatest of what is known, and a log that begins above it is refused, not skipped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rootline.adapters.kafka.control_records import (
    ANSWERS,
    FRONTIER,
    LAKE,
    LIFT,
    PARKED,
    PAUSED,
    UPGRADED,
    ControlKey,
    Skipped,
    Unreadable,
    control_body,
    control_key,
    count,
    rows,
    text,
)
from rootline.adapters.kafka.frontier.answers import AnswerRecord, answer_record_of
from rootline.adapters.kafka.frontier.lake_record import lake_of
from rootline.adapters.kafka.frontier.marks import Mark
from rootline.adapters.kafka.frontier.pause_record import pause_of
from rootline.adapters.kafka.parking.records import ParkingRecord, lift_of, parking_record_of
from rootline.adapters.kafka.publisher import KafkaPublisher, Outgoing
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.adapters.kafka.topic_reader import KafkaTopicReader
from rootline.ports.intent_feed import Lift, Pause
from rootline.schemas.bytes.record_headers import Lake
from rootline.schemas.identifiers import LogId

_RECORD_BYTES_MAX: Final = 1_000_000
_ALL: Final = 2**62
_NEXT_OFFSET: Final = "next-offset"
NO_MARKS: Final[Mapping[int, Mark]] = {}
_LAST_READ: Final = "last-read"


def frontier_record(
    settings: KafkaSettings, log: LogId, partition: int, next_offset: int, mark: Mark | None = None
) -> Outgoing:
    """The record that says: everything of this partition before `next_offset` is decided, and `mark` was read."""
    key = json.dumps([settings.group_id, log, partition]).encode()
    body: dict[str, Any] = {_NEXT_OFFSET: next_offset}
    if mark is not None:
        body[_LAST_READ] = [mark.offset, mark.mark.hex()]
    return Outgoing(settings.frontiers_topic, key, json.dumps(body).encode())


def frontier_of(value: bytes) -> tuple[int, Mark | None]:
    """The offset in a record of this kind, and the mark of the record that was read last. Raises `Unreadable`."""
    body = control_body(value)
    last_read = body.get(_LAST_READ)
    if last_read is None:
        return count(body.get(_NEXT_OFFSET)), None
    [[offset, mark]] = rows([last_read], 2)
    try:
        return count(body.get(_NEXT_OFFSET)), Mark(count(offset), bytes.fromhex(text(mark)))
    except ValueError:
        raise Unreadable(f"`{_LAST_READ}` has no mark") from None


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the topic says of a log: partition → the greatest offset that a record names; all other records."""

    frontiers: Mapping[int, int]
    answers: tuple[AnswerRecord, ...]
    parked: tuple[ParkingRecord, ...] = ()
    lifts: tuple[Lift, ...] = ()
    is_upgraded: bool = False
    """Whether a record says that no coordinator of the first release reads the log."""
    pauses: tuple[Pause, ...] = ()
    lake: Lake | None = None
    """To which the group's coordinators commit; `None`: none of them has said it."""
    marks: Mapping[int, Mark] = field(default_factory=dict)
    """Partition → the record that was read of it last, as its newest record says."""
    unread: Mapping[bytes, tuple[str, int]] = field(default_factory=dict)
    """The key of each newest record that cannot be read, of answers and of parked records → its kind, its partition."""

    def is_unread(self, partition: int, kind: str | None = None) -> bool:
        """Whether a record of the partition, of this kind or of any, cannot be read."""
        return any(of == partition and kind in (None, held) for held, of in self.unread.values())


async def read_frontiers(settings: KafkaSettings, log: LogId, *, warns: bool = True) -> Recorded:
    """Read the topic to its present end. `warns`: log what cannot be read.

    Raises:
        Unavailable: `log-unavailable`, no answer, or there is no such topic.

    """
    reading = FrontierReading(settings.group_id, log)
    reader = KafkaTopicReader(settings, settings.frontiers_topic)
    await reader.first_since(0, None, reading.take, records_max=_ALL)
    if warns:
        reading.skipped.tell()
    return reading.recorded()


class FrontierReading:
    """The newest readable record under each key. A tombstone removes it, a damaged record does not."""

    def __init__(self, group_id: str, log: LogId) -> None:
        self.skipped = Skipped()
        self._group_id = group_id
        self._log = log
        self._frontiers: dict[int, int] = {}
        self._marks: dict[int, Mark | None] = {}
        self._lakes: dict[bytes, Lake] = {}
        self._answers: dict[bytes, AnswerRecord] = {}
        self._parked: dict[bytes, ParkingRecord] = {}
        self._lifts: dict[bytes, Lift] = {}
        self._pauses: dict[bytes, Pause] = {}
        self._is_upgraded = False
        self._unread: dict[bytes, tuple[str, int]] = {}

    def take(self, record: Any) -> None:
        """Read the next record of the topic, of whatever form."""
        key = None
        try:
            key = control_key(self._group_id, record.key)
            if key is not None and key.log in (self._log, None):
                self._unread.pop(record.key, None)
                self._take(key, record)
        except Unreadable as why:
            self.skipped.note(record, why)
            if key is not None and key.kind in (ANSWERS, PARKED):
                self._unread[record.key] = (key.kind, key.partition)

    def recorded(self) -> Recorded:
        """The outcome for this group and this log."""
        return Recorded(
            self._frontiers,
            tuple(self._answers.values()),
            tuple(self._parked.values()),
            tuple(self._lifts.values()),
            self._is_upgraded,
            tuple(self._pauses.values()),
            next(iter(self._lakes.values()), None),
            {partition: mark for partition, mark in self._marks.items() if mark is not None},
            self._unread,
        )

    def _take(self, key: ControlKey, record: Any) -> None:
        raw, value = record.key, record.value
        if value is None:
            for held in (self._answers, self._parked, self._lifts, self._pauses, self._lakes):
                held.pop(raw, None)
            return
        if key.kind == FRONTIER:
            offset, self._marks[key.partition] = frontier_of(value)
            self._frontiers[key.partition] = max(offset, self._frontiers.get(key.partition, 0))
        elif key.kind == LAKE:
            self._lakes.setdefault(raw, lake_of(value))
        elif key.kind == UPGRADED:
            control_body(value)  # its offsets are of no use any more
            self._is_upgraded = True
        elif key.kind == ANSWERS:
            self._answers[raw] = answer_record_of(key, value)
        elif key.kind == PARKED:
            self._parked[raw] = parking_record_of(key, value)
        elif key.kind == LIFT:
            self._lifts[raw] = lift_of(key, value)
        elif key.kind == PAUSED:
            self._pauses[raw], why = pause_of(key, value)
            if why is not None:
                self.skipped.note(record, why)


def frontier_publisher(settings: KafkaSettings) -> KafkaPublisher:
    """What writes the records; it connects with the first."""
    return KafkaPublisher(settings, lambda: _RECORD_BYTES_MAX)


async def write_frontiers(
    settings: KafkaSettings,
    publisher: KafkaPublisher,
    log: LogId,
    offsets: Mapping[int, int],
    marks: Mapping[int, Mark] = NO_MARKS,
) -> None:
    """Publish these offsets, which are durable when it returns.

    `marks`: the record that was read last, of partitions where it is known.

    Raises:
        Unavailable: `log-unavailable`. OutcomeUnknown: `publish-unknown`; writing again is safe.

    """
    records = [frontier_record(settings, log, number, offset, marks.get(number)) for number, offset in offsets.items()]
    await publisher.publish(records)
