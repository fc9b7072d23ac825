"""Reads a table's newest root while the store is still asked which one is the newest.

Owns: one opening of one table: the hint, the GET ahead, and what becomes of it. Does not own: hints
(`rootline.ports.head_hints`), finding the head (`head_finder`), proving the root (`root_reader`).
Invariants: the LIST decides, always and alone; what was read ahead is used only if the LIST names the same key, once;
nothing waits for a hint: when the LIST is there first, it is forgotten; what fails ahead is read again as without it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from rootline.ports.head_hints import HeadHints, HintOutcome
from rootline.ports.object_store import Listing, ObjectStore, Predecessor, PutReply, StoredObject
from rootline.schemas.identifiers import ObjectKey, TableName
from rootline.schemas.object_keys import root_key, roots_prefix
from rootline.storage.whole_objects import parts_of


@contextlib.asynccontextmanager
async def hinted_reads(store: ObjectStore, table: TableName, hints: HeadHints) -> AsyncIterator[ObjectStore]:
    """`store`, of which the newest root of `table` is found and read once, sooner if there is a good hint."""
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
    """A question for a hint, and the GET that follows it. `key`: what the hint named, once it is known."""

    key: ObjectKey | None = None
    is_known: bool = False
    task: asyncio.Task[StoredObject | None] | None = None


@dataclass(slots=True)
class _HintedReads(ObjectStore):
    store: ObjectStore
    table: TableName
    hints: HeadHints
    _ahead: _Ahead = field(default_factory=_Ahead)

    async def list(self, prefix: str, *, limit: int | None = None) -> Listing:
        """As the store; the first look for the newest root also asks for a hint."""
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

    async def get(self, key: ObjectKey) -> StoredObject | None:
        """As the store, or what was read ahead."""
        ahead = self._ahead
        if ahead.task is None or ahead.key != key:
            return await self.store.get(key)
        ahead.key = None  # once: a caller that asks again wants to know what is there now
        try:
            found = await ahead.task
        except Exception:  # whatever it was, it was a guess
            found = None
        return await self.store.get(key) if found is None else found

    async def forget(self) -> None:
        """Give up what was read ahead and not used."""
        self._ahead.key = None
        task = self._ahead.task
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait({task})
        if task is not None and not task.cancelled():
            task.exception()  # seen: it was only a guess

    async def _get_ahead(self, ahead: _Ahead) -> StoredObject | None:
        version = await self.hints.newest(self.table)
        ahead.is_known = True
        if version is None:
            return None
        ahead.key = root_key(self.table, version)
        return await self.store.get(ahead.key)

    async def put_if_absent(self, key: ObjectKey, body: bytes, *, after: Predecessor | None = None) -> PutReply:
        """As the store."""
        return await self.store.put_if_absent(key, body, after=after)

    async def stored_ms(self, key: ObjectKey) -> int | None:
        """As the store."""
        return await self.store.stored_ms(key)

    async def folders(self, prefix: str) -> Sequence[str]:
        """As the store."""
        return await self.store.folders(prefix)

    async def length_of(self, key: ObjectKey) -> int | None:
        """As the store."""
        return await parts_of(self.store).length_of(key)

    async def part_of(self, key: ObjectKey, start: int, length: int) -> bytes | None:
        """As the store."""
        return await parts_of(self.store).part_of(key, start, length)

    async def close(self) -> None:
        """As the store."""
        await self.store.close()
