"""Answer a record that a root has already decided.

Owns: the reading of a header's offsets and outcomes, and of the outcomes' pages, and what a verdict looks like. Does
not own: how they are recorded (`outcomes`).
Invariants: an answer equals the verdict given at first; a record that is not decided yet has none.

Source: protocol page, section 4.
"""

from __future__ import annotations

from uuid import UUID

from rootline.schemas.identifiers import (
    LogPosition,
    SequenceNumber,
    SnapshotId,
    TableName,
    Version,
    mark_of,
    snapshot_id_of,
)
from rootline.schemas.root_header import Outcome, OutcomeRun, RootHeader
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.tree.draft.batch import Record
from rootline.tree.state.table_state import TableState


def next_offset(header: RootHeader, log: str, partition: int) -> int:
    """The next offset to apply of one partition of one log; records below it are decided. 0 when never read."""
    for offset in header.offsets:
        if offset.log == log and offset.partition == partition:
            return offset.next_offset
    return 0


def is_last_decided(header: RootHeader, position: LogPosition, value: bytes, appended_ms: int) -> bool:
    """Whether this is the last record of its partition that the root decided, as far as the root can tell."""
    mark = header.mark_at(position.log, position.partition)
    return mark is None or mark == mark_of(value, appended_ms)


def log_went_back(header: RootHeader, position: LogPosition, end: int | None = None) -> str:
    """The reason to decide nothing: the log `end`s at the last decided position, or has another record there."""
    log, partition, offset = position
    but = "holds another record there, or none" if end is None else f"ends at {end}"
    return (
        f"{header.table}: root {header.version} has applied partition {partition} of the log {log} up to offset "
        f"{offset + 1}, but the log {but}: it was restored from an older copy, or truncated, so answers of this root "
        "are about other records. Bring the log back; `rootline explain log-behind-root` says how to go on without"
    )


def answer(state: TableState, record: Record) -> Verdict | None:
    """The verdict on a record below the root's offset; `None`: it was published before and is kept no longer.

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
    """Of the table that a version committed to; the name may have been another's then."""
    for drop in header.drops:
        if version <= drop.version:
            return drop.table_uuid
    return header.table_uuid


def _outcome_at(state: TableState, log: str, partition: int, offset: int) -> Outcome | None:
    outcomes = state.header.outcomes
    for run in reversed(outcomes.runs):
        if run.first_offset <= offset <= run.last_offset and run.log == log and run.partition == partition:
            return run
    for item in reversed(outcomes.exceptions):
        if item.offset == offset and item.log == log and item.partition == partition:
            return item
    for page in reversed(state.known_pages.outcomes):
        found = page.run_at(log, partition, offset) or page.exception_at(log, partition, offset)
        if found is not None:
            return found
    return None


def committed(
    table: TableName, record: Record, version: Version, snapshot_id: SnapshotId, number: SequenceNumber
) -> Verdict:
    """The verdict on an intent that `version` committed."""
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
    """The verdict on an intent that was committed before, in `version` where that is known."""
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
