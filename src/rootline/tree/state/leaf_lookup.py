"""Lookups of entries in leaves: one entry among all leaves of a table, or many entries in one leaf.

Owns: the mask of a leaf's live entries, lookups that are built on first use and kept with the leaf, the hashed keys of
places and of the data files of vectors, and the array over all leaves with its update after a change of leaves.
Does not own: dead entries (`live_index`), the leaf's bytes (`leaf_codec`), the dictionary for lookups of many entries
(`leaf`), which is faster, and evicted when memory is short.
Invariants:
* A leaf never changes, so its lookups stay valid for every later version of the table.
* A leaf that contains the key is always found, and a found entry has exactly the place that was asked for.
* No lookup finds an entry with status DELETED, which leaves of other writers may contain.
* The index of a version never changes. Later versions add only their changes.

Theory. An append must learn that its file is not in any leaf, also in a table of a million files. A dictionary would
take 250 bytes for each entry. A hash and a number take twelve, once in the keys of the leaf, with the entry's ordinal,
and once in the array over all leaves, with the number of the leaf. So one sorted array is searched, not every leaf, and
only the leaves that it names are read. Two keys may have one hash, so a candidate is compared with the key. The hashes
are Python's, which are valid in one process only, and are never stored.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from rootline.schemas.arrow_values import array_from, scalar_from
from rootline.schemas.bytes.leaf import Leaf, LeafContent, place_key
from rootline.schemas.content_entry import ContentEntry, ContentType, EntryPlace, FileFormat, Status

Hashes: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]
_STRINGS_AT_ONCE: Final = 2_048
_DATA_COLUMNS: Final = ["location", "version_info.status"]
_DELETE_COLUMNS: Final = ["content_type", "location", "file_format", "deletion_vector.offset", "referenced_file"]


def live_mask(columns: pa.Table, dead: BitMap | None = None) -> pa.ChunkedArray:
    """One flag for each entry: it is neither DELETED nor among the `dead` ordinals.

    `columns` are of every entry of a leaf and include `version_info.status`.
    """
    status = pc.struct_field(columns.column("version_info"), "status")
    live = pc.not_equal(status, scalar_from(int(Status.DELETED), status.type))
    if not dead:
        return live
    ordinals = array_from(np.arange(len(columns)))
    return pc.and_not(live, pc.is_in(ordinals, value_set=array_from(dead)))


def undeleted_rows(leaf: Leaf, names: Sequence[str]) -> tuple[list[int], pa.Table]:
    """The ordinals of the entries of `leaf` that are not DELETED, and their columns `names`.

    Every lookup over a whole leaf starts here, because manifests of other writers list removed files too.
    """
    columns = leaf.columns([*names, "version_info.status"])
    ordinals = pc.indices_nonzero(live_mask(columns))
    return ordinals.to_pylist(), columns.take(ordinals)


class HashedKeys:
    """The hashed keys of entries. `hashes` are ascending."""

    __slots__ = ("_ordinals", "hashes")

    def __init__(self, keys: Iterable[Hashable], ordinals: Sequence[int] | None = None) -> None:
        """Index the `keys` of the entries at `ordinals`, by default 0, 1, 2 and so on."""
        found = hashes_of(keys)
        order = np.argsort(found)
        self.hashes: Final = found[order]
        places = order if ordinals is None else np.asarray(ordinals, np.int64)[order]
        self._ordinals = places.astype(np.uint32)

    def candidates(self, key: Hashable) -> list[int]:
        """The ordinals whose key has the hash of `key`, ascending. Very rarely one has another key."""
        wanted = np.int64(hash(key))
        start, stop = np.searchsorted(self.hashes, wanted, "left"), np.searchsorted(self.hashes, wanted, "right")
        return sorted(self._ordinals[start:stop].tolist())


def hashes_of(keys: Iterable[Hashable]) -> Hashes:
    """The hashes of keys."""
    return np.fromiter(map(hash, keys), np.int64)


NO_KEYS: Final = HashedKeys(())


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
        return HashedKeys(_strings(locations))
    ordinals = pc.indices_nonzero(alive)
    return HashedKeys(_strings(locations.take(ordinals)), ordinals.to_pylist())


def _strings(column: pa.ChunkedArray) -> Iterator[str]:
    """The strings of a column. Only a few exist at a time, which the processor's cache has room for.

    `to_numpy` would import pandas where it is installed, which takes as long as a million strings.
    """
    starts = range(0, len(column), _STRINGS_AT_ONCE)
    return chain.from_iterable(column.slice(start, _STRINGS_AT_ONCE).to_pylist() for start in starts)


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


class LeafLookup:
    """One leaf and its lookups. `known`: the same leaf in another version, whose keys are used."""

    def __init__(self, leaf: Leaf, known: LeafLookup | None = None) -> None:
        self.leaf = leaf
        self._keys: LeafKeys | None = None if known is None else known._keys

    @property
    def location(self) -> str:
        """The leaf's location."""
        return self.leaf.location

    def holds(self, content_type: ContentType) -> bool:
        """Whether the leaf can contain entries of this type."""
        return (content_type is ContentType.DATA) == (self.leaf.content is LeafContent.DATA)

    @property
    def keys(self) -> LeafKeys:
        """The compact keys, for finding one entry among many leaves. Any thread may make them."""
        if self._keys is None:  # a `cached_property` has one lock for all leaves before Python 3.12
            self._keys = LeafKeys(self.leaf)
        return self._keys

    def ordinal_of(self, place: EntryPlace) -> int | None:
        """The ordinal of the entry at `place`, dead or not, or `None`.

        The leaf builds a dictionary for it, so it suits lookups of many entries.
        """
        return self.leaf.ordinal_of(place) if self.holds(place.content_type) else None

    def entry(self, ordinal: int) -> ContentEntry:
        """The entry at `ordinal`."""
        return self.leaf.entry(ordinal)

    @cached_property
    def vectors(self) -> dict[str, int]:
        """The ordinals of the deletion vectors, by data file location. Empty for data leaves."""
        if self.leaf.content is LeafContent.DATA:
            return {}
        names = ("content_type", "file_format", "referenced_file")
        ordinals, rows = undeleted_rows(self.leaf, names)
        columns = (rows.column(name).to_pylist() for name in names)
        return {
            target: ordinal  # a position delete file of Iceberg V2 may name its data file too, and is not a vector
            for ordinal, content_type, file_format, target in zip(ordinals, *columns, strict=True)
            if content_type == ContentType.POSITION_DELETE and file_format == FileFormat.PUFFIN and target is not None
        }

    @cached_property
    def equality_deletes(self) -> tuple[tuple[int, ContentEntry], ...]:
        """The equality deletes, as (ordinal, entry)."""
        if self.leaf.content is LeafContent.DATA:
            return ()
        ordinals, rows = undeleted_rows(self.leaf, ("content_type",))
        return tuple(
            (ordinal, self.leaf.entry(ordinal))
            for ordinal, content_type in zip(ordinals, rows.column("content_type").to_pylist(), strict=True)
            if content_type == ContentType.EQUALITY_DELETE
        )


@dataclass(frozen=True, slots=True)
class _Built:
    """The array. `hashes` are ascending, and `names[owners[i]]` is the leaf that contains `hashes[i]`."""

    names: tuple[str, ...]
    hashes: Hashes
    owners: np.ndarray[tuple[int], np.dtype[np.uint32]]
    keys: Sequence[int]


class LocationIndex:
    """The index of `lookups`, which must not change after the first use.

    `before` is an index of mostly the same leaves, from which this one is built.
    """

    __slots__ = ("_before", "_built", "_lookups")

    def __init__(self, lookups: Mapping[str, LeafLookup], before: LocationIndex | None = None) -> None:
        self._lookups = lookups
        self._built: _Built | None = None
        self._before = None if before is None else before._built

    def advanced(self, lookups: Mapping[str, LeafLookup]) -> LocationIndex:
        """The index of `lookups`. It is this one if the leaves are the same."""
        return self if lookups.keys() == self._lookups.keys() else LocationIndex(lookups, self)

    def leaves_of(self, key: Hashable) -> Sequence[str]:
        """The leaves that may contain `key`. Very rarely one does not."""
        built = self.build()
        wanted, keys = hash(key), built.keys
        at = bisect_left(keys, wanted)
        if at == len(keys) or keys[at] != wanted:
            return ()
        end = int(np.searchsorted(built.hashes, np.int64(wanted), "right"))
        return [built.names[owner] for owner in dict.fromkeys(built.owners[at:end].tolist())]

    def among(self, keys: Sequence[Hashable]) -> list[int]:
        """The indices of the `keys` that some leaf may contain."""
        known = self.build().hashes
        if not len(known):
            return []
        wanted = hashes_of(keys)
        at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        found: list[int] = np.flatnonzero(known[at] == wanted).tolist()
        return found

    def build(self) -> _Built:
        """Build the array if it has not been built."""
        if self._built is not None:
            return self._built
        before, self._before = self._before, None
        names = () if before is None else before.names
        parts = [] if before is None else [_kept(before, self._lookups)]
        known = {name for name in names if name in self._lookups}
        fresh = [name for name in self._lookups if name not in known]
        for number, name in enumerate(fresh, start=len(names)):
            hashes = self._lookups[name].keys.hashes
            parts.append((hashes, np.full(len(hashes), number, np.uint32)))
        self._built = _joined((*names, *fresh), parts)
        return self._built


def _kept(before: _Built, lookups: Mapping[str, LeafLookup]) -> tuple[Hashes, np.ndarray]:
    dropped = [number for number, name in enumerate(before.names) if name not in lookups]
    if not dropped:
        return before.hashes, before.owners
    stays = ~np.isin(before.owners, dropped)
    return before.hashes[stays], before.owners[stays]


def _joined(names: tuple[str, ...], parts: Sequence[tuple[Hashes, np.ndarray]]) -> _Built:
    if not parts:
        nothing = np.zeros(0, np.int64)
        return _Built(names, nothing, np.zeros(0, np.uint32), _searchable(nothing))
    hashes, owners = (np.concatenate(each) for each in zip(*parts, strict=True))
    order = np.argsort(hashes, kind="stable")  # a stable sort merges runs that are ascending already
    hashes = hashes[order]
    return _Built(names, hashes, owners[order], _searchable(hashes))


def _searchable(hashes: Hashes) -> Sequence[int]:
    """The same memory as a sequence for `bisect`, which is four times as fast as NumPy for one key."""
    return hashes.data
