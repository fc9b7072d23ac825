"""What is live in an older version and not now, and the other way round.

Owns: the comparison. Does not own: what follows from it (`restore`), what one root changed (`root_diff`).
Invariants: a leaf that both versions have is compared by its vectors alone, so the work is what differs; an entry that
has only moved, or been rewritten into another place of the metadata, is in neither answer.

Theory. An entry is the same if it names the same content at the same data sequence number: neither flush nor compaction
nor an earlier restore changes these. Bits of manifest vectors only grow, so what a leaf of both versions had then and
has not now is exactly the bits that came.
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
"""That may come back in one restore: the coordinator makes leaves of them between two commits."""
MANY: Final = 1_000
"""Entries of one older leaf that come back in a leaf of their own, not in the root."""
_FEW: Final = 16
"""Of so many entries of a leaf at most one is wanted: each is decoded by itself."""


@dataclass(slots=True)
class OlderVersion:
    """An older root, sorted: its live rows, the rows of its leaves, and what is dead in these.

    `stored`: its manifest vectors that are stored in Puffin files (`manifest_vectors_in_files`).

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
        """Root rows of the leaves that the table does not have any more."""
        return [row for location, row in self.leaf_rows.items() if draft.in_leaves.lookup(location) is None]


def manifest_vectors_in_files(root: Root) -> list[ContentEntry]:
    """The rows of the manifest vectors that must be read before the root can be sorted."""
    vectors = (row.entry for row in root.rows if row.entry.content_type is ContentType.MANIFEST_DV)
    living = (entry for entry in vectors if entry.version_info.status is not Status.DELETED)
    return [entry for entry in living if entry.deletion_vector is None or entry.deletion_vector.inline_content is None]


@dataclass(frozen=True, slots=True)
class Difference:
    """What lived `then` only, each with its row if it was in the root; and what lives `now` only.

    `then_in_leaves`, `now_in_leaves`: location → a leaf and many of its ordinals; their entries are not made.
    """

    then: tuple[Live, ...]
    now: tuple[Live, ...]
    then_in_leaves: Mapping[str, tuple[Leaf, BitMap]]
    now_in_leaves: Mapping[str, tuple[Leaf, BitMap]]


def difference(older: OlderVersion, draft: Draft, leaves: Mapping[str, Leaf]) -> Difference:
    """Between an older version and the draft. `leaves`: at least those of `older.leaves_apart(draft)`.

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
    returning, leaving = then.without(now), now.without(then)
    if len(returning) > ENTRIES_MAX:
        raise Invalid(
            "restore-impossible", f"{len(returning)} entries would come back, at most {ENTRIES_MAX} may in one intent"
        )
    back, many = list(then.rows(returning)), {}
    for location, (leaf, ordinals) in then.in_leaves(returning).items():
        if len(ordinals) < MANY:
            back += _entries(leaf, ordinals)
        else:
            many[location] = (leaf, ordinals)
    return Difference(tuple(back), tuple(now.rows(leaving)), many, now.in_leaves(leaving))


class _Side:
    """Entries by what they are. Those of leaves are told apart by columns, and made only if they are asked for."""

    def __init__(self) -> None:
        self._rows: dict[Identity, Live] = {}
        self._in_leaves: dict[Identity, tuple[Leaf, int]] = {}

    def take(self, live: Live) -> None:
        """An entry outside leaves."""
        place = live.entry.place
        self._rows[*place, live.entry.version_info.sequence_number] = live

    def take_leaf(self, leaf: Leaf, ordinals: BitMap) -> None:
        """Some entries of a leaf; DELETED ones are none."""
        if not ordinals:
            return
        chosen = leaf.rows.select(_COLUMNS).take(pa.array(ordinals, pa.int64()))
        statuses, *identity = (chosen.column(name).to_pylist() for name in _COLUMNS)
        for ordinal, status, key in zip(ordinals, statuses, zip(*identity, strict=True), strict=True):
            if status != Status.DELETED:
                self._in_leaves[key] = (leaf, ordinal)

    def without(self, other: _Side) -> list[Identity]:
        """What the other side does not have."""
        return [key for key in (*self._rows, *self._in_leaves) if not other._has(key)]

    def rows(self, keys: Iterable[Identity]) -> Iterator[Live]:
        """The entries of `keys` that are outside leaves."""
        return (self._rows[key] for key in keys if key in self._rows)

    def in_leaves(self, keys: Iterable[Identity]) -> dict[str, tuple[Leaf, BitMap]]:
        """Location → leaf and ordinals of the others."""
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
    for ordinal, entry in enumerate(leaf.entries()):  # neighbours decode their statistics together
        if ordinal in ordinals:
            yield Live(entry, leaf=leaf.location, ordinal=ordinal)
