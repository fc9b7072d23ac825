"""A table's versions as Iceberg metadata, read from the store or made on demand.

Owns: the choice of version and format, one export at a time for each table and format, the callers that share one.
Does not own: making an export (`export_builder`), the memory (`export_memory`), serving (`rootline.catalog.rest`).
Invariants: concurrent callers for the same version share one export. Callers for the newest version that wait for a
running export share the next one. A failure is not cached. A version that the head does not address is never exported,
and one that only records verdicts is not shown (`export_builder` has the terms).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from rootline.catalog.export_builder import ExportBuilder, stored_export
from rootline.catalog.export_keys import FormatVersion, format_of
from rootline.catalog.export_memory import (
    TABLES_MAX,
    Clock,
    ExportCost,
    ExportMemory,
    Moment,
    TableMemory,
)
from rootline.catalog.metadata_log import VERSIONS_AT_ONCE, shown_at
from rootline.catalog.table_metadata import (
    SnapshotJson,
    StoredMetadata,
)
from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.identifiers import SnapshotId, TableName, Version
from rootline.schemas.root_header import RootHeader
from rootline.storage.metadata.page_reader import read_kept
from rootline.storage.metadata.read_cache import PlanningReads, ReadCache
from rootline.storage.metadata.root_reader import find_head, read_root
from rootline.tree.state.addressable import Addressable, check_is_table

__all__ = ["ExportCost", "ExportedTable", "FormatVersion", "TableExporter"]

RECENT_S: Final = 2.0
"""The time for which a commit may be planned on the newest root of an export."""


@dataclass(frozen=True, slots=True)
class ExportedTable:
    """One version in one format. `metadata` is the metadata.json, `metadata_location` its absolute location.

    `asked_version`: the requested version. `version` is that version, or the newest one before it that changed the
    table. `snapshot_timestamp_ms`: the commit time of the version. `cost`: the requests of this call, zero if it waited
    for another caller's export.
    """

    table: TableName
    version: Version
    format_version: FormatVersion
    metadata_location: str
    metadata: bytes
    snapshot_timestamp_ms: int
    cost: ExportCost
    asked_version: Version


class _Looked(NamedTuple):
    """The export of the head if it is stored, the head's root, and all roots that were read."""

    stored: StoredMetadata | None
    root: Root
    roots: Mapping[Version, Root]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A version to export. `head`: the newest version, if the export is of it. `looked`: what was read before."""

    reads: PlanningReads
    memory: TableMemory
    version: Version
    head: Version | None
    looked: _Looked | None


@dataclass(slots=True)
class _Waiting:
    """An export of the newest version that waits for the running one.

    `committed`: its callers need this version or a newer one. `None`: one of them needs the head.
    """

    task: asyncio.Task[ExportedTable]
    committed: Version | None

    def join(self, committed: Version | None) -> None:
        """Add a caller."""
        known = self.committed
        self.committed = None if known is None or committed is None else max(known, committed)


_Wanted = tuple[TableName, FormatVersion, Version]
_Newest = tuple[TableName, FormatVersion | None]


class TableExporter:
    """Exports tables of one warehouse, on one event loop. Its memory is bounded."""

    def __init__(
        self, store: ObjectStore, base_url: str, *, cache: ReadCache | None = None, clock: Clock = Moment.now
    ) -> None:
        """`base_url`: the absolute URL of the warehouse for engines: `file:///dir`, `s3://bucket/prefix`."""
        self._store = store
        self._cache = ReadCache() if cache is None else cache
        self.base_url = base_url.rstrip("/")
        self._memory = ExportMemory(base_url, clock=clock)
        self._formats: OrderedDict[TableName, tuple[Version, FormatVersion]] = OrderedDict()
        self._clock = clock
        self._recent: OrderedDict[TableName, tuple[Moment, Root]] = OrderedDict()
        self._making: dict[_Wanted, asyncio.Task[StoredMetadata]] = {}
        self._waiting: dict[_Newest, _Waiting] = {}
        self._turns: dict[_Newest, asyncio.Lock] = {}
        self._tasks: set[asyncio.Task[ExportedTable]] = set()

    async def export(
        self,
        table: TableName,
        format_version: FormatVersion | None = None,
        version: Version | None = None,
        *,
        committed: Version | None = None,
    ) -> ExportedTable:
        """The export of `version`, by default of the head.

        Args:
            table: its name.
            format_version: by default the table's property `rootline.export.format`, else V3.
            version: an addressable version. While the table was never swept, also a version that was exported earlier.
            committed: a version that a verdict has just named. The caller needs it, or any newer one, so the newest
                version that is known may be exported instead of the head, without a LIST.

        Raises:
            Invalid: `table-unknown`, `table-dropped`, `version-unknown`, `export-unsupported`,
                `equality-delete-unread`, `file-unreadable`.
            Corrupt: an object is missing or damaged; `export-corrupt`.
            Unavailable: `store-unavailable`.
        """
        if version is not None:
            return await self._export(table, format_version, version)
        wanted = (table, format_version)
        waiting = self._waiting.get(wanted)
        if waiting is not None:
            waiting.join(committed)
            return replace(await asyncio.shield(waiting.task), cost=ExportCost())
        waiting = self._waiting[wanted] = _Waiting(asyncio.create_task(self._export_next(wanted)), committed)
        self._tasks.add(waiting.task)
        waiting.task.add_done_callback(self._finished)
        return await asyncio.shield(waiting.task)

    async def _export_next(self, wanted: _Newest) -> ExportedTable:
        """The export of the head, after the running one. Callers that arrive until then share it.

        A busy table has new versions all the time. So one export is made for all callers that waited, and not one for
        each version that was the newest when someone asked.
        """
        turn = self._turns.setdefault(wanted, asyncio.Lock())
        try:
            await turn.acquire()
        finally:
            waiting = self._waiting.pop(wanted)  # later callers may know of a newer version
        try:
            return await self._export(*wanted, None, waiting.committed)
        finally:
            turn.release()
            if wanted not in self._waiting:
                del self._turns[wanted]

    async def _export(
        self,
        table: TableName,
        format_version: FormatVersion | None,
        version: Version | None,
        committed: Version | None = None,
    ) -> ExportedTable:
        reads = PlanningReads(self._store, self._cache)
        began, head = self._clock(), None
        if version is None:
            head = None if committed is None else self._known_head(table, format_version, committed)
            version = head = await _head(reads, table) if head is None else head
        looked = None
        if format_version is None:
            format_version, looked = await self._format(reads, table, version, head)
        memory = self._memory.of(table, format_version)
        stored = memory.finished.get(version)
        if stored is None or (head is None and memory.is_out_of_date):
            stored = await self._shared(_Asked(reads, memory, version, head, looked))
        shown = stored.version
        root = self._cache.root(table)
        if root is not None and root.header.version == head:
            self._keep_recent(began, root)
        return ExportedTable(
            table=table,
            version=shown,
            format_version=format_version,
            metadata_location=memory.folder.absolute(memory.folder.metadata(shown)),
            metadata=stored.body,
            snapshot_timestamp_ms=stored.timestamp_ms,
            cost=ExportCost(reads.requests.lists, reads.requests.gets, reads.puts, reads.bytes_put),
            asked_version=version,
        )

    def recent_root(self, table: TableName) -> Root | None:
        """A root that was the newest one `RECENT_S` ago or later, if an export has read one."""
        began, root = self._recent.get(table, (None, None))
        is_recent = began is not None and self._clock().monotonic_s - began.monotonic_s <= RECENT_S
        return root if is_recent else None

    async def snapshot(
        self, table: TableName, format_version: FormatVersion, version: Version, snapshot_id: SnapshotId
    ) -> SnapshotJson | None:
        """The snapshot of `version`, whose id is `snapshot_id`: in the newest cached export that has it, else in the
        head's, else in its own.

        `None`: the version changed no entries. Raises the errors of `export`.
        """
        memory = self._memory.of(table, format_version)
        for exported in (None, version):
            found = memory.shown_snapshot(snapshot_id)
            if found is not None:
                return found
            await self.export(table, format_version, exported)
        return memory.shown_snapshot(snapshot_id)

    async def close(self) -> None:
        """Stop running exports. Their stored objects are correct, and the next request continues from them."""
        makings = [*self._tasks, *self._making.values()]
        for making in makings:
            making.cancel()
        await asyncio.gather(*makings, return_exceptions=True)

    def _known_head(self, table: TableName, format_version: FormatVersion | None, committed: Version) -> Version | None:
        """The newest known version, at least `committed`. `None`: the head must be listed."""
        found = format_version or (self._formats[table][1] if table in self._formats else None)
        memory = None if found is None else self._memory.of(table, found)
        if memory is None or memory.head is None or memory.is_out_of_date:
            return None
        return max(committed, memory.head.version, committed if memory.newest is None else memory.newest)

    async def _format(
        self, reads: PlanningReads, table: TableName, version: Version, head: Version | None
    ) -> tuple[FormatVersion, _Looked | None]:
        """The format in the table's property, read once for each version.

        Most versions have the format of the one before, so its export is looked for in the same round of requests.
        """
        known, looked = self._formats.pop(table, None), None
        if known is None or known[0] != version:
            likely = None if known is None or head is None else self._memory.of(table, known[1])
            if likely is not None and likely.newest is not None:
                looked = await self._look(reads, likely, version)
                root = looked.root
            else:
                root, _ = await self._root(reads, table, version, head)
            known = version, format_of((await self._memory.definition(reads, root.header)).properties)
            self._keep(reads, root)
            if likely is not None and likely.folder.format_version is not known[1]:
                looked = None
        self._formats[table] = known
        while len(self._formats) > TABLES_MAX:
            self._formats.popitem(last=False)
        return known[1], looked

    async def _shared(self, asked: _Asked) -> StoredMetadata:
        """The result of the running export of the version, or of a new one. Cancelling a caller does not cancel it."""
        folder = asked.memory.folder
        wanted = (folder.table, folder.format_version, asked.version)
        making = self._making.get(wanted)
        if making is None:
            making = asyncio.create_task(self._found_or_made(asked))
            self._making[wanted] = making
            making.add_done_callback(lambda done: self._forget(wanted, done))
        return await asyncio.shield(making)

    def _finished(self, done: asyncio.Task[ExportedTable]) -> None:
        self._tasks.discard(done)
        if not done.cancelled():
            done.exception()  # retrieved, so that asyncio does not report it if no caller waits

    def _forget(self, wanted: _Wanted, done: asyncio.Task[StoredMetadata]) -> None:
        del self._making[wanted]
        if not done.cancelled():
            done.exception()  # retrieved, so that asyncio does not report it if no caller waits

    async def _found_or_made(self, asked: _Asked) -> StoredMetadata:
        reads, memory, version, head = asked.reads, asked.memory, asked.version, asked.head
        table = memory.folder.table
        async with memory.one_at_a_time:
            if head is None or memory.newest is None:
                stored = await stored_export(reads, memory, version)
                if stored is not None:
                    if head is None:
                        await self._check_stays(reads, memory, version)
                    return stored
                root, newest = await self._root(reads, table, version, head)
                roots = {version: root}
            else:
                found = asked.looked or await self._look(reads, memory, version)
                if found.stored is not None:
                    return found.stored
                root, roots = found.root, dict(found.roots)
                newest = root.header
            memory.meet(newest)

            async def earlier(number: Version) -> Root:
                if number not in roots:
                    roots[number] = await read_root(reads, table, number, known=root)
                return roots[number]

            oldest, _ = memory.readable_of(root.header)
            shown = await shown_at(root, oldest, earlier)
            stored = None if shown is root else await stored_export(reads, memory, shown.header.version)
            if stored is None:
                stored = await ExportBuilder(reads, self._cache, self._memory, memory, shown, roots).build()
            memory.keep(version, stored)
            self._keep(reads, root)
            return stored

    async def _look(self, reads: PlanningReads, memory: TableMemory, head: Version) -> _Looked:
        """Look for the export of the head, and read its root and those since the newest export, all at once.

        This process makes the table's exports, so it needs them most likely.
        """
        table, known = memory.folder.table, self._cache.root(memory.folder.table)
        after = head if memory.newest is None else memory.newest + 1
        first = after if head - VERSIONS_AT_ONCE <= after <= head else head
        roots: dict[Version, Root] = {}

        async def read(number: Version) -> None:
            try:
                roots[number] = await read_root(reads, table, number, known=known)
            except Corrupt as error:
                if number == head or error.code != "object-missing":
                    raise  # an earlier one may have expired

        numbers = map(Version, range(first, head + 1))
        stored, *_ = await asyncio.gather(stored_export(reads, memory, head), *map(read, numbers))
        check_is_table(roots[head].header)
        return _Looked(stored, roots[head], roots)

    async def _check_stays(self, reads: PlanningReads, memory: TableMemory, version: Version) -> None:
        """Raise `Invalid` (`version-unknown`) if the stored export of `version` may be deleted soon."""
        table = memory.folder.table
        head = await _head(reads, table)
        if head == version:
            return
        newest = await read_root(reads, table, head, known=self._cache.root(table))
        memory.meet(newest.header)
        if memory.salt:
            check_is_table(newest.header)
            Addressable.of(newest.header, await read_kept(reads, newest.header)).check(version)

    async def _root(
        self, reads: PlanningReads, table: TableName, version: Version, head: Version | None
    ) -> tuple[Root, RootHeader]:
        """The root of `version`, which must be addressable, and the newest header. `head`: its version, if known."""
        known = self._cache.root(table)
        if head is None:
            head = await _head(reads, table)
        newest = await read_root(reads, table, head, known=known)
        check_is_table(newest.header)
        if version == head:
            return newest, newest.header
        Addressable.of(newest.header, await read_kept(reads, newest.header)).check(version)
        return await read_root(reads, table, version, known=newest), newest.header

    def _keep_recent(self, began: Moment, root: Root) -> None:
        self._recent[root.header.table] = began, root
        self._recent.move_to_end(root.header.table)
        if len(self._recent) > TABLES_MAX:
            self._recent.popitem(last=False)

    def _keep(self, reads: PlanningReads, root: Root) -> None:
        """Cache the metadata that was read, after it was verified."""
        reads.keep()
        self._cache.keep_root(root)


async def _head(reads: PlanningReads, table: TableName) -> Version:
    head = await find_head(reads, table)
    if head is None:
        raise Invalid("table-unknown", f"{table}: no table has this name in this warehouse")
    return head.version
