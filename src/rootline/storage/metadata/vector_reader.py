"""Reads and proves deletion vectors, of data files and of leaves.

Owns: the GET, the range, agreement with the entry. Does not own: the bitmap's form (`vector_codec`).
Invariants: a vector holds exactly as many positions as its entry says, or it is `Corrupt`; it is never left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from pyroaring import BitMap, BitMap64

from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.vector_codec import decode_inline, decode_vector
from rootline.schemas.content_entry import ContentEntry
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import TableName
from rootline.storage.metadata.stored_file import read_stored

FILES_AT_ONCE: Final = 8
_QUICK_BYTES: Final = 8 << 10
"""A Puffin file up to this size is decoded at once: a thread would cost more."""


async def read_vector(store: ObjectStore, table: TableName, entry: ContentEntry) -> BitMap64:
    """The vector of a POSITION_DELETE row: the deleted row numbers of its data file.

    Raises:
        Corrupt: `object-missing` or `vector-corrupt`.

    """
    body = await read_stored(store, table, entry.location, code="vector-corrupt", length=entry.file_size_in_bytes)
    return vector_in(body, entry)


def vector_in(body: bytes, entry: ContentEntry) -> BitMap64:
    """The vector of `entry` in the Puffin file's bytes `body`. Raises `Corrupt` (`vector-corrupt`)."""
    place = entry.deletion_vector
    if place is None or place.offset is None or place.size_in_bytes is None:
        raise Corrupt("vector-corrupt", f"{entry.location}: its entry does not say where in the file the vector is")
    end = place.offset + place.size_in_bytes
    name = f"{entry.location} at {place.offset}"
    if end > len(body):
        raise Corrupt("vector-corrupt", f"{name}: ends at byte {end} of a file of {len(body)}")
    return decode_vector(body[place.offset : end], name=name, cardinality=entry.record_count)


async def read_manifest_vector(store: ObjectStore, table: TableName, entry: ContentEntry) -> BitMap:
    """The vector of a MANIFEST_DV row: the dead ordinals of its leaf, inline or in a Puffin file. Raises as above."""
    place = entry.deletion_vector
    if place is not None and place.inline_content is not None:
        return decode_inline(place.inline_content, name=f"vector of {entry.location}", cardinality=entry.record_count)
    return _narrow(await read_vector(store, table, entry), entry)


def place_of_stored(entry: ContentEntry) -> tuple[str, int]:
    """The Puffin file and the offset of a stored vector."""
    place = entry.deletion_vector
    return entry.location, -1 if place is None or place.offset is None else place.offset


async def read_vectors(
    store: ObjectStore, table: TableName, entries: Iterable[ContentEntry]
) -> dict[tuple[str, int], BitMap64]:
    """(location, offset) → what each stored vector holds. Each Puffin file is read once, a few at a time.

    Raises:
        Corrupt: `object-missing` or `vector-corrupt`, of the first file that fails.

    """
    files: dict[tuple[str, int | None], list[ContentEntry]] = {}
    for entry in entries:
        files.setdefault((entry.location, entry.file_size_in_bytes), []).append(entry)
    slots = asyncio.Semaphore(FILES_AT_ONCE)
    found: dict[tuple[str, int], BitMap64] = {}

    async def read(location: str, length: int | None, of_file: Sequence[ContentEntry]) -> None:
        async with slots:
            body = await read_stored(store, table, location, code="vector-corrupt", length=length)
        if len(body) <= _QUICK_BYTES:
            found.update(_vectors_in(body, of_file))
        else:
            found.update(await asyncio.to_thread(_vectors_in, body, of_file))

    try:
        async with asyncio.TaskGroup() as group:
            for (location, length), of_file in files.items():
                group.create_task(read(location, length, of_file))
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return found


def _vectors_in(body: bytes, entries: Sequence[ContentEntry]) -> dict[tuple[str, int], BitMap64]:
    return {place_of_stored(entry): vector_in(body, entry) for entry in entries}


async def read_stored_manifest_vectors(
    store: ObjectStore, table: TableName, entries: Iterable[ContentEntry]
) -> dict[tuple[str, int], BitMap]:
    """Read the stored vectors of MANIFEST_DV rows as `read_vectors` does, as ordinals.

    Rows whose vectors are inline are skipped.
    """
    stored = {
        place_of_stored(entry): entry
        for entry in entries
        if (place := entry.deletion_vector) is not None and place.inline_content is None and place.offset is not None
    }
    found = await read_vectors(store, table, stored.values())
    return {place: _narrow(wide, stored[place]) for place, wide in found.items()}


def _narrow(wide: BitMap64, entry: ContentEntry) -> BitMap:
    if len(wide) and wide.max() >= 2**32:
        raise Corrupt("vector-corrupt", f"{entry.location}: ordinal {wide.max()} is beyond any leaf")
    return BitMap(wide)
