"""What is parked, and what operators lift, as records of the frontiers' topic.

Owns: the form of these records, and which of them count. Does not own: when they are written (`parking_lot`, and
`take_over` at an assignment), the parked records themselves (`parked_topic`).
Invariants: as those of `frontier/answers`: only records of the highest epoch count; an assignment's own epoch is higher
than any that it has read; what is not a record of this form is skipped. Versions that do not know them ignore them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rootline.adapters.kafka.publisher import Outgoing
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.ports.parking import Lift, ParkedRun, ParkedTable
from rootline.schemas.identifiers import TableName
from rootline.schemas.log_position import LogId

RECORD_BYTES_MAX: Final = 800_000
_KIND: Final = "parked"
_LIFT: Final = "lift"


@dataclass(frozen=True, slots=True)
class ParkingRecord:
    """What one assignment, `name`, says is parked of a partition.

    `began`: it is not the assignment's first record, which says what others said. Of one epoch, one assignment began.
    """

    log: LogId
    partition: int
    name: str
    epoch: int
    tables: Mapping[TableName, ParkedTable]
    began: bool = False


def parking_outgoing(settings: KafkaSettings, record: ParkingRecord) -> Outgoing:
    """To be published."""
    tables = [
        {
            "table": parked.table,
            "next": parked.next_offset,
            "since": parked.since_ms,
            "why": parked.why,
            "first": parked.first_offset,
            "records": parked.records,
            "bytes": parked.size_in_bytes,
            "oldest": parked.oldest_ms,
            "runs": [[run.writer, run.first, run.last] for run in parked.runs],
        }
        for parked in record.tables.values()
    ]
    body = {"epoch": record.epoch, "began": record.began, "tables": tables}
    value = json.dumps(body, separators=(",", ":")).encode()
    return Outgoing(settings.frontiers_topic, _key(settings, record), value)


def parking_tombstone(settings: KafkaSettings, record: ParkingRecord) -> Outgoing:
    """Lets compaction remove a record that no longer counts."""
    return Outgoing(settings.frontiers_topic, _key(settings, record), None)


def parking_record_of(
    settings: KafkaSettings, log: LogId, key: bytes | None, value: bytes | None
) -> ParkingRecord | None:
    """The record, if it is one of this group and this log."""
    try:
        group, named, partition, kind, name = json.loads(key or b"")
        if (group, named, kind) != (settings.group_id, log, _KIND):
            return None
        body = json.loads(value or b"")
        tables = [_table(log, int(partition), said) for said in body["tables"]]
        by_table = {parked.table: parked for parked in tables}
        return ParkingRecord(log, int(partition), str(name), int(body["epoch"]), by_table, body.get("began") is True)
    except (ValueError, TypeError, KeyError):
        return None


def next_parking_record(
    known: Iterable[ParkingRecord], log: LogId, partition: int, name: str
) -> tuple[ParkingRecord, list[ParkingRecord]]:
    """The first record of an assignment, with what counts; and those of `known` that it makes superfluous."""
    own = [record for record in known if record.partition == partition]
    epoch = max((record.epoch for record in own), default=0)
    return ParkingRecord(log, partition, name, epoch + 1, counting(own)), own


def counting(records: Iterable[ParkingRecord]) -> dict[TableName, ParkedTable]:
    """What is parked of one partition, by all its records.

    Of several with one epoch, the one that began: the others only said the same as its first record.
    """
    own = list(records)
    epoch = max((record.epoch for record in own), default=0)
    newest = [record for record in own if record.epoch == epoch]
    found: dict[TableName, ParkedTable] = {}
    for record in [record for record in newest if record.began] or newest:
        for table, parked in record.tables.items():
            if table not in found or found[table].next_offset < parked.next_offset:
                found[table] = parked
    return found


def lift_outgoing(settings: KafkaSettings, lift: Lift, *, done: bool = False) -> Outgoing:
    """An operator's word; `done`: that it was carried out."""
    named = [settings.group_id, lift.log, lift.partition, _LIFT, lift.table]
    key = json.dumps([*named, lift.name] if lift.name else named).encode()
    body = {"without-missing": lift.without_missing, "first": lift.first_offset}
    return Outgoing(settings.frontiers_topic, key, None if done else json.dumps(body).encode())


def lift_of(settings: KafkaSettings, log: LogId, key: bytes | None, value: bytes | None) -> Lift | None:
    """The lift, if it is one for this group and this log."""
    try:
        group, named, partition, kind, table, *rest = json.loads(key or b"")
        if (group, named, kind) != (settings.group_id, log, _LIFT) or len(rest) > 1:
            return None
        body = json.loads(value or b"")
        first, name = body.get("first"), str(rest[0]) if rest else ""
        first_offset = first if isinstance(first, int) else None
        return Lift(TableName(str(table)), log, int(partition), body.get("without-missing") is True, first_offset, name)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _key(settings: KafkaSettings, record: ParkingRecord) -> bytes:
    return json.dumps([settings.group_id, record.log, record.partition, _KIND, record.name]).encode()


def _table(log: LogId, partition: int, said: Mapping[str, Any]) -> ParkedTable:
    return ParkedTable(
        table=TableName(str(said["table"])),
        log=log,
        partition=partition,
        next_offset=int(said["next"]),
        since_ms=int(said["since"]),
        why=str(said["why"]),
        first_offset=int(said["first"]),
        records=int(said["records"]),
        size_in_bytes=int(said["bytes"]),
        oldest_ms=None if said["oldest"] is None else int(said["oldest"]),
        runs=tuple(ParkedRun(str(writer), int(first), int(last)) for writer, first, last in said["runs"]),
    )
