"""A record of the log as an intent, or as the rejection that takes its place.

Owns: which records are intents of a table, and what is published about those that are none. Does not own: framing
(`rootline.schemas.bytes.intent_codec`), when anything is published (`consumer_loop`).
Invariants: any record gives one or the other, never an error: a record that ends the process would end the next one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import structlog

from rootline.ports.intent_feed import Answer
from rootline.schemas.bytes.intent_codec import decode_intent
from rootline.schemas.bytes.record_headers import Lake, refusal_of_lake
from rootline.schemas.content_entry import quick
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import LogId, LogPosition, LogRecord, TableName, by_name, oldest_file_of, table_name
from rootline.schemas.intent import Intent
from rootline.schemas.intent_rules import IntentLimits
from rootline.schemas.verdict import DeadLetter, Verdict, VerdictKind, unread_id
from rootline.tree.draft.batch import Record

_UNDECODED = "?"
_unchecked_record: Final = quick(Record)
_INTENT_BYTES: Final = 3_500
_ADDED_BYTES: Final = 2_000
_COLUMN_BYTES: Final = 1_400
_REMOVED_BYTES: Final = 600
"""Measured with CPython 3.11; what the record itself takes comes on top."""

UNREAD: Final = frozenset(
    {"undecodable", "intent-malformed", "kind-unknown", "intent-too-large", "batch-unreadable", "table-name-invalid"}
)
"""Of records that are known by their coordinates only."""
_NEVER_PARKED: Final = UNREAD | {"table-parked"}
_HELD_CHARS_MAX: Final = 300
"""Of a reason that is held for later owners, whose room is small."""

Rejection = tuple[Verdict, DeadLetter]


def decoded(raw: LogRecord, limits: IntentLimits) -> Record | Rejection:
    """The intent in `raw`, or why there is none."""
    if raw.not_read:
        return _rejection(raw, Invalid("batch-unreadable", raw.not_read))
    try:
        intent = decode_intent(raw.value, by_name(raw.headers), limits)
        table_name(intent.table)
        if raw.key is not None and raw.key != intent.table.encode():
            raise Invalid("intent-malformed", f"the record's key is {raw.key[:80]!r}, its table {intent.table[:80]!r}")
    except Invalid as error:
        return _rejection(raw, error)
    except Exception as error:  # a bug of our own, and this record's alone: what follows it must be read
        structlog.get_logger().exception("record not decoded", action="dead-letter", offset=raw.position.offset)
        return _rejection(raw, Invalid("undecodable", f"the record could not be decoded: {type(error).__name__}"))
    size = _size(raw)
    headers = raw.headers
    oldest_file_ms = oldest_file_of(headers) if headers else None
    held = size + _held(intent)
    return _unchecked_record(
        raw.position, intent, size, raw.key, raw.value, raw.appended_ms, headers, held, oldest_file_ms
    )


def of_lake(raw: LogRecord, record: Record, own: Lake) -> Record:
    """`record`, with why it is refused if it is for another lake than the coordinator's `own`."""
    refusal = refusal_of_lake(raw.headers, own)
    return record if refusal is None or record.refusal is not None else replace(record, refusal=refusal)


def poison_rejection(raw: LogRecord, how: str) -> Rejection:
    """The rejection of a record that must not be decoded in this process."""
    return _rejection(raw, Invalid("undecodable", f"the record {how}; it was not decoded again"))


def told_again(raw: LogRecord, found: Record | Rejection, code: str, message: str) -> Rejection:
    """The rejection that was told of `raw` before; `found`: what it is decoded to now."""
    verdict, letter = _rejection(raw, Invalid(code, message))
    if not isinstance(found, Record):
        return found if found[0].code == code else (verdict, letter)
    if code in UNREAD:  # by a version that could not read it, and so had no other name for it
        return verdict, letter
    named = {"intent_id": found.intent.intent_id, "table": found.intent.table}
    return verdict.model_copy(update=named), letter.model_copy(update=named)


def answer_of(rejection: Rejection) -> Answer:
    """What later owners must know of a rejection that no root records, before it is told."""
    verdict, _ = rejection
    reason = verdict.message or ""
    if len(reason) > _HELD_CHARS_MAX:
        reason = reason[: _HELD_CHARS_MAX - 1] + "…"
    code = verdict.code or ""
    table = None if code in _NEVER_PARKED else TableName(verdict.table)
    return Answer(LogPosition(LogId(verdict.log), verdict.partition, verdict.offset), code, reason, table)


def _held(intent: Intent) -> int:
    """About what a decoded intent takes in memory; queues are bounded by it, because bytes on the wire say little."""
    files = intent.add_data_files
    if intent.add_equality_deletes:
        files = (*files, *intent.add_equality_deletes)
    added = len(files) + len(intent.add_vectors) + len(intent.add_manifests)
    columns = sum([len(file.statistics) for file in files])
    return _INTENT_BYTES + added * _ADDED_BYTES + columns * _COLUMN_BYTES + len(intent.remove_files) * _REMOVED_BYTES


def _size(raw: LogRecord) -> int:
    size = len(raw.key or b"") + len(raw.value)
    return size + sum([len(name) + len(value or b"") for name, value in raw.headers]) if raw.headers else size


def _rejection(raw: LogRecord, error: Invalid) -> Rejection:
    log, partition, offset = raw.position
    intent_id = unread_id(log, partition, offset)
    table = raw.key.decode(errors="replace")[:128] if raw.key else _UNDECODED
    verdict = Verdict(
        intent_id=intent_id,
        table=table,
        kind=VerdictKind.REJECTED,
        log=log,
        partition=partition,
        offset=offset,
        code=error.code,
        message=error.message,
    )
    letter = DeadLetter(
        log=log,
        partition=partition,
        offset=offset,
        intent_id=intent_id,
        table=table,
        code=error.code,
        message=error.message,
        key=raw.key,
        value=raw.value,
        headers=raw.headers,
    )
    return verdict, letter
