"""The records of the frontiers' topic as bytes and values: rejections without a root, parked tables, pauses, the lake.

An *answer* is a recorded rejection. A *lift* is an operator's request to retry a parked table.

Owns: the form of these records, and which of them count. Does not own: bounded parsing (`control_records`), reading
the whole topic and writing to it (`frontiers`), when a record is written (`membership`, `progress`, operators), the
parked records themselves (`parked_topic`).
Invariants: Of the records of rejections and of parked tables, only those with the highest epoch count. An assignment
chooses an epoch above all that it has read. A rejection below the committed offset is kept only if it may belong to a
parked record. Otherwise one parked table would keep the rejections of all tables, until the record has no room. The
first record of a lake counts. A pause names the group and no log, so it survives the re-creation of a topic. A pause
whose record cannot be read is in force until `rootline resume` ends it. Versions that do not know a key ignore it.

Theory: decision 0043. A new owner of a partition reads these records, commits an offset, writes its first record, and
commits again. Its first record repeats everything that counted. The owner begins only if the group accepts both
commits. So the next owner, whose generation begins later, reads that record and chooses a higher epoch. A record that
a stalled owner writes late does not count.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any, Final, TypeVar

from rootline.adapters.kafka.control_records import (
    ANSWERS,
    LAKE,
    LIFT,
    PARKED,
    PAUSED,
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
from rootline.adapters.settings import KafkaSettings
from rootline.ports.intent_feed import ANY_TABLE, Lift, ParkedRun, ParkedTable, Pause, RecordedRejection
from rootline.schemas.bytes.record_headers import LAKE_KEY, LAKE_MISMATCH, Lake, decode_lake, encode_lake
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import LogId, LogPosition, TableName

ANSWER_RECORD_BYTES_MAX: Final = 262_144
ANSWERS_MAX: Final = 1_000_000
"""Rejections in one record. A partition with more of them is paused, as one whose record has no room (`progress`)."""
_TOGETHER_MAX: Final = 2 * ANSWERS_MAX
"""Rejections in all records of one epoch, which differ only by the additions of the assignment that began."""
NO_ANSWERS: Final[Mapping[int, RecordedRejection]] = {}
_Span = TypeVar("_Span", bound=tuple[int, int, *tuple[Any, ...]])


@dataclass(frozen=True, slots=True)
class AnswerRecord:
    """The rejections that one assignment has recorded for a partition, by offset. `name`: the assignment."""

    log: LogId
    partition: int
    name: str
    epoch: int
    answers: Mapping[int, RecordedRejection]

    def with_more(
        self, more: Mapping[int, RecordedRejection], *, start: int, parked: Collection[ParkedTable] = ()
    ) -> AnswerRecord:
        """Add `more`, and drop the rejections before `start`, except those that may belong to a parked record."""
        kept = {
            offset: answer
            for offset, answer in {**self.answers, **more}.items()
            if offset >= start or any(_may_be_of(item, answer) for item in parked)
        }
        return replace(self, answers=kept)


def record_key(settings: KafkaSettings, record: AnswerRecord | ParkingRecord) -> bytes:
    """The key of the record on the topic."""
    kind = ANSWERS if isinstance(record, AnswerRecord) else PARKED
    return json.dumps([settings.group_id, record.log, record.partition, kind, record.name]).encode()


def answers_to_bytes(record: AnswerRecord) -> bytes:
    """Encode the record's value. Rejections of consecutive offsets with one code and message share a run."""
    runs: list[tuple[int, int, str, str]] = []
    for offset, answer in sorted(record.answers.items()):
        if runs and runs[-1][1] == offset - 1 and runs[-1][2:] == (answer.code, answer.message):
            runs[-1] = (runs[-1][0], offset, answer.code, answer.message)
        else:
            runs.append((offset, offset, answer.code, answer.message))
    tables: dict[str, list[list[int]]] = {}
    for offset, answer in sorted(record.answers.items()):
        if answer.table is not None:
            spans = tables.setdefault(answer.table, [])
            if spans and spans[-1][1] == offset - 1:
                spans[-1][1] = offset
            else:
                spans.append([offset, offset])
    return json.dumps({"epoch": record.epoch, "runs": runs, "tables": tables}, separators=(",", ":")).encode()


def outgoing(settings: KafkaSettings, record: AnswerRecord) -> Outgoing:
    """The Kafka record to publish."""
    return Outgoing(settings.frontiers_topic, record_key(settings, record), answers_to_bytes(record))


def tombstone(settings: KafkaSettings, record: AnswerRecord | ParkingRecord) -> Outgoing:
    """The Kafka tombstone of a control record that is no longer needed. Compaction then removes the record."""
    return Outgoing(settings.frontiers_topic, record_key(settings, record), None)


def answer_record_of(key: ControlKey, value: bytes) -> AnswerRecord:
    """Decode a record of rejections, which are created on access. Raises `Unreadable`."""
    log, (name,) = of_log(key), of_names(key, 1)
    body = control_body(value)
    runs = tuple(
        sorted(
            (count(first), count(last), text(code), text(message))
            for first, last, code, message in rows(body.get("runs"), 4)
        )
    )
    tables = body.get("tables", {})
    if not isinstance(tables, dict):
        raise Unreadable("`tables` is not an object")
    spans = sorted(
        (count(first), count(last), TableName(text(table)))
        for table, own in tables.items()
        for first, last in rows(own, 2)
    )
    _check_apart(runs)
    _check_apart(spans)
    if (answers := sum(last - first + 1 for first, last, _, _ in runs)) > ANSWERS_MAX:
        raise Unreadable(f"{answers} answers, more than {ANSWERS_MAX}")
    answers_in = _Runs(log, key.partition, runs, tuple(spans), None if "tables" in body else ANY_TABLE)
    return AnswerRecord(log, key.partition, name, count(body.get("epoch")), answers_in)


def next_record(
    known: Iterable[AnswerRecord],
    log: LogId,
    partition: int,
    name: str,
    start: int,
    parked: Collection[ParkedTable] = (),
    *,
    step: int = 1,
) -> tuple[AnswerRecord, list[AnswerRecord]]:
    """The first record of an assignment that begins at `start`, and the records of `known` that it replaces."""
    own = [record for record in known if record.partition == partition]
    epoch = max((record.epoch for record in own), default=0)
    held: dict[int, RecordedRejection] = {}
    room = _TOGETHER_MAX
    for record in own:
        if record.epoch == epoch and (room := room - len(record.answers)) >= 0:
            may_be_parked = [range(item.first_offset, item.next_offset) for item in parked]
            for offset in record.answers:
                if offset >= start or (may_be_parked and any(offset in span for span in may_be_parked)):
                    held[offset] = record.answers[offset]
    return AnswerRecord(log, partition, name, epoch + step, NO_ANSWERS).with_more(held, start=start, parked=parked), own


class _Runs(Mapping[int, RecordedRejection]):
    """Rejections by offset, created on access, because one short record may have a million of them."""

    def __init__(
        self,
        log: LogId,
        partition: int,
        runs: Sequence[tuple[int, int, str, str]],
        spans: Sequence[tuple[int, int, TableName]],
        other: TableName | None,
    ) -> None:
        self._log = log
        self._partition = partition
        self._runs = runs
        self._spans = spans
        self._other = other

    def __getitem__(self, offset: int) -> RecordedRejection:
        run, span = _covering(self._runs, offset), _covering(self._spans, offset)
        if run is None:
            raise KeyError(offset)
        table = self._other if span is None else span[2]
        return RecordedRejection(LogPosition(self._log, self._partition, offset), run[2], run[3], table)

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(range(first, last + 1) for first, last, _, _ in self._runs)

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last, _, _ in self._runs)


def _covering(spans: Sequence[_Span], offset: int) -> _Span | None:
    at = bisect_right(spans, offset, key=lambda span: span[0]) - 1
    return spans[at] if at >= 0 and offset <= spans[at][1] else None


def _check_apart(spans: Sequence[tuple[int, int, *tuple[Any, ...]]]) -> None:
    if any(last < first for first, last, *_ in spans) or any(
        before[1] >= after[0] for before, after in pairwise(spans)
    ):
        raise Unreadable("offsets overlap, or end before they begin")


def _may_be_of(parked: ParkedTable, answer: RecordedRejection) -> bool:
    """Whether `answer` may reject a record that is parked now. Later readers receive parked records again."""
    is_in_range = parked.records > 0 and parked.first_offset <= answer.position.offset < parked.next_offset
    return is_in_range and answer.table in (parked.table, ANY_TABLE)


PARKING_RECORD_BYTES_MAX: Final = 800_000


@dataclass(frozen=True, slots=True)
class ParkingRecord:
    """The parked tables that one assignment has recorded for a partition. `name`: the assignment.

    `began`: false for the assignment's first record, which only repeats earlier records. In each epoch, only one
    assignment writes a later record.
    """

    log: LogId
    partition: int
    name: str
    epoch: int
    tables: Mapping[TableName, ParkedTable]
    began: bool = False


def parking_outgoing(settings: KafkaSettings, record: ParkingRecord) -> Outgoing:
    """The Kafka record to publish."""
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
    return Outgoing(settings.frontiers_topic, record_key(settings, record), value)


def parking_record_of(key: ControlKey, value: bytes) -> ParkingRecord:
    """Decode a record of parked tables. Raises `Unreadable`."""
    log, (name,) = of_log(key), of_names(key, 1)
    body = control_body(value)
    tables = body.get("tables")
    if not isinstance(tables, list):
        raise Unreadable("`tables` is not a list")
    by_table = {parked.table: parked for parked in (_table(log, key.partition, table) for table in tables)}
    return ParkingRecord(log, key.partition, name, count(body.get("epoch")), by_table, body.get("began") is True)


def next_parking_record(
    known: Iterable[ParkingRecord], log: LogId, partition: int, name: str, *, step: int = 1
) -> tuple[ParkingRecord, list[ParkingRecord]]:
    """The first record of an assignment, and the records of `known` that it replaces."""
    own = [record for record in known if record.partition == partition]
    epoch = max((record.epoch for record in own), default=0)
    return ParkingRecord(log, partition, name, epoch + step, counting(own)), own


def counting(records: Iterable[ParkingRecord]) -> dict[TableName, ParkedTable]:
    """The parked tables of one partition, from all its records.

    Of the records with the highest epoch, those with `began` count, if there are any. The others only repeat earlier
    records.
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
    """The record of an operator's request to retry a table. `done`: the tombstone that removes it, once carried out."""
    named = [settings.group_id, lift.log, lift.partition, LIFT, lift.table]
    key = json.dumps([*named, lift.name] if lift.name else named).encode()
    body = {"without-missing": lift.without_missing, "first": lift.first_offset}
    return Outgoing(settings.frontiers_topic, key, None if done else json.dumps(body).encode())


def lift_of(key: ControlKey, value: bytes) -> Lift:
    """Decode an operator's request to retry a table from a control record. Raises `Unreadable`."""
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


def lake_outgoing(settings: KafkaSettings, lake: Lake) -> Outgoing:
    """The record that names the group's lake."""
    key = json.dumps([settings.group_id, LAKE, lake.lake_id, ""]).encode()
    return Outgoing(settings.frontiers_topic, key, encode_lake(lake))


def lake_of(value: bytes) -> Lake:
    """Decode the lake from the record that names it. Raises `Unreadable`."""
    lake = decode_lake(value)
    if lake is None:
        raise Unreadable("it names no lake")
    return lake


def check_lake(settings: KafkaSettings, known: Lake | None, own: Lake | None) -> None:
    """Raise `Invalid` (`lake-mismatch`) if the group serves another lake."""
    if known is None or own is None or known.lake_id == own.lake_id:
        return
    raise Invalid(
        LAKE_MISMATCH,
        f"{settings.url}: the coordinators of the group {settings.group_id} commit to the lake {known}, and this one "
        f"would commit to {own}. Name that warehouse, or use a separate log for this lake. If the warehouse was moved "
        f"without its object {LAKE_KEY}, copy that too",
    )


def pause_outgoing(settings: KafkaSettings, pause: Pause, *, over: bool = False) -> Outgoing:
    """The record of a pause. `over`: the tombstone that ends it."""
    key = json.dumps([settings.group_id, PAUSED, pause.table]).encode()
    body = {"since": pause.since_ms, "why": pause.why}
    return Outgoing(settings.frontiers_topic, key, None if over else json.dumps(body).encode())


def pause_of(key: ControlKey, value: bytes) -> tuple[Pause, Unreadable | None]:
    """Decode the record of a pause. Returns the pause, and an error if the record's value cannot be read.

    Such a record is a pause nevertheless.
    """
    table = TableName(key.names[0])
    try:
        body = control_body(value)
        return Pause(table, whole(body.get("since")), text(body.get("why"))), None
    except Unreadable as why:
        return Pause(
            table, 0, "its record cannot be read"
        ), why  # a newer version wrote the record, and the table is paused
