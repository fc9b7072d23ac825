"""The files that a root's rewrites replaced, found in the parts in which it differs from the root before.

Owns: the difference of the two live sets, and the choice of the leaves to read. Does not own: reading them
(`manifest_writer`), the rules for rewrites, conversions and joins (`rewrite_rules`).
Invariants: Pure. A block or leaf that both roots have is not opened, unless a manifest vector of the leaf changed.

Source: format page, "Rewrites". Decisions 0034 and 0130.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from pyroaring import BitMap

from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.content_entry import LEAF_TYPES, ContentEntry, ContentType, EntryPlace, Status
from rootline.schemas.root_header import RootHeader
from rootline.tree.draft.summary import REPLACED_FILES
from rootline.tree.state.live_index import StoredAt, ordinals_of_vector

DATA_FILES: Final = frozenset((ContentType.DATA, ContentType.DATA_MANIFEST))
FILES_AND_DELETES: Final = frozenset(ContentType) - {ContentType.MANIFEST_DV}
"""Types of entries to compare, and of their leaves."""


def replaces_files(header: RootHeader) -> bool:
    """Whether the root's rewrites replaced data files, which it does not show as removed."""
    return REPLACED_FILES in header.snapshot.summary


@dataclass(frozen=True, slots=True)
class LeafPart:
    """The entries at `ordinals` of the leaf that the root row `row` names."""

    row: ContentEntry
    ordinals: BitMap

    def entries(self, leaf: Leaf, types: Collection[ContentType]) -> Iterator[ContentEntry]:
        """The entries of `types`, without those that the leaf itself shows as removed."""
        for entry in leaf.entries_at(sorted(self.ordinals)):
            if entry.content_type in types and entry.version_info.status is not Status.DELETED:
                yield entry


@dataclass(slots=True)
class ReplacedFiles:
    """The comparison of root `after` with root `before`. `stored`: the manifest vectors of both in Puffin files.

    `types`: the types of entries to compare, and of their leaves. `parts_before`, `parts_after`: the parts of leaves to
    read.
    """

    before: Root
    after: Root
    stored: Mapping[StoredAt, BitMap]
    types: Collection[ContentType] = DATA_FILES
    parts_before: list[LeafPart] = field(init=False)
    parts_after: list[LeafPart] = field(init=False)
    _old: _Side = field(init=False)
    _new: _Side = field(init=False)

    def __post_init__(self) -> None:
        shared = {block.digest for block in self.before.blocks} & {block.digest for block in self.after.blocks}
        old, new = (_side(root, shared, self.stored, self.types) for root in (self.before, self.after))
        self._old, self._new = old, new
        self.parts_before = [
            LeafPart(row, new.dead(at) - old.dead(at) - new.removed.get(at, BitMap()))
            if at in new.leaves
            else LeafPart(row, BitMap(range(row.record_count)) - old.dead(at))
            for at, row in old.leaves.items()
        ]
        self.parts_after = [
            LeafPart(row, old.dead(at) - new.dead(at))
            if at in old.leaves
            else LeafPart(row, BitMap(range(row.record_count)) - new.earlier.get(at, BitMap()))
            for at, row in new.leaves.items()
        ]
        self.parts_before = [part for part in self.parts_before if part.ordinals]
        self.parts_after = [part for part in self.parts_after if part.ordinals]

    def entries(self, leaf_of: Callable[[ContentEntry], Leaf]) -> list[ContentEntry]:
        """The replaced entries in the root before, by partition spec and location.

        `leaf_of`: root row → its leaf, for all rows in `parts_before` and `parts_after`.
        """
        live = (entry for entry in self._old.rows if entry.version_info.status is not Status.DELETED)
        found = {_identity(entry): entry for entry in live}
        for part in self.parts_before:
            found |= {_identity(entry): entry for entry in part.entries(leaf_of(part.row), self.types)}
        for entry in self._new.rows:  # live, or shown as removed
            found.pop(_identity(entry), None)
        for part in self.parts_after:
            for entry in part.entries(leaf_of(part.row), self.types):
                found.pop(_identity(entry), None)
        return sorted(found.values(), key=lambda entry: (entry.partition_spec_id, entry.location))


@dataclass(slots=True)
class _Side:
    """One root: its entries in blocks that only it has, and all its leaves.

    `earlier`, `removed`: leaf → the ordinals that earlier roots, and this root, removed from it.
    """

    rows: list[ContentEntry] = field(default_factory=list)
    leaves: dict[str, ContentEntry] = field(default_factory=dict)
    earlier: dict[str, BitMap] = field(default_factory=dict)
    removed: dict[str, BitMap] = field(default_factory=dict)

    def dead(self, leaf: str) -> BitMap:
        return self.earlier.get(leaf, BitMap()) | self.removed.get(leaf, BitMap())


def _side(
    root: Root, shared: Collection[bytes], stored: Mapping[StoredAt, BitMap], types: Collection[ContentType]
) -> _Side:
    side = _Side()
    for block in root.blocks:
        for entry in (row.entry for row in block.rows):
            status = entry.version_info.status
            if entry.content_type in LEAF_TYPES:
                if entry.content_type in types and status is not Status.DELETED:
                    side.leaves[entry.location] = entry
            elif entry.content_type in types:
                if block.digest not in shared:
                    side.rows.append(entry)
            elif entry.content_type is ContentType.MANIFEST_DV and status is not Status.DELETED:
                of_leaf = side.removed if status is Status.ADDED else side.earlier
                leaf = entry.referenced_file or entry.location
                of_leaf[leaf] = of_leaf.get(leaf, BitMap()) | ordinals_of_vector(entry, stored)
    return side


def _identity(entry: ContentEntry) -> tuple[EntryPlace, int | None]:
    return entry.place, entry.version_info.file_sequence_number
