"""The memory of an exporter: its knowledge of each table and of sweeps.

A *unit* is the part of a table that one manifest describes (`manifest_writer`).

Owns: the content and lifetime of this memory, filling it from the newest stored export, the salt that sweeps require in
names, storing an object that may exist. Does not own: making an export (`exporter`), sweeps
(`rootline.workers`), names and bytes of objects.
Invariants: when a sweep changed the head, knowledge of stored objects is dropped. The memory is bounded: for each table
it has the manifests of its newest export and a few finished exports, and the table with the oldest export is dropped
first. Losing it costs only requests. Everything from the store is verified first. `write` returns only when the store
has the object. Objects of an export are written once and never overwritten.

Theory. A condemned name is never reused: each root that condemns objects makes another salt, and later names
contain it. So an object that is found under a name with the newest salt was never condemned.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rootline.catalog.adoption_plan import AdoptedHistory, read_history
from rootline.catalog.export_keys import (
    ExportFolder,
    FormatVersion,
    KnownDeletes,
    is_list_of,
    listed_prefix,
    version_of_metadata,
)
from rootline.catalog.manifest_list_encoder import ManifestRecord, decode_manifest_list_records
from rootline.catalog.metadata_log import StoredLog
from rootline.catalog.table_metadata import SnapshotJson, Specs, StoredMetadata, damaged, read_metadata
from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.root.location_pages import CONDEMNED_PAGES
from rootline.schemas.identifiers import ObjectKey, SnapshotId, TableName, Version
from rootline.schemas.parts.locations import Condemned
from rootline.schemas.root_header import RootHeader
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.page_reader import read_pages_of
from rootline.storage.metadata.root_reader import read_definition
from rootline.storage.stored_objects import store_object

TRUSTED_S: Final = 60.0
"""The time for which a head that was read is valid. The shortest retention of a sweep is ten times as long."""


@dataclass(frozen=True, slots=True)
class SweepState:
    """`horizon_ms` and `condemned` of the head. While they are unchanged, no further export object is condemned."""

    horizon_ms: int
    condemned: tuple[Condemned, ...]

    @staticmethod
    def of(header: RootHeader) -> SweepState:
        """The sweep state in the root of a head."""
        return SweepState(header.locations.horizon_ms, tuple(header.locations.condemned))

    @property
    def salt(self) -> str:
        """16 hex digits for names of new objects, empty before a table's first sweep."""
        if not self.horizon_ms and not self.condemned:
            return ""
        pages = [(item.page.digest.hex(), int(item.since_version)) for item in self.condemned]
        return hashlib.sha256(repr((self.horizon_ms, pages)).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Moment:
    """The time of a read, by two clocks: one may stop while a machine sleeps, the other may be set back."""

    monotonic_s: float
    wall_s: float

    @staticmethod
    def now() -> Moment:
        """This moment."""
        return Moment(time.monotonic(), time.time())

    def is_past(self, now: Moment) -> bool:
        """Whether an object that was read at this moment must be re-read: that was over `TRUSTED_S` before `now`."""
        return max(now.monotonic_s - self.monotonic_s, now.wall_s - self.wall_s) > TRUSTED_S


Clock = Callable[[], Moment]
"""Reads both clocks. By default they are the system's."""


TABLES_MAX: Final = 64
FINISHED_MAX: Final = 8
_LIMITS: Final[tuple[int | None, ...]] = (1, 100, None)


@dataclass(slots=True)
class Index:
    """The stored manifests by name (`None`: the unit is empty and has no manifest), and snapshots.

    `specs`: the partition specs that the manifests of the snapshots may use.
    """

    manifests: dict[str, ManifestRecord | None] = field(default_factory=dict)
    snapshots: dict[SnapshotId, SnapshotJson] = field(default_factory=dict)
    specs: Specs = frozenset()

    def copy(self) -> Index:
        """A copy."""
        return Index(dict(self.manifests), dict(self.snapshots), self.specs)

    def state(self, specs: Specs) -> None:
        """Continue with `specs`. The snapshots are dropped if one of their specs is not among them."""
        if not self.specs <= specs:
            self.snapshots.clear()
        self.specs = specs


@dataclass(slots=True)
class TableMemory:
    """The memory of one table in one format."""

    folder: ExportFolder
    index: Index = field(default_factory=Index)
    newest: Version | None = None
    """The version of `index`."""
    finished: OrderedDict[Version, StoredMetadata] = field(default_factory=OrderedDict)
    adopted: tuple[uuid.UUID, AdoptedHistory] | None = None
    """The table's UUID and its history before it was adopted, or `None` until it is read."""
    converted: KnownDeletes | None = None
    """The stored converted deletes, or `None` until they are listed."""
    one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)
    head: RootHeader | None = None
    """The header of the newest root, as last read."""
    head_read: Moment | None = None
    clock: Clock = Moment.now

    def meet(self, head: RootHeader) -> None:
        """Set the newest root's header, just read. If a sweep has changed it, drop the knowledge of stored objects."""
        if self.head is None or SweepState.of(self.head) != SweepState.of(head):
            self.forget()
        self.head, self.head_read = head, self.clock()

    def forget(self) -> None:
        """Drop the knowledge of stored objects, which may be deleted. The newest export stays, and is re-read on
        demand.
        """
        self.index, self.newest, self.converted = Index(), None, None
        self.finished.clear()

    @property
    def salt(self) -> str:
        """The salt in names of new objects."""
        return "" if self.head is None else SweepState.of(self.head).salt

    @property
    def is_out_of_date(self) -> bool:
        """Whether the head must be re-read before a stored object may be used."""
        return self.head_read is None or self.head_read.is_past(self.clock())

    def readable_of(self, header: RootHeader) -> tuple[Version, Mapping[str, Version]]:
        """The oldest version from which all up to the version of `header` can be read now, and the readable tags.

        Both may have changed since, if `header` is not the head's.
        """
        head = header if self.head is None else self.head
        oldest = max(header.versions.oldest, min(header.version, head.versions.oldest))
        tags = {name: Version(version) for name, version in sorted(header.tags.items()) if version <= header.version}
        there = head.tags.values()
        return oldest, {name: version for name, version in tags.items() if version >= oldest or version in there}

    def keep(self, version: Version, stored: StoredMetadata) -> None:
        """Cache a finished export."""
        self.finished[version] = stored
        self.finished.move_to_end(version)
        while len(self.finished) > FINISHED_MAX:
            self.finished.popitem(last=False)

    def shown_snapshot(self, snapshot_id: SnapshotId) -> SnapshotJson | None:
        """A snapshot of the table, from the newest cached export that has it."""
        found = (stored.snapshots.get(snapshot_id) for stored in reversed(self.finished.values()))
        return next((snapshot for snapshot in found if snapshot is not None), None)

    def log_before(self, header: RootHeader) -> StoredLog | None:
        """The metadata log of the newest cached export of a version before `header`."""
        logs = [
            one.log
            for one in self.finished.values()
            if one.log is not None and one.table_uuid == header.table_uuid and one.version < header.version
        ]
        return max(logs, key=lambda log: log.version, default=None)

    def exported_of(self, table_uuid: uuid.UUID) -> set[Version]:
        """The versions of a table that are known to have a stored metadata.json."""
        stored = [one for one in self.finished.values() if one.table_uuid == table_uuid]
        return {one.version for one in stored}.union(*(one.log.times for one in stored if one.log is not None))

    def keep_manifests(self, index: Index) -> None:
        """Record the manifests that a failed attempt stored."""
        self.index.manifests |= index.manifests

    async def history(self, store: ObjectStore, definition: TableDefinition) -> AdoptedHistory:
        """The history before the adoption, read once."""
        folder, known = self.folder, self.adopted
        if known is None or known[0] != definition.table_uuid:  # another table may have the name meanwhile
            known = definition.table_uuid, await read_history(store, folder.table, definition, folder.format_version)
            self.adopted = known
        return known[1]

    async def known_deletes(self, store: ObjectStore) -> KnownDeletes:
        """The stored converted deletes, listed once."""
        if self.converted is None:
            folder = self.folder
            listing = await store.list(listed_prefix(folder.table, folder.format_version))
            pages = () if self.head is None else await read_pages_of(store, self.head, CONDEMNED_PAGES)
            if self.converted is None:
                self.converted = KnownDeletes.listed(
                    folder.format_version, listing.keys, salt=self.salt, condemned=pages
                )
        return self.converted

    async def refresh(self, store: ObjectStore, table_uuid: uuid.UUID) -> None:
        """Load the newest stored export into the memory, if it is newer than the known one.

        Raises:
            Corrupt: `export-corrupt`, the export or its manifest list is damaged.
        """
        newest = await self._newest_stored(store)
        if newest is None or (self.newest is not None and newest <= self.newest):
            return
        key = self.folder.key(self.folder.metadata(newest))
        found = await store.get(key)
        if found is None:
            return  # exports are being deleted: they are rebuilt
        stored = read_metadata(found.body, self.folder, newest, None)
        if stored.table_uuid != table_uuid:
            return  # of an earlier table with this name
        if not stored.is_of_its_table:
            return  # later exports are made from the roots
        records = () if stored.current is None else await self._records(store, stored.current, key)
        self.index = Index({_name_of(record): record for record in records}, dict(stored.snapshots), stored.specs)
        self.newest = newest
        self.keep(newest, stored)

    async def _records(self, store: ObjectStore, snapshot: SnapshotJson, key: ObjectKey) -> Sequence[ManifestRecord]:
        """The manifests of a snapshot of the metadata.json at `key`."""
        location = str(snapshot["manifest-list"])
        name = self.folder.key(location.removeprefix(f"{self.folder.base}/"))
        listed = await store.get(name)
        if listed is None:
            raise damaged(key, f"it names the manifest list {name}, which does not exist")
        if not is_list_of(location, listed.body):
            raise damaged(name, "its bytes do not match the hash in its name", named_by=key)
        return decode_manifest_list_records(listed.body, name=name)

    async def _newest_stored(self, store: ObjectStore) -> Version | None:
        for limit in _LIMITS:
            listing = await store.list(self.folder.metadata_prefix, limit=limit)
            for key in listing.keys:
                version = version_of_metadata(key)
                if version is not None and key == self.folder.key(self.folder.metadata(version)):
                    return version
            if limit is None or len(listing.keys) < limit:
                return None
        return None

    def advance(self, version: Version, index: Index, names: Iterable[str] | None, ids: Iterable[SnapshotId]) -> None:
        """Keep the parts of `index` that the export of `version` uses, whose manifests are `names`. Drop the rest.

        `None`: the manifests of the newest export, because the current snapshot is the same.
        """
        if self.newest is not None and version <= self.newest:
            return
        self.newest = version
        self.index = Index(
            index.manifests if names is None else {name: index.manifests[name] for name in names},
            {snapshot_id: index.snapshots[snapshot_id] for snapshot_id in ids},
            index.specs,
        )


class ExportMemory:
    """A cache of the export state of the most recently exported tables."""

    def __init__(self, warehouse: str, tables_max: int = TABLES_MAX, clock: Clock = Moment.now) -> None:
        self._warehouse = warehouse
        self._clock = clock
        self._tables_max = tables_max
        self._tables: OrderedDict[tuple[TableName, FormatVersion], TableMemory] = OrderedDict()
        self._definitions: OrderedDict[TableName, tuple[bytes, TableDefinition]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tables)

    def of(self, table: TableName, format_version: FormatVersion) -> TableMemory:
        """The cached export state of a table in one format. It is empty if the table was not exported recently."""
        name = (table, format_version)
        found = self._tables.get(name)
        if found is None:
            folder = ExportFolder.of(self._warehouse, table, format_version)
            found = self._tables[name] = TableMemory(folder, clock=self._clock)
        self._tables.move_to_end(name)
        while len(self._tables) > self._tables_max:
            self._tables.popitem(last=False)
        return found

    async def definition(self, store: ObjectStore, header: RootHeader) -> TableDefinition:
        """The definition that a root names. The last one of each table is cached. Raises the errors of
        `read_definition`.
        """
        digest = header.definition.digest
        known = self._definitions.pop(header.table, None)
        if known is None or known[0] != digest:
            known = digest, await read_definition(store, header)
        self._definitions[header.table] = known
        while len(self._definitions) > self._tables_max:
            self._definitions.popitem(last=False)
        return known[1]


def _name_of(record: ManifestRecord) -> str:
    return record.path.rsplit("/", 1)[-1].removesuffix(".avro").partition("-")[0]


@dataclass(frozen=True, slots=True)
class ExportCost:
    """Requests sent for an export, and bytes of the bodies that were stored."""

    lists: int = 0
    gets: int = 0
    puts: int = 0
    bytes_written: int = 0


async def write(store: ObjectStore, key: ObjectKey, body: bytes, is_same: Callable[[bytes, bytes], bool]) -> bytes:
    """Store `body`, unless an object exists there. Return the bytes of the stored object.

    They may differ from `body` only if `is_same` accepts them: another version of a library compresses differently.

    Raises:
        Unavailable: `store-unavailable`, the store did not confirm the object, which may be stored.
        Corrupt: `export-corrupt`, an object with other content is stored under its name.
    """
    stored_body = await store_object(store, key, body)
    if stored_body != body and not is_same(stored_body, body):
        raise damaged(key, "an object with other content is stored under this name")
    return stored_body
