"""Parked records whose names are gone, because the frontiers' topic was deleted or emptied: named again by themselves.

Owns: noticing that names are missing, and making them again from the parked topic. Does not own: names as they are
written (`parking/records`), reading what is named (`parking/parked_topic`).
Invariants: a partition that the group has read has a record of names, perhaps of none; where it has not, nothing of its
parked records is passed over in silence: a table is given again what was decided, rather than never what was not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import structlog

from rootline.adapters.kafka.control_records import PARKED
from rootline.adapters.kafka.frontier.records import Recorded
from rootline.adapters.kafka.parking.parked_topic import Said, said_of
from rootline.adapters.kafka.parking.records import ParkingRecord
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.adapters.kafka.start_rules import PartitionFacts
from rootline.adapters.kafka.topic_reader import KafkaTopicReader
from rootline.ports.intent_feed import ParkedRun, ParkedTable
from rootline.schemas.identifiers import LogId, TableName

_ALL: Final = 2**62
_WHY: Final = "the frontiers' topic was deleted, emptied or damaged, and did not say any more what is parked"


async def with_names_found_again(
    settings: KafkaSettings, log: LogId, recorded: Recorded, facts: Sequence[PartitionFacts]
) -> Recorded:
    """`recorded`, with what is parked of partitions that the group has read and that have no names, or unreadable ones.

    Raises:
        Unavailable: `log-unavailable`.

    """
    named = {record.partition for record in recorded.parked if not recorded.is_unread(record.partition, PARKED)}
    read = {held.partition for held in facts if held.committed is not None and held.committed.log == log}
    if not read - named:
        return recorded
    found = await _found(settings, log, read - named)
    for record in found:
        structlog.get_logger("rootline.kafka").warning(
            "parked records found again",
            action="park",
            partition=record.partition,
            tables={table: parked.records for table, parked in record.tables.items()},
            reason=_WHY,
        )
    return replace(recorded, parked=(*recorded.parked, *(_beside(record, recorded.parked) for record in found)))


def _beside(found: ParkingRecord, known: Iterable[ParkingRecord]) -> ParkingRecord:
    """`found`, so that it counts together with the newest of the names that can still be read."""
    epoch = max((record.epoch for record in known if record.partition == found.partition), default=0)
    return replace(found, epoch=epoch, began=True)


async def _found(settings: KafkaSettings, log: LogId, partitions: Collection[int]) -> list[ParkingRecord]:
    tables: dict[tuple[int, TableName], _Found] = {}

    def take(record: Any) -> None:
        said = said_of(record.headers)
        if said is not None and (said.group, said.log) == (settings.group_id, log) and said.partition in partitions:
            place = (said.partition, TableName(said.table))
            tables.setdefault(place, _Found()).take(record.offset, record.timestamp, len(record.value or b""), said)

    await KafkaTopicReader(settings, settings.parked_topic).first_since(0, None, take, records_max=_ALL)
    return [
        ParkingRecord(log, number, "found again", 0, _by_table(parked))
        for number in sorted({partition for partition, _ in tables})
        if (parked := [held.named() for (partition, _), held in tables.items() if partition == number])
    ]


def _by_table(found: Iterable[ParkedTable]) -> dict[TableName, ParkedTable]:
    return {parked.table: parked for parked in found}


@dataclass(slots=True)
class _Found:
    """One table's records so far, numbered without a gap; a number 0 behind them begins again: it was parked again."""

    runs: list[ParkedRun] = field(default_factory=list)
    first: tuple[Said, int] | None = None
    last: Said | None = None
    size_in_bytes: int = 0
    _skipped: bool = False

    def take(self, offset: int, stored_ms: int, size: int, said: Said) -> None:
        if self.last is None or (said.number == 0 and said.offset > self.last.offset):
            self.runs, self.first, self.last, self.size_in_bytes = [], (said, stored_ms), None, 0
        elif said.number != self.last.number + 1 or said.offset <= self.last.offset:
            self._skipped = True  # of an attempt that failed, or of a stalled owner
            return
        if self.runs and self.runs[-1].writer == said.writer and not self._skipped:
            self.runs[-1] = replace(self.runs[-1], last=offset)
        else:
            self.runs.append(ParkedRun(said.writer, offset, offset))
        self.last, self._skipped = said, False
        self.size_in_bytes += size

    def named(self) -> ParkedTable:
        assert self.first is not None
        assert self.last is not None
        first, since_ms = self.first
        return ParkedTable(
            table=TableName(first.table),
            log=first.log,
            partition=first.partition,
            next_offset=self.last.offset + 1,
            since_ms=since_ms,
            why=_WHY,
            first_offset=first.offset,
            records=self.last.number + 1,
            size_in_bytes=self.size_in_bytes,
            oldest_ms=first.appended_ms,
            runs=tuple(self.runs),
        )
