"""Reading and verifying objects that a root names: leaves and deletion vectors.

Owns: the GETs, byte ranges of vectors, the agreement of an object with its row in the root, the codec of a leaf. Does
not own: form and digests of the bytes (`leaf_codec`, `manifest_codec`, `vector_codec`), pages (`page_reader`).
Invariants: a leaf with another length or number of entries than the root states is `Corrupt`. A vector has exactly as
many positions as its entry states, or it is `Corrupt`. No vector is ever skipped.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Final, TypeAlias

import pyarrow as pa
from pyroaring import BitMap, BitMap64

from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.leaf_codec import Leaf, LeafContent, decode_leaf
from rootline.schemas.bytes.vector_codec import decode_inline, decode_vector
from rootline.schemas.content_entry import ContentEntry, ContentType, FileFormat
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.stored_objects import gather_bounded, read_stored, stored_key

LEAVES_AT_ONCE: Final = 8
DECODED_AT_ONCE: Final = min(LEAVES_AT_ONCE, os.cpu_count() or 1)
"""Threads that decode or index at a time. More than cores would only keep more freed memory."""
_SMALL_BYTES: Final = 65_536
Keeper: TypeAlias = Callable[[bytes], bytes | pa.Buffer]
"""Moves the bytes of an object to another place, such as a file."""


async def read_leaf(
    store: ObjectStore,
    table: TableName,
    entry: ContentEntry,
    *,
    definition: TableDefinition | None = None,
    slots: asyncio.Semaphore | None = None,
    keep: Keeper | None = None,
) -> Leaf:
    """Read the leaf (manifest) that a DATA_MANIFEST or DELETE_MANIFEST row of a root names.

    Its entries inherit sequence numbers from the row, as in Iceberg. The row's `file_format` states the format,
    whatever the suffix is. `definition`: the table's definition. Avro manifests of Iceberg V1 to V3 need it for their
    partitions. `slots`: limits how many threads decode at a time. `keep`: moves the leaf's bytes (`Leaf.kept_by`).

    Raises:
        Corrupt: `object-missing` or `leaf-corrupt`.
        Invalid: `file-unreadable`, an Avro leaf without a definition, or at a location that the store does not read.
    """
    if entry.file_format is not FileFormat.PARQUET and definition is None:
        raise Invalid("file-unreadable", f"{entry.location}: {entry.file_format} manifests need the table's definition")
    most = None
    if entry.file_format is FileFormat.AVRO:  # adopted tables have such leaves, and few programs read one
        from rootline.schemas.bytes.foreign_avro import MANIFEST_LIMITS

        most = MANIFEST_LIMITS.object_bytes
    length = entry.file_size_in_bytes
    body = await read_stored(store, table, entry.location, code="leaf-corrupt", length=length, bytes_max=most)
    key = stored_key(table, entry.location)
    try:
        if len(body) <= _SMALL_BYTES:
            leaf = _decoded(body, entry, definition, keep)
        else:  # on a thread, so that other tasks can run
            async with slots or nullcontext():
                leaf = await asyncio.to_thread(_decoded, body, entry, definition, keep)
    except Corrupt as error:  # a location is relative to its table; restoring the object needs the whole key
        raise Corrupt(error.code, f"{key}: {error.message.removeprefix(f'{entry.location}: ')}") from error
    if len(leaf) != entry.record_count:
        raise Corrupt("leaf-corrupt", f"{key}: has {len(leaf)} entries, its root row states {entry.record_count}")
    expected = LeafContent.DATA if entry.content_type is ContentType.DATA_MANIFEST else LeafContent.DELETE
    if leaf.content is not expected:
        raise Corrupt("leaf-corrupt", f"{key}: lists {leaf.content} files, its root row states {expected}")
    return leaf.of_row(entry)


def _decoded(body: bytes, entry: ContentEntry, definition: TableDefinition | None, keep: Keeper | None) -> Leaf:
    if entry.file_format is FileFormat.PARQUET or definition is None:
        leaf = decode_leaf(body, location=entry.location)
    else:
        from rootline.schemas.bytes.manifest_codec import decode_manifest

        leaf = decode_manifest(body, definition, entry, name=entry.location)
    return leaf if keep is None else leaf.kept_by(keep)


async def read_leaves(
    store: ObjectStore,
    table: TableName,
    entries: Iterable[ContentEntry],
    known: Mapping[str, Leaf] | None = None,
    *,
    definition: TableDefinition | None = None,
    keep: Keeper | None = None,
) -> dict[str, Leaf]:
    """Location → leaf for each of `entries`, which are rows of a root. Leaves in `known` are not re-read.

    Reads a few leaves at a time. `definition`, `keep`: see `read_leaf`. With `keep`, few leaves are in memory at once.

    Raises:
        Corrupt, Invalid: the errors of `read_leaf`, for the first row that fails.
    """
    rows = {entry.location: entry for entry in entries}
    found = {name: known[name].of_row(row) for name, row in rows.items() if known and name in known}
    wanted = [row for name, row in rows.items() if name not in found]
    slots = asyncio.Semaphore(DECODED_AT_ONCE)

    async def read(entry: ContentEntry) -> Leaf:
        return await read_leaf(store, table, entry, definition=definition, slots=slots, keep=keep)

    leaves = await gather_bounded(wanted, read, LEAVES_AT_ONCE)
    found |= {entry.location: leaf for entry, leaf in zip(wanted, leaves, strict=True)}
    return {location: found[location] for location in rows}


FILES_AT_ONCE: Final = 8
INLINE_DECODE_BYTES_MAX: Final = 8 << 10
"""A Puffin file up to this size is decoded on the loop: a thread would cost more."""


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
        raise Corrupt("vector-corrupt", f"{entry.location}: its entry does not state the vector's place in the file")
    end = place.offset + place.size_in_bytes
    name = f"{entry.location} at {place.offset}"
    if end > len(body):
        raise Corrupt("vector-corrupt", f"{name}: it would end at byte {end}, but the file has {len(body)} bytes")
    return decode_vector(body[place.offset : end], name=name, cardinality=entry.record_count)


async def read_manifest_vector(store: ObjectStore, table: TableName, entry: ContentEntry) -> BitMap:
    """The vector of a MANIFEST_DV row: the dead ordinals of its leaf, inline or in a Puffin file.

    Raises the errors of `read_vector`.
    """
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
    """(location, offset) → the positions in each stored vector. Reads each Puffin file once, a few concurrently.

    Raises:
        Corrupt: `object-missing` or `vector-corrupt`, for the first file that fails.
    """
    files: dict[tuple[str, int | None], list[ContentEntry]] = {}
    for entry in entries:
        files.setdefault((entry.location, entry.file_size_in_bytes), []).append(entry)
    slots = asyncio.Semaphore(FILES_AT_ONCE)
    found: dict[tuple[str, int], BitMap64] = {}

    async def read(location: str, length: int | None, of_file: Sequence[ContentEntry]) -> None:
        async with slots:
            body = await read_stored(store, table, location, code="vector-corrupt", length=length)
        if len(body) <= INLINE_DECODE_BYTES_MAX:
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
    """Read the stored vectors of MANIFEST_DV rows as ordinals, with the errors of `read_vectors`.

    Rows with inline vectors are skipped.
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
        raise Corrupt("vector-corrupt", f"{entry.location}: it marks entry {wide.max()}, but no leaf has so many")
    return BitMap(wide)
