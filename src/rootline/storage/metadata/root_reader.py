"""Reads and proves roots and table definitions.

Owns: the two GETs and their checks against the key and the header. Does not own: the bytes' form (`root_codec`,
`table_definition`), which version is meant.
Invariants: a root is used only under its own name: table and version in the header are those of its key.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Final
from uuid import UUID

from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.root.root_codec import Root, decode_root
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.object_keys import root_key
from rootline.schemas.root_header import DefinitionReference, RootHeader
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.stored_file import read_stored

_DEFINITIONS_KEPT: Final = 64


async def read_root(store: ObjectStore, table: TableName, version: Version, *, known: Root | None = None) -> Root:
    """Root `version` of `table`; of a proven one, `known`, what is the same is not decoded again.

    Raises:
        Corrupt: `object-missing`, `root-corrupt` or `profile-unknown`.

    """
    key = root_key(table, version)
    if known is not None and (known.header.table, known.header.version) == (table, version):
        return known
    found = await store.get(key)
    if found is None:
        raise Corrupt("object-missing", f"{key}: this root does not exist")
    return proven_root(found.body, table, version, known)


def proven_root(body: bytes, table: TableName, version: Version, known: Root | None = None) -> Root:
    """The root in `body`, which was stored as `version` of `table`; blocks of `known` are not decoded again.

    Raises:
        Corrupt: `root-corrupt` or `profile-unknown`.

    """
    key = root_key(table, version)
    root = decode_root(body, name=key, known=known)
    if (root.header.table, root.header.version) != (table, version):
        raise Corrupt("root-corrupt", f"{key}: holds version {root.header.version} of {root.header.table}")
    return root


async def read_definition(store: ObjectStore, header: RootHeader) -> TableDefinition:
    """The definition that a root's header names, its digest and table proven.

    Raises:
        Corrupt: `object-missing` or `definition-unreadable`.

    """
    return await named_definition(store, header.table, header.definition, header.table_uuid)


async def named_definition(
    store: ObjectStore, table: TableName, named: DefinitionReference, table_uuid: UUID
) -> TableDefinition:
    """The definition that `named` says, of the table with `table_uuid`. Raises as `read_definition`."""
    location = named.location
    body = await read_stored(store, table, location, code="definition-unreadable")
    if hashlib.sha256(body).digest() != named.digest:
        raise Corrupt("definition-unreadable", f"{table}: {location} is not the definition that was committed")
    definition = _definition(body, location)
    if definition.table_uuid != table_uuid:
        raise Corrupt("definition-unreadable", f"{table}: {location} defines table {definition.table_uuid}")
    return definition


@lru_cache(maxsize=_DEFINITIONS_KEPT)
def _definition(body: bytes, location: str) -> TableDefinition:
    """Decoded once for all versions that name it: most of them name the one before."""
    return TableDefinition.from_json(body, name=location)
