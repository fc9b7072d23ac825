"""Drop leaves without live entries during maintenance, and let delete leaves follow their data files.

Owns: which leaves are dropped, and the data leaf of a delete leaf after its data files moved. Does not own: the moment
(`apply` calls this when a batch contains maintenance, except for a dropped table, which must stay restorable), which
entries move (`flush`).
Invariants: No live entry is dropped. A leaf stays in the root that removes its last entries, so that the root shows the
change. A delete leaf belongs to a data leaf only if that leaf contains the data files of all its live vectors.

Source: format page, "Manifest vectors" and the table of content types.
"""

from __future__ import annotations

from rootline.schemas.content_entry import ContentEntry, ContentType, EntryPlace
from rootline.tree.draft.change import Reattach
from rootline.tree.draft.draft import Draft
from rootline.tree.state.leaf_lookup import LeafLookup


def drop_dead_leaves(draft: Draft) -> None:
    """Drop the leaves without live entries, and affiliate delete leaves with the leaves of their data files."""
    for location in sorted(_dead(draft)):
        draft.in_leaves.drop(location)
    moved_from = draft.in_leaves.dropped | draft.in_leaves.moved.keys()
    wishes = {edit.delete_leaf: edit.data_leaf for edit in draft.accepted(Reattach)}
    for entry in _delete_leaves(draft):
        owner, wanted = entry.referenced_file, wishes.get(entry.location, entry.referenced_file)
        if owner == wanted and owner not in moved_from:
            continue
        lookup = draft.in_leaves.lookup(entry.location)
        best = next((each for each in (wanted, owner) if lookup is not None and _holds_all(draft, lookup, each)), None)
        if best != owner:
            draft.in_leaves.affiliate(entry, best, draft.codec)


def is_dead_as_a_whole(draft: Draft, location: str) -> bool:
    """Whether a leaf of the parent has no live entry, and this batch removed none from it."""
    index = draft.live
    row = index.leaf_rows.get(location)
    if row is None or location in draft.in_leaves.removed:
        return False
    dead = draft.in_leaves.dead_in(location)
    stats = row.entry.manifest_stats
    never_live = 0 if stats is None else stats.deleted_files_count
    return len(dead) + never_live >= row.entry.record_count


def _dead(draft: Draft) -> set[str]:
    places = draft.live.dead.keys() | draft.in_leaves.moved.keys()
    return {location for location in places if is_dead_as_a_whole(draft, location)}


def _delete_leaves(draft: Draft) -> list[ContentEntry]:
    """Root rows of the delete leaves, unchanged and new."""
    return [row for row in draft.in_leaves.rows() if row.content_type is ContentType.DELETE_MANIFEST]


def _holds_all(draft: Draft, deletes: LeafLookup, owner: str | None) -> bool:
    """Whether a delete leaf has only vectors of live data files in `owner`, apart from dead entries."""
    data = None if owner is None else draft.in_leaves.lookup(owner)
    if data is None or not data.holds(ContentType.DATA):
        return False
    for target, ordinal in deletes.vectors.items():
        if draft.in_leaves.is_dead(deletes.location, ordinal):
            continue
        at = data.ordinal_of(EntryPlace(ContentType.DATA, target))
        if at is None or draft.in_leaves.is_dead(data.location, at):
            return False
    return not any(not draft.in_leaves.is_dead(deletes.location, ordinal) for ordinal, _ in deletes.equality_deletes)
