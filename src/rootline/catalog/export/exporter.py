"""A table's versions as Iceberg metadata: found if they are stored, else made.

Owns: which version and format is meant, one export at a time for each, what callers get. Does not own: making an
export (`export_builder`), what is remembered (`export_memory`), serving it (`rootline.catalog.rest`).
Invariants: concurrent callers for the same version share one export; a failure is not remembered; a version that the
head does not address is never exported.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass

from rootline.catalog.export.export_builder import ExportBuilder
from rootline.catalog.export.export_memory import TABLES_MAX, ExportMemory, TableMemory
from rootline.catalog.export.export_properties import format_of
from rootline.catalog.export.export_requests import ExportCost, ExportRequests
from rootline.catalog.export.table_metadata import StoredMetadata, damaged, read_metadata, version_of_snapshot
from rootline.catalog.manifest.format_version import FormatVersion
from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.root_header import RootHeader
from rootline.storage.metadata.object_reader import read_kept
from rootline.storage.metadata.read_cache import PlanningReads, ReadCache
from rootline.storage.metadata.root_reader import find_head, read_root
from rootline.storage.metadata.shown_versions import shown_at
from rootline.tree.state.addressable import Addressable
from rootline.tree.state.name_state import check_is_table


@dataclass(frozen=True, slots=True)
class ExportedTable:
    """One version in one format. `metadata` is the metadata.json, `metadata_location` its absolute location.

    `asked_version`: what was asked for; `version` is the one before it that changed the table, if it did not itself.

    `snapshot_timestamp_ms`: when the version was committed. `cost`: the requests that this call sent; a caller that
    waited for the export of another caller sent none for it.
    """

    table: TableName
    version: Version
    format_version: FormatVersion
    metadata_location: str
    metadata: bytes
    snapshot_timestamp_ms: int
    cost: ExportCost
    asked_version: Version


_Wanted = tuple[TableName, FormatVersion, Version]


class TableExporter:
    """Exports tables of one warehouse; used on one event loop. What it keeps in memory is bounded."""

    def __init__(self, store: ObjectStore, base_url: str, *, cache: ReadCache | None = None) -> None:
        """`base_url`: the absolute URL by which engines know the warehouse: `file:///dir`, `s3://bucket/prefix`."""
        self._store = store
        self._cache = ReadCache() if cache is None else cache
        self.base_url = base_url.rstrip("/")
        self._memory = ExportMemory(base_url)
        self._formats: OrderedDict[TableName, tuple[Version, FormatVersion]] = OrderedDict()
        self._making: dict[_Wanted, asyncio.Task[StoredMetadata]] = {}

    async def export(
        self, table: TableName, format_version: FormatVersion | None = None, version: Version | None = None
    ) -> ExportedTable:
        """The export of `version`, by default of the head.

        Args:
            table: its name.
            format_version: by default what the table's property `rootline.export.format` says, else V3.
            version: addressable, or exported while it was; once a table is swept, addressable.

        Raises:
            Invalid: `table-unknown`, `table-dropped`, `version-unknown`, `export-unsupported`,
                `equality-delete-unread`, `file-unreadable`.
            Corrupt: an object is missing, or not what was written; `export-corrupt`.
            Unavailable: `store-unavailable`.

        """
        requests = ExportRequests(self._store)
        reads = PlanningReads(requests, self._cache)
        head = await _head(reads, table) if version is None else None
        if version is None:
            assert head is not None
            version = head
        if format_version is None:
            format_version = await self._format(reads, table, version, head)
        memory = self._memory.of(table, format_version)
        stored = memory.finished.get(version)
        if stored is None or (head is None and memory.is_out_of_date):
            stored = await self._shared(reads, memory, version, head)
        shown = version_of_snapshot(stored.current)
        return ExportedTable(
            table=table,
            version=shown,
            format_version=format_version,
            metadata_location=memory.folder.absolute(memory.folder.metadata(shown)),
            metadata=stored.body,
            snapshot_timestamp_ms=stored.timestamp_ms,
            cost=requests.cost,
            asked_version=version,
        )

    async def close(self) -> None:
        """Stop the exports under way: what they stored is right, and the next request goes on from there."""
        makings = list(self._making.values())
        for making in makings:
            making.cancel()
        await asyncio.gather(*makings, return_exceptions=True)

    async def _format(
        self, reads: PlanningReads, table: TableName, version: Version, head: Version | None
    ) -> FormatVersion:
        """The format that the table's property names; it is read once for each version."""
        known = self._formats.pop(table, None)
        if known is None or known[0] != version:
            root, _ = await self._root(reads, table, version, head)
            known = version, format_of((await self._memory.definition(reads, root.header)).properties)
            self._keep(reads, root)
        self._formats[table] = known
        while len(self._formats) > TABLES_MAX:
            self._formats.popitem(last=False)
        return known[1]

    async def _shared(
        self, reads: PlanningReads, memory: TableMemory, version: Version, head: Version | None
    ) -> StoredMetadata:
        """The result of the export under way, or of a new one; it goes on when the caller is cancelled."""
        wanted = (memory.folder.table, memory.folder.format_version, version)
        making = self._making.get(wanted)
        if making is None:
            making = asyncio.create_task(self._found_or_made(reads, memory, version, head))
            self._making[wanted] = making
            making.add_done_callback(lambda done: self._forget(wanted, done))
        return await asyncio.shield(making)

    def _forget(self, wanted: _Wanted, done: asyncio.Task[StoredMetadata]) -> None:
        del self._making[wanted]
        if not done.cancelled():
            done.exception()  # the callers that still wait get it; there may be none

    async def _found_or_made(
        self, reads: PlanningReads, memory: TableMemory, version: Version, head: Version | None
    ) -> StoredMetadata:
        table = memory.folder.table
        async with memory.one_at_a_time:
            stored = await _stored(reads, memory, version)
            if stored is not None:
                if head is None:
                    await self._check_stays(reads, memory, version)
                return stored
            root, newest = await self._root(reads, table, version, head)
            memory.meet(newest)

            async def earlier(number: Version) -> Root:
                return await read_root(reads, table, number, known=root)

            shown = await shown_at(root, root.header.oldest_version, earlier)
            stored = None if shown is root else await _stored(reads, memory, shown.header.version)
            if stored is None:
                stored = await ExportBuilder(reads, self._cache, self._memory, memory, shown).build()
            memory.keep(version, stored)
            self._keep(reads, root)
            return stored

    async def _check_stays(self, reads: PlanningReads, memory: TableMemory, version: Version) -> None:
        """Raises `Invalid` (`version-unknown`) if the export of `version`, which is stored, may be about to go."""
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
        """The root of `version`, which is addressable, and the newest; `head`: its version, if just looked up."""
        known = self._cache.root(table)
        if head is None:
            head = await _head(reads, table)
        newest = await read_root(reads, table, head, known=known)
        check_is_table(newest.header)
        if version == head:
            return newest, newest.header
        Addressable.of(newest.header, await read_kept(reads, newest.header)).check(version)
        return await read_root(reads, table, version, known=newest), newest.header

    def _keep(self, reads: PlanningReads, root: Root) -> None:
        """What was read has been proven."""
        reads.keep()
        self._cache.keep_root(root)


async def _stored(reads: PlanningReads, memory: TableMemory, version: Version) -> StoredMetadata | None:
    """The export of `version` if it is remembered or stored."""
    known = memory.finished.get(version)
    if known is not None:
        return known
    key = memory.folder.key(memory.folder.metadata(version))
    found = await reads.get(key)
    if found is None:
        return None
    stored = read_metadata(found.body, memory.folder, version, None)
    if not stored.is_of_its_table:
        raise damaged(key, "its current snapshot is one of before the table's adoption")
    memory.keep(version, stored)
    return stored


async def _head(reads: PlanningReads, table: TableName) -> Version:
    head = await find_head(reads, table)
    if head is None:
        raise Invalid("table-unknown", f"{table}: no table has this name in this warehouse")
    return head.version


__all__ = ["ExportCost", "ExportedTable", "FormatVersion", "TableExporter"]
