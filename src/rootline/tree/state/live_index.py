"""The index of live entries of a table and their places, used by validation.

Owns: the index of one root's rows and its leaves. Does not own: advancing it by a commit (`next_root`).
Invariants: An entry is live in exactly one place. DELETED rows are in no lookup. The dead ordinals of a leaf are the
union of its manifest vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from pyroaring import BitMap

from rootline.schemas.bytes.leaf import place_key
from rootline.schemas.bytes.leaf_codec import Leaf
from rootline.schemas.bytes.root.root_codec import Root, Row
from rootline.schemas.bytes.vector_codec import decode_inline
from rootline.schemas.content_entry import LEAF_TYPES, ContentEntry, ContentType, EntryPlace, Status
from rootline.schemas.errors import Corrupt
from rootline.tree.state.leaf_lookup import LeafKeys, LeafLookup, LocationIndex, vector_key

StoredAt = tuple[str, int]
"""The place of a manifest vector: the location of a Puffin file, and the offset in bytes."""
YOUNG_ROWS_MAX: Final = 16
"""The most EXISTING rows in the open block of a root (see `next_root`)."""


@dataclass(frozen=True, slots=True)
class Live:
    """A live entry in the root (`row`) or in a leaf at `ordinal`. Neither is set for an entry that the batch adds."""

    entry: ContentEntry
    row: Row | None = None
    leaf: str | None = None
    ordinal: int = -1


@dataclass(frozen=True, slots=True)
class LiveIndex:
    """The lookups of one version. Only the index changes its dictionaries."""

    rows: dict[EntryPlace, Row] = field(default_factory=dict)
    """The live root rows of files and deletes (content types 0-2), by place."""
    vectors: dict[str, Row] = field(default_factory=dict)
    """The root rows of deletion vectors, by data file location."""
    equality_deletes: dict[EntryPlace, Row] = field(default_factory=dict)
    """The root rows of equality deletes, by place."""
    leaf_rows: dict[str, Row] = field(default_factory=dict)
    """The root rows of leaves, by leaf location."""
    manifest_vector_rows: dict[str, tuple[Row, ...]] = field(default_factory=dict)
    """The root rows of manifest vectors, by leaf location."""
    dead: dict[str, BitMap] = field(default_factory=dict)
    """The dead ordinals, by leaf location."""
    lookups: dict[str, LeafLookup] = field(default_factory=dict)
    """The leaves with their lookups, by leaf location."""
    locations: LocationIndex = field(default_factory=lambda: LocationIndex({}), compare=False)
    """The index over all leaves that finds the leaf of an entry."""
    unsettled: tuple[int, ...] = ()
    """The ordinals of the root's blocks that the next root must rewrite, since they show this snapshot's change."""
    stored: Mapping[StoredAt, BitMap] = field(default_factory=dict)
    """The manifest vectors that are stored in Puffin files, by place."""
    orphans: list[Row] = field(default_factory=list)
    """The vectors of leaves that a root of another writer shows as DELETED. The next root removes them."""

    @staticmethod
    def of(
        root: Root,
        leaves: Mapping[str, Leaf],
        stored: Mapping[StoredAt, BitMap] | None = None,
        known: LiveIndex | None = None,
    ) -> LiveIndex:
        """Build the index. `stored` has the manifest vectors in Puffin files.

        `known`: the index of another version, which has hashed its leaves.

        Raises:
            Corrupt: the root names a leaf that is not in `leaves`, or a vector that is not in `stored`.

        """
        lookups: dict[str, LeafLookup] = {}
        index = LiveIndex(
            lookups=lookups,
            locations=LocationIndex(lookups, None if known is None else known.locations),
            unsettled=unsettled_blocks(root),
            stored=stored or {},
        )
        dropped: set[str] = set()
        for row in root.rows:
            index.insert(row)
            if row.entry.content_type in LEAF_TYPES and row.entry.version_info.status is Status.DELETED:
                dropped.add(row.entry.location)
        for location in dropped - index.leaf_rows.keys():
            index.orphans.extend(index.manifest_vector_rows.pop(location, ()))
            index.dead.pop(location, None)
        for location in index.leaf_rows:
            leaf = leaves.get(location)
            if leaf is None:
                raise Corrupt("object-missing", f"root {root.header.version} names leaf {location}, which was not read")
            index.lookups[location] = LeafLookup(leaf, None if known is None else known.lookups.get(location))
        for location in index.manifest_vector_rows:
            if location not in index.leaf_rows:
                raise Corrupt(
                    "root-corrupt",
                    f"root {root.header.version} has a vector of {location}, which is not one of its leaves",
                )
        return index

    def insert(self, row: Row) -> None:
        """Add one row of the root. Only for building an index."""
        entry = row.entry
        if entry.version_info.status is Status.DELETED:
            return
        content_type = entry.content_type
        if content_type is ContentType.DATA:
            self.rows[entry.place] = row
        elif content_type <= ContentType.EQUALITY_DELETE:
            place = entry.place
            self.rows[place] = row
            if content_type is ContentType.POSITION_DELETE:
                self.vectors[entry.referenced_file or ""] = row
            elif content_type is ContentType.EQUALITY_DELETE:
                self.equality_deletes[place] = row
        elif content_type is ContentType.MANIFEST_DV:
            location = entry.referenced_file or entry.location
            self.manifest_vector_rows[location] = (*self.manifest_vector_rows.get(location, ()), row)
            self.dead[location] = self.dead.get(location, BitMap()) | ordinals_of_vector(entry, self.stored)
        else:
            self.leaf_rows[entry.location] = row

    def find(self, place: EntryPlace) -> Live | None:
        """The live entry at `place`, in the root or in a leaf, or `None`."""
        row = self.rows.get(place)
        if row is not None:
            return Live(row.entry, row=row)
        return self._in_leaves(place_key(place), lambda keys: keys.find(place))

    def vector_of(self, data_location: str) -> Live | None:
        """The live vector of a data file, in the root or in a leaf, or `None`."""
        row = self.vectors.get(data_location)
        if row is not None:
            return Live(row.entry, row=row)
        return self._in_leaves(vector_key(data_location), lambda keys: keys.find_vector(data_location))

    def _in_leaves(self, key: Hashable, ordinal_in: Callable[[LeafKeys], int | None]) -> Live | None:
        for lookup in self.leaves_of(key):
            ordinal = ordinal_in(lookup.keys)
            if ordinal is not None and not self.is_dead(lookup.location, ordinal):
                return Live(lookup.entry(ordinal), leaf=lookup.location, ordinal=ordinal)
        return None

    def leaves_of(self, key: Hashable) -> Iterable[LeafLookup]:
        """The leaves that may contain a key of `leaf_lookup`."""
        return (self.lookups[name] for name in self.locations.leaves_of(key))

    def is_dead(self, leaf: str, ordinal: int) -> bool:
        """Whether a manifest vector of `leaf` contains `ordinal`."""
        dead = self.dead.get(leaf)
        return dead is not None and ordinal in dead

    def entries(self) -> Iterator[Live]:
        """Every live entry of files and deletes (content types 0-2), of the root and then of each leaf.

        Decodes every leaf.
        """
        for row in self.rows.values():
            yield Live(row.entry, row=row)
        for location, lookup in self.lookups.items():
            dead: Iterable[int] = self.dead.get(location, ())
            skipped = set(dead)
            for ordinal, entry in enumerate(lookup.leaf.entries()):
                if ordinal not in skipped and entry.version_info.status is not Status.DELETED:
                    yield Live(entry, leaf=location, ordinal=ordinal)


def ordinals_of_vector(entry: ContentEntry, stored: Mapping[StoredAt, BitMap] | None = None) -> BitMap:
    """The ordinals in a manifest vector's row. `stored` has the vectors in Puffin files.

    Raises:
        Corrupt: `vector-corrupt`, the vector cannot be decoded, or is not in `stored`.

    """
    vector = entry.deletion_vector
    if vector is None or vector.inline_content is None:
        found = None if vector is None or stored is None else stored.get((entry.location, vector.offset or 0))
        if found is None:
            reason = f"the manifest vector of {entry.referenced_file} in {entry.location} was not read"
            raise Corrupt("vector-corrupt", reason)
        return found
    return decode_inline(
        vector.inline_content, name=f"manifest vector of {entry.location}", cardinality=entry.record_count
    )


def unsettled_blocks(root: Root, first: int = 0) -> tuple[int, ...]:
    """The ordinals from `first` of the blocks that the next root rewrites.

    These have a row that is not EXISTING, or it is the last block and short.
    """
    last = len(root.blocks) - 1
    return tuple(
        ordinal
        for ordinal in range(first, last + 1)
        if (ordinal == last and len(root.blocks[ordinal].rows) <= YOUNG_ROWS_MAX)
        or any(row.entry.version_info.status is not Status.EXISTING for row in root.blocks[ordinal].rows)
    )
