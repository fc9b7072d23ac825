"""Which ordinals may hold a key, in twelve bytes an entry, however long the keys are; hashes are this process's own."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Final, TypeAlias

import numpy as np

Hashes: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]


class HashedKeys:
    """The keys of some entries; `hashes` ascend."""

    __slots__ = ("_ordinals", "hashes")

    def __init__(self, keys: Sequence[Hashable], ordinals: Sequence[int] | None = None) -> None:
        """`keys` of the entries at `ordinals`; without them, of the entries 0, 1, 2 and so on."""
        found = hashes_of(keys)
        order = np.argsort(found, kind="stable")
        self.hashes: Final = found[order]
        places = order if ordinals is None else np.asarray(ordinals, np.int64)[order]
        self._ordinals = places.astype(np.uint32)

    def candidates(self, key: Hashable) -> list[int]:
        """The ordinals that may hold `key`, ascending; very rarely one that does not."""
        wanted = np.int64(hash(key))
        start, stop = np.searchsorted(self.hashes, wanted, "left"), np.searchsorted(self.hashes, wanted, "right")
        held: list[int] = self._ordinals[start:stop].tolist()
        return held


def hashes_of(keys: Iterable[Hashable]) -> Hashes:
    """One hash a key."""
    return np.fromiter(map(hash, keys), np.int64)


NO_KEYS: Final = HashedKeys(())
__all__ = ["NO_KEYS", "HashedKeys", "Hashes", "hashes_of"]
