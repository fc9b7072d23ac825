"""Where the entries of a leaf came from: root rows, or entries of leaves that the leaf replaces.

Owns: finding an entry's source while it is live there, and the proof that the entry says the same. Does not own: what
is done with what was found (`flush`).
Invariants: an entry names its source by its own place and file sequence number, which one live entry can have; what is
not live in the root or in one of the leaves named is not found; statistics are not compared.

Source: protocol page, section 5; decision 0024.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pyarrow as pa
from pyroaring import BitMap

from rootline.schemas.bytes.leaf.leaf_codec import Leaf
from rootline.schemas.bytes.root.root_codec import Row
from rootline.schemas.content_entry import ContentEntry, ContentType, EntryPlace, Status
from rootline.schemas.errors import Invalid
from rootline.tree.draft.draft import Draft
from rootline.tree.state.leaf_lookup import LeafLookup

_KEYS: Final = ("content_type", "location", "offset", "status", "file_sequence_number")
_TYPES: Final = {int(content_type): content_type for content_type in ContentType}
_COMPARED: Final = (
    "file_format",
    "snapshot_id",
    "sequence_number",
    "partition_spec_id",
    "record_count",
    "file_size_in_bytes",
    "size_in_bytes",
    "inline_content",
    "referenced_file",
    "first_row_id",
    "sort_order_id",
    "key_metadata",
    "split_offsets",
    "equality_ids",
)


class Origin(NamedTuple):
    """Where a live entry is: a root row, or an ordinal of a leaf."""

    row: Row | None
    leaf: str = ""
    ordinal: int = -1


@dataclass(slots=True)
class _Source:
    """A leaf that is replaced: what of it other leaves of the same intent took already."""

    lookup: LeafLookup
    numbers: list[int | None]
    taken: BitMap = field(default_factory=BitMap)


@dataclass(slots=True)
class LeafSources:
    """The sources of one intent's leaves; the draft is only read."""

    draft: Draft
    _sources: list[_Source]
    _seen: set[EntryPlace] = field(default_factory=set)

    @staticmethod
    def of(draft: Draft, replaces: Sequence[str]) -> LeafSources:
        """`replaces`: leaves; those that have left the table are no source of anything."""
        sources: list[_Source] = []
        for location in dict.fromkeys(replaces):
            lookup = draft.live.lookups.get(location)
            if lookup is not None:
                sources.append(_Source(lookup, lookup.leaf.rows.column("file_sequence_number").to_pylist()))
        return LeafSources(draft, sources)

    def origins(self, leaf: Leaf) -> list[Origin | None]:
        """For each entry of `leaf` its source, `None` where nothing is live in that very place.

        Raises:
            Invalid: `leaf-invalid`, an entry is not EXISTING, is there twice, or is not what its source is.
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
            mine = of_leaf.get(source.lookup.location)
            if mine:
                theirs = [origin.ordinal for ordinal in mine if (origin := found[ordinal]) is not None]
                self._compare_with_leaf(leaf, mine, source.lookup, theirs)
        return found

    def _keys(self, leaf: Leaf) -> tuple[list[EntryPlace], list[int | None]]:
        """Places and file sequence numbers of the entries. Raises `Invalid` as `origins`."""
        types, locations, offsets, statuses, numbers = (leaf.rows.column(name).to_pylist() for name in _KEYS)
        if not _TYPES.keys() >= set(types):
            raise Invalid("leaf-invalid", f"{leaf.location!r} holds entries of types that there are not")
        places = list(map(EntryPlace, map(_TYPES.__getitem__, types), locations, offsets))
        known = len(self._seen)
        for place, status in zip(places, statuses, strict=True):
            self._seen.add(place)
            known += 1
            if status != Status.EXISTING or len(self._seen) < known:
                raise Invalid("leaf-invalid", f"{leaf.location!r}: {place.location!r} is not EXISTING, or there twice")
        return places, numbers

    def _in_leaves(self, places: list[EntryPlace], numbers: list[int | None]) -> list[Origin | None]:
        found: list[Origin | None] = [None] * len(places)
        for source in self._sources:
            location, gone = source.lookup.location, source.taken | self.draft.in_leaves.dead_in(source.lookup.location)
            for index, ordinal in enumerate(source.lookup.leaf.ordinals_of(places)):
                if ordinal is not None and source.numbers[ordinal] == numbers[index] and ordinal not in gone:
                    found[index] = Origin(None, location, ordinal)
                    source.taken.add(ordinal)
        return found

    def _compare_with_rows(self, leaf: Leaf, found: Sequence[Origin | None]) -> None:
        rows = [(ordinal, origin.row) for ordinal, origin in enumerate(found) if origin is not None and origin.row]
        entries = leaf.entries_at([ordinal for ordinal, _ in rows])
        for (_, row), entry in zip(rows, entries, strict=True):
            if not _says_the_same(row.entry, entry):
                raise Invalid("leaf-invalid", f"{leaf.location!r}: {entry.location!r} differs from its row in the root")

    def _compare_with_leaf(self, leaf: Leaf, mine: list[int], source: LeafLookup, theirs: list[int]) -> None:
        for name in _COMPARED:
            ours = leaf.rows.column(name).take(pa.array(mine, pa.int64()))
            if not ours.equals(source.leaf.rows.column(name).take(pa.array(theirs, pa.int64()))):
                raise Invalid(
                    "leaf-invalid",
                    f"{leaf.location!r}: the {name} of an entry differs from that in {source.location!r}",
                )


def _says_the_same(row: ContentEntry, entry: ContentEntry) -> bool:
    """All but status and statistics: comparing those would cost more than the commit."""
    ours, theirs = row.version_info, entry.version_info
    return (
        ours.snapshot_id == theirs.snapshot_id
        and ours.sequence_number == theirs.sequence_number
        and row.record_count == entry.record_count
        and row.file_size_in_bytes == entry.file_size_in_bytes
        and row.file_format is entry.file_format
        and row.partition_spec_id == entry.partition_spec_id
        and row.deletion_vector == entry.deletion_vector
        and row.referenced_file == entry.referenced_file
        and row.first_row_id == entry.first_row_id
        and row.sort_order_id == entry.sort_order_id
        and row.key_metadata == entry.key_metadata
        and row.split_offsets == entry.split_offsets
        and row.equality_ids == entry.equality_ids
    )
