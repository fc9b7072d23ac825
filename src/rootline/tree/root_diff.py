"""What one snapshot changed, read from its root alone.

Owns: status and manifest vectors → changes. Does not own: changes over several versions (fold these).
Invariants: maintenance shows as nothing; a file that a root adds and removes again is in no change.

Source: format page, "Status" and "Manifest vectors".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyroaring import BitMap

from rootline.schemas.content_entry import ContentEntry, ContentType, Status
from rootline.schemas.errors import Corrupt
from rootline.schemas.leaf_codec import Leaf
from rootline.schemas.root_codec import Root
from rootline.tree.live_index import mask_of

_FILES = (ContentType.DATA, ContentType.POSITION_DELETE, ContentType.EQUALITY_DELETE)
_LEAVES = (ContentType.DATA_MANIFEST, ContentType.DELETE_MANIFEST)


@dataclass(frozen=True, slots=True)
class VectorChange:
    """The deletion vector of `data_location` before and after; `None`: it had, or has, none."""

    data_location: str
    before: ContentEntry | None
    after: ContentEntry | None


@dataclass(frozen=True, slots=True)
class Changes:
    """Entries of content types 0-2 that a snapshot added and removed, in the root's order."""

    added: tuple[ContentEntry, ...]
    removed: tuple[ContentEntry, ...]

    @property
    def added_files(self) -> tuple[ContentEntry, ...]:
        """Data files that came."""
        return _of_type(self.added, ContentType.DATA)

    @property
    def removed_files(self) -> tuple[ContentEntry, ...]:
        """Data files that went."""
        return _of_type(self.removed, ContentType.DATA)

    @property
    def vector_changes(self) -> tuple[VectorChange, ...]:
        """Vectors that came, went or replaced one another, by data file."""
        before = {entry.referenced_file or "": entry for entry in _of_type(self.removed, ContentType.POSITION_DELETE)}
        after = {entry.referenced_file or "": entry for entry in _of_type(self.added, ContentType.POSITION_DELETE)}
        return tuple(
            VectorChange(location, before.get(location), after.get(location)) for location in sorted(before | after)
        )

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)


def diff(root: Root, leaves: Mapping[str, Leaf]) -> Changes:
    """The changes of `root`'s snapshot.

    Args:
        root: any root.
        leaves: at least those that the snapshot removed entries of (see `leaves_changed`).

    Raises:
        Corrupt: `object-missing`, such a leaf is not in `leaves`.

    """
    added: list[ContentEntry] = []
    removed: list[ContentEntry] = []
    masks: dict[str, dict[Status, BitMap]] = {}
    manifests: list[ContentEntry] = []
    for row in root.rows:
        entry, status = row.entry, row.entry.version_info.status
        if entry.content_type in _FILES:
            if status is Status.ADDED:
                added.append(entry)
            elif status is Status.DELETED:
                removed.append(entry)
        elif entry.content_type is ContentType.MANIFEST_DV:
            masks.setdefault(entry.location, {})[status] = mask_of(entry)
        else:
            manifests.append(entry)
    for manifest in manifests:
        came, went = _of_leaf(manifest, masks.get(manifest.location, {}), leaves)
        added += came
        removed += went
    return Changes(tuple(added), tuple(removed))


def leaves_changed(root: Root) -> frozenset[str]:
    """The leaves that `diff` needs: those that a vector of this snapshot, or their own status, says were changed."""
    return frozenset(
        row.entry.location
        for row in root.rows
        if row.entry.content_type not in _FILES and row.entry.version_info.status is not Status.EXISTING
    )


def _of_leaf(
    manifest: ContentEntry, masks: Mapping[Status, BitMap], leaves: Mapping[str, Leaf]
) -> tuple[list[ContentEntry], list[ContentEntry]]:
    """What came and went with one leaf, foreign writers' ways included."""
    status = manifest.version_info.status
    removed = masks.get(Status.ADDED, BitMap())
    if status is Status.EXISTING:
        return [], list(_entries(manifest, removed, leaves)) if removed else []
    leaf = _leaf(manifest, leaves)
    before = masks.get(Status.EXISTING, BitMap())
    if status is Status.DELETED:
        gone = removed or BitMap(range(leaf.length)) - before
        return [], [entry for entry in _entries(manifest, gone, leaves) if _lives(entry)]
    came = [
        entry
        for ordinal, entry in enumerate(leaf.entries())
        if entry.version_info.status is Status.ADDED and ordinal not in before and ordinal not in removed
    ]
    went = [entry for entry in _entries(manifest, removed, leaves) if entry.version_info.status is Status.EXISTING]
    return came, went


def _entries(manifest: ContentEntry, ordinals: BitMap, leaves: Mapping[str, Leaf]) -> Iterator[ContentEntry]:
    leaf = _leaf(manifest, leaves)
    return (leaf.entry(ordinal) for ordinal in ordinals)


def _leaf(manifest: ContentEntry, leaves: Mapping[str, Leaf]) -> Leaf:
    leaf = leaves.get(manifest.location)
    if leaf is None:
        raise Corrupt("object-missing", f"leaf {manifest.location} is needed to tell what its root changed")
    return leaf


def _lives(entry: ContentEntry) -> bool:
    return entry.version_info.status is not Status.DELETED


def _of_type(entries: tuple[ContentEntry, ...], content_type: ContentType) -> tuple[ContentEntry, ...]:
    return tuple(entry for entry in entries if entry.content_type is content_type)
