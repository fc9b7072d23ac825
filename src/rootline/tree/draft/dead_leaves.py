"""Leaves that hold nothing live any more leave with the next maintenance, and delete leaves follow their data files.

Owns: which leaves leave, and what a delete leaf belongs to once its data files moved. Does not own: when (`apply` asks
while a batch holds maintenance, but not of a table that stays dropped: it comes back as it was), what moves (`flush`).
Invariants: no live entry leaves; a leaf of which this batch removes entries stays, so that its root shows the
change; a delete leaf belongs to a data leaf only if that one holds the data files of all its live vectors.

Source: format page, "Manifest vectors" and the table of content types.
"""

from __future__ import annotations

from rootline.schemas.content_entry import ContentEntry, ContentType, EntryPlace
from rootline.tree.draft.draft import Draft
from rootline.tree.state.leaf_lookup import LeafLookup


def drop_dead_leaves(draft: Draft) -> None:
    """Take out the leaves that are dead as a whole, and let delete leaves belong to where their data files are."""
    for location in sorted(_dead(draft)):
        draft.drop_leaf(location)
    left = draft.in_leaves.dropped | draft.in_leaves.moved.keys()
    wishes = {leaf: owner for change in draft.changes for leaf, owner in change.reaffiliate.items()}
    for entry in _delete_leaves(draft):
        owner, wanted = entry.referenced_file, wishes.get(entry.location, entry.referenced_file)
        if owner == wanted and owner not in left:
            continue
        lookup = draft.in_leaves.lookup(entry.location)
        best = next((each for each in (wanted, owner) if lookup is not None and _holds_all(draft, lookup, each)), None)
        if best != owner:
            draft.in_leaves.affiliate(entry, best, draft.codec)


def is_dead_as_a_whole(draft: Draft, location: str) -> bool:
    """Whether nothing is live in a leaf of the parent, and this batch did not remove the last of it."""
    index = draft.live
    row = index.leaf_rows.get(location)
    if row is None or location in draft.in_leaves.removed:
        return False
    gone = draft.in_leaves.dead_in(location)
    stats = row.entry.manifest_stats
    never_live = 0 if stats is None else stats.deleted_files_count
    return len(gone) + never_live >= row.entry.record_count


def _dead(draft: Draft) -> set[str]:
    places = draft.live.dead.keys() | draft.in_leaves.moved.keys()
    return {location for location in places if is_dead_as_a_whole(draft, location)}


def _delete_leaves(draft: Draft) -> list[ContentEntry]:
    """Root rows of the delete leaves that stay or come."""
    return [row for row in draft.in_leaves.rows() if row.content_type is ContentType.DELETE_MANIFEST]


def _holds_all(draft: Draft, deletes: LeafLookup, owner: str | None) -> bool:
    """Whether all that is live in a delete leaf is vectors of data files that are live in `owner`."""
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
