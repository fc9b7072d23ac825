"""Removes the roots of versions that can no longer be read, when no one can be at work with them any more.

Owns: which root objects may go by now. Does not own: which versions can be read (the head says it), deletion itself
(the `ObjectRemover`).
Invariants: never the head, nor a version that it names; never a key that is not exactly a root's; in a store that dates
its objects, only what a root of at least `root_retention_s` ago gave up already, by the store's dates, and by the
worker's clock if that is earlier; anything that cannot be read ends the removal. A version that was given up never
comes back, so a head that is not the newest any more, a removal that ends half way, and two of them at once are all
safe.

Theory. A root N may be removed a retention after the root that gave N up. The newest root that is a retention old says
what had been given up by then, so one GET answers for all of them. It is later than root N+1. A folder has no dates of
its own, only this machine's: there commits and removals exclude each other by a lock, and nothing has to wait.

Source: definitions page, section 4; protocol page, section 1.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rootline.maintenance.limits import ExpiryLimits
from rootline.ports.object_remover import DatedObject, ObjectRemover
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.object_keys import root_key, roots_prefix, version_of_root_key
from rootline.schemas.root_header import RootHeader
from rootline.storage.metadata.object_reader import read_kept
from rootline.storage.metadata.root_reader import find_head, read_definition, read_root
from rootline.tree.state.addressable import Addressable
from rootline.workers.jobs.batched_removal import in_batches, remove_batches
from rootline.workers.jobs.job import JobContext, JobOutcome, JobReport, Removed

GivesUp = Callable[[Version], bool]
AGAIN_S: Final = 60.0
"""Until the next look at a table that has roots which must wait: they go in the order in which they were given up."""
_BATCH: Final = 1_000


@dataclass(frozen=True, slots=True)
class _Found:
    """Objects that may go now, and those that must wait."""

    free: Sequence[DatedObject] = ()
    waiting: Sequence[DatedObject] = ()


class RootRemoval:
    """For any number of tables; a table is looked through when there is news of it, or after `AGAIN_S`."""

    def __init__(self, context: JobContext, remover: ObjectRemover) -> None:
        self._reads, self._remover, self._environment = context.reads, remover, context.environment
        self._due_s: dict[TableName, float] = {}
        self._now = context.now

    async def run(self, table: TableName, *, is_news: bool) -> JobReport:
        """Remove what may go. `is_news`: versions have just been given up."""
        now_s = self._environment.monotonic_s()
        if not is_news and not self._now and now_s < self._due_s.get(table, now_s):
            return JobReport(JobOutcome.NOTHING_DUE)
        self._due_s[table] = now_s + AGAIN_S  # also if this fails
        found = await self._found(table)
        batches = in_batches([item.key for item in found.free], _BATCH)
        left = await remove_batches(self._remover, batches, self._environment.monotonic_s)
        if left is not None:
            raise left
        again_s = AGAIN_S if found.waiting else None
        if not found.waiting:
            self._due_s[table] = float("inf")
        if not found.free:
            return JobReport(JobOutcome.NOTHING_DUE, again_s=again_s)
        return JobReport(JobOutcome.REMOVED, removed=_summed(found.free), again_s=again_s)

    async def would_remove(self, table: TableName, gives_up: GivesUp) -> tuple[Removed, ...]:
        """What `run` would remove: now, and a retention later. `gives_up`: versions that go with an expiry to come."""
        found = await self._found(table, gives_up)
        return (*_summed(found.free), *_summed(found.waiting, "roots later"))

    async def _found(self, table: TableName, gives_up: GivesUp | None = None) -> _Found:
        head = await find_head(self._reads, table)
        if head is None:
            return _Found()
        newest = await read_root(self._reads, table, head.version)
        header = newest.header
        if header.expiry is None and gives_up is None:
            return _Found()
        objects = {version: item async for version, item in self._roots(table) if version <= header.version}
        named = Addressable.of(header, await read_kept(self._reads, header))
        gone = {
            version: item
            for version, item in objects.items()
            if version < header.version and (not named.has(version) or (gives_up is not None and gives_up(version)))
        }
        if not gone or head.store_ms is None:
            return _Found(list(gone.values()))
        limits = ExpiryLimits.of_properties((await read_definition(self._reads, header)).properties)
        now_ms = min(head.store_ms, self._environment.now_ms())  # one answer that is ahead must not make roots old
        cutoff_ms = now_ms - limits.root_retention_s * 1_000
        witness = await self._newest_until(table, cutoff_ms, objects)
        if witness is None:
            return _Found((), list(gone.values()))
        then = Addressable.of(witness, await read_kept(self._reads, witness))
        free = {
            version
            for version, item in gone.items()
            if version < witness.version and not then.has(version) and item.last_modified_ms <= cutoff_ms
        }
        return _Found(
            [gone[version] for version in free], [item for version, item in gone.items() if version not in free]
        )

    async def _newest_until(
        self, table: TableName, cutoff_ms: int, objects: dict[Version, DatedObject]
    ) -> RootHeader | None:
        """The newest root that is so old, if it had given anything up."""
        old = [version for version, item in objects.items() if item.last_modified_ms <= cutoff_ms]
        if not old:
            return None
        try:
            header = (await read_root(self._reads, table, max(old))).header
        except Corrupt as error:
            if error.code != "object-missing":
                raise
            return None  # another process removed it a moment ago: the next look finds a newer one
        return None if header.expiry is None else header

    async def _roots(self, table: TableName) -> AsyncIterator[tuple[Version, DatedObject]]:
        async for page in self._remover.inventory(roots_prefix(table)):
            for item in page:
                version = version_of_root_key(item.key)
                if version is not None and item.key == root_key(table, version):
                    yield version, item


def _summed(objects: Sequence[DatedObject], kind: str = "roots") -> tuple[Removed, ...]:
    return (Removed(kind, len(objects), sum(item.length for item in objects)),) if objects else ()
