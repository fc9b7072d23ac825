"""Heads of many tables, kept up to date with few requests.

Owns: which heads are read at a refresh. Does not own: reading one (`head_finder`), what is shown of them.
Invariants: the first look reads each head once, one LIST each, a few at once; a later one reads at most
`AGAIN_MAX` of them: those that someone waits for first, then those that were read longest ago.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.object_keys import table_in
from rootline.storage.few_at_once import few_at_once
from rootline.storage.metadata.head_finder import find_head
from rootline.storage.metadata.table_head import newest_root

AGAIN_MAX: Final = 50
NAMES_EVERY: Final = 10
_AT_ONCE: Final = 8


class HeadBoard:
    """For one store; a name whose folder holds no root is none."""

    def __init__(self, store: ObjectStore, only: TableName | None = None) -> None:
        self._store = store
        self._only = only
        self._read: dict[TableName, Version | None] = {}
        """In the order in which they were read."""
        self._looks = 0

    async def refresh(self, urgent: Collection[TableName]) -> dict[TableName, Version]:
        """Versions by name, after one more look. Raises `Unavailable` (`store-unavailable`)."""
        names = [self._only] if self._only is not None else await self._names()
        fresh = [name for name in names if name not in self._read]
        known = sorted((name for name in self._read if name not in fresh), key=lambda name: name not in urgent)
        due = [*fresh, *known[: max(0, AGAIN_MAX - len(fresh))]]
        for name, head in zip(due, await few_at_once(due, self._head, _AT_ONCE), strict=True):
            self._read.pop(name, None)
            self._read[name] = head
        return {name: head for name, head in self._read.items() if head is not None}

    async def newest_root(self, name: TableName) -> Root | None:
        """The newest root of one of the names. Raises as `newest_root`."""
        return await newest_root(self._store, name)

    async def _names(self) -> list[TableName]:
        """Folders that may be tables'; they are listed at every tenth look, one LIST for each namespace."""
        self._looks += 1
        if self._looks % NAMES_EVERY != 1:
            return list(self._read)
        folders = [
            folder for namespace in await self._store.folders("") for folder in await self._store.folders(namespace)
        ]
        return [name for name in map(table_in, folders) if name is not None]

    async def _head(self, name: TableName) -> Version | None:
        found = await find_head(self._store, name)
        return None if found is None else found.version
