"""What is traced: an intent, a writer's sequence, or a file; and whether a record on the log is about it.

Owns: the match. Does not own: where records come from, what became of them (`trace`).
Invariants: pure; a record that does not even hold the wanted bytes is not decoded, because a log is long.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rootline.schemas.bytes.intent_codec import begins_like_json, decode_intent
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import LogPosition, LogRecord, TableName, by_name
from rootline.schemas.intent import Intent
from rootline.schemas.object_keys import table_prefix
from rootline.schemas.verdict import DeadLetter

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
