"""Requests for objects of a store: bounded in number and time, whole or in part, proven in length, stored once.

Owns: concurrency of many requests, a deadline for each read, parts of objects where the store has none, the key of a
location, objects that are absent or of another length, the meaning of answers to the PUT of an immutable object. Does
not own: the meaning of the bytes, retries, roots (the coordinator alone decides about these).
Invariants: bytes of an unexpected length are never returned. Many reads may take long together, and a single one that
hangs ends as `TimeoutError`. The first failure of concurrent requests is raised itself, not in a group of exceptions.
An immutable object is stored once, and its name then contains what the store returned.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from rootline.ports.object_store import (
    Listing,
    LongObject,
    ObjectParts,
    ObjectStore,
    ObjectsUpTo,
    Predecessor,
    PutReply,
    PutStatus,
    StoredObject,
)
from rootline.schemas.content_entry import ContentEntry
from rootline.schemas.errors import Corrupt, Invalid, Unavailable
from rootline.schemas.identifiers import ObjectKey, TableName
from rootline.schemas.object_keys import is_absolute, key_of


@asynccontextmanager
async def plain_task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """An `asyncio.TaskGroup`: the first failure cancels the other tasks, and is raised without a group around it."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


T = TypeVar("T")
R = TypeVar("R")


async def gather_bounded(items: Iterable[T], work: Callable[[T], Awaitable[R]], at_once: int) -> list[R]:
    """The results of `work` on each item, in the items' order; at most `at_once` are under way at a time.

    The first error cancels what is under way and is raised as it is, not in a group.
    """
    slots = asyncio.Semaphore(at_once)

    async def one(item: T) -> R:
        async with slots:
            return await work(item)

    async with plain_task_group() as group:
        tasks = [group.create_task(one(item)) for item in items]
    return [task.result() for task in tasks]


def parts_of(store: ObjectStore) -> ObjectParts:
    """The store itself if it reads parts."""
    return store if isinstance(store, ObjectParts) else WholeObjects(store)


async def get_up_to(store: ObjectStore, key: ObjectKey, bytes_max: int) -> StoredObject | LongObject | None:
    """As `ObjectsUpTo.get_up_to`. Raises as `ObjectStore.get`."""
    if isinstance(store, ObjectsUpTo):
        return await store.get_up_to(key, bytes_max)
    found = await store.get(key)
    return found if found is None or len(found.body) <= bytes_max else LongObject(len(found.body))


@dataclass(frozen=True, slots=True)
class WholeObjects:
    """Each answer costs a GET of the object."""

    store: ObjectStore

    async def length_of(self, key: ObjectKey) -> int | None:
        """As `ObjectParts.length_of`."""
        found = await self.store.get(key)
        return None if found is None else len(found.body)

    async def part_of(self, key: ObjectKey, start: int, length: int) -> bytes | None:
        """As `ObjectParts.part_of`."""
        found = await self.store.get(key)
        return None if found is None else found.body[start : start + length]


def stored_key(table: TableName, location: str) -> ObjectKey:
    """The key that a location of `table` is read under: an absolute one is its own key, for `ObjectStore.get` only."""
    return ObjectKey(location) if is_absolute(location) else key_of(table, location)


async def read_stored(
    store: ObjectStore, table: TableName, location: str, *, code: str, length: int | None = None
) -> bytes:
    """The bytes at `location`; `code` is the error code when their number is not `length`.

    Raises:
        Corrupt: `object-missing`, or `code`.
        Invalid: `file-unreadable`, the store does not read such an absolute location.

    """
    key = stored_key(table, location)
    found = await (store.get(key) if length is None else get_up_to(store, key, length))
    if found is None:
        raise Corrupt("object-missing", f"{key}: the table names this object, but it does not exist")
    stored = found.length if isinstance(found, LongObject) else len(found.body)
    if isinstance(found, LongObject) or (length is not None and stored != length):
        raise Corrupt(code, f"{key}: {stored} bytes are stored, its entry says {length}")
    return found.body


async def read_file(store: ObjectStore, table: TableName, entry: ContentEntry, *, code: str) -> bytes:
    """The bytes of the file that `entry` names, as many as it says. Raises as `read_stored`."""
    return await read_stored(store, table, entry.location, code=code, length=entry.file_size_in_bytes)


async def store_object(store: ObjectStore, key: ObjectKey, body: bytes) -> bytes:
    """Store `body` under `key`, or find an object stored there; the bytes that the store holds.

    They are `body`, unless another object had the name first: compare them. Nothing is overwritten or deleted. After
    any error the same call is safe to repeat.

    Raises:
        Unavailable: `store-unavailable`, the store does not say that it holds the object; perhaps it does.

    """
    return (await store_dated(store, key, body)).body


@dataclass(frozen=True, slots=True)
class Held:
    """The bytes that a store holds, and its own date of them; `None`: it has none."""

    body: bytes
    stored_ms: int | None


async def store_dated(store: ObjectStore, key: ObjectKey, body: bytes) -> Held:
    """As `store_object`, with the date of the object, or of the answer that it was created."""
    reply = await store.put_if_absent(key, body)
    if reply.answer is PutStatus.CREATED:
        return Held(body, reply.store_ms)
    found = await store.get(key)  # one's own PUT may have been sent twice, or its answer lost
    if found is None:
        reason = reply.detail or reply.answer.value
        raise Unavailable("store-unavailable", f"{key}: the store did not confirm this object ({reason}); try again")
    return Held(found.body, found.last_modified_ms)


_AT_ONCE: Final = 16


async def stored_dates(store: ObjectStore, table: TableName, locations: Sequence[str]) -> dict[str, int | None]:
    """When each of these was stored, in milliseconds; `None`: it is not there. Raises `Unavailable`."""

    async def date_of(location: str) -> int | None:
        try:
            return await store.stored_ms(stored_key(table, location))
        except Invalid:
            return None  # no store can hold a key like this

    return dict(zip(locations, await gather_bounded(locations, date_of, _AT_ONCE), strict=True))


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
