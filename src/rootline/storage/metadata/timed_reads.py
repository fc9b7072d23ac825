"""A store each of whose reads has a deadline of its own.

Owns: the deadlines. Does not own: what is read, how often it is tried again.
Invariants: many reads may take long together; a single one that hangs ends as `TimeoutError`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from rootline.ports.object_store import Listing, LongObject, ObjectStore, Predecessor, PutReply, StoredObject
from rootline.schemas.identifiers import ObjectKey
from rootline.storage.whole_objects import get_up_to, parts_of


@dataclass(frozen=True, slots=True)
class TimedReads(ObjectStore):
    """`store`, each of whose answers may take `timeout_s` seconds."""

    store: ObjectStore
    timeout_s: float

    async def get(self, key: ObjectKey) -> StoredObject | None:
        """As the store, in time."""
        async with asyncio.timeout(self.timeout_s):
            return await self.store.get(key)

    async def get_up_to(self, key: ObjectKey, bytes_max: int) -> StoredObject | LongObject | None:
        """As the store, in time."""
        async with asyncio.timeout(self.timeout_s):
            return await get_up_to(self.store, key, bytes_max)

    async def list(self, prefix: str, *, limit: int | None = None) -> Listing:
        """As the store, in time."""
        async with asyncio.timeout(self.timeout_s):
            return await self.store.list(prefix, limit=limit)

    async def stored_ms(self, key: ObjectKey) -> int | None:
        """As the store, in time."""
        async with asyncio.timeout(self.timeout_s):
            return await self.store.stored_ms(key)

    async def folders(self, prefix: str) -> Sequence[str]:
        """As the store, in time."""
        async with asyncio.timeout(self.timeout_s):
            return await self.store.folders(prefix)

    async def length_of(self, key: ObjectKey) -> int | None:
        """As the store, in time."""
        async with asyncio.timeout(self.timeout_s):
            return await parts_of(self.store).length_of(key)

    async def part_of(self, key: ObjectKey, start: int, length: int) -> bytes | None:
        """As the store, in time."""
        async with asyncio.timeout(self.timeout_s):
            return await parts_of(self.store).part_of(key, start, length)

    async def put_if_absent(self, key: ObjectKey, body: bytes, *, after: Predecessor | None = None) -> PutReply:
        """As the store, in time."""
        async with asyncio.timeout(self.timeout_s):
            return await self.store.put_if_absent(key, body, after=after)

    async def close(self) -> None:
        """As the store."""
        await self.store.close()
