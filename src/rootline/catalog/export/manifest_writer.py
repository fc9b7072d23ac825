"""The manifests of one version: those that are not stored yet are made and stored.

Owns: reading what the missing units need, how much runs at once. Does not own: which units there are
(`manifest_units`), their bytes (`manifest_encoder`), converted deletes (`converted_deletes`).
Invariants: a leaf is read only for a unit that is missing, or to convert deletes; what the index names is stored;
encoding never blocks the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from rootline.catalog.export.converted_deletes import ConvertedDeletes, files_to_merge
from rootline.catalog.export.export_memory import Index, TableMemory
from rootline.catalog.export.export_requests import write
from rootline.catalog.export.manifest_units import (
    NOTHING_MERGED,
    Given,
    Merged,
    RemovedFromLeaf,
    Unit,
    entries_of_chunk,
    removed_entries,
    units_of,
)
from rootline.catalog.manifest.exported_definition import ExportedDefinition
from rootline.catalog.manifest.format_version import FormatVersion
from rootline.catalog.manifest.leaf_chunk_encoder import encode_leaf_chunk
from rootline.catalog.manifest.manifest_encoder import EncodedManifest, encode_manifest
from rootline.catalog.manifest.same_avro import same_avro
from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.leaf import Leaf, LeafContent
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.content_entry import ContentEntry, ContentType, FileFormat, Status
from rootline.storage.metadata.object_reader import read_leaf
from rootline.storage.metadata.read_cache import ReadCache
from rootline.storage.metadata.table_loader import plan_scan
from rootline.storage.metadata.table_loader import read_root_vectors as read_stored_manifest_vectors
from rootline.storage.stored_objects import plain_task_group
from rootline.tree.filter.prune import PruningFilter
from rootline.tree.scan.scan_plan import DeletesFor

LEAVES_AT_ONCE: Final = 4
PUTS_AT_ONCE: Final = 16


class ManifestWriter:
    """The manifests of one version in one format. `reads` uses `cache` where it may."""

    def __init__(self, reads: ObjectStore, cache: ReadCache, memory: TableMemory, exported: ExportedDefinition) -> None:
        self._reads = reads
        self._cache = cache
        self._memory = memory
        self._folder = memory.folder
        self._definition = exported.definition
        self._exported = exported
        self._converted: ConvertedDeletes | None = None
        self._once = asyncio.Lock()
        self._leaves = asyncio.Semaphore(LEAVES_AT_ONCE)
        self._puts = asyncio.Semaphore(PUTS_AT_ONCE)

    async def write(self, root: Root, index: Index) -> list[str]:
        """The names of the units of `root`; afterwards all of them are stored, and in `index`.

        Raises:
            Invalid: `export-unsupported`, `equality-delete-unread`, `file-unreadable`.
            Corrupt: an object is missing, or not what was written; `export-corrupt`.
            Unavailable: `store-unavailable`.

        """
        vectors = await read_stored_manifest_vectors(self._reads, root)
        merged = await self._merged(root)
        units = await asyncio.to_thread(units_of, root, self._exported, vectors, merged)
        missing: dict[str, list[Unit]] = {}
        given: list[Unit] = []
        for unit in units:
            if unit.name not in index.manifests:
                if isinstance(unit.part, Given):
                    given.append(unit)
                else:
                    missing.setdefault(unit.part.row.location, []).append(unit)
        async with plain_task_group() as group:
            for unit in given:
                group.create_task(self._make(unit, None, index))
            for of_leaf in missing.values():
                group.create_task(self._of_leaf(of_leaf, index))
        return [unit.name for unit in units]

    async def _merged(self, root: Root) -> Merged:
        """The deletes that no engine reads as they are, converted."""
        if not _may_merge(root, self._folder.format_version):
            return NOTHING_MERGED
        everything = PruningFilter.of(None, self._definition)
        plan = await plan_scan(
            self._reads, root, self._definition, everything, cache=self._cache, deletes_for=DeletesFor.EVERY_ROW
        )
        tasks = await asyncio.to_thread(files_to_merge, plan, self._folder.format_version)
        if not tasks:
            return NOTHING_MERGED
        entries = await (await self._conversion()).merged(tasks)
        rows = [row.entry for row in root.rows if row.entry.content_type is ContentType.DELETE_MANIFEST]
        live = [row for row in rows if row.version_info.status is not Status.DELETED]
        leaves = {row.location: await self._leaf(row) for row in live}
        return Merged(tuple(entries), frozenset(task.location for task in tasks), leaves)

    async def _of_leaf(self, units: Sequence[Unit], index: Index) -> None:
        async with self._leaves:
            first = units[0].part
            assert not isinstance(first, Given)
            leaf = await self._leaf(first.row)
            async with plain_task_group() as group:
                for unit in units:
                    group.create_task(self._make(unit, leaf, index))

    async def _leaf(self, row: ContentEntry) -> Leaf:
        table = self._folder.table
        known = self._cache.leaf(table, row.location)
        if known is not None:
            return known.of_row(row)
        leaf = await read_leaf(self._reads, table, row, definition=self._definition)
        self._cache.keep_leaf(table, leaf)
        return leaf

    async def _make(self, unit: Unit, leaf: Leaf | None, index: Index) -> None:
        async with self._puts:
            encoded = await self._encoded(unit, leaf)
            if encoded is None:
                index.manifests[unit.name] = None
                return
            location = self._folder.manifest(unit.name, self._memory.salt)
            held = await write(self._reads, self._folder.key(location), encoded.body, same_avro)
            path = self._folder.absolute(location)
            index.manifests[unit.name] = replace(encoded.record, path=path, length=len(held))

    async def _encoded(self, unit: Unit, leaf: Leaf | None) -> EncodedManifest | None:
        """The manifest; `None` if it would be empty."""
        part = unit.part
        sync = bytes.fromhex(unit.name)
        if isinstance(part, Given):
            return await self._of_entries(unit, part.entries, sync)
        assert leaf is not None
        if isinstance(part, RemovedFromLeaf):
            gone = await asyncio.to_thread(removed_entries, part, leaf)
            return await self._of_entries(unit, gone, sync)
        ordinals = await asyncio.to_thread(entries_of_chunk, part, leaf)
        if not ordinals:
            return None
        if unit.content is LeafContent.DELETE:  # engines may need them in another place
            return await self._of_entries(unit, await asyncio.to_thread(leaf.entries_at, ordinals), sync)
        return await asyncio.to_thread(
            encode_leaf_chunk,
            leaf,
            ordinals,
            self._exported,
            unit.spec_id,
            unit.content,
            absolute=self._folder.absolute,
            sync=sync,
        )

    async def _of_entries(self, unit: Unit, entries: Sequence[ContentEntry], sync: bytes) -> EncodedManifest | None:
        if not entries:
            return None
        if unit.content is LeafContent.DELETE:
            entries = await self._readable(entries)
        return await asyncio.to_thread(
            encode_manifest,
            entries,
            self._exported,
            unit.spec_id,
            unit.content,
            absolute=self._folder.absolute,
            sync=sync,
        )

    async def _readable(self, deletes: Sequence[ContentEntry]) -> Sequence[ContentEntry]:
        """The deletes, with vectors where engines of the format find them."""
        if not any(entry.deletion_vector is not None for entry in deletes):
            return deletes
        return await (await self._conversion()).vectors(deletes)

    async def _conversion(self) -> ConvertedDeletes:
        async with self._once:
            if self._converted is None:
                known = await self._memory.known_deletes(self._reads)
                table, absolute = self._folder.table, self._folder.absolute
                self._converted = ConvertedDeletes(
                    self._reads, table, self._definition, self._folder.format_version, absolute, known
                )
        return self._converted


def _may_merge(root: Root, format_version: FormatVersion) -> bool:
    """Whether deletes may have to be converted: equality deletes, or, in V3, vectors beside position delete files.

    Only manifests of older formats name position delete files.
    """
    totals = root.header.totals
    if totals.equality_deletes:
        return True
    rows = (row.entry for row in root.rows if row.entry.content_type is ContentType.DELETE_MANIFEST)
    return (
        format_version is FormatVersion.V3
        and totals.vectors > 0
        and any(entry.file_format is FileFormat.AVRO for entry in rows)
    )
