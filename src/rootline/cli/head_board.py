"""Heads of many tables, kept up to date with few requests.

Owns: which heads are found, and which of their roots are read back, at a refresh. Does not own: reading one
(`head_finder`, `root_reader`), what is shown of them.
Invariants: the first look finds each head once, one LIST each, a few at once; a later one finds at most `AGAIN_MAX`
of them, those that someone waits for first, then those that were found longest ago; each look reads at most `roots_max`
roots in the same order, or a look at ten thousand tables would read gigabytes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from rootline.coordinator.runtime.table.table_states import unreadable_head
from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.errors import Corrupt, Unavailable
from rootline.schemas.identifiers import TableName, Version
from rootline.storage.few_at_once import gather_bounded
from rootline.storage.metadata.head_finder import HeadKey, at_head, find_head
from rootline.storage.metadata.root_reader import read_root
from rootline.storage.metadata.table_head import newest_root
from rootline.storage.metadata.table_names import names_of_folders

AGAIN_MAX: Final = 50
NAMES_EVERY: Final = 10
ROOTS_MAX: Final = 50
_AT_ONCE: Final = 8


class HeadCache:
    """For one store; a name whose folder holds no root is none."""

    def __init__(self, store: ObjectStore, only: TableName | None = None, roots_max: int = ROOTS_MAX) -> None:
        self._store = store
        self._roots_max = roots_max
        self._only = only
        self._read: dict[TableName, Version | None] = {}
        """In the order in which they were read."""
        self._looks = 0
        self._proven: dict[TableName, None] = {}
        """Tables whose newest root was read back, in that order."""
        self.damaged: dict[TableName, str] = {}
        """Why the newest root of a table cannot be read back, as far as the roots were read."""

    async def refresh(self, urgent: Collection[TableName]) -> dict[TableName, Version]:
        """Versions by name, after one more look. Raises `Unavailable` (`store-unavailable`)."""
        names = [self._only] if self._only is not None else await self._names()
        fresh = [name for name in names if name not in self._read]
        known = sorted((name for name in self._read if name not in fresh), key=lambda name: name not in urgent)
        due = [*fresh, *known[: max(0, AGAIN_MAX - len(fresh))]]
        for name, head in zip(due, await gather_bounded(due, self._head, _AT_ONCE), strict=True):
            self._read.pop(name, None)
            self._read[name] = head
        await self._prove([name for name in due if self._read[name] is not None], urgent)
        return {name: head for name, head in self._read.items() if head is not None}

    async def _prove(self, found: Collection[TableName], urgent: Collection[TableName]) -> None:
        order = {name: number for number, name in enumerate(self._proven)}
        due = sorted(found, key=lambda name: (name not in urgent, order.get(name, -1)))[: self._roots_max]
        for name, why in zip(due, await gather_bounded(due, self._wrong_with, _AT_ONCE), strict=True):
            self._proven.pop(name, None)
            self._proven[name] = None
            self.damaged.pop(name, None)
            if why:
                self.damaged[name] = why

    async def _wrong_with(self, name: TableName) -> str:
        versions = [self._read[name] or Version(0)]

        async def read(head: HeadKey) -> None:
            versions.append(head.version)
            found = await read_root(self._store, name, head.version)
            self._read[name] = found.header.version

        try:
            await at_head(self._store, name, read, HeadKey(versions[0], None))
        except Corrupt as error:
            return unreadable_head(versions[-1], f"{error.code}: {error.message}")
        except Unavailable:  # of this one root, or the next LIST finds out: it says nothing of the bytes
            return ""
        return ""

    async def newest_root(self, name: TableName) -> Root | None:
        """The newest root of one of the names. Raises as `newest_root`."""
        return await newest_root(self._store, name)

    async def _names(self) -> list[TableName]:
        """Folders that may be tables'; they are listed at every tenth look, one LIST for each namespace."""
        self._looks += 1
        if self._looks % NAMES_EVERY != 1:
            return list(self._read)
        return await names_of_folders(self._store)

    async def _head(self, name: TableName) -> Version | None:
        found = await find_head(self._store, name)
        return None if found is None else found.version
