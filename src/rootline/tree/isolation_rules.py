"""Serializable isolation: nothing that the intent's filter may match was added after the snapshot that was read.

Owns: the check. Does not own: filters (`filters`), what statistics say about them (`prune`).
Invariants: an intent that passes would have read the same rows now.

Source: protocol page, section 2, "isolation".
"""

from __future__ import annotations

from collections.abc import Iterator

from rootline.schemas.content_entry import ContentEntry, ContentType, EntryPlace
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import Intent, Isolation
from rootline.tree.draft import Draft
from rootline.tree.prune import PruningFilter, entry_may_match


def check_isolation(draft: Draft, intent: Intent) -> None:
    """Raises `Invalid`: `isolation-conflict`, naming the file; `filter-invalid`."""
    read = intent.read_sequence_number
    if intent.isolation is not Isolation.SERIALIZABLE or read is None:
        return
    schema = None if intent.schema_id is None else draft.definition.schema_by_id(intent.schema_id)
    pruning = PruningFilter.of(intent.filter, draft.definition, schema)
    for entry in entries_after(draft, read):
        if _may_match(draft, entry, pruning):
            raise Invalid(
                "isolation-conflict",
                f"{entry.location!r} may match the filter and was added at sequence number "
                f"{entry.version_info.sequence_number}, after {read}, which the writer read",
            )


def entries_after(draft: Draft, sequence_number: int) -> Iterator[ContentEntry]:
    """Live entries with a greater data sequence number; a leaf that is older as a whole is not opened."""
    for row in draft.added.values():
        if (row.entry.version_info.sequence_number or 0) > sequence_number:
            yield row.entry
    for place, row in draft.live.rows.items():
        if (row.entry.version_info.sequence_number or 0) > sequence_number and draft.root_row(place) is not None:
            yield row.entry
    leaves = [(lookup, draft.live.leaf_rows[lookup.location]) for lookup in draft.live.lookups.values()]
    leaves += [(flushed.lookup, flushed.row) for flushed in draft.flushed.values()]
    for lookup, row in leaves:
        if (row.entry.version_info.sequence_number or 0) <= sequence_number:
            continue
        for ordinal, entry in enumerate(lookup.leaf.entries()):
            if (entry.version_info.sequence_number or 0) > sequence_number and not draft.is_dead(
                lookup.location, ordinal
            ):
                yield entry


def _may_match(draft: Draft, entry: ContentEntry, pruning: PruningFilter) -> bool:
    """A vector matters where its data file does."""
    if entry.content_type is ContentType.POSITION_DELETE:
        data = draft.find(EntryPlace(ContentType.DATA, entry.referenced_file or ""))
        return data is None or entry_may_match(pruning, data.entry)
    return entry_may_match(pruning, entry)
