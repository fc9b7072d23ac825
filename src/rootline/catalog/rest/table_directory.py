"""Which namespaces and tables a warehouse shows to engines.

Owns: finding them with few requests, and remembering those that were seen. Does not own: their exports (`exporter`).
Invariants: a namespace exists if it holds a table; every answer lists the folders again, so what was removed is gone.
"""

from __future__ import annotations

import asyncio
from typing import Final

from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName, table_name
from rootline.storage.metadata.head_finder import find_head

_LOOKS_AT_ONCE: Final = 16


class TableDirectory:
    """The tables of one warehouse. A folder is opened once; after that it only needs to be listed."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._places = asyncio.Semaphore(_LOOKS_AT_ONCE)
        self._known: set[TableName] = set()

    async def namespaces(self) -> list[str]:
        """Every namespace that holds a table, ascending.

        Raises:
            Unavailable: `store-unavailable`.

        """
        seen = {table.partition(".")[0] for table in self._known}
        folders = [folder.rstrip("/") for folder in await self._store.folders("")]
        names = [name for name in folders if _is_namespace(name)]
        unseen = [name for name in names if name not in seen]
        holding = await asyncio.gather(*(self.tables(name) for name in unseen))
        empty = {name for name, tables in zip(unseen, holding, strict=True) if not tables}
        return sorted(set(names) - empty)

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
        there = await find_head(self._store, table) is not None
        if there:
            self._known.add(table)
        else:
            self._known.discard(table)
        return there

    async def _is_table(self, table: TableName) -> bool:
        if table in self._known:
            return True
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
