"""Entries that move from the root and from leaves into other leaves: their sources, and the leaves that lose them.

Owns: finding the live source of an entry, and the proof that both have the same content. Dropping leaves without live
entries during maintenance, and the data leaf of a delete leaf after its data files moved. Does not own: which entries
move (`flush`), the moment of dropping (`apply` drops when a batch contains maintenance, except for a dropped table,
which must stay restorable).
Invariants:
* An entry has the same place and file sequence number as its source, and at most one live entry has both. An entry
  without a live source in the root or in a replaced leaf has no origin. Statistics are not compared.
* No live entry is dropped. A leaf stays in the root that removes its last entries, so that the root shows the change.
* A delete leaf belongs to a data leaf only if that leaf contains the data files of all its live vectors.

Source: protocol page, section 5. Format page, "Manifest vectors" and the table of content types. Decision 0034.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Final, NamedTuple

import pyarrow as pa
from pyroaring import BitMap

from rootline.schemas.bytes.leaf_codec import Leaf
from rootline.schemas.bytes.root.root_codec import Row
from rootline.schemas.content_entry import ContentEntry, ContentType, EntryPlace, Status
from rootline.schemas.errors import Invalid
from rootline.tree.draft.change import Reattach
from rootline.tree.draft.draft import Draft
from rootline.tree.state.leaf_lookup import LeafLookup

_KEYS: Final = ("content_type", "location", "offset", "status", "file_sequence_number")
_TYPES: Final = {int(content_type): content_type for content_type in ContentType}
_COMPARED: Final = {
    "file_format": ("file_format",),
    "version_info.snapshot_id": ("snapshot_id",),
    "version_info.sequence_number": ("sequence_number",),
    "partition_spec_id": ("partition_spec_id",),
    "record_count": ("record_count",),
    "file_size_in_bytes": ("file_size_in_bytes",),
    "deletion_vector": ("size_in_bytes", "inline_content"),  # the offset is part of the place
    "referenced_file": ("referenced_file",),
    "first_row_id": ("first_row_id",),
    "sort_order_id": ("sort_order_id",),
    "key_metadata": ("key_metadata",),
    "split_offsets": ("split_offsets",),
    "equality_ids": ("equality_ids",),
}
"""Members that an entry and its source must have in common: member of an entry → columns of a leaf's rows.

Everything except status and statistics. Comparing statistics would cost more than the commit.
"""
_of_entry: Final = attrgetter(*_COMPARED)


class Origin(NamedTuple):
    """The place of a live entry: a root row, or an ordinal of a leaf."""

    row: Row | None
    leaf: str = ""
    ordinal: int = -1


@dataclass(slots=True)
class _Source:
    """A leaf that is replaced. `taken`: entries that leaves of the same intent have taken over so far."""

    lookup: LeafLookup
    numbers: list[int | None]
    taken: BitMap = field(default_factory=BitMap)


@dataclass(slots=True)
class LeafSources:
    """The sources of one intent's leaves. The draft is not changed."""

    draft: Draft
    _sources: list[_Source]
    _seen: set[EntryPlace] = field(default_factory=set)

    @staticmethod
    def of(draft: Draft, replaces: Sequence[str]) -> LeafSources:
        """The sources among the leaves `replaces`. Leaves that are no longer part of the table are ignored."""
        sources: list[_Source] = []
        for location in dict.fromkeys(replaces):
            lookup = draft.live.lookups.get(location)
            if lookup is not None:
                sources.append(_Source(lookup, lookup.leaf.rows.column("file_sequence_number").to_pylist()))
        return LeafSources(draft, sources)

    def origins(self, leaf: Leaf) -> list[Origin | None]:
        """The origin of each entry of `leaf`, or `None` where no source is live.

        Raises:
            Invalid: `leaf-invalid`, an entry is not EXISTING, occurs twice, or differs from its source.
            Corrupt: `leaf-corrupt`, a column cannot be read.
        """
        places, numbers = self._keys(leaf)
        found = self._in_leaves(places, numbers)
        rows = self.draft.live.rows
        for ordinal, place in enumerate(places) if rows else ():
            if place in rows and (row := self.draft.rows.of_parent(place)) is not None:
                is_same = row.entry.version_info.file_sequence_number == numbers[ordinal]
                found[ordinal] = Origin(row) if is_same else None
        self._compare_with_rows(leaf, found)
        of_leaf: dict[str, list[int]] = defaultdict(list)
        for ordinal, origin in enumerate(found):
            if origin is not None and origin.row is None:
                of_leaf[origin.leaf].append(ordinal)
        for source in self._sources:
            ordinals = of_leaf.get(source.lookup.location)
            if ordinals:
                source_ordinals = [origin.ordinal for ordinal in ordinals if (origin := found[ordinal]) is not None]
                self._compare_with_leaf(leaf, ordinals, source.lookup, source_ordinals)
        return found

    def _keys(self, leaf: Leaf) -> tuple[list[EntryPlace], list[int | None]]:
        """Places and file sequence numbers of the entries. Raises `Invalid` as `origins`."""
        types, locations, offsets, statuses, numbers = (leaf.rows.column(name).to_pylist() for name in _KEYS)
        if not _TYPES.keys() >= set(types):
            raise Invalid("leaf-invalid", f"{leaf.location!r} contains entries of unknown content types")
        places = list(map(EntryPlace, map(_TYPES.__getitem__, types), locations, offsets))
        known = len(self._seen)
        for place, status in zip(places, statuses, strict=True):
            self._seen.add(place)
            known += 1
            if status != Status.EXISTING or len(self._seen) < known:
                raise Invalid(
                    "leaf-invalid", f"{leaf.location!r}: {place.location!r} is not EXISTING, or is listed twice"
                )
        return places, numbers

    def _in_leaves(self, places: list[EntryPlace], numbers: list[int | None]) -> list[Origin | None]:
        found: list[Origin | None] = [None] * len(places)
        for source in self._sources:
            location, dead = source.lookup.location, source.taken | self.draft.in_leaves.dead_in(source.lookup.location)
            for index, ordinal in enumerate(source.lookup.leaf.ordinals_of(places)):
                if ordinal is not None and source.numbers[ordinal] == numbers[index] and ordinal not in dead:
                    found[index] = Origin(None, location, ordinal)
                    source.taken.add(ordinal)
        return found

    def _compare_with_rows(self, leaf: Leaf, found: Sequence[Origin | None]) -> None:
        rows = [(ordinal, origin.row) for ordinal, origin in enumerate(found) if origin is not None and origin.row]
        entries = leaf.entries_at([ordinal for ordinal, _ in rows])
        for (_, row), entry in zip(rows, entries, strict=True):
            if _of_entry(row.entry) != _of_entry(entry):
                raise Invalid("leaf-invalid", f"{leaf.location!r}: {entry.location!r} differs from its row in the root")

    def _compare_with_leaf(
        self, leaf: Leaf, ordinals: list[int], source: LeafLookup, source_ordinals: list[int]
    ) -> None:
        for name in chain.from_iterable(_COMPARED.values()):
            column = leaf.rows.column(name).take(pa.array(ordinals, pa.int64()))
            if not column.equals(source.leaf.rows.column(name).take(pa.array(source_ordinals, pa.int64()))):
                raise Invalid(
                    "leaf-invalid",
                    f"{leaf.location!r}: the {name} of an entry differs from that in {source.location!r}",
                )


def drop_dead_leaves(draft: Draft) -> None:
    """Drop the leaves without live entries, and affiliate delete leaves with the leaves of their data files."""
    for location in sorted(_dead(draft)):
        draft.in_leaves.drop(location)
    moved_from = draft.in_leaves.dropped | draft.in_leaves.moved.keys()
    wishes = {edit.delete_leaf: edit.data_leaf for edit in draft.accepted(Reattach)}
    for entry in _delete_leaves(draft):
        owner, wanted = entry.referenced_file, wishes.get(entry.location, entry.referenced_file)
        if owner == wanted and owner not in moved_from:
            continue
        lookup = draft.in_leaves.lookup(entry.location)
        best = next((each for each in (wanted, owner) if lookup is not None and _holds_all(draft, lookup, each)), None)
        if best != owner:
            draft.in_leaves.affiliate(entry, best, draft.codec)


def is_dead_as_a_whole(draft: Draft, location: str) -> bool:
    """Whether a leaf of the parent has no live entry, and this batch removed none from it."""
    index = draft.live
    row = index.leaf_rows.get(location)
    if row is None or location in draft.in_leaves.removed:
        return False
    dead = draft.in_leaves.dead_in(location)
    stats = row.entry.manifest_stats
    never_live = 0 if stats is None else stats.deleted_files_count
    return len(dead) + never_live >= row.entry.record_count


def _dead(draft: Draft) -> set[str]:
    places = draft.live.dead.keys() | draft.in_leaves.moved.keys()
    return {location for location in places if is_dead_as_a_whole(draft, location)}


def _delete_leaves(draft: Draft) -> list[ContentEntry]:
    """Root rows of the delete leaves, unchanged and new."""
    return [row for row in draft.in_leaves.rows() if row.content_type is ContentType.DELETE_MANIFEST]


def _holds_all(draft: Draft, deletes: LeafLookup, owner: str | None) -> bool:
    """Whether a delete leaf has only vectors of live data files in `owner`, apart from dead entries."""
    data = None if owner is None else draft.in_leaves.lookup(owner)
    if data is None or not data.holds(ContentType.DATA):
        return False
    for target, ordinal in deletes.vectors.items():
        if draft.in_leaves.is_dead(deletes.location, ordinal):
            continue
        at = data.ordinal_of(EntryPlace(ContentType.DATA, target))
        if at is None or draft.in_leaves.is_dead(data.location, at):
            return False
    return not any(not draft.in_leaves.is_dead(deletes.location, ordinal) for ordinal, _ in deletes.equality_deletes)
