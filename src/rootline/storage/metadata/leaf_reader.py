"""Reads and proves leaves.

Owns: the GET, the leaf's agreement with its root row, and which codec reads it. Does not own: its form and digests
(`leaf_codec`, `manifest_codec`).
Invariants: a leaf that is not as long, or does not hold as many entries, as the root says is `Corrupt`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.leaf_codec import Leaf, LeafContent, decode_leaf
from rootline.schemas.bytes.manifest_codec import decode_manifest
from rootline.schemas.content_entry import ContentEntry, ContentType, FileFormat
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.few_at_once import gather_bounded
from rootline.storage.metadata.stored_file import read_file, stored_key

LEAVES_AT_ONCE: Final = 8
_SMALL_BYTES: Final = 65_536


async def read_leaf(
    store: ObjectStore, table: TableName, entry: ContentEntry, *, definition: TableDefinition | None = None
) -> Leaf:
    """The leaf of a DATA_MANIFEST or DELETE_MANIFEST row; its entries inherit from the row.

    `definition`: the table's, for the Avro manifests of Iceberg V1 to V3 among its leaves: they have partition fields
    of their own. The row's `file_format` says which leaf is one, never its name.

    Raises:
        Corrupt: `object-missing` or `leaf-corrupt`.
        Invalid: `file-unreadable`, an Avro leaf without a definition, or one where the store does not read.

    """
    if entry.file_format is not FileFormat.PARQUET and definition is None:
        raise Invalid("file-unreadable", f"{entry.location}: leaves of format {entry.file_format} are not read here")
    body = await read_file(store, table, entry, code="leaf-corrupt")
    key = stored_key(table, entry.location)
    try:
        if len(body) <= _SMALL_BYTES:
            leaf = _decoded(body, entry, definition)
        else:  # everything else goes on meanwhile
            leaf = await asyncio.to_thread(_decoded, body, entry, definition)
    except Corrupt as error:  # a location says where in its table; to restore the object takes the whole key
        raise Corrupt(error.code, f"{key}: {error.message.removeprefix(f'{entry.location}: ')}") from error
    if len(leaf) != entry.record_count:
        raise Corrupt("leaf-corrupt", f"{key}: holds {len(leaf)} entries, its root row says {entry.record_count}")
    expected = LeafContent.DATA if entry.content_type is ContentType.DATA_MANIFEST else LeafContent.DELETE
    if leaf.content is not expected:
        raise Corrupt("leaf-corrupt", f"{key}: lists {leaf.content} files, its root row says {expected}")
    return leaf.of_row(entry)


def _decoded(body: bytes, entry: ContentEntry, definition: TableDefinition | None) -> Leaf:
    if entry.file_format is FileFormat.PARQUET or definition is None:
        return decode_leaf(body, location=entry.location)
    return decode_manifest(body, definition, entry, name=entry.location)


async def read_leaves(
    store: ObjectStore,
    table: TableName,
    entries: Iterable[ContentEntry],
    known: Mapping[str, Leaf] | None = None,
    *,
    definition: TableDefinition | None = None,
) -> dict[str, Leaf]:
    """Location → leaf of every row in `entries`, a few at a time; those in `known` are not read again.

    `definition`: as of `read_leaf`.

    Raises:
        Corrupt, Invalid: as `read_leaf`, of the first row that fails.

    """
    rows = {entry.location: entry for entry in entries}
    found = {name: known[name].of_row(row) for name, row in rows.items() if known and name in known}
    wanted = [row for name, row in rows.items() if name not in found]

    async def read(entry: ContentEntry) -> Leaf:
        return await read_leaf(store, table, entry, definition=definition)

    leaves = await gather_bounded(wanted, read, LEAVES_AT_ONCE)
    found |= {entry.location: leaf for entry, leaf in zip(wanted, leaves, strict=True)}
    return {location: found[location] for location in rows}
