"""Which namespaces, tables and views a warehouse shows to engines.

Owns: finding them with few requests, and remembering what was seen. Does not own: their exports (`exporter`), what
makes a namespace exist (`namespace_directory`).
Invariants: every answer lists folders and heads again, so what was removed or dropped is gone; engines go down level by
level, so for them a namespace also exists if one below it does.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import NamespaceName, TableName, Version, name_in_namespace, namespace_of
from rootline.schemas.object_keys import namespace_in, table_in
from rootline.schemas.root_header import NameState
from rootline.storage.metadata.namespaces import is_created, read_namespace
from rootline.storage.metadata.root_reader import at_head, find_head, read_root

_LOOKS_AT_ONCE: Final = 16


class _Seen(NamedTuple):
    """What a name was in the newest version that was read."""

    version: Version
    state: NameState


class TableDirectory:
    """The tables and views of one warehouse. A root is read once, to tell what it is; after that it is only listed."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._places = asyncio.Semaphore(_LOOKS_AT_ONCE)
        self._known: dict[TableName, _Seen] = {}

    async def namespaces(self) -> list[str]:
        """Every namespace that was created or holds a table or view, ascending; also one that cannot be read.

        Raises:
            Unavailable: `store-unavailable`.

        """
        names = [name for folder in await self._store.folders("") if (name := namespace_in(folder)) is not None]
        there = await asyncio.gather(*(self._is_namespace(name) for name in names))
        return sorted(name for name, is_there in zip(names, there, strict=True) if is_there)

    async def below(self, parent: str) -> list[str] | None:
        """The namespaces one level below `parent` (empty: the highest), whole names, ascending; `None`: no such parent.

        Raises as `namespaces`.
        """
        names, prefix = await self.namespaces(), f"{parent}." if parent else ""
        level = prefix.count(".") + 1
        found = {".".join(name.split(".")[:level]) for name in names if name.startswith(prefix)}
        return sorted(found) if found or not parent or parent in names else None

    async def properties(self, namespace: str) -> dict[str, str] | None:
        """A namespace's properties; `None`: there is no such namespace.

        Raises:
            Corrupt: `namespace-unreadable`.
            Unavailable: `store-unavailable`.

        """
        name = namespace_in(namespace)
        if name is None:
            return None
        async with self._places:
            state = await read_namespace(self._store, name)
        if state.is_there or await self.tables(name) or await self.views(name) or await self.below(name):
            return dict(state.properties)
        return None

    async def tables(self, namespace: str) -> list[str]:
        """The names of the tables in `namespace`, without it, ascending; none if there is no such namespace.

        Raises:
            Unavailable: `store-unavailable`.

        """
        return await self._those(namespace, NameState.TABLE)

    async def views(self, namespace: str) -> list[str]:
        """As `tables`, the views."""
        return await self._those(namespace, NameState.VIEW)

    async def exists(self, name: TableName, state: NameState = NameState.TABLE) -> bool:
        """Whether the warehouse has the table `name`, or the view, now.

        Raises:
            Unavailable: `store-unavailable`.

        """
        return await self._state_of(name) is state

    async def _those(self, namespace: str, state: NameState) -> list[str]:
        if namespace_in(namespace) is None:
            return []
        async with self._places:
            folders = await self._store.folders(f"{namespace}/")
        names = [name for folder in folders if (name := table_in(folder)) is not None]
        found = await asyncio.gather(*(self._state_in_turn(name) for name in names))
        return sorted(name_in_namespace(name) for name, there in zip(names, found, strict=True) if there is state)

    async def _state_of(self, name: TableName) -> NameState | None:
        head = await find_head(self._store, name)
        if head is None:
            self._known.pop(name, None)
            return None
        known = self._known.get(name)
        if known is not None and known.version == head.version:
            return known.state
        try:
            root = await at_head(self._store, name, lambda found: read_root(self._store, name, found.version), head)
        except Corrupt:
            return NameState.TABLE  # it is there, and says so when it is loaded
        if root is None:
            return None
        self._known[name] = _Seen(root.header.version, root.header.name_is)
        return root.header.name_is

    async def _state_in_turn(self, name: TableName) -> NameState | None:
        async with self._places:
            return await self._state_of(name)

    async def _is_namespace(self, name: NamespaceName) -> bool:
        for known, seen in self._known.items():  # what was there is looked at first: mostly it still is
            if seen.state is not NameState.TOMBSTONE and namespace_of(known) == name:
                if await self._state_in_turn(known) in (NameState.TABLE, NameState.VIEW):
                    return True
                break
        if await self.tables(name) or await self.views(name):
            return True
        async with self._places:
            return await is_created(self._store, name)
