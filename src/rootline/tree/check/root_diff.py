"""The changes of one snapshot, read from its root alone.

Owns: deriving changes from status and manifest vectors, for all writers of the format. Does not own: changes over
several versions (`net_changes`), reading leaves (`rootline.storage.metadata.table_loader`).
Invariants: Maintenance shows no change. A file that a root adds and removes is in no change. Leaves are read one at a
time, except those that a rewrite has just written.

Theory. Our writers show a leaf's change by its ADDED vector. Other writers may (change detection in the proposal)
- drop a leaf and its vectors as DELETED: the change is its ADDED vector, or else its entries minus the prior vectors.
- rewrite leaves as ADDED: EXISTING entries are carried over, ADDED entries are added, DELETED entries are removed.
- do both together: an entry of a dropped leaf that is also EXISTING in a new leaf has only moved.

Source: format page, "Status", "Manifest vectors" and "Reading must also understand".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pyroaring import BitMap

from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.content_entry import FILE_TYPES, LEAF_TYPES, ContentEntry, ContentType, EntryPlace, Status
from rootline.schemas.errors import Corrupt
from rootline.tree.state.live_index import StoredAt, ordinals_of_vector

StoredOrdinals = Mapping[StoredAt, BitMap]
"""The manifest vectors that are stored in Puffin files."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Entries of files (content types 0 to 2) that a snapshot added and removed, in the root's order."""

    added: tuple[ContentEntry, ...]
    removed: tuple[ContentEntry, ...]

    @property
    def added_files(self) -> tuple[ContentEntry, ...]:
        """Data files that were added."""
        return _of_type(self.added, ContentType.DATA)

    @property
    def removed_files(self) -> tuple[ContentEntry, ...]:
        """Data files that were removed."""
        return _of_type(self.removed, ContentType.DATA)

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)


@dataclass(slots=True)
class RootDiff:
    """The work of deriving one root's changes. Call `carry` for each leaf of `carriers`, then `of_root`, then `of_leaf`
    for each leaf of `changed`.

    Raises `Corrupt` (`vector-corrupt`) when a manifest vector cannot be read.
    """

    root: Root
    stored: StoredOrdinals = field(default_factory=dict)
    changed: tuple[ContentEntry, ...] = field(init=False)
    """Root rows of the leaves that the snapshot changed, added or dropped."""
    carriers: tuple[ContentEntry, ...] = field(init=False)
    """Root rows of the leaves that may contain entries of a dropped leaf."""
    _vectors: dict[str, dict[Status, BitMap]] = field(init=False)
    _carried: set[EntryPlace] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._vectors = _vectors_of(self.root, self.stored)
        leaves = [row.entry for row in self.root.rows if row.entry.content_type in LEAF_TYPES]
        self.changed = tuple(entry for entry in leaves if _status(entry) is not Status.EXISTING or self._removed(entry))
        self.carriers = ()
        if any(self._is_dropped_whole(entry) for entry in self.changed):
            own = self.root.header.snapshot.snapshot_id
            fresh = (entry for entry in leaves if entry.version_info.snapshot_id == own)
            self.carriers = tuple(entry for entry in fresh if _status(entry) is not Status.DELETED)
            rows = (row.entry for row in self.root.rows if row.entry.content_type in FILE_TYPES)
            self._carried |= {entry.place for entry in rows if _status(entry) is not Status.ADDED}

    def carry(self, manifest: ContentEntry, leaf: Leaf) -> None:
        """Record the entries that a leaf of `carriers` carries over from a dropped leaf. They are not changes."""
        dead = self._prior(manifest)
        for ordinal, entry in enumerate(leaf.entries()):
            if _status(entry) is not Status.ADDED and ordinal not in dead:
                self._carried.add(entry.place)

    def of_root(self) -> Changes:
        """The root's own rows that were added and removed."""
        files = [row.entry for row in self.root.rows if row.entry.content_type in FILE_TYPES]
        return Changes(
            tuple(entry for entry in files if _status(entry) is Status.ADDED),
            tuple(entry for entry in files if _status(entry) is Status.DELETED),
        )

    def of_leaf(self, manifest: ContentEntry, leaf: Leaf) -> Changes:
        """The entries that were added to or removed from a leaf of `changed`, or with it."""
        leaf, removed = leaf.of_row(manifest), self._removed(manifest)
        if _status(manifest) is Status.EXISTING:
            return Changes((), tuple(_living(leaf, removed)))
        prior = self._prior(manifest)
        if _status(manifest) is Status.DELETED:
            if removed:
                return Changes((), tuple(_living(leaf, removed)))
            rest = _living(leaf, BitMap(range(leaf.length)) - prior)
            return Changes((), tuple(entry for entry in rest if entry.place not in self._carried))
        added: list[ContentEntry] = []
        deleted: list[ContentEntry] = []
        for ordinal, entry in enumerate(leaf.entries()):
            if ordinal in prior:
                continue
            if _status(entry) is Status.ADDED and ordinal not in removed:
                added.append(entry)
            elif _status(entry) is Status.DELETED or (_status(entry) is Status.EXISTING and ordinal in removed):
                deleted.append(entry)
        return Changes(tuple(added), tuple(deleted))

    def _removed(self, manifest: ContentEntry) -> BitMap:
        return self._vectors.get(manifest.location, {}).get(Status.ADDED, _NOTHING)

    def _prior(self, manifest: ContentEntry) -> BitMap:
        vectors = self._vectors.get(manifest.location, {})
        return vectors.get(Status.EXISTING, _NOTHING) | vectors.get(Status.DELETED, _NOTHING)

    def _is_dropped_whole(self, manifest: ContentEntry) -> bool:
        return _status(manifest) is Status.DELETED and not self._removed(manifest)


def diff(root: Root, leaves: Mapping[str, Leaf], stored: StoredOrdinals | None = None) -> Changes:
    """The changes of `root`'s snapshot.

    Args:
        root: any root.
        leaves: at least those in `RootDiff.changed` and `RootDiff.carriers`.
        stored: the manifest vectors in Puffin files.

    Raises:
        Corrupt: `object-missing`, a changed leaf or a carrier is not in `leaves`; `vector-corrupt`.
    """
    work = RootDiff(root, stored or {})
    for manifest in work.carriers:
        work.carry(manifest, _leaf(manifest, leaves))
    parts = [work.of_root(), *(work.of_leaf(manifest, _leaf(manifest, leaves)) for manifest in work.changed)]
    return Changes(
        tuple(entry for part in parts for entry in part.added),
        tuple(entry for part in parts for entry in part.removed),
    )


_NOTHING = BitMap()


def _vectors_of(root: Root, stored: StoredOrdinals) -> dict[str, dict[Status, BitMap]]:
    vectors: dict[str, dict[Status, BitMap]] = {}
    for row in root.rows:
        entry = row.entry
        if entry.content_type is ContentType.MANIFEST_DV:
            of_leaf = vectors.setdefault(entry.referenced_file or entry.location, {})
            of_leaf[_status(entry)] = of_leaf.get(_status(entry), _NOTHING) | ordinals_of_vector(entry, stored)
    return vectors


def _living(leaf: Leaf, ordinals: Iterable[int]) -> Iterator[ContentEntry]:
    for entry in leaf.entries_at(sorted(ordinals)):
        if _status(entry) is not Status.DELETED:
            yield entry


def _leaf(manifest: ContentEntry, leaves: Mapping[str, Leaf]) -> Leaf:
    leaf = leaves.get(manifest.location)
    if leaf is None:
        raise Corrupt("object-missing", f"leaf {manifest.location} is needed to derive the changes of its root")
    return leaf


def _status(entry: ContentEntry) -> Status:
    return entry.version_info.status


def _of_type(entries: tuple[ContentEntry, ...], content_type: ContentType) -> tuple[ContentEntry, ...]:
    return tuple(entry for entry in entries if entry.content_type is content_type)
