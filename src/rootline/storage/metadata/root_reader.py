"""Roots: finding the newest one of a name, reading and verifying it, and listing the names of a warehouse.

Owns: the LIST, skipping foreign objects, the GETs of roots and definitions with their checks against key and header,
the error for a name without a table or view, the tables of a warehouse by their folders. Does not own: the bytes' form
(`root_codec`, `table_definition`), the confirmation of a head (commit protocol), the states of a name
(`rootline.tree.state.addressable`).
Invariants: finding a head takes one request unless foreign objects sort before the roots, and the result has the
store's date. A root is used only under its own name: table and version in the header are those of its key. A name whose
newest root is a tombstone has no table, but the remains of that table are still maintained under its name. If a root
expires during the read, the newest one is searched again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import UUID

from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.root.root_codec import Root, decode_root
from rootline.schemas.errors import Corrupt, Invalid, Unavailable
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.object_keys import namespace_in, root_key, roots_prefix, table_in, version_of_root_key
from rootline.schemas.parts.definition import DefinitionReference
from rootline.schemas.parts.name import NameState
from rootline.schemas.root_header import RootHeader
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.stored_objects import gather_bounded, read_stored
from rootline.tree.state.addressable import check_is_table

if TYPE_CHECKING:
    from rootline.schemas.view_metadata import ViewMetadata

_Read = TypeVar("_Read")
_LIMITS: Final[tuple[int | None, ...]] = (1, 100, None)


@dataclass(frozen=True, slots=True)
class HeadKey:
    """The newest root's version. `store_ms` is the date of the LIST that found it, or `None` if the store has none."""

    version: Version
    store_ms: int | None


async def find_head(store: ObjectStore, table: TableName) -> HeadKey | None:
    """Find the version of the newest root, or `None` if the table has no root.

    Objects among the roots that are not exactly named as a root of this table are skipped.

    Raises:
        Unavailable: `store-unavailable`.
    """
    for limit in _LIMITS:
        listing = await store.list(roots_prefix(table), limit=limit)
        for key in listing.keys:
            version = version_of_root_key(key)
            if version is not None and key == root_key(table, version):
                return HeadKey(version, listing.store_ms)
        if limit is None or len(listing.keys) < limit:
            return None
    return None


async def at_head(
    store: ObjectStore, table: TableName, read: Callable[[HeadKey], Awaitable[_Read]], head: HeadKey | None = None
) -> _Read | None:
    """Call `read` with the newest version, and return its result, or `None` if the table has no root.

    If that version expires during the read, `read` is called with the then newest version.

    Args:
        store: the warehouse.
        table: the table's name.
        read: reads one version.
        head: the newest version, if it was just found.

    Raises:
        Corrupt: an error of `read`. `object-missing` is raised only while the version is still the newest.
        Unavailable: `store-unavailable`.
    """
    found = await find_head(store, table) if head is None else head
    while found is not None:
        try:
            return await read(found)
        except Corrupt as error:
            if error.code != "object-missing":
                raise
            newer = await find_head(store, table)
            if newer is None or newer.version <= found.version:
                raise
            found = newer
    return None


async def existing_head(store: ObjectStore, table: TableName) -> HeadKey:
    """Find the version of the newest root. A table without a root is an error.

    Raises:
        Invalid: `table-unknown`.
        Unavailable: `store-unavailable`.
    """
    head = await find_head(store, table)
    if head is None:
        raise Invalid(
            "table-unknown", f"{table}: no table has this name in this warehouse; `rootline table list` shows all"
        )
    return head


_DEFINITIONS_KEPT: Final = 64


async def read_root(store: ObjectStore, table: TableName, version: Version, *, known: Root | None = None) -> Root:
    """Root `version` of `table`. Parts that it shares with the verified root `known` are not decoded again.

    Raises:
        Corrupt: `object-missing`, `root-corrupt` or `profile-unknown`.
    """
    key = root_key(table, version)
    if known is not None and (known.header.table, known.header.version) == (table, version):
        return known
    found = await store.get(key)
    if found is None:
        raise Corrupt("object-missing", f"{key}: this root does not exist; it may have expired")
    return proven_root(found.body, table, version, known)


def proven_root(body: bytes, table: TableName, version: Version, known: Root | None = None) -> Root:
    """The root in `body`, which was stored as `version` of `table`. Blocks of `known` are not decoded again.

    Raises:
        Corrupt: `root-corrupt` or `profile-unknown`.
    """
    key = root_key(table, version)
    root = decode_root(body, name=key, known=known)
    if (root.header.table, root.header.version) != (table, version):
        raise Corrupt("root-corrupt", f"{key}: contains version {root.header.version} of {root.header.table}")
    return root


async def read_definition(store: ObjectStore, header: RootHeader) -> TableDefinition:
    """The definition that a root's header names, with its digest and table verified.

    Raises:
        Corrupt: `object-missing` or `definition-unreadable`.
    """
    return await named_definition(store, header.table, header.definition, header.table_uuid)


async def named_definition(
    store: ObjectStore, table: TableName, named: DefinitionReference, table_uuid: UUID
) -> TableDefinition:
    """The definition that `named` refers to, of the table with `table_uuid`. Raises the errors of `read_definition`."""
    location = named.location
    body = await read_stored(store, table, location, code="definition-unreadable")
    if hashlib.sha256(body).digest() != named.digest:
        raise Corrupt("definition-unreadable", f"{table}: {location} has another digest than the committed one")
    definition = _definition(body, location)
    if definition.table_uuid != table_uuid:
        raise Corrupt("definition-unreadable", f"{table}: {location} defines another table, {definition.table_uuid}")
    return definition


@lru_cache(maxsize=_DEFINITIONS_KEPT)
def _definition(body: bytes, location: str) -> TableDefinition:
    """Decode a definition. The result is cached, because most versions name the same definition as their parent."""
    return TableDefinition.from_json(body, name=location)


async def newest_root(store: ObjectStore, name: TableName) -> Root | None:
    """The newest root of a name, or `None` if it has no root. The tombstone of a dropped table is a root, too.

    Raises:
        Corrupt: as in `read_root`.
        Unavailable: `store-unavailable`.
    """
    return await at_head(store, name, lambda head: read_root(store, name, head.version))


async def table_root(store: ObjectStore, name: TableName, known: Root | None = None) -> Root:
    """The newest root of a table.

    Raises the errors of `newest_root`, and `Invalid` (`table-unknown`, `table-dropped`).
    """

    async def root_of(head: HeadKey) -> Root:
        return await read_root(store, name, head.version, known=known)

    root = await at_head(store, name, root_of, await existing_head(store, name))
    assert root is not None, "there was a head"
    check_is_table(root.header)
    return root


async def is_table(store: ObjectStore, name: TableName) -> bool:
    """Whether a table has this name now. Raises the errors of `newest_root`."""
    return await name_state(store, name) is NameState.TABLE


async def name_state(store: ObjectStore, name: TableName) -> NameState | None:
    """The current state of a name, or `None` if it was never used. Raises the errors of `newest_root`."""
    root = await newest_root(store, name)
    return None if root is None else root.header.name.state


async def root_if_readable(store: ObjectStore, name: TableName, known: Root | None = None) -> Root | None:
    """The newest root of a table, or `None` if it is damaged. Without a table, raises the errors of `table_root`."""
    try:
        return await table_root(store, name, known)
    except Corrupt as error:
        if error.code == "object-missing":
            raise
        return None


async def view_root(store: ObjectStore, name: TableName) -> Root:
    """The newest root of a view.

    Raises:
        Invalid: `view-unknown`; `name-is-table`.
        Corrupt: as in `newest_root`.
        Unavailable: `store-unavailable`.
    """
    root = await newest_root(store, name)
    if root is None or root.header.is_tombstone:
        raise Invalid(
            "view-unknown", f"{name}: no view has this name in this warehouse; `rootline view list` shows all"
        )
    if root.header.name.state is NameState.TABLE:
        raise Invalid("name-is-table", f"{name} is a table, not a view: `rootline scan {name}` shows its rows")
    return root


def view_of(header: RootHeader) -> ViewMetadata:
    """The view in a root. Raises `Corrupt` (`root-corrupt`) if it cannot be read."""
    from rootline.schemas.view_metadata import ViewMetadata

    try:
        return ViewMetadata.from_json(header.name.view or b"", name=f"{header.table}, version {header.version}")
    except Invalid as error:
        raise Corrupt("root-corrupt", f"{error.message} [{error.code}]") from error


_READS_AT_ONCE: Final = 16


async def names_of_folders(store: ObjectStore, unread: list[Unavailable] | None = None) -> list[TableName]:
    """Every name with a folder, with or without a root.

    Folders of other software, whose names no table can have, are skipped.

    Args:
        store: the warehouse.
        unread: a list for the errors of folders that cannot be listed. Without it, such an error is raised.

    Raises:
        Unavailable: `store-unavailable`.
    """
    found: list[TableName] = []
    for namespace in await store.folders(""):
        if namespace_in(namespace) is not None:
            with _errors_into(unread):
                found += [name for name in map(table_in, await store.folders(namespace)) if name is not None]
    return found


async def list_names(
    store: ObjectStore, *, known: frozenset[TableName] = frozenset(), unread: list[Unavailable] | None = None
) -> list[TableName]:
    """Every name that has or had a table or a view.

    Names in `known` are included without a read, because a name that had a root once always has one. `unread` receives
    the errors of folders and of names whose roots cannot be listed (see `names_of_folders`).
    """
    found: list[TableName] = []
    for name in await names_of_folders(store, unread):
        with _errors_into(unread):
            if name in known or await find_head(store, name) is not None:
                found.append(name)
    return found


@contextmanager
def _errors_into(unread: list[Unavailable] | None) -> Iterator[None]:
    try:
        yield
    except Unavailable as error:
        if unread is None:
            raise
        unread.append(error)


async def list_tables(store: ObjectStore) -> list[TableName]:
    """Every table, by name. A table whose newest root cannot be read is included. Opening it reports the error.

    Raises `Unavailable` (`store-unavailable`).
    """

    async def is_there(name: TableName) -> bool:
        try:
            return await is_table(store, name)
        except Corrupt:
            return True

    return await _names_where(store, is_there)


async def list_views(store: ObjectStore) -> list[TableName]:
    """Every view, by name. Raises `Unavailable` (`store-unavailable`)."""

    async def is_there(name: TableName) -> bool:
        try:
            return await name_state(store, name) is NameState.VIEW
        except Corrupt:
            return False  # `list_tables` includes it

    return await _names_where(store, is_there)


async def _names_where(store: ObjectStore, wanted: Callable[[TableName], Awaitable[bool]]) -> list[TableName]:
    names = await list_names(store)
    there = await gather_bounded(names, wanted, _READS_AT_ONCE)
    return [name for name, is_one in zip(names, there, strict=True) if is_one]
