"""The manifest vectors of the next root.

A vector that an earlier root added is folded into the leaf's EXISTING vector. Entries that this snapshot removes are a
second vector of the leaf, with status ADDED.

Owns: the vector rows that are removed, unchanged and added. Does not own: which ordinals are removed or moved
(`draft`), which are dead in a new leaf (`flush`).
Invariants: A leaf has at most one EXISTING and one ADDED vector, and the two are disjoint. Bits are only ever set.
Vectors made here are inline.

Source: format page, "Manifest vectors".
"""

from __future__ import annotations

from dataclasses import dataclass

from pyroaring import BitMap

from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.bytes.root.root_codec import Row
from rootline.schemas.bytes.vector_codec import encode_inline
from rootline.schemas.content_entry import (
    ContentEntry,
    ContentType,
    DeletionVector,
    FileFormat,
    Status,
    VersionInfo,
)
from rootline.tree.draft.change import IncomingLeaf, StoreVector, is_added_leaf
from rootline.tree.draft.draft import Draft


@dataclass(frozen=True, slots=True)
class ManifestVectorUpdate:
    """One leaf's vectors: rows of the parent to drop, new rows, all rows of the next root, and their union."""

    replaced: tuple[Row, ...]
    fresh: tuple[Row, ...]
    rows: tuple[Row, ...]
    dead: BitMap


def manifest_vector_updates(draft: Draft) -> dict[str, ManifestVectorUpdate]:
    """The updates of every leaf whose vectors change, by leaf. Dropped leaves are not included."""
    updates: dict[str, ManifestVectorUpdate] = {}
    leaves, stored = draft.in_leaves, draft.stored_vectors()
    changing = {*leaves.removed, *leaves.moved, *stored}
    for location, rows in draft.live.manifest_vector_rows.items():
        folds = any(row.entry.version_info.status is Status.ADDED for row in rows)
        if location not in leaves.dropped and (folds or location in changing):
            updates[location] = _update_of_known(draft, location, rows, stored.get(location), folds=folds)
    for location in (*leaves.removed, *leaves.moved):
        if location not in updates and location not in leaves.incoming and location not in leaves.dropped:
            updates[location] = _update_of_known(draft, location, (), stored.get(location), folds=False)
    for location, incoming in leaves.incoming.items():
        if is_added_leaf(incoming):
            if location in leaves.removed:
                updates[location] = _never_live(draft, location, incoming)
            continue
        existing: tuple[Row, ...] = ()
        if incoming.dead:
            numbers = incoming.row.entry.version_info
            existing = (_row(incoming.row.entry, incoming.dead, numbers, draft.codec),)
        if existing or location in leaves.removed:
            updates[location] = _update(draft, location, (), existing, incoming.dead)
    return updates


def _update_of_known(
    draft: Draft, location: str, rows: tuple[Row, ...], stored: StoreVector | None, *, folds: bool
) -> ManifestVectorUpdate:
    dead = draft.live.dead.get(location, BitMap())
    moved = draft.in_leaves.moved.get(location)
    if moved is not None:
        dead, numbers = dead | moved.ordinals, draft.numbers_at(moved.number)
    elif stored is not None:
        return _update(draft, location, rows, (stored.row,), dead)
    elif not folds:
        return _update(draft, location, (), (), dead, unchanged=rows)
    else:
        newest = max((row.entry.version_info for row in rows), key=lambda info: info.sequence_number or 0)
        numbers = VersionInfo(Status.EXISTING, newest.snapshot_id, newest.sequence_number, newest.file_sequence_number)
    folded = _row(draft.live.leaf_rows[location].entry, dead, numbers, draft.codec)
    return _update(draft, location, rows, (folded,), dead)


def _never_live(draft: Draft, location: str, leaf: IncomingLeaf) -> ManifestVectorUpdate:
    """The vector of entries that one root both adds and removes. They were never live, so no change shows them."""
    removed = draft.in_leaves.removed[location]
    row = _row(leaf.row.entry, removed.ordinals, draft.numbers_at(removed.number), draft.codec)
    return ManifestVectorUpdate((), (row,), (row,), removed.ordinals)


def _update(
    draft: Draft,
    location: str,
    replaced: tuple[Row, ...],
    existing: tuple[Row, ...],
    dead: BitMap,
    unchanged: tuple[Row, ...] = (),
) -> ManifestVectorUpdate:
    """`existing` rows are new, `unchanged` ones the parent's. An ADDED row has the entries removed by this batch."""
    removed = draft.in_leaves.removed.get(location)
    if removed is None:
        return ManifestVectorUpdate(replaced, existing, (*unchanged, *existing), dead)
    incoming = draft.in_leaves.incoming.get(location)
    leaf = draft.live.leaf_rows[location].entry if incoming is None else incoming.row.entry
    added = _row(leaf, removed.ordinals, draft.numbers_at(removed.number, Status.ADDED), draft.codec)
    return ManifestVectorUpdate(replaced, (*existing, added), (*unchanged, *existing, added), dead | removed.ordinals)


def _row(leaf: ContentEntry, ordinals: BitMap, numbers: VersionInfo, codec: EntryCodec) -> Row:
    entry = ContentEntry(
        content_type=ContentType.MANIFEST_DV,
        location=leaf.location,
        file_format=FileFormat.PUFFIN,
        version_info=numbers,
        partition_spec_id=leaf.partition_spec_id,
        record_count=len(ordinals),
        deletion_vector=DeletionVector(inline_content=encode_inline(ordinals)),
        referenced_file=leaf.location,
    )
    return Row.of(entry, codec)
