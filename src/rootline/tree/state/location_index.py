"""The index of the leaves that may contain a key: one sorted array for all leaves of a table.

Owns: the array, and updating it after a change of leaves without a rebuild.
Does not own: the lookup in a leaf (`leaf_lookup`), the kinds of keys.
Invariants: A leaf that contains the key is always found. Each entry takes twelve bytes. The array is built on first
use, and later versions add only their changes. The index of a version never changes.

Source: architecture page, `location_index`: an append to a table of a million files searches one array, not every leaf.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rootline.tree.state.hashed_keys import Hashes, hashes_of
from rootline.tree.state.leaf_lookup import LeafLookup


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
