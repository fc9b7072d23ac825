"""Rules about commits that a writer had not read: serializable isolation, unseen equality deletes, the number it read.

Owns: these checks. Does not own: filters (`filters`), matching statistics against them (`pruning`), the recorded
removals (`removals`), the rows that a delete may reach (`delete_index`).
Invariants: An intent that passes the check of isolation would read the same rows now. A restore may remove a vector
without leaving an entry that shows the restored rows, so a writer that read before a restore is always rejected. No
equality delete loses its effect because its rows were rewritten by a writer that had not read it.

Source: protocol page, section 2, "isolation".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow.compute as pc

from rootline.schemas.content_entry import ContentEntry, ContentType, EntryPlace, Status
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import Intent, Isolation
from rootline.schemas.parts.restores import RESTORES
from rootline.tree.draft.draft import Draft
from rootline.tree.filter.pruning import PruningFilter, entry_may_match
from rootline.tree.parts.removals import conflicting
from rootline.tree.scan.delete_index import may_delete_rows
from rootline.tree.scan.leaf_pruning import prune_leaf
from rootline.tree.state.leaf_lookup import LeafLookup

FILTER_CHARS_MAX: Final = 65_536
"""The most characters in a filter of an intent. Other tables wait while a filter is parsed."""
_AT_ONCE: Final = 64


def check_isolation(draft: Draft, intent: Intent) -> None:
    """Raises `Invalid`: `isolation-conflict`, with the name of the file; `filter-invalid`."""
    read = intent.read_sequence_number
    if intent.isolation is not Isolation.SERIALIZABLE or read is None:
        return
    if draft.restored_at > read:
        raise Invalid(
            "isolation-conflict",
            f"an earlier version was restored at sequence number {draft.restored_at}, after {read}, which the writer "
            "read: read the table again",
        )
    replaced_at = draft.parts.of(RESTORES).replaced_at
    if replaced_at > read:
        raise Invalid(
            "isolation-conflict",
            f"the table was replaced at sequence number {replaced_at}, after {read}, which the writer "
            "read: read the table again",
        )
    if len(intent.filter or "") > FILTER_CHARS_MAX:
        raise Invalid(
            "filter-invalid",
            f"the filter of an intent has at most {FILTER_CHARS_MAX} characters, this one {len(intent.filter or '')}: "
            "use ranges instead of many values, or use snapshot isolation",
        )
    schema = None if intent.schema_id is None else draft.definition.schema_by_id(intent.schema_id)
    pruning = PruningFilter.of(intent.filter, draft.definition, schema)
    removed_at = conflicting(draft.removals, read, pruning, draft.codec.statistics)
    if removed_at is not None:
        raise Invalid(
            "isolation-conflict",
            f"rows that may match the filter were removed up to sequence number {removed_at}, after {read}, which "
            "the writer read: read the table again",
        )
    for entry in entries_after(draft, read, pruning):
        if _may_match(draft, entry, pruning):
            raise Invalid(
                "isolation-conflict",
                f"{entry.location!r} may match the filter and was added at sequence number "
                f"{entry.version_info.sequence_number}, after {read}, which the writer read: read the table again",
            )


def entries_after(draft: Draft, sequence_number: int, pruning: PruningFilter) -> Iterator[ContentEntry]:
    """Live entries with a data sequence number above `sequence_number`, of data leaves only those that may match.

    Leaves without newer entries are not read. The data sequence number decides, because a rewrite's file contains rows
    as old as its sources. Restores are checked separately. Data leaves are filtered by columns, because all entries of
    a leaf may be new.
    """
    for row in draft.rows.new_rows.values():
        if (row.entry.version_info.sequence_number or 0) > sequence_number:
            yield row.entry
    for place, row in draft.live.rows.items():
        if (row.entry.version_info.sequence_number or 0) > sequence_number and draft.rows.of_parent(place) is not None:
            yield row.entry
    leaves = [(lookup, draft.live.leaf_rows[lookup.location]) for lookup in draft.live.lookups.values()]
    leaves += [(incoming.lookup, incoming.row) for incoming in draft.in_leaves.incoming.values()]
    for lookup, row in leaves:
        if (row.entry.version_info.sequence_number or 0) <= sequence_number:
            continue
        ordinals = _ordinals_after(lookup, row.entry, sequence_number, pruning)
        alive = [ordinal for ordinal in ordinals if not draft.in_leaves.is_dead(lookup.location, ordinal)]
        for start in range(0, len(alive), _AT_ONCE):
            yield from lookup.leaf.entries_at(alive[start : start + _AT_ONCE])


def _ordinals_after(lookup: LeafLookup, row: ContentEntry, sequence_number: int, pruning: PruningFilter) -> list[int]:
    numbers = lookup.leaf.columns(["version_info"]).column(0).combine_chunks()
    newer = pc.greater(pc.struct_field(numbers, "sequence_number"), sequence_number)
    newer = pc.and_(newer, pc.not_equal(pc.struct_field(numbers, "status"), int(Status.DELETED)))
    flags = pc.fill_null(newer, False).to_numpy(zero_copy_only=False)
    if lookup.holds(ContentType.DATA):
        flags = flags & prune_leaf(pruning, lookup.leaf, row.partition_spec_id).may
    found: list[int] = np.flatnonzero(flags).tolist()
    return found


def _may_match(draft: Draft, entry: ContentEntry, pruning: PruningFilter) -> bool:
    """Whether an entry may match the filter. A vector may match if its data file may."""
    if entry.content_type is ContentType.POSITION_DELETE:
        data = draft.find(EntryPlace(ContentType.DATA, entry.referenced_file or ""))
        return data is None or entry_may_match(pruning, data.entry)
    return entry_may_match(pruning, entry)


def read_number(draft: Draft, intent: Intent) -> int:
    """The sequence number that `intent` was made from.

    Raises:
        Invalid: `version-unknown`, no one can have read it; `stale-source`, a version was restored since.
    """
    read = intent.read_sequence_number
    if read is None or read > draft.read_number_max:
        raise Invalid(
            "version-unknown",
            f"read_sequence_number {read} is not one that a writer can have read: the table is at "
            f"{draft.read_number_max}",
        )
    if draft.restored_at > read:
        raise Invalid(
            "stale-source",
            f"an earlier version was restored at sequence number {draft.restored_at}, after {read}, which the writer "
            "read: read the table again",
        )
    return read


def check_no_unseen_deletes(draft: Draft, intent: Intent, files: Iterable[ContentEntry], code: str) -> None:
    """Raises `Invalid` (`code`) if an equality delete that the writer did not read may delete rows of `files`."""
    read = intent.read_sequence_number
    seen = -1 if read is None else read
    deletes = draft.live_equality_deletes()
    unseen = [delete for delete in deletes if (delete.version_info.file_sequence_number or 0) > seen]
    if not unseen:
        return
    for data in files:
        for delete in unseen:
            if may_delete_rows(delete, data, draft.definition):
                known = "no read_sequence_number was sent" if read is None else f"the writer read {read}"
                raise Invalid(
                    code,
                    f"equality delete {delete.location!r} of sequence number {delete.version_info.sequence_number} "
                    f"may delete rows of {data.location!r}, but {known}: read the table again",
                )
