"""The manifest vectors of the next root: fold what was, show what this snapshot removes.

Owns: which vector rows leave, stay and come. Does not own: which ordinals are removed or moved (`draft`) or dead in a
new leaf (`flush`).
Invariants: at most one EXISTING and one ADDED vector per leaf, disjoint; bits only grow; what is made here is inline.

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
from rootline.tree.draft.change import IncomingLeaf, StoredManifestVector, is_added_leaf
from rootline.tree.draft.draft import Draft


@dataclass(frozen=True, slots=True)
class ManifestVectorUpdate:
    """One leaf's vectors: the parent's rows that leave, those that come, all that there are then, and their union."""

    gone: tuple[Row, ...]
    fresh: tuple[Row, ...]
    rows: tuple[Row, ...]
    dead: BitMap


def manifest_vector_updates(draft: Draft) -> dict[str, ManifestVectorUpdate]:
    """By leaf, for every leaf whose vectors change; leaves that are dropped are not among them."""
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
    draft: Draft, location: str, rows: tuple[Row, ...], stored: StoredManifestVector | None, *, folds: bool
) -> ManifestVectorUpdate:
    dead = draft.live.dead.get(location, BitMap())
    moved = draft.in_leaves.moved.get(location)
    if moved is not None:
        dead, numbers = dead | moved.ordinals, draft.numbers_at(moved.number)
    elif stored is not None:
        return _update(draft, location, rows, (stored.row,), dead)
    elif not folds:
        return _update(draft, location, (), (), dead, kept=rows)
    else:
        newest = max((row.entry.version_info for row in rows), key=lambda info: info.sequence_number or 0)
        numbers = VersionInfo(Status.EXISTING, newest.snapshot_id, newest.sequence_number, newest.file_sequence_number)
    folded = _row(draft.live.leaf_rows[location].entry, dead, numbers, draft.codec)
    return _update(draft, location, rows, (folded,), dead)


def _never_live(draft: Draft, location: str, leaf: IncomingLeaf) -> ManifestVectorUpdate:
    """What one root adds in a leaf and removes again was dead before it: it is in no change."""
    gone = draft.in_leaves.removed[location]
    row = _row(leaf.row.entry, gone.ordinals, draft.numbers_at(gone.number), draft.codec)
    return ManifestVectorUpdate((), (row,), (row,), gone.ordinals)


def _update(
    draft: Draft,
    location: str,
    gone: tuple[Row, ...],
    existing: tuple[Row, ...],
    dead: BitMap,
    kept: tuple[Row, ...] = (),
) -> ManifestVectorUpdate:
    """`existing` is fresh, `kept` stays as it is; what this batch removes is added to both."""
    removed = draft.in_leaves.removed.get(location)
    if removed is None:
        return ManifestVectorUpdate(gone, existing, (*kept, *existing), dead)
    incoming = draft.in_leaves.incoming.get(location)
    leaf = draft.live.leaf_rows[location].entry if incoming is None else incoming.row.entry
    added = _row(leaf, removed.ordinals, draft.numbers_at(removed.number, Status.ADDED), draft.codec)
    return ManifestVectorUpdate(gone, (*existing, added), (*kept, *existing, added), dead | removed.ordinals)


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
