"""Which namespaces and tables a warehouse shows to engines.

Owns: finding them with few requests, and remembering those that were seen. Does not own: their exports (`exporter`).
Invariants: a namespace exists if it holds a table; every answer lists folders and heads again, so what was removed or
dropped is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.identifiers import TableName, Version, table_name
from rootline.storage.metadata.head_finder import HeadKey, at_head, find_head
from rootline.storage.metadata.root_reader import read_root

_LOOKS_AT_ONCE: Final = 16


class _Seen(NamedTuple):
    """What a name was in the newest version that was read."""

    version: Version
    is_table: bool


class TableDirectory:
    """The tables of one warehouse. A root is read once, to tell what it is; after that it is only listed."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._places = asyncio.Semaphore(_LOOKS_AT_ONCE)
        self._known: dict[TableName, _Seen] = {}

    async def namespaces(self) -> list[str]:
        """Every namespace that holds a table, ascending.

        Raises:
            Unavailable: `store-unavailable`.

        """
        folders = [folder.rstrip("/") for folder in await self._store.folders("")]
        names = [name for name in folders if _is_namespace(name)]
        holding = await asyncio.gather(*(self._holds_a_table(name) for name in names))
        return sorted(name for name, is_held in zip(names, holding, strict=True) if is_held)

    async def tables(self, namespace: str) -> list[str]:
        """The names of the tables in `namespace`, without it, ascending; none if there is no such namespace.

        Raises:
            Unavailable: `store-unavailable`.

        """
        if not _is_namespace(namespace):
            return []
        async with self._places:
            folders = await self._store.folders(f"{namespace}/")
        tables = [table for folder in folders if (table := _table_of(folder)) is not None]
        found = await asyncio.gather(*(self._is_table(table) for table in tables))
        return sorted(table.partition(".")[2] for table, there in zip(tables, found, strict=True) if there)

    async def exists(self, table: TableName) -> bool:
        """Whether the warehouse has `table` now.

        Raises:
            Unavailable: `store-unavailable`.

        """
        head = await find_head(self._store, table)
        known = self._known.get(table)
        if head is not None and known is not None and known.version == head.version:
            return known.is_table
        try:
            root = None if head is None else await at_head(self._store, table, self._reader(table), head)
        except Corrupt:
            return True  # it is there, and says so when it is loaded
        if root is None:
            self._known.pop(table, None)
            return False
        self._known[table] = _Seen(root.header.version, not root.header.is_tombstone)
        return not root.header.is_tombstone

    def _reader(self, table: TableName) -> Callable[[HeadKey], Awaitable[Root]]:
        return lambda head: read_root(self._store, table, head.version)

    async def _holds_a_table(self, namespace: str) -> bool:
        """A table that was there is looked at first: mostly it still is."""
        for table, seen in self._known.items():
            if seen.is_table and table.partition(".")[0] == namespace:
                if await self._is_table(table):
                    return True
                break
        return bool(await self.tables(namespace))

    async def _is_table(self, table: TableName) -> bool:
        async with self._places:
            return await self.exists(table)


def _is_namespace(name: str) -> bool:
    return "." not in name and _name(f"{name}.t") is not None


def _table_of(folder: str) -> TableName | None:
    parts = folder.rstrip("/").split("/")
    return _name(".".join(parts)) if len(parts) == 2 else None


def _name(text: str) -> TableName | None:
    try:
        return table_name(text)
    except Invalid:
        return None
