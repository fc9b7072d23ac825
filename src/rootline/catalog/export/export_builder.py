"""Makes the export of one version: stores what is missing of it, the metadata.json last.

Owns: the order of reads and writes. Does not own: the manifests of one version (`manifest_writer`), the content of
the metadata (`table_metadata`), what is remembered (`export_memory`).
Invariants: a manifest list is written after everything that it names, the metadata.json after all its lists; so after
a crash something may be missing, but nothing that is there is wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rootline.catalog.adopt.adopted_history import NO_HISTORY
from rootline.catalog.export.export_memory import ExportMemory, Index, TableMemory
from rootline.catalog.export.export_requests import write
from rootline.catalog.export.manifest_writer import ManifestWriter
from rootline.catalog.export.sweep_state import SweepState
from rootline.catalog.export.table_metadata import (
    SnapshotJson,
    StoredMetadata,
    metadata_json,
    next_row_id_after,
    read_metadata,
    snapshot_json,
    version_of_snapshot,
    window_of,
)
from rootline.catalog.manifest.exported_definition import ExportedDefinition, stated_specs
from rootline.catalog.manifest.format_version import FormatVersion
from rootline.catalog.manifest.manifest_list_encoder import encode_manifest_list
from rootline.catalog.manifest.same_avro import same_avro
from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.root.location_hashes import location_hash
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.content_entry import Status
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import SnapshotId, Version, snapshot_id_of
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.object_reader import read_condemned
from rootline.storage.metadata.read_cache import ReadCache
from rootline.storage.metadata.root_reader import at_head, read_root
from rootline.storage.metadata.shown_versions import shown_at


class ExportBuilder:
    """One export being made. `reads` counts, and uses the reader's cache where it may; `root`: of its version."""

    def __init__(
        self, reads: ObjectStore, cache: ReadCache, everything: ExportMemory, memory: TableMemory, root: Root
    ) -> None:
        self._reads = reads
        self._everything = everything
        self._cache = cache
        self._memory = memory
        self._folder = memory.folder
        self._root = root
        self._roots: dict[Version, Root] = {root.header.version: root}
        self._before = NO_HISTORY
        self._index = Index()
        self._oldest = Version(0)
        self._used: set[str] = set()
        self._definitions: dict[bytes, TableDefinition] = {}

    async def build(self) -> StoredMetadata:
        """Store everything that is missing, and remember it.

        Raises:
            Invalid: `export-unsupported`, `equality-delete-unread`, `file-unreadable`.
            Corrupt: an object is missing, or not what was written; `export-corrupt`.
            Unavailable: `store-unavailable`.

        """
        header, memory = self._root.header, self._memory
        definition = await self._definition_of(self._root)
        exported = ExportedDefinition.of(definition, self._folder.format_version)
        window = window_of(header, definition)
        self._oldest = window.oldest
        is_cold = bool(memory.salt) and memory.newest is None
        follows = header.version > window.oldest
        if is_cold or (follows and self._id_of(Version(header.version - 1)) not in memory.index.snapshots):
            await memory.refresh(self._reads, header.table_uuid)
        if memory.converted is not None:
            memory.converted.used.clear()
        self._index = memory.index.copy()
        newest = await self._newest_shown(window.count)
        tagged = {tag: await self._shown_at(version) for tag, version in window.tags.items()}
        wanted = {version: self._id_of(version) for version in sorted({*newest, *tagged.values()})}
        self._before = await memory.history(self._reads, definition)
        schema_ids = {version: await self._schema_id(version) for version in wanted}
        wanted = {version: wanted[version] for version, named in schema_ids.items() if exported.can_state(named)}
        tagged = {tag: version for tag, version in tagged.items() if version in wanted}
        used = [schema_ids[version] for version in wanted]
        stated = exported.metadata(used, has_history=bool(self._before.snapshots))
        self._index.state(stated_specs(stated))
        names: list[str] = []
        try:
            for version, snapshot_id in wanted.items():
                if snapshot_id not in self._index.snapshots:
                    self._index.snapshots[snapshot_id], names = await self._snapshot(version, exported)
        except BaseException:
            memory.keep_manifests(self._index)  # the next attempt goes on from here
            raise
        snapshots = [self._index.snapshots[snapshot_id] for snapshot_id in wanted.values()]
        moved = memory.is_out_of_date and await self._was_swept(snapshots)
        body = metadata_json(header, stated, self._folder, snapshots, tagged, self._before)
        stored = await self._store(body)
        if moved or stored.body != body:
            memory.forget()  # another process was first: what it stored stays
        else:
            memory.advance(header.version, self._index, names, wanted.values())
        memory.keep(header.version, stored)
        return stored

    async def _was_swept(self, snapshots: Sequence[SnapshotJson]) -> bool:
        """Whether a sweep came in while this took its time. Raises `Unavailable`: it may take some of what was found.

        What is condemned goes a retention later, if nothing names it then: ten minutes at least.
        """
        memory, table = self._memory, self._folder.table
        head = await at_head(self._reads, table, lambda at: read_root(self._reads, table, at.version))
        if head is None or memory.head is None or SweepState.of(head.header) == SweepState.of(memory.head):
            return False
        used = self._used | (set() if memory.converted is None else memory.converted.used)
        used.update(str(each["manifest-list"]).removeprefix(f"{self._folder.base}/") for each in snapshots)
        pages = await read_condemned(self._reads, head.header)
        hashes = [location_hash(location) for location in used]
        if any(one in page.locations for page in pages for one in hashes):
            memory.forget()
            raise Unavailable("export-unfinished", f"{table}: a sweep came in between: ask again")
        return True

    async def _store(self, body: bytes) -> StoredMetadata:
        version, table_uuid = self._root.header.version, self._root.header.table_uuid

        def is_whole(stored: bytes, _: bytes) -> bool:
            read_metadata(stored, self._folder, version, table_uuid)
            return True

        held = await write(self._reads, self._folder.key(self._folder.metadata(version)), body, is_whole)
        return read_metadata(held, self._folder, version, table_uuid)

    async def _schema_id(self, version: Version) -> int:
        """The id of the schema of one version's snapshot."""
        known = self._index.snapshots.get(self._id_of(version))
        if known is not None:
            return int(known["schema-id"])
        return (await self._definition_of(await self._root_of(version))).current_schema_id

    async def _definition_of(self, root: Root) -> TableDefinition:
        known = self._definitions.get(root.header.definition.digest)
        if known is None:
            known = await self._everything.definition(self._reads, root.header)
            self._definitions[root.header.definition.digest] = known
        return known

    async def _snapshot(self, version: Version, read_by: ExportedDefinition) -> tuple[SnapshotJson, list[str]]:
        """Store the manifest list of one version; its snapshot, and the names of its units."""
        root = await self._root_of(version)
        header, format_version = root.header, self._folder.format_version
        definition = await self._definition_of(root)
        exported = ExportedDefinition.of(definition, format_version, read_by)
        writer = ManifestWriter(self._reads, self._cache, self._memory, exported)
        names = await writer.write(root, self._index)
        parent = await self._shown_below(version)
        parent_id = header.snapshot.parent_id if parent is None else self._id_of(parent)
        records = [self._index.manifests[name] for name in names]
        body = await asyncio.to_thread(
            encode_manifest_list,
            [record for record in records if record is not None],
            snapshot_id=header.snapshot.snapshot_id,
            parent_id=parent_id,
            sequence_number=header.snapshot.sequence_number,
            format_version=format_version,
        )
        location = self._folder.manifest_list(version, body, self._memory.salt)
        self._used.add(location)
        self._used.update(self._folder.manifest(name, self._memory.salt) for name in names)
        await write(self._reads, self._folder.key(location), body, same_avro)
        snapshot = snapshot_json(
            header,
            parent_id=parent_id,
            parent_next_row_id=await self._next_row_id_before(version, parent)
            if format_version is FormatVersion.V3
            else 0,
            manifest_list=self._folder.absolute(location),
            schema_id=definition.current_schema_id,
            format_version=format_version,
        )
        return snapshot, names

    async def _root_of(self, version: Version) -> Root:
        found = self._roots.get(version)
        if found is None:
            found = await read_root(self._reads, self._folder.table, version, known=self._root)
            self._roots[version] = found
        return found

    async def _next_row_id_before(self, version: Version, parent: Version | None) -> int:
        if version == 0:
            return self._before.next_row_id
        root = await self._root_of(version)
        if root.header.parent_next_row_id is not None:
            return root.header.parent_next_row_id
        parent = Version(version - 1) if parent is None else parent
        known = self._index.snapshots.get(self._id_of(parent))
        said = None if known is None else next_row_id_after(known)
        if said is not None:
            return said
        if parent < self._root.header.oldest_version:  # it may be gone
            return _first_row_id_of(root)
        return (await self._root_of(parent)).header.next_row_id

    async def _newest_shown(self, count: int) -> list[Version]:
        found = [self._root.header.version]
        while len(found) < count and (below := await self._shown_below(found[-1])) is not None:
            found.append(below)
        return found

    async def _shown_below(self, version: Version) -> Version | None:
        """The version before it that is shown, as far as there are any that may be read."""
        if version <= self._oldest:
            return None
        known = self._index.snapshots.get(self._id_of(version))
        named = None if known is None else known.get("parent-snapshot-id")
        parent = None if named is None else self._index.snapshots.get(named)
        return await self._shown_at(Version(version - 1)) if parent is None else version_of_snapshot(parent)

    async def _shown_at(self, version: Version) -> Version:
        if self._id_of(version) in self._index.snapshots:
            return version
        shown = await shown_at(await self._root_of(version), self._oldest, self._root_of)
        return shown.header.version

    def _id_of(self, version: Version) -> SnapshotId:
        return snapshot_id_of(self._root.header.table_uuid, version)


def _first_row_id_of(root: Root) -> int:
    """The row id from which a root went on, by what it shows as its own."""
    snapshot_id = root.header.snapshot.snapshot_id
    added = (row.entry for row in root.rows if row.entry.version_info.status is Status.ADDED)
    ids = [
        entry.first_row_id
        for entry in added
        if entry.first_row_id is not None
        and entry.version_info.snapshot_id == snapshot_id
        and entry.version_info.sequence_number == entry.version_info.file_sequence_number
    ]
    return min(ids, default=root.header.next_row_id)
