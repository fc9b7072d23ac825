"""A compact index from keys to ordinals, with twelve bytes for each entry.

It uses Python's hashes, which are valid in one process only.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Final, TypeAlias

import numpy as np

Hashes: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]


class HashedKeys:
    """The hashed keys of entries. `hashes` are ascending."""

    __slots__ = ("_ordinals", "hashes")

    def __init__(self, keys: Sequence[Hashable], ordinals: Sequence[int] | None = None) -> None:
        """Index the `keys` of the entries at `ordinals`, by default 0, 1, 2 and so on."""
        found = hashes_of(keys)
        order = np.argsort(found, kind="stable")
        self.hashes: Final = found[order]
        places = order if ordinals is None else np.asarray(ordinals, np.int64)[order]
        self._ordinals = places.astype(np.uint32)

    def candidates(self, key: Hashable) -> list[int]:
        """The ordinals whose key has the hash of `key`, ascending. Very rarely one has another key."""
        wanted = np.int64(hash(key))
        start, stop = np.searchsorted(self.hashes, wanted, "left"), np.searchsorted(self.hashes, wanted, "right")
        found: list[int] = self._ordinals[start:stop].tolist()
        return found


def hashes_of(keys: Iterable[Hashable]) -> Hashes:
    """The hashes of keys."""
    return np.fromiter(map(hash, keys), np.int64)


NO_KEYS: Final = HashedKeys(())
__all__ = ["NO_KEYS", "HashedKeys", "Hashes", "hashes_of"]
