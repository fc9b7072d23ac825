"""Entries that are live in an older version but not now, and the reverse.

Owns: the comparison. Does not own: the restore that uses it (`restore`), the changes of one root (`root_diff`).
Invariants: A leaf in both versions is compared by its vectors alone, so the work is proportional to the difference. An
entry that only moved within the tree is on neither side.

Theory. Two entries are the same if they have the same content and the same data sequence number. Flush, compaction and
earlier restores change neither. Bits of manifest vectors are only ever set. So the entries of a common leaf that were
live then and are not now are exactly the bits that were set since.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from pyroaring import BitMap

from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.bytes.root.root_codec import Root, Row
from rootline.schemas.content_entry import LEAF_TYPES, ContentEntry, ContentType, Status
from rootline.schemas.errors import Invalid
from rootline.tree.draft.draft import Draft
from rootline.tree.state.live_index import Live, StoredAt, ordinals_of_vector

Identity = tuple[int, str, int | None, int | None]
"""Content type, location, offset in a Puffin file, data sequence number."""
_COLUMNS: Final = ["status", "content_type", "location", "offset", "sequence_number"]
ENTRIES_MAX: Final = 1_000_000
"""The most entries to restore with one intent. The coordinator writes them into leaves between two commits."""
MANY: Final = 1_000
"""From this number, the restored entries of one older leaf are written into a new leaf, not into the root."""
_FEW: Final = 16
"""If at most one of this many entries of a leaf is wanted, entries are decoded one at a time."""


@dataclass(slots=True)
class OlderVersion:
    """An older root, sorted: its live rows, the rows of its leaves, and the dead ordinals of these.

    `stored`: its manifest vectors in Puffin files (`manifest_vectors_in_files`).

    Raises `Corrupt` (`vector-corrupt`) when a manifest vector cannot be read.
    """

    root: Root
    stored: Mapping[StoredAt, BitMap] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    leaf_rows: dict[str, ContentEntry] = field(default_factory=dict)
    dead: dict[str, BitMap] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for row in self.root.rows:
            entry = row.entry
            if entry.version_info.status is Status.DELETED:
                continue
            if entry.content_type in LEAF_TYPES:
                self.leaf_rows[entry.location] = entry
            elif entry.content_type is ContentType.MANIFEST_DV:
                leaf = entry.referenced_file or entry.location
                self.dead[leaf] = self.dead.get(leaf, BitMap()) | ordinals_of_vector(entry, self.stored)
            else:
                self.rows.append(row)

    def leaves_apart(self, draft: Draft) -> list[ContentEntry]:
        """Root rows of the leaves that are no longer part of the table."""
        return [row for location, row in self.leaf_rows.items() if draft.in_leaves.lookup(location) is None]


def manifest_vectors_in_files(root: Root) -> list[ContentEntry]:
    """The rows of manifest vectors in Puffin files. They must be read before the root can be sorted."""
    vectors = (row.entry for row in root.rows if row.entry.content_type is ContentType.MANIFEST_DV)
    living = (entry for entry in vectors if entry.version_info.status is not Status.DELETED)
    return [entry for entry in living if entry.deletion_vector is None or entry.deletion_vector.inline_content is None]


@dataclass(frozen=True, slots=True)
class Difference:
    """Entries that were live only `then`, each with its row if it was in the root, and entries that are live only
    `now`.

    `then_in_leaves`, `now_in_leaves`: location → leaf and ordinals, for many entries. Their entries are not decoded.
    """

    then: tuple[Live, ...]
    now: tuple[Live, ...]
    then_in_leaves: Mapping[str, tuple[Leaf, BitMap]]
    now_in_leaves: Mapping[str, tuple[Leaf, BitMap]]


def difference(older: OlderVersion, draft: Draft, leaves: Mapping[str, Leaf]) -> Difference:
    """The difference between an older version and the draft. `leaves`: at least those of `older.leaves_apart(draft)`.

    Raises:
        Invalid: `restore-impossible`, more than `ENTRIES_MAX` entries differ.
    """
    then, now = _Side(), _Side()
    for row in older.rows:
        then.take(Live(row.entry, row=row))
    for location, leaf_row in older.leaf_rows.items():
        dead = older.dead.get(location, BitMap())
        lookup = draft.in_leaves.lookup(location)
        if lookup is None:
            leaf = leaves[location].of_row(leaf_row)
            then.take_leaf(leaf, BitMap(range(leaf.length)) - dead)
        else:
            then.take_leaf(lookup.leaf, draft.in_leaves.dead_in(location) - dead)
    for live in draft.live_rows():
        now.take(live)
    for location in draft.in_leaves.locations():
        lookup = draft.in_leaves.lookup(location)
        if lookup is not None and location not in older.leaf_rows:
            now.take_leaf(lookup.leaf, BitMap(range(lookup.leaf.length)) - draft.in_leaves.dead_in(location))
    only_then, only_now = then.without(now), now.without(then)
    if len(only_then) > ENTRIES_MAX:
        raise Invalid(
            "restore-impossible",
            f"{len(only_then)} entries would be restored, at most {ENTRIES_MAX} can be in one intent",
        )
    restored, many = list(then.rows(only_then)), {}
    for location, (leaf, ordinals) in then.in_leaves(only_then).items():
        if len(ordinals) < MANY:
            restored += _entries(leaf, ordinals)
        else:
            many[location] = (leaf, ordinals)
    return Difference(tuple(restored), tuple(now.rows(only_now)), many, now.in_leaves(only_now))


class _Side:
    """The live entries of one version, by identity. Entries of leaves are compared by columns, and decoded only if
    needed.
    """

    def __init__(self) -> None:
        self._rows: dict[Identity, Live] = {}
        self._in_leaves: dict[Identity, tuple[Leaf, int]] = {}

    def take(self, live: Live) -> None:
        """Add an entry outside leaves."""
        place = live.entry.place
        self._rows[*place, live.entry.version_info.sequence_number] = live

    def take_leaf(self, leaf: Leaf, ordinals: BitMap) -> None:
        """Add entries of a leaf, except DELETED ones."""
        if not ordinals:
            return
        chosen = leaf.rows.select(_COLUMNS).take(pa.array(ordinals, pa.int64()))
        statuses, *identity = (chosen.column(name).to_pylist() for name in _COLUMNS)
        for ordinal, status, key in zip(ordinals, statuses, zip(*identity, strict=True), strict=True):
            if status != Status.DELETED:
                self._in_leaves[key] = (leaf, ordinal)

    def without(self, other: _Side) -> list[Identity]:
        """The entries that the other side does not have."""
        return [key for key in (*self._rows, *self._in_leaves) if not other._has(key)]

    def rows(self, keys: Iterable[Identity]) -> Iterator[Live]:
        """The entries of `keys` outside leaves."""
        return (self._rows[key] for key in keys if key in self._rows)

    def in_leaves(self, keys: Iterable[Identity]) -> dict[str, tuple[Leaf, BitMap]]:
        """The entries of `keys` that are in leaves: leaf location → the leaf and the ordinals of the entries in it."""
        found: dict[str, tuple[Leaf, BitMap]] = {}
        for key in keys:
            if key not in self._rows:
                leaf, ordinal = self._in_leaves[key]
                found.setdefault(leaf.location, (leaf, BitMap()))[1].add(ordinal)
        return found

    def _has(self, key: Identity) -> bool:
        return key in self._rows or key in self._in_leaves


def _entries(leaf: Leaf, ordinals: BitMap) -> Iterator[Live]:
    if len(ordinals) * _FEW < leaf.length:
        chosen = list(ordinals)
        for ordinal, entry in zip(chosen, leaf.entries_at(chosen), strict=True):
            yield Live(entry, leaf=leaf.location, ordinal=ordinal)
        return
    for ordinal, entry in enumerate(leaf.entries()):  # a full scan decodes statistics in batches
        if ordinal in ordinals:
            yield Live(entry, leaf=leaf.location, ordinal=ordinal)
