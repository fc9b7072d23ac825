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
from rootline.tree.draft.change import FlushedLeaf
from rootline.tree.draft.draft import Draft, is_added_leaf


@dataclass(frozen=True, slots=True)
class MaskUpdate:
    """One leaf's vectors: the parent's rows that leave, those that come, all that stand then, and their union."""

    gone: tuple[Row, ...]
    fresh: tuple[Row, ...]
    rows: tuple[Row, ...]
    dead: BitMap


def mask_updates(draft: Draft) -> dict[str, MaskUpdate]:
    """By leaf, for every leaf whose vectors change; leaves that are dropped are not among them."""
    updates: dict[str, MaskUpdate] = {}
    for location, rows in draft.live.mask_rows.items():
        folds = any(row.entry.version_info.status is Status.ADDED for row in rows)
        changes = location in {*draft.removed_ordinals, *draft.moved_ordinals, *draft.stored_masks}
        if location not in draft.dropped_leaves and (folds or changes):
            updates[location] = _update_of_known(draft, location, rows, folds)
    for location in (*draft.removed_ordinals, *draft.moved_ordinals):
        if location not in updates and location not in draft.flushed and location not in draft.dropped_leaves:
            updates[location] = _update_of_known(draft, location, (), folds=False)
    for location, flushed in draft.flushed.items():
        if is_added_leaf(flushed):
            if location in draft.removed_ordinals:
                updates[location] = _never_live(draft, location, flushed)
            continue
        existing: tuple[Row, ...] = ()
        if flushed.masked:
            numbers = flushed.row.entry.version_info
            existing = (_row(flushed.row.entry, flushed.masked, numbers, draft.codec),)
        if existing or location in draft.removed_ordinals:
            updates[location] = _update(draft, location, (), existing, flushed.masked)
    return updates


def _update_of_known(draft: Draft, location: str, rows: tuple[Row, ...], folds: bool) -> MaskUpdate:
    dead = draft.live.dead.get(location, BitMap())
    moved = draft.moved_ordinals.get(location)
    if moved is not None:
        dead, numbers = dead | moved, draft.moved_at[location]
    elif location in draft.stored_masks:
        return _update(draft, location, rows, (draft.stored_masks[location].row,), dead)
    elif not folds:
        return _update(draft, location, (), (), dead, kept=rows)
    else:
        newest = max((row.entry.version_info for row in rows), key=lambda info: info.sequence_number or 0)
        numbers = VersionInfo(Status.EXISTING, newest.snapshot_id, newest.sequence_number, newest.file_sequence_number)
    folded = _row(draft.live.leaf_rows[location].entry, dead, numbers, draft.codec)
    return _update(draft, location, rows, (folded,), dead)


def _never_live(draft: Draft, location: str, leaf: FlushedLeaf) -> MaskUpdate:
    """What one root adds in a leaf and removes again was dead before it: it is in no change."""
    dead, number = draft.removed_ordinals[location], draft.removed_at[location]
    numbers = VersionInfo(Status.EXISTING, draft.snapshot_id, number, number)
    row = _row(leaf.row.entry, dead, numbers, draft.codec)
    return MaskUpdate((), (row,), (row,), dead)


def _update(
    draft: Draft,
    location: str,
    gone: tuple[Row, ...],
    existing: tuple[Row, ...],
    dead: BitMap,
    kept: tuple[Row, ...] = (),
) -> MaskUpdate:
    """`existing` is fresh, `kept` stays as it is; what this batch removes is added to both."""
    removed = draft.removed_ordinals.get(location)
    if removed is None:
        return MaskUpdate(gone, existing, (*kept, *existing), dead)
    number = draft.removed_at[location]
    flushed = draft.flushed.get(location)
    leaf = draft.live.leaf_rows[location].entry if flushed is None else flushed.row.entry
    added = _row(leaf, removed, VersionInfo(Status.ADDED, draft.snapshot_id, number, number), draft.codec)
    return MaskUpdate(gone, (*existing, added), (*kept, *existing, added), dead | removed)


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
