"""The reads of one plan: through the reader's cache, and counted.

Owns: which objects may be kept as bytes, and the count. Does not own: the cache (`read_cache`), leaves, which are kept
decoded (`table_loader`), what is read (`rootline.client.read.file_plan`).
Invariants: a listing always goes to the store; an object is kept only if its key says that it never changes, and only
after all of the plan was proven: a damaged answer is asked for again; a request is counted exactly if it was sent (but
not what was read ahead because of a wrong hint).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rootline.ports.object_store import Listing, ObjectStore, Predecessor, PutReply, StoredObject
from rootline.schemas.identifiers import ObjectKey
from rootline.schemas.object_keys import is_absolute
from rootline.storage.metadata.read_cache import ReadCache

_LEAF: Final = re.compile(r"[^/]+/[^/]+/metadata/leaves/")
_NEVER_CHANGES: Final = re.compile(r"[^/]+/[^/]+/metadata/(roots|definitions|vectors|pages)/")


@dataclass(frozen=True, slots=True)
class PlanRequests:
    """Requests that a plan sent to the store; `leaves` is how many of the GETs were for leaves."""

    lists: int = 0
    gets: int = 0
    leaves: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.lists + self.gets


class PlanningReads:
    """An object store whose immutable metadata is read once as long as the cache keeps it."""

    def __init__(self, store: ObjectStore, cache: ReadCache) -> None:
        self._store = store
        self._cache = cache
        self._fresh: dict[ObjectKey, bytes] = {}
        self._lists = self._gets = self._leaves = 0

    @property
    def requests(self) -> PlanRequests:
        """Those sent up to now."""
        return PlanRequests(self._lists, self._gets, self._leaves)

    async def get(self, key: ObjectKey) -> StoredObject | None:
        """The object, without its dates when it was kept."""
        is_kept = _NEVER_CHANGES.match(key) is not None and not is_absolute(key)  # those may be changed by others
        if is_kept and (body := self._cache.body(key)) is not None:
            return StoredObject(key, body, None, None)
        self._gets += 1
        self._leaves += _LEAF.match(key) is not None
        found = await self._store.get(key)
        if found is not None and is_kept:
            self._fresh[key] = found.body
        return found

    def keep(self) -> None:
        """Keep what was read: everything that came of it has been proven."""
        for key, body in self._fresh.items():
            self._cache.keep_body(key, body)
        self._fresh.clear()

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
        return await self._store.put_if_absent(key, body, after=after)

    async def close(self) -> None:
        """The store stays open: it is its owner's."""
