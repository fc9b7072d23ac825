"""Parked tables, and operators' lifts, as records of the frontiers' topic.

Owns: the form of these records, and which of them count. Does not own: when they are written (`parking_lot`, and
`take_over` at an assignment), the parked records themselves (`parked_topic`).
Invariants: as those of `frontier/answers`: only records of the highest epoch count; an assignment's own epoch is higher
than any that it has read; where a record cannot be read, names are found again. Versions that do not know them ignore
them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from rootline.adapters.kafka.control_records import (
    LIFT,
    PARKED,
    ControlKey,
    Unreadable,
    control_body,
    count,
    of_log,
    of_names,
    rows,
    text,
    whole,
)
from rootline.adapters.kafka.publisher import Outgoing
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.ports.intent_feed import Lift, ParkedRun, ParkedTable
from rootline.schemas.identifiers import LogId, TableName

PARKING_RECORD_BYTES_MAX: Final = 800_000


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


def parking_record_of(key: ControlKey, value: bytes) -> ParkingRecord:
    """The record, from one of this kind. Raises `Unreadable`."""
    log, (name,) = of_log(key), of_names(key, 1)
    body = control_body(value)
    said = body.get("tables")
    if not isinstance(said, list):
        raise Unreadable("`tables` is not a list")
    by_table = {parked.table: parked for parked in (_table(log, key.partition, table) for table in said)}
    return ParkingRecord(log, key.partition, name, count(body.get("epoch")), by_table, body.get("began") is True)


def next_parking_record(
    known: Iterable[ParkingRecord], log: LogId, partition: int, name: str, *, step: int = 1
) -> tuple[ParkingRecord, list[ParkingRecord]]:
    """The first record of an assignment, with what counts; and those of `known` that it makes superfluous."""
    own = [record for record in known if record.partition == partition]
    epoch = max((record.epoch for record in own), default=0)
    return ParkingRecord(log, partition, name, epoch + step, counting(own)), own


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
    named = [settings.group_id, lift.log, lift.partition, LIFT, lift.table]
    key = json.dumps([*named, lift.name] if lift.name else named).encode()
    body = {"without-missing": lift.without_missing, "first": lift.first_offset}
    return Outgoing(settings.frontiers_topic, key, None if done else json.dumps(body).encode())


def lift_of(key: ControlKey, value: bytes) -> Lift:
    """The lift, from a record of this kind. Raises `Unreadable`."""
    log, (table, *rest) = of_log(key), of_names(key, 1, 2)
    body = control_body(value)
    first = body.get("first")
    return Lift(
        TableName(table),
        log,
        key.partition,
        body.get("without-missing") is True,
        None if first is None else count(first),
        rest[0] if rest else "",
    )


def _key(settings: KafkaSettings, record: ParkingRecord) -> bytes:
    return json.dumps([settings.group_id, record.log, record.partition, PARKED, record.name]).encode()


def _table(log: LogId, partition: int, said: object) -> ParkedTable:
    if not isinstance(said, dict):
        raise Unreadable("a table is not an object")
    oldest = said.get("oldest")
    return ParkedTable(
        table=TableName(text(said.get("table"))),
        log=log,
        partition=partition,
        next_offset=count(said.get("next")),
        since_ms=whole(said.get("since")),
        why=text(said.get("why")),
        first_offset=count(said.get("first")),
        records=count(said.get("records")),
        size_in_bytes=count(said.get("bytes")),
        oldest_ms=None if oldest is None else whole(oldest),
        runs=tuple(
            ParkedRun(text(writer), count(first), count(last)) for writer, first, last in rows(said.get("runs"), 3)
        ),
    )
