"""Verdicts: made for a new decision, or read back for a record that a root has already decided.

Owns: reading a header's offsets, outcomes and outcome pages, and the form of a verdict. Does not own: how outcomes are
recorded (`outcomes`).
Invariants: A verdict that is read back equals the one that was given first. An undecided record has no verdict.

Source: protocol page, section 4.
"""

from __future__ import annotations

from uuid import UUID

from rootline.schemas.bytes.root.outcome_page import OUTCOME_PAGES
from rootline.schemas.identifiers import (
    LogPosition,
    SequenceNumber,
    SnapshotId,
    TableName,
    Version,
    mark_of,
    snapshot_id_of,
)
from rootline.schemas.parts.outcomes import Outcome, OutcomeRun
from rootline.schemas.root_header import RootHeader
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.tree.draft.batch import Record
from rootline.tree.state.table_state import TableState


def next_offset(header: RootHeader, log: str, partition: int) -> int:
    """The next offset to apply of one log partition: 0 if nothing was read yet. Records below it are decided."""
    for offset in header.log.offsets:
        if offset.log == log and offset.partition == partition:
            return offset.next_offset
    return 0


def is_last_decided(header: RootHeader, position: LogPosition, value: bytes, appended_ms: int) -> bool:
    """Whether this can be the last record of its partition that the root decided. Roots without a mark match any
    record.
    """
    mark = header.log.mark_at(position.log, position.partition)
    return mark is None or mark == mark_of(value, appended_ms)


def log_went_back(header: RootHeader, position: LogPosition, end: int | None = None) -> str:
    """The message that stops a table whose log was rewound.

    The log either `end`s at the last decided position, or has a different record there.
    """
    log, partition, offset = position
    but = "has a different record there, or none" if end is None else f"ends at {end}"
    return (
        f"{header.table}: root {header.version} has applied partition {partition} of the log {log} up to offset "
        f"{offset + 1}, but the log {but}: it was restored from an older copy, or truncated, so outcomes of this root "
        "are about other records. Restore the log, or see `rootline explain log-behind-root`"
    )


def answer(state: TableState, record: Record) -> Verdict | None:
    """The verdict on a record below the root's offset, or `None` if it was published before and is no longer stored.

    Also `None` for a record that the root has not decided: compare with `next_offset` first.
    """
    header = state.header
    found = _outcome_at(state, *record.position)
    if isinstance(found, OutcomeRun):
        number = SequenceNumber(found.first_sequence_number + record.position.offset - found.first_offset)
        snapshot_id = snapshot_id_of(_uuid_at(header, found.version), found.version)
        return committed(header.table, record, found.version, snapshot_id, number)
    if found is None:
        return None
    if found.code is None:
        known = header.version if found.duplicate_of is None else found.duplicate_of
        return duplicate(header.table, _uuid_at(header, known), record, found.duplicate_of)
    return rejected(header.table, record, found.code, found.message or "")


def _uuid_at(header: RootHeader, version: Version) -> UUID:
    """The uuid of the table that `version` committed to. The name may have belonged to another table then."""
    for drop in header.name.drops:
        if version <= drop.version:
            return drop.table_uuid
    return header.table_uuid


def _outcome_at(state: TableState, log: str, partition: int, offset: int) -> Outcome | None:
    outcomes = state.header.outcomes.newest
    for run in reversed(outcomes.runs):
        if run.first_offset <= offset <= run.last_offset and run.log == log and run.partition == partition:
            return run
    for item in reversed(outcomes.exceptions):
        if item.offset == offset and item.log == log and item.partition == partition:
            return item
    for page in reversed(state.known_pages.of(OUTCOME_PAGES)):
        found = page.content.run_at(log, partition, offset) or page.content.exception_at(log, partition, offset)
        if found is not None:
            return found
    return None


def committed(
    table: TableName, record: Record, version: Version, snapshot_id: SnapshotId, number: SequenceNumber
) -> Verdict:
    """The verdict on an intent committed in `version`."""
    log, partition, offset = record.position
    return Verdict.proven(
        {
            "intent_id": record.intent.intent_id,
            "table": table,
            "kind": VerdictKind.COMMITTED,
            "log": log,
            "partition": partition,
            "offset": offset,
            "version": version,
            "snapshot_id": snapshot_id,
            "sequence_number": number,
            "code": None,
            "message": None,
        }
    )


def duplicate(table: TableName, table_uuid: UUID, record: Record, version: Version | None) -> Verdict:
    """The verdict on an intent that was committed before, in `version` if known."""
    return Verdict(
        intent_id=record.intent.intent_id,
        table=table,
        kind=VerdictKind.DUPLICATE,
        log=record.position.log,
        partition=record.position.partition,
        offset=record.position.offset,
        version=version,
        snapshot_id=None if version is None else snapshot_id_of(table_uuid, version),
    )


def rejected(table: TableName, record: Record, code: str, message: str) -> Verdict:
    """The verdict on an intent that breaks a rule."""
    return Verdict(
        intent_id=record.intent.intent_id,
        table=table,
        kind=VerdictKind.REJECTED,
        log=record.position.log,
        partition=record.position.partition,
        offset=record.position.offset,
        code=code,
        message=message,
    )
