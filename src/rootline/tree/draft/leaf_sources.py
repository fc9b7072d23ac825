"""The sources of a leaf's entries: root rows, or entries of leaves that the leaf replaces.

Owns: finding the live source of an entry, and the proof that both have the same content. Does not own: how the sources
are used (`flush`).
Invariants: An entry has the same place and file sequence number as its source, and at most one live entry has both. An
entry without a live source in the root or in a replaced leaf has no origin. Statistics are not compared.

Source: protocol page, section 5. Decision 0034.
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
from rootline.schemas.content_entry import ContentType, EntryPlace, Status
from rootline.schemas.errors import Invalid
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
