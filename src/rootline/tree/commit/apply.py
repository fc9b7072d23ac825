"""Apply a batch of intents to a table: the next root, and a verdict for each intent.

Owns: the order of the steps over a batch. Does not own: the steps of one intent (`decide`), the header (`next_header`),
the root's bytes (`next_root`).
Invariants: The result equals applying the intents one by one. The same arguments give the same bytes. A violation of an
internal rule raises `Internal` before anything is written.

Source: protocol page, section 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rootline.schemas.errors import Internal
from rootline.schemas.identifiers import NOTHING_ACKNOWLEDGED, Acknowledged, TableName
from rootline.tree.commit.decide import Decisions
from rootline.tree.commit.next_header import next_header
from rootline.tree.commit.next_root import next_root
from rootline.tree.commit.verdicts import next_offset
from rootline.tree.draft.batch import Applied, FetchedObjects, Needs, NoTable, Record, Stamp
from rootline.tree.draft.change import Effect
from rootline.tree.draft.leaf_moves import drop_dead_leaves
from rootline.tree.intents.flush import OwnFlush, take_own_leaves
from rootline.tree.parts.header_limits import HEADER_LIMITS, HeaderLimits
from rootline.tree.rules.vector_rules import write_merged
from rootline.tree.state.table_state import TableState

WRITER_RETENTION_S: Final = 7 * 24 * 3600
LOG_RETENTION_S: Final = 7 * 24 * 3600


def apply_batch(
    state: TableState | None,
    table: TableName,
    records: Sequence[Record],
    fetched: FetchedObjects,
    stamp: Stamp,
    *,
    acknowledged: Acknowledged = NOTHING_ACKNOWLEDGED,
    writer_retention_s: int = WRITER_RETENTION_S,
    log_retention_s: int = LOG_RETENTION_S,
    file_prefixes: Sequence[str] = (),
    limits: HeaderLimits = HEADER_LIMITS,
    relief: OwnFlush | None = None,
) -> Applied | Needs | NoTable:
    """The next root of `table` after `records`, or the objects that are needed first.

    Args:
        state: the head's state, or `None` when the table does not exist (only a `create` makes a root then).
        table: the table's name.
        records: at least one, at or above the table's offsets, ascending in each partition.
        fetched: the objects fetched so far. Empty in the first call.
        stamp: commit id, coordinator id, wall clock.
        acknowledged: the position up to which the log is known to contain the verdicts. Their outcomes are dropped.
        writer_retention_s: seconds that an idle `process/` writer stays in the ledger, by the log's append times. A
            `rest/` writer stays an hour at most.
        log_retention_s: seconds that the log keeps a record. A horizon stays older than that.
        file_prefixes: absolute locations, each with a slash at its end, below which intents may add data files.
        limits: of the header. Content above them moves to pages.
        relief: leaves that the coordinator wrote from rows of the head, or of an earlier root.

    Returns:
        `Applied`, with verdicts for all records up to the first that must wait for the next root, or `Needs`, the
        objects to fetch before the next call, or `NoTable`.

    Raises:
        Internal: `invariant-broken`, the batch or the result breaks an internal rule.
    """
    _check_batch(state, table, records)
    decisions = Decisions(state, table, fetched, log_retention_s, file_prefixes)
    for count, record in enumerate(records):
        if decisions.ends_before(record):
            records = records[:count]
            break
        decisions.decide(record)
    if decisions.needs:
        return decisions.needs
    draft = decisions.draft
    if draft is None:
        return NoTable(tuple(decisions.verdicts))
    if draft.merged:
        puffin, rows = write_merged(draft.merged.values(), draft.codec, draft.salt)
        draft.place_merged(rows)
        decisions.objects.append(puffin)
    if relief is not None and state is not None and not (draft.is_tombstone or draft.is_first):
        decisions.objects.extend(take_own_leaves(draft, relief))
    stays_dropped = draft.is_tombstone and state is not None and state.header.is_tombstone
    if (Effect.MAINTAINS in draft.effect or draft.rows.moved) and not stays_dropped:
        drop_dead_leaves(draft)
    following = next_header(
        state,
        draft,
        decisions,
        records,
        stamp,
        acknowledged=acknowledged,
        writer_retention_s=writer_retention_s,
        limits=limits,
    )
    after, body = next_root(draft, following.header, following.pages)
    objects = (*decisions.objects, *following.objects)
    return Applied(after, body, tuple(decisions.verdicts), objects, tuple(decisions.dropped_jobs))


def _check_batch(state: TableState | None, table: TableName, records: Sequence[Record]) -> None:
    if not records:
        raise Internal("invariant-broken", f"{table}: a batch without records makes no root")
    if state is not None and state.header.table != table:
        raise Internal("invariant-broken", f"{table}: the state belongs to table {state.header.table}")
    nexts: dict[tuple[str, int], int] = {}
    for record in records:
        log, partition, offset = record.position
        lowest = nexts.get((log, partition))
        if lowest is None:
            lowest = 0 if state is None else next_offset(state.header, log, partition)
        if offset < lowest:
            raise Internal(
                "invariant-broken", f"{table}: record {offset} of partition {partition} of {log} is already decided"
            )
        if record.intent.table != table:
            raise Internal("invariant-broken", f"{table}: record {offset} is for table {record.intent.table!r:.200}")
        nexts[log, partition] = offset + 1
