"""Which leaves of a table may hold a key: one sorted array for all of them.

Owns: the array, and following a change of leaves without building it again. Does not own: where in a leaf the key is
(`leaf_lookup`), which keys there are.
Invariants: no leaf that holds the key is ever missed; twelve bytes an entry; built when first asked for, then advanced
by what changed; a version's index never changes, no matter what later versions do.

Keys are Python's salted hashes, never stored, so that no writer can choose locations that collide.
Source: architecture page, `location_index`: an append to a table of a million files asks one array, not every leaf.
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
    """`owners[i]` is the number of the leaf, in `names`, that holds `hashes[i]`; hashes ascend."""

    names: tuple[str, ...]
    hashes: Hashes
    owners: np.ndarray[tuple[int], np.dtype[np.uint32]]
    keys: Sequence[int]


class LocationIndex:
    """The index of `lookups`, which must not change once it was asked; `before`: of mostly the same leaves."""

    __slots__ = ("_before", "_built", "_lookups")

    def __init__(self, lookups: Mapping[str, LeafLookup], before: LocationIndex | None = None) -> None:
        self._lookups = lookups
        self._built: _Built | None = None
        self._before = None if before is None else before._built

    def advanced(self, lookups: Mapping[str, LeafLookup]) -> LocationIndex:
        """The index of `lookups`; itself when those are the same leaves."""
        return self if lookups.keys() == self._lookups.keys() else LocationIndex(lookups, self)

    def leaves_of(self, key: Hashable) -> Sequence[str]:
        """The leaves that may hold `key`, very rarely one that does not."""
        built = self.build()
        wanted, keys = hash(key), built.keys
        at = bisect_left(keys, wanted)
        if at == len(keys) or keys[at] != wanted:
            return ()
        end = int(np.searchsorted(built.hashes, np.int64(wanted), "right"))
        return [built.names[owner] for owner in dict.fromkeys(built.owners[at:end].tolist())]

    def among(self, keys: Sequence[Hashable]) -> list[int]:
        """The indices of those `keys` that some leaf may hold."""
        held = self.build().hashes
        if not len(held):
            return []
        wanted = hashes_of(keys)
        at = np.minimum(np.searchsorted(held, wanted), len(held) - 1)
        found: list[int] = np.flatnonzero(held[at] == wanted).tolist()
        return found

    def build(self) -> _Built:
        """Build the array, unless it is there."""
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
    gone = [number for number, name in enumerate(before.names) if name not in lookups]
    if not gone:
        return before.hashes, before.owners
    stays = ~np.isin(before.owners, gone)
    return before.hashes[stays], before.owners[stays]


def _joined(names: tuple[str, ...], parts: Sequence[tuple[Hashes, np.ndarray]]) -> _Built:
    if not parts:
        nothing = np.zeros(0, np.int64)
        return _Built(names, nothing, np.zeros(0, np.uint32), _searchable(nothing))
    hashes, owners = (np.concatenate(each) for each in zip(*parts, strict=True))
    order = np.argsort(hashes, kind="stable")  # runs that ascend already are merged
    hashes = hashes[order]
    return _Built(names, hashes, owners[order], _searchable(hashes))


def _searchable(hashes: Hashes) -> Sequence[int]:
    """The same memory for `bisect`, which is four times as fast as NumPy for one key."""
    return hashes.data
