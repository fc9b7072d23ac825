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
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any, Final, TypeVar

from rootline.adapters.kafka.control_records import (
    ANSWERS,
    ControlKey,
    Unreadable,
    control_body,
    count,
    of_log,
    of_names,
    rows,
    text,
)
from rootline.adapters.kafka.publisher import Outgoing
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.ports.intent_feed import ANY_TABLE, Answer, ParkedTable
from rootline.schemas.identifiers import LogId, LogPosition, TableName

ANSWER_RECORD_BYTES_MAX: Final = 262_144
ANSWERS_MAX: Final = 1_000_000
"""Answers of one record; a partition with more of them waits, as one whose record has no room (`progress`)."""
_TOGETHER_MAX: Final = 2 * ANSWERS_MAX
"""Records of one epoch say the same, but for what the one that began has added."""
NO_ANSWERS: Final[Mapping[int, Answer]] = {}
_Span = TypeVar("_Span", bound=tuple[int, int, *tuple[Any, ...]])


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
    return json.dumps([settings.group_id, record.log, record.partition, ANSWERS, record.name]).encode()


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


def answer_record_of(key: ControlKey, value: bytes) -> AnswerRecord:
    """The record that `value` contains. Its answers are not made before they are asked for. Raises `Unreadable`."""
    log, (name,) = of_log(key), of_names(key, 1)
    body = control_body(value)
    runs = tuple(
        sorted(
            (count(first), count(last), text(code), text(said)) for first, last, code, said in rows(body.get("runs"), 4)
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
    """The first record of an assignment that begins at `start`; and those of `known` that it makes superfluous."""
    own = [record for record in known if record.partition == partition]
    epoch = max((record.epoch for record in own), default=0)
    held: dict[int, Answer] = {}
    room = _TOGETHER_MAX
    for record in own:
        if record.epoch == epoch and (room := room - len(record.answers)) >= 0:
            may_be_parked = [range(item.first_offset, item.next_offset) for item in parked]
            for offset in record.answers:
                if offset >= start or (may_be_parked and any(offset in span for span in may_be_parked)):
                    held[offset] = record.answers[offset]
    return AnswerRecord(log, partition, name, epoch + step, NO_ANSWERS).with_more(held, start=start, parked=parked), own


class _Runs(Mapping[int, Answer]):
    """Answers by offset, made when they are asked for: one short record may have a million of them."""

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

    def __getitem__(self, offset: int) -> Answer:
        run, span = _covering(self._runs, offset), _covering(self._spans, offset)
        if run is None:
            raise KeyError(offset)
        table = self._other if span is None else span[2]
        return Answer(LogPosition(self._log, self._partition, offset), run[2], run[3], table)

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


def _may_be_of(parked: ParkedTable, answer: Answer) -> bool:
    """Whether the answer may be that of a parked record, which readers get again before the offset that is read on."""
    is_in_range = parked.records > 0 and parked.first_offset <= answer.position.offset < parked.next_offset
    return is_in_range and answer.table in (parked.table, ANY_TABLE)
