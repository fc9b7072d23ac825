"""The next root's header.

Owns: how each part of it follows from the parent's header and the batch. Does not own: the parts' own rules and
their moves to pages (`rootline.tree.parts`), its bytes (`header_codec`).
Invariants: Every field that the batch does not change is carried forward. Sequence numbers and timestamps strictly
increase. Offsets never decrease. Ledger and outcomes are within their limits.

Source: protocol page, section 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rootline.schemas.bytes.root.ledger_page import LEDGER_PAGES
from rootline.schemas.bytes.root.location_pages import CONDEMNED_PAGES, RETIRED_PAGES
from rootline.schemas.bytes.root.outcome_page import OUTCOME_PAGES
from rootline.schemas.bytes.root.retained_page import RETAINED_PAGES
from rootline.schemas.identifiers import SequenceNumber, Version, mark_of
from rootline.schemas.parts.definition import DEFINITION
from rootline.schemas.parts.ledger import WriterLedger
from rootline.schemas.parts.locations import LOCATIONS
from rootline.schemas.parts.log import LogProgress
from rootline.schemas.parts.name import NAME
from rootline.schemas.parts.outcomes import Outcomes, RecordedOutcomes
from rootline.schemas.parts.restores import RESTORES
from rootline.schemas.parts.row_ids import RowIds
from rootline.schemas.parts.tags import TAGS
from rootline.schemas.parts.versions import VERSIONS
from rootline.schemas.root_header import RootHeader, Snapshot
from rootline.tree.commit.decide import Decisions
from rootline.tree.draft.batch import Record, Stamp
from rootline.tree.draft.draft import Draft
from rootline.tree.draft.summary import operation_of, summary_of
from rootline.tree.intents.kinds import summary_of_kinds
from rootline.tree.intents.sweep import orphan_age_s
from rootline.tree.parts.header_limits import HeaderLimits
from rootline.tree.parts.ledger_spill import fit_ledger
from rootline.tree.parts.locations import locations_after
from rootline.tree.parts.log import counted_ms, log_after, log_time_after, log_time_of, oldest_seen_ms
from rootline.tree.parts.name import name_after
from rootline.tree.parts.outcome_spill import fit_outcomes
from rootline.tree.parts.outcomes import Acknowledged, joined, kept
from rootline.tree.parts.restores import restores_after
from rootline.tree.parts.retired_spill import RetiredRetention, fit_retired
from rootline.tree.proof.adoption import ADOPTED_SNAPSHOT, NO_SNAPSHOT
from rootline.tree.state.pending_object import PendingObject
from rootline.tree.state.table_pages import NO_PAGES, TablePages
from rootline.tree.state.table_state import TableState


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
    timestamp_ms = stamp.now_ms
    if earlier_snapshot is not None:
        timestamp_ms = max(stamp.now_ms, earlier_snapshot.timestamp_ms + 1)
    is_another = parent is not None and draft.is_first
    sequence_number = draft.sequence_number
    if before is not None and sequence_number == before.snapshot.sequence_number:
        sequence_number = SequenceNumber(sequence_number + 1)
    totals = draft.totals
    snapshot = Snapshot(
        snapshot_id=draft.snapshot_id,
        parent_id=None if earlier_snapshot is None or is_another else earlier_snapshot.snapshot_id,
        sequence_number=sequence_number,
        timestamp_ms=timestamp_ms,
        operation=operation_of(draft.effect),
        summary={
            **summary_of(draft.counts.added, draft.counts.removed, totals, decisions.summary),
            **summary_of_kinds(before, draft),
            **({ADOPTED_SNAPSHOT: str(earlier_snapshot.snapshot_id)} if before is None and earlier_snapshot else {}),
        },
    )
    earlier = Outcomes() if before is None else kept(before.outcomes.newest, acknowledged)
    pages = NO_PAGES if parent is None else parent.pages  # all were read, as every decision needs them
    if is_another:
        written = [kept(page.content.outcomes, acknowledged) for page in pages.of(OUTCOME_PAGES)]
        earlier, pages = joined([*written, earlier]), NO_PAGES  # a new table writes its own pages
    outcomes = fit_outcomes(
        decisions.outcomes.after(earlier),
        pages.of(OUTCOME_PAGES),
        limit_bytes=limits.outcome_bytes,
        acknowledged=acknowledged,
        table_uuid=draft.definition.table_uuid,
        salt=draft.salt,
    )
    retention_ms = writer_retention_s * 1000
    log_time = log_time_after(log_time_of(before), max([record.appended_ms for record in records]), retention_ms)
    oldest_ms = oldest_seen_ms(log_time, retention_ms)
    ledger = fit_ledger(
        decisions.ledger.finished(log_time.newest_ms, oldest_ms),
        pages.of(LEDGER_PAGES),
        limit_bytes=limits.ledger_bytes,
        oldest_ms=oldest_ms,
        table_uuid=draft.definition.table_uuid,
        salt=draft.salt,
    )
    restored = draft.parts.of(RESTORES).through
    latest_ms = max([timestamp_ms, *(record.appended_ms for record in records)])
    retired = fit_retired(
        draft.retired.header,
        draft.retired.pages,
        draft.retired.newly_retired(restored),
        RetiredRetention(
            now_ms=latest_ms,
            horizon_ms=draft.parts.of(LOCATIONS).horizon_ms,
            counted_ms=counted_ms(log_time),
            orphan_age_ms=1000 * orphan_age_s(draft.definition.properties, draft.log_retention_s),
        ),
        restored_through=restored,
        table_uuid=draft.definition.table_uuid,
        salt=draft.salt,
    )
    last = {(record.position.log, record.position.partition): record for record in records}
    marks = {partition: mark_of(record.value, record.appended_ms) for partition, record in last.items()}
    parts = draft.parts
    header = RootHeader(
        table=decisions.table,
        table_uuid=draft.definition.table_uuid,
        version=draft.version,
        parent_digest=None if parent is None else parent.root.digest,
        snapshot=snapshot,
        commit_id=stamp.commit_id,
        coordinator_id=stamp.coordinator_id,
        totals=totals,
        earlier_bytes=0 if parent is None else parent.header.earlier_bytes + parent.root.size_in_bytes,
        log=log_after(
            LogProgress() if before is None else before.log, [record.position for record in records], log_time, marks
        ),
        outcomes=RecordedOutcomes(outcomes.header, tuple([page.reference for page in outcomes.pages])),
        ledger=WriterLedger(
            ledger.header, tuple([page.reference for page in ledger.pages]), decisions.contents.finished()
        ),
        versions=parts.of(VERSIONS),
        tags=parts.of(TAGS),
        restores=restores_after(parts.of(RESTORES), _redefined_in(None if is_another else before, draft)),
        locations=locations_after(parts.of(LOCATIONS), retired.header, draft.version, timestamp_ms),
        removals=draft.removals,
        name=name_after(parts.of(NAME), latest_ms),
        definition=parts.of(DEFINITION),
        row_ids=RowIds(draft.next_row_id, 0 if before is None else before.row_ids.next),
    )
    pages = (
        pages.having(LEDGER_PAGES, ledger.pages)
        .having(OUTCOME_PAGES, outcomes.pages)
        .having(CONDEMNED_PAGES, draft.pages.of(CONDEMNED_PAGES))
        .having(RETIRED_PAGES, retired.pages)
        .having(RETAINED_PAGES, draft.pages.of(RETAINED_PAGES))
    )
    return NextHeader(header, pages, (*outcomes.objects, *ledger.objects, *retired.objects))


def _redefined_in(before: RootHeader | None, draft: Draft) -> Version | None:
    """The last version that changed the definition, this one included. `None` for the first root of a table."""
    if before is None:
        return None
    return before.restores.redefined_in if draft.parts.of(DEFINITION) == before.definition else draft.version


def _adopted_snapshot(draft: Draft) -> Snapshot | None:
    """The snapshot of the Iceberg table that root 0 continues, or `None`."""
    adopted = draft.parent
    if adopted is None or adopted.header.snapshot.snapshot_id == NO_SNAPSHOT:
        return None
    return adopted.header.snapshot
