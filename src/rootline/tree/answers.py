"""Answer a record that a root has already decided.

Owns: the reading of a header's offsets and outcomes, and what a verdict looks like. Does not own: how they are
recorded (`outcomes`).
Invariants: an answer equals the verdict given at first; a record that is not decided yet has none.

Source: protocol page, section 4.
"""

from __future__ import annotations

from uuid import UUID

from rootline.schemas.identifiers import SequenceNumber, SnapshotId, TableName, Version, snapshot_id_of
from rootline.schemas.root_header import RootHeader
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.tree.batch import Record


def next_offset(header: RootHeader, log: str, partition: int) -> int:
    """The next offset to apply of one partition of one log; records below it are decided. 0 when never read."""
    for offset in header.offsets:
        if offset.log == log and offset.partition == partition:
            return offset.next_offset
    return 0


def answer(header: RootHeader, record: Record) -> Verdict | None:
    """The verdict on a record below the root's offset; `None`: it was published before and is kept no longer.

    Also `None` for a record that the root has not decided: compare with `next_offset` first.
    """
    log, partition, offset = record.position
    for run in reversed(header.outcomes.runs):
        if run.first_offset <= offset <= run.last_offset and run.log == log and run.partition == partition:
            number = SequenceNumber(run.first_sequence_number + offset - run.first_offset)
            snapshot_id = snapshot_id_of(header.table_uuid, run.version)
            return committed(header.table, record, run.version, snapshot_id, number)
    for item in reversed(header.outcomes.exceptions):
        if item.offset == offset and item.log == log and item.partition == partition:
            if item.code is None:
                return duplicate(header.table, header.table_uuid, record, item.duplicate_of)
            return rejected(header.table, record, item.code, item.message or "")
    return None


def committed(
    table: TableName, record: Record, version: Version, snapshot_id: SnapshotId, number: SequenceNumber
) -> Verdict:
    """The verdict on an intent that `version` committed."""
    return Verdict(
        intent_id=record.intent.intent_id,
        table=table,
        kind=VerdictKind.COMMITTED,
        log=record.position.log,
        partition=record.position.partition,
        offset=record.position.offset,
        version=version,
        snapshot_id=snapshot_id,
        sequence_number=number,
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
