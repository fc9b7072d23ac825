"""The subject of a trace, and one answer to it.

Owns: the subject (an intent, a writer's sequence or a file), the check whether a record on the log matches it, and the
value of one answer. Does not own: the order of the sources (`trace`), the letters themselves (`dead_letters`).
Invariants: pure. A record that does not contain the wanted bytes is not decoded, because a log is long. An answer names
its source. An unknown value is `None`, never guessed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from rootline.client.dead_letters import place_of
from rootline.schemas.bytes.intent_codec import begins_like_json, decode_intent
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import LogId, LogPosition, LogRecord, TableName, by_name
from rootline.schemas.intent import Intent
from rootline.schemas.object_keys import table_prefix
from rootline.schemas.parts.ledger import RejectedSequence
from rootline.schemas.verdict import DeadLetter, Verdict

_ESCAPE: Final = b"\\"


class Part(StrEnum):
    """The relation between a record and the subject of a trace."""

    IS_IT = "is it"
    ADDS = "adds the file"
    REMOVES = "removes the file"


@dataclass(frozen=True, slots=True)
class ByIntent:
    """One intent, by its id."""

    intent_id: str
    table: TableName | None = None

    def __str__(self) -> str:
        return f"intent {self.intent_id}"


@dataclass(frozen=True, slots=True)
class ByWriter:
    """The intent that one writer published as its `writer_sequence` for a table."""

    table: TableName
    writer_id: str
    writer_sequence: int

    def __str__(self) -> str:
        return f"sequence {self.writer_sequence} of writer {self.writer_id} for {self.table}"


@dataclass(frozen=True, slots=True)
class ByFile:
    """A file, by its location in an intent, its key in the store, or its URL."""

    location: str
    table: TableName | None = None

    def __str__(self) -> str:
        return f"file {self.location}"


TraceQuery = ByIntent | ByWriter | ByFile


@dataclass(frozen=True, slots=True)
class Match:
    """A record that matches the subject of a trace. `intent` is `None` if the record cannot be decoded."""

    record: LogRecord
    intent: Intent | None
    part: Part


def matched(query: TraceQuery, record: LogRecord) -> Match | None:
    """The match of `record` with `query`, or `None` if it does not match."""
    if isinstance(query, ByIntent) and query.intent_id == name_of_undecoded(record.position):
        return Match(record, intent_in(record), Part.IS_IT)
    if not _may_name(query, record.value):
        return None
    intent = intent_in(record)
    part = None if intent is None else part_of(query, intent)
    return None if part is None else Match(record, intent, part)


def part_of(query: TraceQuery, intent: Intent) -> Part | None:
    """The relation of `intent` to `query`, or `None` if there is none."""
    if query.table not in (None, intent.table):
        return None
    match query:
        case ByIntent():
            return Part.IS_IT if intent.intent_id == query.intent_id else None
        case ByWriter():
            written = (intent.writer_id, intent.writer_sequence)
            return Part.IS_IT if written == (query.writer_id, query.writer_sequence) else None
        case ByFile():
            names = names_of(query.location, intent.table)
            if any(file.location in names for file in (*intent.add_data_files, *intent.add_equality_deletes)):
                return Part.ADDS
            if any(vector.location in names for vector in intent.add_vectors):
                return Part.ADDS
            if any(manifest.location in names for manifest in intent.add_manifests):
                return Part.ADDS
            return Part.REMOVES if any(file.location in names for file in intent.remove_files) else None


def name_of_undecoded(position: LogPosition) -> str:
    """The substitute for the intent id of a record that cannot be decoded."""
    return "/".join(map(str, position))


def names_of(location: str, table: str) -> frozenset[str]:
    """The names of one file: `location` unchanged, and its path relative to the table's folder if it is inside that
    folder.
    """
    _, prefix, rest = f"/{location}".rpartition(f"/{table_prefix(TableName(table))}")
    return frozenset({location, rest} if prefix and rest else {location})


def _may_name(query: TraceQuery, value: bytes) -> bool:
    match query:
        case ByIntent():
            wanted = query.intent_id
        case ByWriter():
            wanted = query.writer_id
        case ByFile():
            wanted = query.location.rpartition("/")[2]
    return wanted.encode("utf-8", "replace") in value or (begins_like_json(value) and _ESCAPE in value)


def intent_in(record: LogRecord | DeadLetter) -> Intent | None:
    """The intent of a record, or `None` if it cannot be decoded."""
    try:
        return decode_intent(record.value, by_name(record.headers))
    except Invalid:
        return None


class Whereabouts(StrEnum):
    """The state of an intent or a file. `DECIDED`: the intent had a verdict, which is no longer recorded."""

    PENDING = "pending"
    COMMITTED = "committed"
    DUPLICATE = "duplicate"
    REJECTED = "rejected"
    DECIDED = "decided"
    LIVE = "live"
    REMOVED = "removed"


IN_THE_TABLE: Final = (Whereabouts.COMMITTED, Whereabouts.DUPLICATE, Whereabouts.LIVE)


@dataclass(frozen=True, slots=True)
class Sighting:
    """One answer. Times are milliseconds since the epoch. `version` to `committed_ms` describe the commit, if there is
    one.

    `applied_to`: the first offset of the record's partition that the table's head has not applied.
    """

    state: Whereabouts
    source: str
    table: str | None = None
    intent_id: str | None = None
    kind: str | None = None
    part: str | None = None
    writer_id: str | None = None
    writer_sequence: int | None = None
    location: str | None = None
    position: LogPosition | None = None
    appended_ms: int | None = None
    applied_to: int | None = None
    version: int | None = None
    snapshot_id: int | None = None
    sequence_number: int | None = None
    committed_ms: int | None = None
    code: str | None = None
    message: str | None = None
    dead_letter: str | None = None


def settles(sighting: Sighting, query: TraceQuery) -> bool:
    """Whether no older record can change the answer.

    A writer's records get their outcomes in the order of the log. So no record before one with an outcome is pending.
    No record before a rejected one was committed: the rejected one would have been a duplicate. Without a writer, a
    repetition is not a duplicate but is rejected because of its files, so older records must be read.
    """
    if sighting.state in IN_THE_TABLE:
        return True
    return (
        isinstance(query, ByIntent | ByWriter)
        and sighting.writer_id is not None
        and sighting.state is not Whereabouts.PENDING
    )


def of_record(match: Match) -> Sighting:
    """The facts in the record itself. The state stays `PENDING` until another source is searched."""
    record = match.record
    known = Sighting(Whereabouts.PENDING, "log", position=record.position, appended_ms=record.appended_ms)
    if match.intent is None:
        return replace(known, intent_id=name_of_undecoded(record.position))
    return replace(of_intent(known, match.intent), part=match.part)


def of_intent(known: Sighting, intent: Intent) -> Sighting:
    """`known` with the table, id, kind, writer and sequence of the intent."""
    return replace(
        known,
        table=intent.table,
        intent_id=intent.intent_id,
        kind=intent.kind,
        writer_id=intent.writer_id,
        writer_sequence=intent.writer_sequence,
    )


def of_letter(letter: DeadLetter, intent: Intent | None) -> Sighting:
    """A rejection that only the dead letter still records."""
    position = LogPosition(LogId(letter.log), letter.partition, letter.offset)
    known = Sighting(Whereabouts.REJECTED, "dead letter", letter.table, letter.intent_id, position=position)
    return rejected(known if intent is None else of_intent(known, intent), "dead letter", letter, place_of(letter))


def rejected(
    known: Sighting, source: str, reason: DeadLetter | RejectedSequence | Verdict, letter: str | None = None
) -> Sighting:
    """`known` as rejected, with the reason from `source`. `letter` names its dead letter, if known."""
    return replace(
        known,
        state=Whereabouts.REJECTED,
        source=source,
        code=reason.code,
        message=reason.message,
        dead_letter=letter,
    )
