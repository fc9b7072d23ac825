"""The objects of one export, made from the roots.

A version is *addressable* while the head still names it (`Addressable`). It is *shown* by a metadata.json if it changed
the table, and did not only record verdicts. It is a *snapshot* if it changed entries, and not only the definition, a
tag or the name.

Owns: the versions that an export shows, the order of reads and writes. Does not own: the choice of version and format
(`exporter`), the manifests of one version (`manifest_writer`), the content of the metadata (`table_metadata`), the
choice of versions for the metadata log (`metadata_log`), the memory (`export_memory`).
Invariants: the current snapshot of an export is the newest version up to it that changed entries. The metadata.json is
written after everything that it and its lists name: after a crash an object may be missing, also a manifest of a stored
list, but every existing object is correct. A list is never read unless a metadata.json names it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from rootline.catalog.adoption_plan import NO_HISTORY
from rootline.catalog.client_snapshots import with_commits
from rootline.catalog.converted_deletes import each
from rootline.catalog.export_keys import FormatVersion, snapshots_of
from rootline.catalog.export_memory import (
    ExportMemory,
    Index,
    SweepState,
    TableMemory,
    write,
)
from rootline.catalog.exported_definition import ExportedDefinition, stated_specs
from rootline.catalog.manifest_list_encoder import ManifestRecord, encode_manifest_list
from rootline.catalog.manifest_schema import same_avro
from rootline.catalog.manifest_writer import ManifestWriter, SharedWork
from rootline.catalog.metadata_log import HIDDEN_MAX, VERSIONS_AT_ONCE, LogLimits, logged_versions
from rootline.catalog.table_metadata import (
    SnapshotJson,
    StoredMetadata,
    damaged,
    metadata_json,
    next_row_id_after,
    read_metadata,
    snapshot_json,
    version_of_snapshot,
)
from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.root.location_pages import CONDEMNED_PAGES
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.content_entry import Status
from rootline.schemas.errors import Corrupt, Invalid, Unavailable
from rootline.schemas.identifiers import SnapshotId, Version, snapshot_id_of
from rootline.schemas.location_hashes import location_hash
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.page_reader import read_pages_of
from rootline.storage.metadata.read_cache import ReadCache
from rootline.storage.metadata.root_reader import at_head, read_root
from rootline.tree.check.replaced_files import replaces_files
from rootline.tree.check.verdict_roots import begins_empty, keeps_entries, may_keep_entries


class ExportBuilder:
    """Makes one export.

    `reads` counts requests and uses `cache`. `root`: the root of the exported version. `roots`: the roots that were
    read.
    """

    _exported: ExportedDefinition

    def __init__(
        self,
        reads: ObjectStore,
        cache: ReadCache,
        everything: ExportMemory,
        memory: TableMemory,
        root: Root,
        roots: dict[Version, Root],
    ) -> None:
        self._reads = reads
        self._everything = everything
        self._cache = cache
        self._memory = memory
        self._folder = memory.folder
        self._root = root
        self._roots = roots
        self._before = NO_HISTORY
        self._index = Index()
        self._oldest = Version(0)
        self._used: set[str] = set()
        self._definitions: dict[bytes, TableDefinition] = {}
        self._shared = SharedWork()

    async def build(self) -> StoredMetadata:
        """Store all missing objects of the export, and cache it.

        Raises:
            Invalid: `export-unsupported`, `equality-delete-unread`, `file-unreadable`.
            Corrupt: an object is missing or damaged; `export-corrupt`.
            Unavailable: `store-unavailable`.
        """
        header, memory = self._root.header, self._memory
        definition = await self._definition_of(self._root)
        self._exported = exported = ExportedDefinition.of(definition, self._folder.format_version)
        self._oldest, tags = memory.readable_of(header)
        is_cold = bool(memory.salt) and memory.newest is None
        follows = header.version > self._oldest
        # a few versions are made sooner than another process's export of them is found
        if is_cold or (follows and (memory.newest is None or memory.newest < header.version - 1 - VERSIONS_AT_ONCE)):
            await memory.refresh(self._reads, header.table_uuid)
        self._index = self._known()
        count = snapshots_of(definition.properties)
        await self._read_ahead(count)
        logged = await self._logged(LogLimits.of(definition.properties))
        if memory.converted is not None:
            memory.converted.used.clear()
        self._index = self._known()
        newest = await self._newest_snapshots(count)
        named = {tag: await self._snapshot_at(version) for tag, version in tags.items()}
        tagged = {tag: version for tag, version in named.items() if version is not None}
        wanted = {version: self._id_of(version) for version in sorted({*newest, *tagged.values()})}
        self._before = await memory.history(self._reads, definition)
        schema_ids = {version: await self._schema_id(version) for version in wanted}
        wanted = {version: wanted[version] for version, named in schema_ids.items() if exported.can_state(named)}
        tagged = {tag: version for tag, version in tagged.items() if version in wanted}
        used = [*(schema_ids[version] for version in wanted), definition.current_schema_id]
        stated = exported.metadata(used, has_history=bool(self._before.snapshots))
        self._index.state(stated_specs(stated))
        missing = [version for version, snapshot_id in wanted.items() if snapshot_id not in self._index.snapshots]
        made: dict[Version, list[str]] = {}

        async def make(version: Version) -> None:
            snapshot, made[version] = await self._snapshot(version, exported)
            self._index.snapshots[self._id_of(version)] = snapshot

        try:
            await each(missing, make, VERSIONS_AT_ONCE)
        except BaseException:
            memory.keep_manifests(self._index)  # the next attempt continues from here
            raise
        snapshots = [self._index.snapshots[snapshot_id] for snapshot_id in wanted.values()]
        moved = memory.is_out_of_date and await self._was_swept(snapshots)
        body = metadata_json(header, stated, self._folder, snapshots, tagged, self._before, logged)
        stored = await self._store(body)
        if moved or stored.body != body:
            memory.forget()  # another process was first: its objects stay
        else:
            names = made.get(max(wanted)) if wanted else []
            memory.advance(header.version, self._index, names, wanted.values())
        memory.keep(header.version, stored)
        return stored

    def _known(self) -> Index:
        """A copy of the memory's index, without snapshots that may lack what the export of an earlier version lists."""
        memory, index = self._memory, self._memory.index.copy()
        if memory.newest is not None and memory.newest > self._root.header.version:
            index.snapshots = {SnapshotId(each["snapshot-id"]): each for each in with_commits(index.snapshots.values())}
        return index

    async def _logged(self, limits: LogLimits) -> Mapping[Version, int]:
        """The versions in the metadata log, and their commit times. Those that were not exported are exported first.

        A version that cannot be exported is omitted, because newer ones may not need its objects.
        """
        memory, header = self._memory, self._root.header
        times = await logged_versions(self._root, self._oldest, limits, memory.log_before(header), self._root_of)
        for version in sorted(times.keys() - memory.exported_of(header.table_uuid)):
            try:
                if await stored_export(self._reads, memory, version) is None:
                    root = await self._root_of(version)
                    earlier = ExportBuilder(self._reads, self._cache, self._everything, memory, root, self._roots)
                    await earlier.build()
            except (Invalid, Corrupt):
                del times[version]
        self._used.update(map(self._folder.metadata, times))
        return times

    async def _was_swept(self, snapshots: Sequence[SnapshotJson]) -> bool:
        """Whether a sweep committed during this export. Raises `Unavailable` if it condemned an object that the export
        uses.

        A condemned object is deleted after a retention time of at least ten minutes, unless a root names it then.
        """
        memory, table = self._memory, self._folder.table
        head = await at_head(self._reads, table, lambda at: read_root(self._reads, table, at.version))
        if head is None or memory.head is None or SweepState.of(head.header) == SweepState.of(memory.head):
            return False
        used = self._used | (set() if memory.converted is None else memory.converted.used)
        used.update(str(each["manifest-list"]).removeprefix(f"{self._folder.base}/") for each in snapshots)
        pages = await read_pages_of(self._reads, head.header, CONDEMNED_PAGES)
        hashes = [location_hash(location) for location in used]
        if any(one in page.content.locations for page in pages for one in hashes):
            memory.forget()
            raise Unavailable("export-unfinished", f"{table}: a sweep committed during the export: retry")
        return True

    async def _store(self, body: bytes) -> StoredMetadata:
        version, table_uuid = self._root.header.version, self._root.header.table_uuid

        def is_whole(stored: bytes, _: bytes) -> bool:
            read_metadata(stored, self._folder, version, table_uuid)
            return True

        stored_body = await write(self._reads, self._folder.key(self._folder.metadata(version)), body, is_whole)
        return read_metadata(stored_body, self._folder, version, table_uuid)

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
        """Store the manifest list of one version. Return its snapshot, and the names of its manifests."""
        root = await self._root_of(version)
        header, format_version = root.header, self._folder.format_version
        definition = await self._definition_of(root)
        exported = ExportedDefinition.of(definition, format_version, read_by)
        writer = ManifestWriter(self._reads, self._cache, self._memory, exported, self._shared)
        is_read = version > self._oldest and replaces_files(header)
        before = await self._root_of(Version(version - 1)) if is_read else None
        parent = await self._snapshot_below(version)
        parent_id = None if parent is None else self._id_of(parent)
        if version <= self._oldest:
            parent_id = header.snapshot.parent_id
        location = ""

        async def store_list(records: Sequence[ManifestRecord]) -> None:
            nonlocal location
            body = await asyncio.to_thread(
                encode_manifest_list,
                records,
                snapshot_id=header.snapshot.snapshot_id,
                parent_id=parent_id,
                sequence_number=header.snapshot.sequence_number,
                format_version=format_version,
            )
            location = self._folder.manifest_list(version, body, self._memory.salt)
            await write(self._reads, self._folder.key(location), body, same_avro)

        names = await writer.write(root, before, self._index, store_list)
        self._used.add(location)
        self._used.update(self._folder.manifest(name, self._memory.salt) for name in names)
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

    async def _read_ahead(self, count: int) -> None:
        """Read the roots of the newest `count` versions, down to a known snapshot."""
        missing: list[Version] = []
        for at in range(self._root.header.version, max(self._oldest, self._root.header.version - count), -1):
            if self._id_of(Version(at)) in self._index.snapshots:
                break
            missing.append(Version(at))

        async def read(version: Version) -> None:
            await self._root_of(version)

        await each(missing, read, VERSIONS_AT_ONCE)

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
        if root.header.row_ids.next_of_parent is not None:
            return root.header.row_ids.next_of_parent
        parent = Version(version - 1) if parent is None else parent
        known = self._index.snapshots.get(self._id_of(parent))
        stated = None if known is None else next_row_id_after(known)
        if stated is not None:
            return stated
        if parent < self._oldest:  # it may have been deleted
            return _first_row_id_of(root)
        return (await self._root_of(parent)).header.row_ids.next

    async def _newest_snapshots(self, count: int) -> list[Version]:
        found: list[Version] = []
        below = await self._snapshot_at(self._root.header.version)
        while below is not None and len(found) < count:
            found.append(below)
            below = await self._snapshot_below(below)
        return found

    async def _snapshot_below(self, version: Version) -> Version | None:
        """The newest snapshot before `version`, or `None` if no such version may be read."""
        if version <= self._oldest:
            return None
        known = self._index.snapshots.get(self._id_of(version))
        if known is not None and "parent-snapshot-id" not in known:
            return None
        parent = None if known is None else self._index.snapshots.get(known["parent-snapshot-id"])
        return await self._snapshot_at(Version(version - 1)) if parent is None else version_of_snapshot(parent)

    async def _snapshot_at(self, version: Version) -> Version | None:
        """The newest version up to `version` that changed entries, or `None` if the table never had any."""
        for at in range(version, max(version - HIDDEN_MAX, self._oldest), -1):
            if self._id_of(Version(at)) in self._index.snapshots:
                return Version(at)
            root = await self._root_of(Version(at))
            if not may_keep_entries(root.header) or not await self._has_snapshot_of_parent(root):
                return Version(at)
        if version - HIDDEN_MAX > self._oldest:
            return version
        lowest = min(version, self._oldest)
        is_known = self._id_of(lowest) in self._index.snapshots
        return lowest if is_known or not begins_empty(await self._root_of(lowest)) else None

    async def _has_snapshot_of_parent(self, root: Root) -> bool:
        """Whether `root` is exported with the snapshot of the version before.

        It must be readable: engines read no schema with a default in a struct, and `root` may have removed it.
        """
        parent = await self._root_of(Version(root.header.version - 1))
        if not keeps_entries(parent, root):
            return False
        if parent.header.definition.digest == root.header.definition.digest:
            return True
        before, after = await self._definition_of(parent), await self._definition_of(root)
        can_state = self._exported.can_state
        return can_state(before.current_schema_id) or not can_state(after.current_schema_id)

    def _id_of(self, version: Version) -> SnapshotId:
        return snapshot_id_of(self._root.header.table_uuid, version)


def _first_row_id_of(root: Root) -> int:
    """The first row id that a root assigned, from the entries that it added."""
    snapshot_id = root.header.snapshot.snapshot_id
    added = (row.entry for row in root.rows if row.entry.version_info.status is Status.ADDED)
    ids = [
        entry.first_row_id
        for entry in added
        if entry.first_row_id is not None
        and entry.version_info.snapshot_id == snapshot_id
        and entry.version_info.sequence_number == entry.version_info.file_sequence_number
    ]
    return min(ids, default=root.header.row_ids.next)


async def stored_export(reads: ObjectStore, memory: TableMemory, version: Version) -> StoredMetadata | None:
    """The export of `version` if it is cached or stored."""
    known = memory.finished.get(version)
    if known is not None:
        return known
    key = memory.folder.key(memory.folder.metadata(version))
    found = await reads.get(key)
    if found is None:
        return None
    stored = read_metadata(found.body, memory.folder, version, None)
    if not stored.is_of_its_table:
        raise damaged(key, "its current snapshot is from before the table's adoption")
    memory.keep(version, stored)
    return stored
