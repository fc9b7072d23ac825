"""A sorted set of locations as 128-bit hashes: sixteen bytes each, however long the names are.

Owns: the hash, and the set. Does not own: the meaning of such a set (`location_pages`, `rootline.maintenance`).
Invariants: The same locations give the same bytes. Immutable. Lookup time does not depend on the size, and most lookups
without a match read a single bit.

A location is hashed as the table stores it. Objects that Rootline writes and deletes have locations relative to the
table's prefix. An absolute location never equals one of those, and Rootline never deletes an object at one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Final

import numpy as np

HASH_BYTES: Final = 16
_BITS_EACH: Final = 8
_BITS_MIN: Final = 6
_FEW: Final = 100


def location_hash(location: str) -> bytes:
    """The hash of one location."""
    return hashlib.blake2b(location.encode(errors="surrogatepass"), digest_size=HASH_BYTES).digest()


def ascending_hashes(packed: bytes) -> bytes:
    """Check that `packed` consists of whole hashes that strictly ascend, and return it. Raises `ValueError` if not."""
    if len(packed) % HASH_BYTES:
        raise ValueError(f"{len(packed)} bytes are not hashes of {HASH_BYTES} bytes each")
    if len(packed) <= _FEW * HASH_BYTES:  # for few hashes, arrays take longer than comparisons
        each = [packed[at : at + HASH_BYTES] for at in range(0, len(packed), HASH_BYTES)]
        ascends = all(before < after for before, after in pairwise(each))
    else:
        halves = np.frombuffer(packed, ">u8").reshape(-1, 2)
        first, second = halves[:, 0], halves[:, 1]
        ascends = bool(((first[1:] > first[:-1]) | ((first[1:] == first[:-1]) & (second[1:] > second[:-1]))).all())
    if not ascends:
        raise ValueError("the hashes do not strictly ascend")
    return packed


class LocationHashes:
    """A set of hashes. `packed`: all hashes, concatenated in ascending order."""

    __slots__ = ("_bits", "_firsts", "_shift", "packed")

    def __init__(self, packed: bytes = b"") -> None:
        """Raises `ValueError` unless `packed` consists of whole hashes in strictly ascending order."""
        self.packed: Final = ascending_hashes(packed)
        self._firsts: Final = np.frombuffer(packed, ">u8")[::2].astype(np.uint64)
        self._shift: Final = 64 - max(_BITS_MIN, (_BITS_EACH * len(self._firsts)).bit_length())
        places = np.zeros(1 << (64 - self._shift), np.bool_)
        places[self._firsts >> np.uint64(self._shift)] = True
        self._bits: Final = np.packbits(places, bitorder="little").tobytes()

    @staticmethod
    def of(hashes: Iterable[bytes]) -> LocationHashes:
        """The set of these hashes, in any order."""
        return LocationHashes(b"".join(sorted(set(hashes))))

    def __len__(self) -> int:
        """The number of hashes."""
        return len(self.packed) // HASH_BYTES

    def __iter__(self) -> Iterator[bytes]:
        """All hashes, ascending."""
        return (self.packed[at : at + HASH_BYTES] for at in range(0, len(self.packed), HASH_BYTES))

    def __contains__(self, wanted: object) -> bool:
        """Whether the set contains this hash."""
        if not isinstance(wanted, bytes) or len(wanted) != HASH_BYTES:
            return False
        return self.may_contain(int.from_bytes(wanted[:8], "big")) and self.index(wanted) is not None

    def may_contain(self, first_half: int) -> bool:
        """Whether the set may contain a hash that begins with these eight bytes. `False` is certain."""
        at = first_half >> self._shift
        return bool(self._bits[at >> 3] >> (at & 7) & 1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LocationHashes) and self.packed == other.packed

    def __hash__(self) -> int:
        return hash(self.packed)

    def index(self, wanted: bytes) -> int | None:
        """The index of this hash, or `None`."""
        at = int(np.searchsorted(self._firsts, np.uint64(int.from_bytes(wanted[:8], "big"))))
        while at < len(self) and self.packed[at * HASH_BYTES : at * HASH_BYTES + 8] == wanted[:8]:
            if self.packed[at * HASH_BYTES : (at + 1) * HASH_BYTES] == wanted:
                return at
            at += 1
        return None

    def union(self, *others: LocationHashes) -> LocationHashes:
        """The union of these sets. Returns `self` if the others are empty."""
        more = [item.packed for item in others if item.packed]
        if not more:
            return self
        halves = np.frombuffer(b"".join([self.packed, *more]), ">u8").reshape(-1, 2)
        return LocationHashes(np.unique(halves, axis=0).tobytes())

    def filtered(self, wanted: Callable[[bytes], bool]) -> LocationHashes:
        """The hashes that satisfy `wanted`."""
        return LocationHashes(b"".join(item for item in self if wanted(item)))

    def without(self, others: Iterable[bytes]) -> LocationHashes:
        """The set without these hashes. Returns `self` if it contains none of them."""
        removed = {item for item in others if item in self}
        return self.filtered(lambda item: item not in removed) if removed else self
