"""The requests of one export: counted, and what an answer to a PUT means.

Owns: the count, storing an object that may be there already. Does not own: the store, names and bytes of objects, when
what was read may be kept (`rootline.storage.metadata.read_cache`).
Invariants: exactly the requests that were sent are counted; `write` returns only when the store holds the object, and
returns what it holds; objects of an export are written once and never overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rootline.catalog.export.table_metadata import damaged
from rootline.ports.object_store import Listing, ObjectStore, Predecessor, PutReply, StoredObject
from rootline.schemas.identifiers import ObjectKey
from rootline.storage.stored_objects import store_object


@dataclass(frozen=True, slots=True)
class ExportCost:
    """Requests sent for an export, and bytes of the bodies that were put."""

    lists: int = 0
    gets: int = 0
    puts: int = 0
    bytes_written: int = 0

    def __add__(self, other: ExportCost) -> ExportCost:
        return ExportCost(
            self.lists + other.lists,
            self.gets + other.gets,
            self.puts + other.puts,
            self.bytes_written + other.bytes_written,
        )


class ExportRequests:
    """An object store that counts its requests."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._lists = self._gets = self._puts = self._bytes = 0

    @property
    def cost(self) -> ExportCost:
        """The cost so far."""
        return ExportCost(self._lists, self._gets, self._puts, self._bytes)

    async def get(self, key: ObjectKey) -> StoredObject | None:
        """As the store answers."""
        self._gets += 1
        return await self._store.get(key)

    async def list(self, prefix: str, *, limit: int | None = None) -> Listing:
        """As the store answers."""
        self._lists += 1
        return await self._store.list(prefix, limit=limit)

    async def stored_ms(self, key: ObjectKey) -> int | None:
        """As the store answers."""
        self._gets += 1
        return await self._store.stored_ms(key)

    async def folders(self, prefix: str) -> Sequence[str]:
        """As the store answers."""
        self._lists += 1
        return await self._store.folders(prefix)

    async def put_if_absent(self, key: ObjectKey, body: bytes, *, after: Predecessor | None = None) -> PutReply:
        """As the store answers."""
        self._puts += 1
        self._bytes += len(body)
        return await self._store.put_if_absent(key, body, after=after)

    async def close(self) -> None:
        """Do nothing: the store belongs to the caller."""


async def write(
    store: ObjectStore, key: ObjectKey, body: bytes, says_the_same: Callable[[bytes, bytes], bool]
) -> bytes:
    """Store `body`, or find it stored; the bytes that the store holds.

    They may be others than `body` only if they say the same: another version of a library compresses differently.

    Raises:
        Unavailable: `store-unavailable`, the store does not say that it holds the object; perhaps it does.
        Corrupt: `export-corrupt`, something else is stored under its name.

    """
    held = await store_object(store, key, body)
    if held != body and not says_the_same(held, body):
        raise damaged(key, "something else is stored under this name")
    return held
