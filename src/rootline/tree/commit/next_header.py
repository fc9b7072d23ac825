"""The next root's header.

Owns: the root's own fields, and the facts of the batch that its parts are given. Does not own: how each part follows
from the parent's and moves to pages (`rootline.tree.parts`), its bytes (`header_codec`).
Invariants: Every field that the batch does not change is carried forward. Sequence numbers and timestamps strictly
increase.

Source: protocol page, section 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from rootline.schemas.content_entry import quick
from rootline.schemas.identifiers import Acknowledged, SequenceNumber, mark_of
from rootline.schemas.parts.ledger import LEDGER
from rootline.schemas.parts.locations import LOCATIONS
from rootline.schemas.parts.log import LOG
from rootline.schemas.parts.outcomes import OUTCOMES
from rootline.schemas.parts.removals import REMOVALS
from rootline.schemas.parts.row_ids import ROW_IDS
from rootline.schemas.root_header import RootHeader, Snapshot
from rootline.tree.commit.decide import Decisions
from rootline.tree.draft.batch import Record, Stamp
from rootline.tree.draft.draft import Draft
from rootline.tree.draft.summary import operation_of, summary_of
from rootline.tree.intents.kinds import summary_of_kinds
from rootline.tree.parts.header_limits import HeaderLimits
from rootline.tree.parts.part_rules import Advance
from rootline.tree.parts.part_table import advanced_parts
from rootline.tree.proof.adoption import ADOPTED_SNAPSHOT, NO_SNAPSHOT
from rootline.tree.state.table_state import PendingObject, TablePages, TableState

_snapshot: Final = quick(Snapshot)
_root_header: Final = quick(RootHeader)


class NextHeader(NamedTuple):
    """The header, the pages that it references, and the new pages, which must be stored before the root."""

    header: RootHeader
    pages: TablePages
    objects: tuple[PendingObject, ...]


def next_header(
    parent: TableState | None,
    draft: Draft,
    decisions: Decisions,
    records: Sequence[Record],
    stamp: Stamp,
    *,
    acknowledged: Acknowledged,
    writer_retention_s: int,
    limits: HeaderLimits,
) -> NextHeader:
    """The header of `draft`'s root. Arguments as in `apply_batch`."""
    before = None if parent is None else parent.header
    earlier_snapshot = _adopted_snapshot(draft) if before is None else before.snapshot
    timestamp_ms, appended_ms = stamp.now_ms, max([record.appended_ms for record in records])
    if earlier_snapshot is not None:
        timestamp_ms = max(stamp.now_ms, earlier_snapshot.timestamp_ms + 1)
    is_another = parent is not None and draft.is_first
    sequence_number = draft.sequence_number
    if before is not None and sequence_number == before.snapshot.sequence_number:
        sequence_number = SequenceNumber(sequence_number + 1)
    totals = draft.totals
    snapshot = _snapshot(
        snapshot_id=draft.snapshot_id,
        parent_id=None if earlier_snapshot is None or is_another else earlier_snapshot.snapshot_id,
        sequence_number=sequence_number,
        timestamp_ms=timestamp_ms,
        operation=operation_of(draft.effect),
        summary={
            **summary_of(draft.counts.added, draft.counts.removed, totals, decisions.words),
            **summary_of_kinds(before, draft),
            **({ADOPTED_SNAPSHOT: str(earlier_snapshot.snapshot_id)} if before is None and earlier_snapshot else {}),
        },
    )
    step = Advance(
        before=before,
        starts_table=is_another,
        version=draft.version,
        timestamp_ms=timestamp_ms,
        appended_ms=appended_ms,
        table_uuid=draft.definition.table_uuid,
        properties=draft.definition.properties,
        acknowledged=acknowledged,
        retention_ms=1000 * writer_retention_s,
        log_retention_s=draft.log_retention_s,
        limits=limits,
        salt=draft.salt,
        pages=draft.pages,
    )
    last = {(record.position.log, record.position.partition): record for record in records}
    marks = {partition: mark_of(record.value, record.appended_ms) for partition, record in last.items()}
    drafted = {
        **draft.parts.by_name,
        LOG.name: ([record.position for record in records], marks),
        OUTCOMES.name: decisions.outcomes,
        LEDGER.name: decisions.ledger,
        LOCATIONS.name: (draft.parts.of(LOCATIONS), draft.retired),
        REMOVALS.name: draft.removals,
        ROW_IDS.name: draft.next_row_id,
    }
    header = _root_header(
        table=decisions.table,
        table_uuid=draft.definition.table_uuid,
        version=draft.version,
        parent_digest=None if parent is None else parent.root.digest,
        snapshot=snapshot,
        commit_id=stamp.commit_id,
        coordinator_id=stamp.coordinator_id,
        totals=totals,
        earlier_bytes=0 if parent is None else parent.header.earlier_bytes + parent.root.size_in_bytes,
        **advanced_parts(drafted, step),
    )
    return NextHeader(header, step.pages, tuple(step.objects))


def _adopted_snapshot(draft: Draft) -> Snapshot | None:
    """The snapshot of the Iceberg table that root 0 continues, or `None`."""
    adopted = draft.parent
    if adopted is None or adopted.header.snapshot.snapshot_id == NO_SNAPSHOT:
        return None
    return adopted.header.snapshot
