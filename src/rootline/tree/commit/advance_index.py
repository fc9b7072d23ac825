"""Update the live index after a commit.

Owns: the next version's index. Does not own: the rows of the next root (`next_root`).
Invariants: The result equals an index built from scratch over the new root. The work is proportional to the change,
plus one shallow copy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from pyroaring import BitMap

from rootline.schemas.bytes.root.root_codec import Row
from rootline.schemas.content_entry import ContentType
from rootline.tree.commit.manifest_vectors import ManifestVectorUpdate
from rootline.tree.draft.draft import Draft
from rootline.tree.state.live_index import LiveIndex, StoredAt

_Value = TypeVar("_Value")


def advanced_index(
    draft: Draft, fresh: Iterable[Row], vectors: Mapping[str, ManifestVectorUpdate], unsettled: tuple[int, ...]
) -> LiveIndex:
    """The live index after the root of `draft`.

    Args:
        draft: of the new root.
        fresh: the row objects of the new root that its parent does not have, except manifest vectors.
        vectors: the manifest vectors that change, by leaf.
        unsettled: ordinals of the new root's blocks that the next root must rewrite.
    """
    before = draft.live
    dropped = draft.in_leaves.dropped
    lookups = _without(before.lookups, dropped)
    lookups.update((location, incoming.lookup) for location, incoming in draft.in_leaves.incoming.items())
    index = LiveIndex(
        before.rows.copy(),
        before.vectors.copy(),
        before.equality_deletes.copy(),
        _without(before.leaf_rows, dropped),
        _without(before.manifest_vector_rows, dropped),
        _without(before.dead, dropped),
        lookups,
        before.locations.advanced(lookups),
        unsettled,
        _stored(draft, vectors),
    )
    for rows in (draft.rows.removed, draft.rows.moved):
        for place, row in rows.items():
            index.rows.pop(place, None)
            if place.content_type is ContentType.POSITION_DELETE:
                index.vectors.pop(row.entry.referenced_file or "", None)
            elif place.content_type is ContentType.EQUALITY_DELETE:
                index.equality_deletes.pop(place, None)
    for row in fresh:
        index.insert(row)
    for location, update in vectors.items():
        index.manifest_vector_rows[location] = update.rows
        index.dead[location] = update.dead
    return index


def _stored(draft: Draft, vectors: Mapping[str, ManifestVectorUpdate]) -> Mapping[StoredAt, BitMap]:
    """The manifest vectors in Puffin files that the next root still references."""
    before, moving = draft.live.stored, draft.stored_vectors()
    if not before and not moving:
        return before
    rows = {
        location: rows
        for location, rows in draft.live.manifest_vector_rows.items()
        if location not in draft.in_leaves.dropped
    }
    rows |= {location: update.rows for location, update in vectors.items()}
    known = {**before, **{_at(stored.row): stored.ordinals for stored in moving.values()}}
    return {at: known[at] for each in rows.values() for row in each if (at := _at(row)) in known}


def _at(row: Row) -> StoredAt:
    vector = row.entry.deletion_vector
    return row.entry.location, -1 if vector is None or vector.offset is None else vector.offset


def _without(items: dict[str, _Value], keys: Collection[str]) -> dict[str, _Value]:
    copied = items.copy()
    for key in keys:
        copied.pop(key, None)
    return copied
