"""Locations as hashes of 128 bits, sorted: sixteen bytes each, however long the names are.

Owns: the hash, and the set. Does not own: what such a set means (`condemned_page`, `rootline.maintenance`).
Invariants: the same locations give the same bytes; immutable; a lookup does not depend on how many there are, and most
that find nothing look at a single bit.

A location is hashed as the table names it. What Rootline writes and deletes is relative to the table's prefix; an
absolute location never equals one of those, and nothing that has one is ever deleted.
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
    """`packed`, proven to be what a set of them holds: hashes that strictly ascend.

    Raises:
        ValueError: it is not.

    """
    if len(packed) % HASH_BYTES:
        raise ValueError(f"{len(packed)} bytes are not hashes of {HASH_BYTES} bytes each")
    if len(packed) <= _FEW * HASH_BYTES:  # arrays take longer to make than these to compare
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
    """A set of hashes; `packed` is all of them, ascending, one after the other."""

    __slots__ = ("_bits", "_firsts", "_shift", "packed")

    def __init__(self, packed: bytes = b"") -> None:
        """Raises `ValueError` unless `packed` is whole hashes that strictly ascend."""
        self.packed: Final = ascending_hashes(packed)
        self._firsts: Final = np.frombuffer(packed, ">u8")[::2].astype(np.uint64)
        self._shift: Final = 64 - max(_BITS_MIN, (_BITS_EACH * len(self._firsts)).bit_length())
        places = np.zeros(1 << (64 - self._shift), np.bool_)
        places[self._firsts >> np.uint64(self._shift)] = True
        self._bits: Final = np.packbits(places, bitorder="little").tobytes()

    @staticmethod
    def of(hashes: Iterable[bytes]) -> LocationHashes:
        """The set of these, in whatever order they come."""
        return LocationHashes(b"".join(sorted(set(hashes))))

    def __len__(self) -> int:
        """How many there are."""
        return len(self.packed) // HASH_BYTES

    def __iter__(self) -> Iterator[bytes]:
        """All of them, ascending."""
        return (self.packed[at : at + HASH_BYTES] for at in range(0, len(self.packed), HASH_BYTES))

    def __contains__(self, wanted: object) -> bool:
        """Whether this hash is one of them."""
        if not isinstance(wanted, bytes) or len(wanted) != HASH_BYTES:
            return False
        return self.may_hold(int.from_bytes(wanted[:8], "big")) and self.index(wanted) is not None

    def may_hold(self, first_half: int) -> bool:
        """Whether a hash may be one of them that begins with these eight bytes; `False` is certain."""
        at = first_half >> self._shift
        return bool(self._bits[at >> 3] >> (at & 7) & 1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LocationHashes) and self.packed == other.packed

    def __hash__(self) -> int:
        return hash(self.packed)

    def index(self, wanted: bytes) -> int | None:
        """Where this hash is among them; `None`: it is not."""
        at = int(np.searchsorted(self._firsts, np.uint64(int.from_bytes(wanted[:8], "big"))))
        while at < len(self) and self.packed[at * HASH_BYTES : at * HASH_BYTES + 8] == wanted[:8]:
            if self.packed[at * HASH_BYTES : (at + 1) * HASH_BYTES] == wanted:
                return at
            at += 1
        return None

    def union(self, *others: LocationHashes) -> LocationHashes:
        """All of these sets together; itself, if there is nothing else."""
        more = [item.packed for item in others if item.packed]
        if not more:
            return self
        halves = np.frombuffer(b"".join([self.packed, *more]), ">u8").reshape(-1, 2)
        return LocationHashes(np.unique(halves, axis=0).tobytes())

    def kept(self, wanted: Callable[[bytes], bool]) -> LocationHashes:
        """Those for which `wanted` holds."""
        return LocationHashes(b"".join(item for item in self if wanted(item)))

    def without(self, others: Iterable[bytes]) -> LocationHashes:
        """All but these; itself, if none of them is there."""
        gone = {item for item in others if item in self}
        return self.kept(lambda item: item not in gone) if gone else self
