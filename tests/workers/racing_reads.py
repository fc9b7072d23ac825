"""A store on which something happens just before one of the reads of roots."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from rootline.ports.object_store import ObjectStore, StoredObject
from rootline.schemas.identifiers import ObjectKey
from rootline.schemas.object_keys import version_of_root_key


class BeforeRead:
    """`store`, but before the read of a root that is number `read`, `happens` is waited for, once."""

    def __init__(self, store: ObjectStore, read: int, happens: Callable[[], Awaitable[None]]) -> None:
        self._store, self._read, self._happens, self._reads = store, read, happens, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def get(self, key: ObjectKey) -> StoredObject | None:
        if version_of_root_key(key) is not None:
            self._reads += 1
            if self._reads == self._read:
                await self._happens()
        return await self._store.get(key)
