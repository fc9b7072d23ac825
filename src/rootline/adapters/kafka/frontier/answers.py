"""Rejections that no root records, as records of the frontiers' topic.

Owns: the form of these records, and which of them count. Does not own: when they are written (`membership` at an
assignment, `progress` after that), when a rejection is told (the coordinator).
Invariants: only records of the highest epoch count; an assignment's own epoch is higher than any that it has read; what
the offset has passed is kept only where it may be of a parked record, so that a parked table fills no one's room.

Theory: decision 0043. An assignment reads, has the group accept a commit, writes its first record (which carries on
what counted), and has the group accept a commit again; only then does it begin. So the next owner, whose generation
begins later, has read that record and has a higher epoch, and what a stalled owner writes late counts for no one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from rootline.adapters.kafka.publisher import Outgoing
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.ports.intent_feed import ANY_TABLE, Answer
from rootline.ports.parking import ParkedTable
from rootline.schemas.identifiers import TableName
from rootline.schemas.log_position import LogId, LogPosition

RECORD_BYTES_MAX: Final = 262_144
_KIND: Final = "answers"
NO_ANSWERS: Final[Mapping[int, Answer]] = {}


@dataclass(frozen=True, slots=True)
class AnswerRecord:
    """What one assignment, `name`, has held of a partition, by offset."""

    log: LogId
    partition: int
    name: str
    epoch: int
    answers: Mapping[int, Answer]

    def with_more(
        self, more: Mapping[int, Answer], *, start: int, parked: Collection[ParkedTable] = ()
    ) -> AnswerRecord:
        """With `more`, and without those that no reader gets again: before `start`, and not of what is parked."""
        kept = {
            offset: answer
            for offset, answer in {**self.answers, **more}.items()
            if offset >= start or any(_may_be_of(item, answer) for item in parked)
        }
        return replace(self, answers=kept)


def answer_key(settings: KafkaSettings, record: AnswerRecord) -> bytes:
    """The key of its record on the topic."""
    return json.dumps([settings.group_id, record.log, record.partition, _KIND, record.name]).encode()


def answers_to_bytes(record: AnswerRecord) -> bytes:
    """Its value: answers of consecutive offsets with one code and message share a run."""
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
    """To be published."""
    return Outgoing(settings.frontiers_topic, answer_key(settings, record), answers_to_bytes(record))


def tombstone(settings: KafkaSettings, record: AnswerRecord) -> Outgoing:
    """Lets compaction remove a record that no longer counts."""
    return Outgoing(settings.frontiers_topic, answer_key(settings, record), None)


def answer_record_of(
    settings: KafkaSettings, log: LogId, key: bytes | None, value: bytes | None
) -> AnswerRecord | None:
    """The record, if it is one of this group and this log."""
    try:
        group, named, partition, kind, name = json.loads(key or b"")
        body = json.loads(value or b"")
        epoch, runs = (
            int(body["epoch"]),
            [(int(first), int(last), code, said) for first, last, code, said in body["runs"]],
        )
        tables = {
            offset: TableName(str(table))
            for table, spans in body.get("tables", {}).items()
            for first, last in spans
            for offset in range(first, last + 1)
        }
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    other = None if "tables" in body else ANY_TABLE
    if (group, named, kind) != (settings.group_id, log, _KIND):
        return None
    answers = {
        offset: Answer(LogPosition(log, partition, offset), str(code), str(said), tables.get(offset, other))
        for first, last, code, said in runs
        for offset in range(first, last + 1)
    }
    return AnswerRecord(log, partition, str(name), epoch, answers)


def next_record(
    known: Iterable[AnswerRecord],
    log: LogId,
    partition: int,
    name: str,
    start: int,
    parked: Collection[ParkedTable] = (),
) -> tuple[AnswerRecord, list[AnswerRecord]]:
    """The first record of an assignment that begins at `start`; and those of `known` that it makes superfluous."""
    own = [record for record in known if record.partition == partition]
    epoch = max((record.epoch for record in own), default=0)
    held: dict[int, Answer] = {}
    for record in own:
        if record.epoch == epoch:
            held.update(record.answers)
    return AnswerRecord(log, partition, name, epoch + 1, NO_ANSWERS).with_more(held, start=start, parked=parked), own


def _may_be_of(parked: ParkedTable, answer: Answer) -> bool:
    """Whether the answer may be that of a parked record, which readers get again before the offset that is read on."""
    is_in_range = parked.records > 0 and parked.first_offset <= answer.position.offset < parked.next_offset
    return is_in_range and answer.table in (parked.table, ANY_TABLE)
