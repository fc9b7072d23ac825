"""Saved reads of metadata: a bounded cache, the counted reads of one plan, and a root that is read ahead by a hint.

Owns: the content and lifetime of the cache, the objects that may be cached as bytes, the count of requests, the use of
one hint for one opening of a table, memory-mapped bytes of long-lived leaves. Does not own: reading and verifying
(`root_reader`, `object_reader`), hints (`rootline.ports.head_hints`).
Words: a *hint* is a message of a coordinator that names the newest version of a table. It may be wrong.
Invariants: the cache is bounded by bytes, and the least recently used object is evicted first. Only verified immutable
objects are cached. Losing the whole cache changes only latency. A listing always goes to the store, and it alone
decides which root is the newest. A root that was read ahead is used once, and only if the LIST names the same key. No
read waits for a hint. A request is counted exactly if it was sent, except a read ahead after a wrong hint. Mapped bytes
live until their last reference. If the disk has no room, they stay in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import re
import tempfile
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from typing_extensions import override

from rootline.library_log import library_logger
from rootline.ports.head_hints import HeadHints, HintOutcome
from rootline.ports.object_store import Listing, ObjectStore, Predecessor, PutReply, StoredObject
from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.identifiers import ObjectKey, TableName
from rootline.schemas.object_keys import is_absolute, root_key, roots_prefix
from rootline.storage.stored_objects import parts_of

LEAST_BYTES: Final = 65_536
"""Smaller objects stay in memory: a file and a mapping would cost more."""


def mapped(body: bytes) -> bytes | pa.Buffer:
    """`body`, memory-mapped from a file if it is large. Blocks during the write."""
    if len(body) < LEAST_BYTES:
        return body
    try:
        with tempfile.TemporaryFile(prefix="rootline-leaf-") as file:
            file.write(body)
            file.flush()
            return pa.py_buffer(mmap.mmap(file.fileno(), len(body), prot=mmap.PROT_READ))
    except OSError as error:
        library_logger().warning(
            "no room for leaves on the temporary disk, so they stay in memory",
            action="free disk space, or set TMPDIR to another disk",
            folder=tempfile.gettempdir(),
            reason=str(error),
        )
        return body


@contextlib.asynccontextmanager
async def hinted_reads(store: ObjectStore, table: TableName, hints: HeadHints) -> AsyncIterator[ObjectStore]:
    """Yield `store`. If there is a hint, the newest root of `table` is read already, before the LIST that finds it."""
    if not hints.are_kept:
        yield store
        return
    reads = _HintedReads(store, table, hints)
    try:
        yield reads
    finally:
        await reads.forget()


@dataclass(slots=True)
class _Ahead:
    """A pending hint, and the GET that follows it. `key`: the key of the hinted root, once known."""

    key: ObjectKey | None = None
    is_known: bool = False
    task: asyncio.Task[StoredObject | None] | None = None


@dataclass(slots=True)
class _HintedReads(ObjectStore):
    store: ObjectStore
    table: TableName
    hints: HeadHints
    _ahead: _Ahead = field(default_factory=_Ahead)

    @override
    async def list(self, prefix: str, *, limit: int | None = None) -> Listing:
        ahead = self._ahead
        if ahead.task is not None or limit != 1 or prefix != roots_prefix(self.table):
            return await self.store.list(prefix, limit=limit)
        ahead.task = asyncio.ensure_future(self._get_ahead(ahead))
        listing = await self.store.list(prefix, limit=limit)
        is_right = ahead.key is not None and tuple(listing.keys) == (ahead.key,)
        if ahead.key is not None:
            self.hints.judged(HintOutcome.RIGHT if is_right else HintOutcome.WRONG)
        else:
            self.hints.judged(HintOutcome.NONE if ahead.is_known else HintOutcome.LATE)
        if not is_right:
            await self.forget()
        return listing

    @override
    async def get(self, key: ObjectKey) -> StoredObject | None:
        ahead = self._ahead
        if ahead.task is None or ahead.key != key:
            return await self.store.get(key)
        ahead.key = None  # used once: a second read must return the current state
        try:
            found = await ahead.task
        except Exception:  # any error of a guess is ignored
            found = None
        return await self.store.get(key) if found is None else found

    async def forget(self) -> None:
        """Cancel the read ahead, or drop its unused result."""
        self._ahead.key = None
        task = self._ahead.task
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait({task})
        if task is not None and not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not report it: it was only a guess

    async def _get_ahead(self, ahead: _Ahead) -> StoredObject | None:
        version = await self.hints.newest(self.table)
        ahead.is_known = True
        if version is None:
            return None
        ahead.key = root_key(self.table, version)
        return await self.store.get(ahead.key)

    @override
    async def put_if_absent(self, key: ObjectKey, body: bytes, *, after: Predecessor | None = None) -> PutReply:
        return await self.store.put_if_absent(key, body, after=after)

    @override
    async def stored_ms(self, key: ObjectKey) -> int | None:
        return await self.store.stored_ms(key)

    @override
    async def folders(self, prefix: str) -> Sequence[str]:
        return await self.store.folders(prefix)

    async def length_of(self, key: ObjectKey) -> int | None:
        return await parts_of(self.store).length_of(key)

    async def part_of(self, key: ObjectKey, start: int, length: int) -> bytes | None:
        return await parts_of(self.store).part_of(key, start, length)

    @override
    async def close(self) -> None:
        await self.store.close()


CACHE_BYTES_MAX: Final = 256 * 1024 * 1024
_DECODED_FACTOR: Final = 2
"""The size of a leaf in memory, with the columns cached by planning, as a multiple of its stored bytes."""
_ROW_BYTES: Final = 1_000
"""The approximate size of a root's row in memory, besides its bytes."""


class ReadCache:
    """A cache for all tables: leaves, the newest root of each table, and bytes of roots, definitions, vectors and
    pages.
    """

    def __init__(self, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self._kept: OrderedDict[str, tuple[Leaf | Root | bytes, int]] = OrderedDict()
        self._bytes = 0

    @property
    def size_in_bytes(self) -> int:
        """The current size of the cached objects."""
        return self._bytes

    def leaf(self, table: TableName, location: str) -> Leaf | None:
        """The leaf at `location`, if it is cached."""
        found = self._get(_leaf_name(table, location))
        return found if isinstance(found, Leaf) else None

    def keep_leaf(self, table: TableName, leaf: Leaf) -> None:
        """Cache a verified leaf."""
        self._keep(_leaf_name(table, leaf.location), leaf, leaf.size_in_bytes * _DECODED_FACTOR)

    def root(self, table: TableName) -> Root | None:
        """The newest cached root of `table`."""
        found = self._get(f"root {table}")
        return found if isinstance(found, Root) else None

    def keep_root(self, root: Root) -> None:
        """Cache a verified root, replacing an older one of its table."""
        known, name = self.root(root.header.table), f"root {root.header.table}"
        if known is not None and known.header.version >= root.header.version:
            return
        self._forget(name)
        tails = sum(len(row.tail) for row in root.rows)
        self._keep(name, root, root.row_count * _ROW_BYTES + tails * _DECODED_FACTOR)

    def body(self, key: ObjectKey) -> bytes | None:
        """The bytes of the object `key`, if they are cached."""
        found = self._get(key)
        return found if isinstance(found, bytes) else None

    def keep_body(self, key: ObjectKey, body: bytes) -> None:
        """Cache an object's bytes."""
        self._keep(key, body, len(body))

    def _get(self, name: str) -> Leaf | Root | bytes | None:
        kept = self._kept.get(name)
        if kept is None:
            return None
        self._kept.move_to_end(name)
        return kept[0]

    def _forget(self, name: str) -> None:
        _, freed = self._kept.pop(name, (b"", 0))
        self._bytes -= freed

    def _keep(self, name: str, value: Leaf | Root | bytes, size_in_bytes: int) -> None:
        if name in self._kept or size_in_bytes > self.bytes_max:
            return
        self._kept[name] = (value, size_in_bytes)
        self._bytes += size_in_bytes
        while self._bytes > self.bytes_max:
            _, (_, freed) = self._kept.popitem(last=False)
            self._bytes -= freed


def _leaf_name(table: TableName, location: str) -> str:
    return f"leaf {table} {location}"  # per table: an older format's manifest is decoded with that table's definition


_LEAF: Final = re.compile(r"[^/]+/[^/]+/metadata/leaves/")
_NEVER_CHANGES: Final = re.compile(r"[^/]+/[^/]+/metadata/(roots|definitions|vectors|pages)/")


@dataclass(frozen=True, slots=True)
class PlanRequests:
    """The requests of a plan to the store. `leaves` counts the GETs of leaves."""

    lists: int = 0
    gets: int = 0
    leaves: int = 0

    @property
    def total(self) -> int:
        """The number of all requests."""
        return self.lists + self.gets


class PlanningReads(ObjectStore):
    """An object store that takes immutable metadata from the cache, and counts the other requests.

    `puts`: how many objects it was given to store, of `bytes_put` bytes together.
    """

    def __init__(self, store: ObjectStore, cache: ReadCache) -> None:
        self._store = store
        self._cache = cache
        self._fresh: dict[ObjectKey, bytes] = {}
        self._lists = self._gets = self._leaves = self.puts = self.bytes_put = 0

    @property
    def requests(self) -> PlanRequests:
        """The requests up to now."""
        return PlanRequests(self._lists, self._gets, self._leaves)

    async def get(self, key: ObjectKey) -> StoredObject | None:
        """The object, without its dates if it was cached."""
        is_kept = _NEVER_CHANGES.match(key) is not None and not is_absolute(
            key
        )  # others may change objects at absolute locations
        if is_kept and (body := self._cache.body(key)) is not None:
            return StoredObject(key, body, None, None)
        self._gets += 1
        self._leaves += _LEAF.match(key) is not None
        found = await self._store.get(key)
        if found is not None and is_kept:
            self._fresh[key] = found.body
        return found

    def keep(self) -> None:
        """Cache the objects that were read, after the caller has verified them."""
        for key, body in self._fresh.items():
            self._cache.keep_body(key, body)
        self._fresh.clear()

    @override
    async def list(self, prefix: str, *, limit: int | None = None) -> Listing:
        self._lists += 1
        return await self._store.list(prefix, limit=limit)

    @override
    async def stored_ms(self, key: ObjectKey) -> int | None:
        self._gets += 1
        return await self._store.stored_ms(key)

    @override
    async def folders(self, prefix: str) -> Sequence[str]:
        self._lists += 1
        return await self._store.folders(prefix)

    @override
    async def put_if_absent(self, key: ObjectKey, body: bytes, *, after: Predecessor | None = None) -> PutReply:
        self.puts += 1
        self.bytes_put += len(body)
        return await self._store.put_if_absent(key, body, after=after)

    async def close(self) -> None:
        """Do nothing: the owner closes the store."""
