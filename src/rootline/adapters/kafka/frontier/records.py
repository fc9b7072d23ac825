"""The frontiers' topic: for each partition of a log, an offset below which everything is decided.

Owns: the form of a record, reading all of them, writing. Does not own: when one is written (`frontier/keeper`), where a
partition starts (`start_rules`), how the topic must be configured (`topics`).
Invariants: a record is a lower bound: it is written only after the group has remembered the same offset or a later one;
a record of another group or of another topic id is never used; what is not a record of this form is skipped.

A lost record, a late one, or one that a stalled coordinator writes over a newer one costs reading again, never records:
the start of a partition is the greatest of what is known, and a log that begins above it is refused, not skipped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rootline.adapters.kafka.frontier.answers import AnswerRecord, answer_record_of
from rootline.adapters.kafka.frontier.lake_record import lake_in
from rootline.adapters.kafka.frontier.marks import Mark
from rootline.adapters.kafka.frontier.pause_record import pause_in
from rootline.adapters.kafka.frontier.upgrade_record import upgrade_of
from rootline.adapters.kafka.parking.records import ParkingRecord, lift_of, parking_record_of
from rootline.adapters.kafka.publisher import KafkaPublisher, Outgoing
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.adapters.kafka.topic_reader import KafkaTopicReader
from rootline.ports.parking import Lift
from rootline.ports.pausing import Pause
from rootline.schemas.bytes.log.lake_claim import Lake
from rootline.schemas.log_position import LogId

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


def mark_in(value: bytes | None) -> Mark | None:
    """The mark that a frontier's record carries, if it carries one."""
    try:
        offset, mark = json.loads(value or b"")[_LAST_READ]
        return Mark(offset, bytes.fromhex(mark)) if _is_count(offset) else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def frontier_of(settings: KafkaSettings, log: LogId, key: bytes | None, value: bytes | None) -> tuple[int, int] | None:
    """The partition and its offset, if this is such a record of this group and this log."""
    try:
        group, named, partition = json.loads(key or b"")
        offset = json.loads(value or b"")[_NEXT_OFFSET]
    except (ValueError, TypeError, KeyError):
        return None
    if (group, named) != (settings.group_id, log) or not _is_count(partition) or not _is_count(offset):
        return None
    return partition, offset


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the topic says of a log: partition → the greatest offset that a record names; all other records."""

    frontiers: Mapping[int, int]
    answers: tuple[AnswerRecord, ...]
    parked: tuple[ParkingRecord, ...] = ()
    lifts: tuple[Lift, ...] = ()
    upgraded_from: Mapping[int, int] | None = None
    """As in `upgrade_record`; `None`: there is no such record, so older versions may be in the group."""
    pauses: tuple[Pause, ...] = ()
    lake: Lake | None = None
    """To which the group's coordinators commit; `None`: none of them has said it."""
    marks: Mapping[int, Mark] = field(default_factory=dict)
    """Partition → the record that was read of it last, as its newest record says."""


async def read_frontiers(settings: KafkaSettings, log: LogId) -> Recorded:
    """Read the topic to its present end.

    Raises:
        Unavailable: `log-unavailable`, no answer, or there is no such topic.

    """
    known: dict[int, int] = {}
    answers: dict[bytes, AnswerRecord | None] = {}
    parked: dict[bytes, ParkingRecord | None] = {}
    lifts: dict[bytes, Lift | None] = {}
    upgrades: list[Mapping[int, int]] = []
    pauses: dict[bytes, Pause | None] = {}
    lakes: list[Lake] = []
    marks: dict[int, Mark | None] = {}

    def take(record: Any) -> None:
        found = frontier_of(settings, log, record.key, record.value)
        if found is not None:
            partition, offset = found
            known[partition] = max(offset, known.get(partition, 0))
            marks[partition] = mark_in(record.value)
        elif (upgraded := upgrade_of(settings, log, record.key, record.value)) is not None:
            upgrades.append(upgraded)
        elif (lake := lake_in(settings, record.key, record.value)) is not None:
            lakes.append(lake)
        else:
            answers[record.key or b""] = answer_record_of(settings, log, record.key, record.value)
            parked[record.key or b""] = parking_record_of(settings, log, record.key, record.value)
            lifts[record.key or b""] = lift_of(settings, log, record.key, record.value)
            pauses[record.key or b""] = pause_in(settings, record.key, record.value)

    reader = KafkaTopicReader(settings, settings.frontiers_topic)
    await reader.first_since(0, None, take, records_max=_ALL)
    return Recorded(
        known,
        tuple(record for record in answers.values() if record is not None),
        tuple(record for record in parked.values() if record is not None),
        tuple(lift for lift in lifts.values() if lift is not None),
        upgrades[-1] if upgrades else None,
        tuple(pause for pause in pauses.values() if pause is not None),
        lakes[0] if lakes else None,
        {partition: mark for partition, mark in marks.items() if mark is not None},
    )


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
    """Keep these; durable when it returns. `marks`: the record that was read last, of partitions where it is known.

    Raises:
        Unavailable: `log-unavailable`. OutcomeUnknown: `publish-unknown`; writing again is safe.

    """
    records = [frontier_record(settings, log, number, offset, marks.get(number)) for number, offset in offsets.items()]
    await publisher.publish(records)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
