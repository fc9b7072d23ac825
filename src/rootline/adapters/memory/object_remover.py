"""Removes objects of a store in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from rootline.adapters.memory.object_store import MemoryObjectStore
from rootline.adapters.object_key_rules import check_key, check_prefix
from rootline.ports.object_remover import DatedObject
from rootline.schemas.identifiers import ObjectKey

_PAGE = 1_000


class MemoryObjectRemover:
    """For the objects of `store`; without a clock all of them are dated 0."""

    def __init__(self, store: MemoryObjectStore) -> None:
        self._store = store

    async def inventory(self, prefix: str) -> AsyncIterator[Sequence[DatedObject]]:
        """All objects under `prefix`, ascending by key, a page at a time."""
        check_prefix(prefix)
        found = self._store.dated(prefix)
        for start in range(0, len(found), _PAGE):
            yield found[start : start + _PAGE]

    async def remove(self, keys: Sequence[ObjectKey]) -> None:
        """Remove these; keys that are not there are passed over."""
        for key in keys:
            check_key(key)
        for key in keys:
            self._store.discard(key)

    async def close(self) -> None:
        """Nothing is held."""
