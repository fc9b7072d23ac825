"""Fetches the leaves and vectors that a batch needs before it can be applied.

Owns: the reads. Does not own: which are needed (`rootline.tree.apply`), their formats (`rootline.schemas`).
Invariants: absent or unreadable objects become `None`, so that only the intent that named them is rejected, whatever
is wrong with them; an absent *store* raises instead, because it proves nothing.
"""

from __future__ import annotations

import asyncio
from itertools import groupby
from operator import attrgetter

import structlog
from pyroaring import BitMap64

from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import Invalid, RootlineError
from rootline.schemas.identifiers import TableName
from rootline.schemas.leaf_codec import Leaf, decode_leaf
from rootline.schemas.object_keys import key_of
from rootline.schemas.vector_codec import decode_vector
from rootline.tree.batch import UNKNOWN_SIZE, Library, Needs, VectorAt

_LENGTH_BYTES = 4
_READS_AT_ONCE = 16
_CRC_BYTES = 4


async def read_library(store: ObjectStore, table: TableName, needs: Needs) -> Library:
    """Everything that `needs` names. Raises `Unavailable` when the store does not answer."""
    at_once = asyncio.Semaphore(_READS_AT_ONCE)

    async def read_leaf(location: str) -> tuple[str, Leaf | None]:
        async with at_once:
            return location, await _leaf(store, table, location)

    async def read_vectors(location: str, places: list[VectorAt]) -> list[tuple[VectorAt, BitMap64 | None]]:
        async with at_once:
            body = await _body(store, table, location)
        return [(place, None if body is None else vector_at(body, place)) for place in places]

    by_file = groupby(sorted(needs.vectors), key=attrgetter("location"))
    leaves = await asyncio.gather(*(read_leaf(location) for location in sorted(needs.leaves)))
    vectors = await asyncio.gather(*(read_vectors(location, list(places)) for location, places in by_file))
    return Library(dict(leaves), dict(item for found in vectors for item in found))


async def _body(store: ObjectStore, table: TableName, location: str) -> bytes | None:
    try:
        found = await store.get(key_of(table, location))
    except Invalid:
        return None  # no store can hold a key like this
    return None if found is None else found.body


async def _leaf(store: ObjectStore, table: TableName, location: str) -> Leaf | None:
    body = await _body(store, table, location)
    try:
        return None if body is None else decode_leaf(body, location=location)
    except RootlineError:
        return None
    except Exception:  # a writer chose these bytes: whatever they do to a decoder is that intent's fault alone
        structlog.get_logger().exception("leaf unreadable", action="reject", table=table, location=location)
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
    except RootlineError:
        return None
    except Exception:
        structlog.get_logger().exception("vector unreadable", action="reject", location=place.location)
        return None
