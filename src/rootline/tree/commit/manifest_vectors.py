"""The manifest vectors of the next root: fold what was, show what this snapshot removes.

Owns: which vector rows leave, stay and come. Does not own: which ordinals are removed or moved (`draft`) or masked
(`flush`).
Invariants: at most one EXISTING and one ADDED vector per leaf, disjoint; bits only grow; what is made here is inline.

Source: format page, "Manifest vectors".
"""

from __future__ import annotations

from dataclasses import dataclass

from pyroaring import BitMap

from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.bytes.root.root_codec import Row
from rootline.schemas.bytes.vector.vector_codec import encode_inline
from rootline.schemas.content_entry import (
    ContentEntry,
    ContentType,
    DeletionVector,
    FileFormat,
    Status,
    VersionInfo,
)
from rootline.tree.draft.change import IncomingLeaf
from rootline.tree.draft.draft import Draft, is_added_leaf


@dataclass(frozen=True, slots=True)
class ManifestVectorUpdate:
    """One leaf's vectors: the parent's rows that leave, those that come, all that stand then, and their union."""

    gone: tuple[Row, ...]
    fresh: tuple[Row, ...]
    rows: tuple[Row, ...]
    dead: BitMap


def manifest_vector_updates(draft: Draft) -> dict[str, ManifestVectorUpdate]:
    """By leaf, for every leaf whose vectors change; leaves that are dropped are not among them."""
    updates: dict[str, ManifestVectorUpdate] = {}
    for location, rows in draft.live.manifest_vector_rows.items():
        folds = any(row.entry.version_info.status is Status.ADDED for row in rows)
        changes = location in {*draft.removed_ordinals, *draft.moved_ordinals, *draft.stored_vectors}
        if location not in draft.dropped_leaves and (folds or changes):
            updates[location] = _update_of_known(draft, location, rows, folds)
    for location in (*draft.removed_ordinals, *draft.moved_ordinals):
        if location not in updates and location not in draft.incoming and location not in draft.dropped_leaves:
            updates[location] = _update_of_known(draft, location, (), folds=False)
    for location, incoming in draft.incoming.items():
        if is_added_leaf(incoming):
            if location in draft.removed_ordinals:
                updates[location] = _never_live(draft, location, incoming)
            continue
        existing: tuple[Row, ...] = ()
        if incoming.dead:
            numbers = incoming.row.entry.version_info
            existing = (_row(incoming.row.entry, incoming.dead, numbers, draft.codec),)
        if existing or location in draft.removed_ordinals:
            updates[location] = _update(draft, location, (), existing, incoming.dead)
    return updates


def _update_of_known(draft: Draft, location: str, rows: tuple[Row, ...], folds: bool) -> ManifestVectorUpdate:
    dead = draft.live.dead.get(location, BitMap())
    moved = draft.moved_ordinals.get(location)
    if moved is not None:
        dead, numbers = dead | moved, draft.moved_at[location]
    elif location in draft.stored_vectors:
        return _update(draft, location, rows, (draft.stored_vectors[location].row,), dead)
    elif not folds:
        return _update(draft, location, (), (), dead, kept=rows)
    else:
        newest = max((row.entry.version_info for row in rows), key=lambda info: info.sequence_number or 0)
        numbers = VersionInfo(Status.EXISTING, newest.snapshot_id, newest.sequence_number, newest.file_sequence_number)
    folded = _row(draft.live.leaf_rows[location].entry, dead, numbers, draft.codec)
    return _update(draft, location, rows, (folded,), dead)


def _never_live(draft: Draft, location: str, leaf: IncomingLeaf) -> ManifestVectorUpdate:
    """What one root adds in a leaf and removes again was dead before it: it is in no change."""
    dead, number = draft.removed_ordinals[location], draft.removed_at[location]
    numbers = VersionInfo(Status.EXISTING, draft.snapshot_id, number, number)
    row = _row(leaf.row.entry, dead, numbers, draft.codec)
    return ManifestVectorUpdate((), (row,), (row,), dead)


def _update(
    draft: Draft,
    location: str,
    gone: tuple[Row, ...],
    existing: tuple[Row, ...],
    dead: BitMap,
    kept: tuple[Row, ...] = (),
) -> ManifestVectorUpdate:
    """`existing` is fresh, `kept` stays as it is; what this batch removes is added to both."""
    removed = draft.removed_ordinals.get(location)
    if removed is None:
        return ManifestVectorUpdate(gone, existing, (*kept, *existing), dead)
    number = draft.removed_at[location]
    incoming = draft.incoming.get(location)
    leaf = draft.live.leaf_rows[location].entry if incoming is None else incoming.row.entry
    added = _row(leaf, removed, VersionInfo(Status.ADDED, draft.snapshot_id, number, number), draft.codec)
    return ManifestVectorUpdate(gone, (*existing, added), (*kept, *existing, added), dead | removed)


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
