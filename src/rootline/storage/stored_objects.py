"""Reads and writes of immutable objects, with limits on concurrency and time, and a check of each object's length.

Owns: concurrency of many requests, a deadline for each read, range reads where a store has none, the key of a location,
the errors for absent objects and wrong lengths, the meaning of replies to the PUT of an immutable object. Does not own:
the meaning of the bytes, retries, PUTs of roots (only the coordinator writes roots).
Invariants: bytes of an unexpected length are never returned. Many reads together may take long, but a single read that
hangs ends as `TimeoutError`. The first failure of concurrent requests is raised itself, not in a group of exceptions.
A PUT never replaces an object: the caller gets the bytes that are stored, which another writer may have stored first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from typing_extensions import override

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
    """The results of `work` on each item, in the items' order. At most `at_once` are running at a time.

    The first error cancels the running ones and is raised unchanged, not in a group.
    """
    slots = asyncio.Semaphore(at_once)

    async def one(item: T) -> R:
        async with slots:
            return await work(item)

    async with plain_task_group() as group:
        tasks = [group.create_task(one(item)) for item in items]
    return [task.result() for task in tasks]


def parts_of(store: ObjectStore) -> ObjectParts:
    """The store itself if it reads parts, otherwise an adapter that reads whole objects."""
    return store if isinstance(store, ObjectParts) else WholeObjects(store)


async def get_up_to(store: ObjectStore, key: ObjectKey, bytes_max: int) -> StoredObject | LongObject | None:
    """The object, or only its length if that is above `bytes_max`. Raises the errors of `ObjectStore.get`."""
    if isinstance(store, ObjectsUpTo):
        return await store.get_up_to(key, bytes_max)
    found = await store.get(key)
    return found if found is None or len(found.body) <= bytes_max else LongObject(len(found.body))


@dataclass(frozen=True, slots=True)
class WholeObjects(ObjectParts):
    """Part reads for a store without them. Each costs a GET of the whole object."""

    store: ObjectStore

    @override
    async def length_of(self, key: ObjectKey) -> int | None:
        found = await self.store.get(key)
        return None if found is None else len(found.body)

    @override
    async def part_of(self, key: ObjectKey, start: int, length: int) -> bytes | None:
        found = await self.store.get(key)
        return None if found is None else found.body[start : start + length]


def stored_key(table: TableName, location: str) -> ObjectKey:
    """The key of a location of `table`. An absolute location is its own key, for `ObjectStore.get` only."""
    return ObjectKey(location) if is_absolute(location) else key_of(table, location)


async def read_stored(
    store: ObjectStore,
    table: TableName,
    location: str,
    *,
    code: str,
    length: int | None = None,
    bytes_max: int | None = None,
) -> bytes:
    """Read the bytes at `location`.

    Args:
        store: where they are stored.
        table: the table that names the location.
        location: relative or absolute.
        code: the error code if there are not `length` bytes, or more than `bytes_max`.
        length: the stated length.
        bytes_max: the most bytes that are read. More are not fetched.

    Raises:
        Corrupt: `object-missing`, or `code`.
        Invalid: `file-unreadable`, the store does not read such an absolute location.
    """
    key = stored_key(table, location)
    limits = [limit for limit in (length, bytes_max) if limit is not None]
    found = await (get_up_to(store, key, min(limits)) if limits else store.get(key))
    if found is None:
        raise Corrupt("object-missing", f"{key}: the table names this object, but it does not exist")
    stored = found.length if isinstance(found, LongObject) else len(found.body)
    if bytes_max is not None and stored > bytes_max:
        raise Corrupt(code, f"{key}: {stored} bytes are stored, {bytes_max} are read: write a smaller object")
    if isinstance(found, LongObject) or (length is not None and stored != length):
        raise Corrupt(code, f"{key}: {stored} bytes are stored, its entry states {length}")
    return found.body


async def read_file(store: ObjectStore, table: TableName, entry: ContentEntry, *, code: str) -> bytes:
    """The bytes of the file of `entry`, with the length that it states. Raises the errors of `read_stored`."""
    return await read_stored(store, table, entry.location, code=code, length=entry.file_size_in_bytes)


async def store_object(store: ObjectStore, key: ObjectKey, body: bytes) -> bytes:
    """Store `body` under `key`, unless an object exists there. Return the bytes of the stored object.

    Compare the result with `body`: another writer may have stored its object first. An object is never overwritten or
    deleted. After any error the same call is safe to repeat.

    Raises:
        Unavailable: `store-unavailable`, the store did not confirm the object, which may be stored.
    """
    return (await store_dated(store, key, body)).body


@dataclass(frozen=True, slots=True)
class DatedBody:
    """The bytes of a stored object, and the store's date of it, or `None` if the store has none."""

    body: bytes
    stored_ms: int | None


async def store_dated(store: ObjectStore, key: ObjectKey, body: bytes) -> DatedBody:
    """Call `store_object`, and also return the date of the stored object, or of the reply that created it."""
    reply = await store.put_if_absent(key, body)
    if reply.answer is PutStatus.CREATED:
        return DatedBody(body, reply.store_ms)
    found = await store.get(key)  # the own PUT may have been sent twice, or its reply lost
    if found is None:
        reason = reply.detail or reply.answer.value
        raise Unavailable("store-unavailable", f"{key}: the store did not confirm this object ({reason}); try again")
    return DatedBody(found.body, found.last_modified_ms)


_AT_ONCE: Final = 16
_FILES_AT_ONCE: Final = 64


async def stored_dates(store: ObjectStore, table: TableName, locations: Sequence[str]) -> dict[str, int | None]:
    """The time when each location was stored, in milliseconds, or `None` if it does not exist. Raises `Unavailable`."""

    async def date_of(location: str) -> int | None:
        try:
            return await store.stored_ms(stored_key(table, location))
        except Invalid:
            return None  # no store can have such a key

    return dict(zip(locations, await gather_bounded(locations, date_of, _AT_ONCE), strict=True))


@dataclass(frozen=True, slots=True)
class StoredFile:
    """The length of a stored file, and the store's date of it, or `None` for an absolute location."""

    length: int
    stored_ms: int | None


async def stored_files(store: ObjectStore, table: TableName, locations: Sequence[str]) -> dict[str, StoredFile]:
    """The length and date of each file, 64 files at a time.

    Raises:
        Invalid: `file-missing`, naming a file that does not exist; `file-unreadable`.
        Unavailable: `store-unavailable`.
    """
    parts = parts_of(store)

    async def look(location: str) -> StoredFile:
        key = stored_key(table, location)
        try:
            if is_absolute(location):
                length, stored_ms = await parts.length_of(key), None
            else:
                length, stored_ms = await asyncio.gather(parts.length_of(key), store.stored_ms(key))
        except Invalid as error:
            if error.code != "location-invalid":
                raise
            length = None  # no store can have such a key
        if length is None or (stored_ms is None and not is_absolute(location)):
            raise Invalid("file-missing", f"{location!r} does not exist, or cannot be read: upload it first")
        return StoredFile(length, stored_ms)

    return dict(zip(locations, await gather_bounded(locations, look, _FILES_AT_ONCE), strict=True))


@dataclass(frozen=True, slots=True)
class TimedReads(ObjectStore):
    """`store` with a timeout of `timeout_s` seconds for each request."""

    store: ObjectStore
    timeout_s: float

    @override
    async def get(self, key: ObjectKey) -> StoredObject | None:
        async with asyncio.timeout(self.timeout_s):
            return await self.store.get(key)

    async def get_up_to(self, key: ObjectKey, bytes_max: int) -> StoredObject | LongObject | None:
        """The same as `get_up_to` of the store, within the timeout."""
        async with asyncio.timeout(self.timeout_s):
            return await get_up_to(self.store, key, bytes_max)

    @override
    async def list(self, prefix: str, *, limit: int | None = None) -> Listing:
        async with asyncio.timeout(self.timeout_s):
            return await self.store.list(prefix, limit=limit)

    @override
    async def stored_ms(self, key: ObjectKey) -> int | None:
        async with asyncio.timeout(self.timeout_s):
            return await self.store.stored_ms(key)

    @override
    async def folders(self, prefix: str) -> Sequence[str]:
        async with asyncio.timeout(self.timeout_s):
            return await self.store.folders(prefix)

    async def length_of(self, key: ObjectKey) -> int | None:
        """The length of the object, within the timeout."""
        async with asyncio.timeout(self.timeout_s):
            return await parts_of(self.store).length_of(key)

    async def part_of(self, key: ObjectKey, start: int, length: int) -> bytes | None:
        """A part of the object, within the timeout."""
        async with asyncio.timeout(self.timeout_s):
            return await parts_of(self.store).part_of(key, start, length)

    @override
    async def put_if_absent(self, key: ObjectKey, body: bytes, *, after: Predecessor | None = None) -> PutReply:
        async with asyncio.timeout(self.timeout_s):
            return await self.store.put_if_absent(key, body, after=after)

    @override
    async def close(self) -> None:
        await self.store.close()
