"""Fetches the leaves and vectors that a batch needs before it can be applied.

Owns: the reads. Does not own: which are needed (`rootline.tree.apply`), their formats (`rootline.schemas`).
Invariants: absent or unreadable objects become `None`, so that only the intent that named them is rejected; an absent
*store* raises instead, because it proves nothing.
"""

from __future__ import annotations

from pyroaring import BitMap64

from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import TableName
from rootline.schemas.leaf_codec import Leaf, decode_leaf
from rootline.schemas.object_keys import key_of
from rootline.schemas.vector_codec import decode_vector
from rootline.tree.batch import UNKNOWN_SIZE, Library, Needs, VectorAt

_LENGTH_BYTES = 4
_CRC_BYTES = 4


async def read_library(store: ObjectStore, table: TableName, needs: Needs) -> Library:
    """Everything that `needs` names. Raises `Unavailable` when the store does not answer."""
    leaves = {location: await _leaf(store, table, location) for location in sorted(needs.leaves)}
    vectors: dict[VectorAt, BitMap64 | None] = {}
    for location in sorted({place.location for place in needs.vectors}):
        found = await store.get(key_of(table, location))
        for place in sorted(needs.vectors):
            if place.location == location:
                vectors[place] = None if found is None else vector_at(found.body, place)
    return Library(leaves, vectors)


async def _leaf(store: ObjectStore, table: TableName, location: str) -> Leaf | None:
    found = await store.get(key_of(table, location))
    if found is None:
        return None
    try:
        return decode_leaf(found.body, location=location)
    except Corrupt:
        return None


def vector_at(puffin: bytes, place: VectorAt) -> BitMap64 | None:
    """The vector at `place` in the bytes of its Puffin file; `None` when no sound blob of that size begins there."""
    start = place.offset
    length = int.from_bytes(puffin[start : start + _LENGTH_BYTES], "big")
    end = start + _LENGTH_BYTES + length + _CRC_BYTES
    if length == 0 or end > len(puffin) or place.size_in_bytes not in (UNKNOWN_SIZE, end - start):
        return None
    if place.file_size_in_bytes not in (UNKNOWN_SIZE, len(puffin)):
        return None
    try:
        return decode_vector(puffin[start:end], name=place.location)
    except Corrupt:
        return None
