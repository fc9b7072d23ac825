"""Lookup of single entries in a leaf, without keeping all of its locations in memory.

Owns: the hashed keys of places, and of the data files of vectors.
Does not own: dead entries (`live_index`), the choice of the leaf (`location_index`), lookups of many entries (`leaf`,
whose dictionary is faster, and evicted when memory is short).
Invariants: A found entry has exactly the place that was asked for. DELETED entries are not found. Each entry takes
twelve bytes of memory.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

import numpy as np
import pyarrow.compute as pc

from rootline.schemas.bytes.leaf import Leaf, LeafContent, place_key
from rootline.schemas.content_entry import ContentType, EntryPlace, FileFormat
from rootline.tree.state.hashed_keys import NO_KEYS, HashedKeys, Hashes
from rootline.tree.state.live_mask import live_mask, undeleted_rows

_DATA_COLUMNS: Final = ["location", "version_info.status"]
_DELETE_COLUMNS: Final = ["content_type", "location", "file_format", "deletion_vector.offset", "referenced_file"]


def vector_key(data_location: str) -> Hashable:
    """The key of the deletion vector of a data file."""
    return "vector of", data_location


class LeafKeys:
    """The keys of one leaf. `hashes` are those of all keys, ascending."""

    __slots__ = ("_leaf", "_places", "_vectors", "hashes")

    def __init__(self, leaf: Leaf) -> None:
        self._leaf = leaf
        if leaf.content is LeafContent.DATA:
            self._places, self._vectors = _data_places(leaf), NO_KEYS
            self.hashes: Hashes = self._places.hashes
        else:
            self._places, self._vectors = _deletes(leaf)
            self.hashes = np.sort(np.concatenate([self._places.hashes, self._vectors.hashes]), kind="stable")

    def find(self, place: EntryPlace) -> int | None:
        """The ordinal of the entry at `place`, or `None`."""
        for ordinal in reversed(self._places.candidates(place_key(place))):
            if self._holds(ordinal, content_type=place[0], location=place[1], offset=place[2]):
                return ordinal
        return None

    def find_vector(self, data_location: str) -> int | None:
        """The ordinal of the vector of a data file, or `None`."""
        for ordinal in reversed(self._vectors.candidates(vector_key(data_location))):
            if self._holds(ordinal, referenced_file=data_location):
                return ordinal
        return None

    def _holds(self, ordinal: int, **values: object) -> bool:
        rows = self._leaf.rows
        return all(rows.column(name)[ordinal].as_py() == value for name, value in values.items())


def _data_places(leaf: Leaf) -> HashedKeys:
    columns = leaf.columns(_DATA_COLUMNS)
    alive = live_mask(columns)
    locations = columns.column("location")
    if alive.null_count == 0 and pc.all(alive).as_py() is True:
        return HashedKeys(locations.to_pylist())
    ordinals = pc.indices_nonzero(alive)
    return HashedKeys(locations.take(ordinals).to_pylist(), ordinals.to_pylist())


def _deletes(leaf: Leaf) -> tuple[HashedKeys, HashedKeys]:
    at, rows = undeleted_rows(leaf, _DELETE_COLUMNS)
    types, locations, formats, targets = (
        rows.column(name).to_pylist() for name in ("content_type", "location", "file_format", "referenced_file")
    )
    offsets = pc.struct_field(rows.column("deletion_vector"), "offset").to_pylist()
    places = [
        place_key(EntryPlace(ContentType(kind), location, offset))
        for kind, location, offset in zip(types, locations, offsets, strict=True)
    ]
    vectors = [
        (vector_key(target), ordinal)
        for ordinal, kind, file_format, target in zip(at, types, formats, targets, strict=True)
        if kind == ContentType.POSITION_DELETE and file_format == FileFormat.PUFFIN and target is not None
    ]
    return HashedKeys(places, at), HashedKeys([key for key, _ in vectors], [ordinal for _, ordinal in vectors])


__all__ = ["LeafKeys", "place_key", "vector_key"]
