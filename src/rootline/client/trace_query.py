"""The question "where is my data", and one answer to it.

Owns: the subject of a trace (an intent, a writer's sequence or a file), whether a record on the log matches it, and
the value of one answer. Does not own: the order of the sources (`trace`), the letters themselves (`dead_letters`).
Invariants: pure. A record that does not even contain the wanted bytes is not decoded, because a log is long. An answer
names its source. An unknown value is `None`, never guessed.
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
from rootline.schemas.root_header import RejectedSequence
from rootline.schemas.verdict import DeadLetter, Verdict

_ESCAPE: Final = b"\\"


class Part(StrEnum):
    """What a record has to do with what is traced."""

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
    """What one writer published as its `writer_sequence` of a table."""

    table: TableName
    writer_id: str
    writer_sequence: int

    def __str__(self) -> str:
        return f"sequence {self.writer_sequence} of writer {self.writer_id} for {self.table}"


@dataclass(frozen=True, slots=True)
class ByFile:
    """A file, by its location as an intent names it, or as the store or a URL does."""

    location: str
    table: TableName | None = None

    def __str__(self) -> str:
        return f"file {self.location}"


TraceQuery = ByIntent | ByWriter | ByFile


@dataclass(frozen=True, slots=True)
class Match:
    """A record about what is traced; `intent` is `None` when it cannot be decoded."""

    record: LogRecord
    intent: Intent | None
    part: Part


def matched(query: TraceQuery, record: LogRecord) -> Match | None:
    """What `record` has to do with `query`; `None`: nothing."""
    if isinstance(query, ByIntent) and query.intent_id == name_of_undecoded(record.position):
        return Match(record, intent_in(record), Part.IS_IT)
    if not _may_name(query, record.value):
        return None
    intent = intent_in(record)
    part = None if intent is None else part_of(query, intent)
    return None if part is None else Match(record, intent, part)


def part_of(query: TraceQuery, intent: Intent) -> Part | None:
    """What `intent` has to do with `query`."""
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
    """The intent id that stands for a record whose own cannot be read."""
    return "/".join(map(str, position))


def names_of(location: str, table: str) -> frozenset[str]:
    """`location` as it is, and as the table itself would name it when it begins with the table's folder."""
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
    """The intent that a record holds; `None` when it cannot be decoded."""
    try:
        return decode_intent(record.value, by_name(record.headers))
    except Invalid:
        return None


class Whereabouts(StrEnum):
    """Where something is; `DECIDED`: how, is kept no longer."""

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
    """Moments are milliseconds since the epoch. `version` to `committed_ms` are of the commit, where there is one.

    `applied_to`: how far the table's head has applied the record's partition.
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
    """Whether no older record can tell anything else.

    Records of one writer are decided in their order, so behind a decided one there is nothing pending, and behind a
    rejected one no commit: that would have made it a duplicate. Without a writer, a repetition is rejected for its
    files.
    """
    if sighting.state in IN_THE_TABLE:
        return True
    return (
        isinstance(query, ByIntent | ByWriter)
        and sighting.writer_id is not None
        and sighting.state is not Whereabouts.PENDING
    )


def of_record(match: Match) -> Sighting:
    """What the record itself says; its state is yet to be found."""
    record = match.record
    told = Sighting(Whereabouts.PENDING, "log", position=record.position, appended_ms=record.appended_ms)
    if match.intent is None:
        return replace(told, intent_id=name_of_undecoded(record.position))
    return replace(of_intent(told, match.intent), part=match.part)


def of_intent(told: Sighting, intent: Intent) -> Sighting:
    """`told` with what the intent says of itself."""
    return replace(
        told,
        table=intent.table,
        intent_id=intent.intent_id,
        kind=intent.kind,
        writer_id=intent.writer_id,
        writer_sequence=intent.writer_sequence,
    )


def of_letter(letter: DeadLetter, intent: Intent | None) -> Sighting:
    """A rejection of which only the dead letter is left."""
    position = LogPosition(LogId(letter.log), letter.partition, letter.offset)
    told = Sighting(Whereabouts.REJECTED, "dead letter", letter.table, letter.intent_id, position=position)
    return rejected(told if intent is None else of_intent(told, intent), "dead letter", letter, place_of(letter))


def rejected(
    told: Sighting, source: str, reason: DeadLetter | RejectedSequence | Verdict, letter: str | None = None
) -> Sighting:
    """`told`, rejected for the reason that `source` gives; `letter` names its dead letter, where that is known."""
    return replace(
        told,
        state=Whereabouts.REJECTED,
        source=source,
        code=reason.code,
        message=reason.message,
        dead_letter=letter,
    )
