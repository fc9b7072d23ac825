"""A table put into a memory store by hand: what is live is exactly what a test says."""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyroaring import BitMap, BitMap64

from rootline.adapters.memory import MemoryObjectStore
from rootline.client.create_drop import build_definition
from rootline.client.data_file_writer import WrittenFile, write_files
from rootline.ports.object_store import StoredObject
from rootline.schemas.bytes.leaf_codec import LeafContent, encode_leaf
from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.bytes.root.root_codec import Root, Row, encode_root, seal, sync_marker
from rootline.schemas.bytes.vector_codec import VectorBlob, encode_inline, encode_puffin
from rootline.schemas.content_entry import (
    ContentEntry,
    ContentStats,
    ContentType,
    DeletionVector,
    FileFormat,
    ManifestStats,
    Status,
    VersionInfo,
)
from rootline.schemas.identifiers import (
    CommitId,
    ObjectKey,
    SequenceNumber,
    SnapshotId,
    TableName,
    Version,
    snapshot_id_of,
)
from rootline.schemas.object_keys import definition_location, key_of, root_key
from rootline.schemas.parts.definition import DefinitionReference
from rootline.schemas.root_header import Operation, RootHeader, Snapshot
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.read_cache import ReadCache
from rootline.storage.metadata.root_reader import read_root
from rootline.storage.metadata.scan_loader import plan_scan
from rootline.storage.rows.data_file_reader import RowsWanted
from rootline.storage.rows.scan_executor import scan_table
from rootline.tree.filter.pruning import PruningFilter
from rootline.tree.proof.file_proof import partition_statistics
from rootline.tree.scan.scan_plan import ScanPlan
from tests.storage.adopted_leaves import adopted

TABLE = TableName("test.rows")


def uuids(seed: int = 0) -> Iterator[uuid.UUID]:
    while True:
        seed += 1
        yield uuid.UUID(int=seed)


@dataclass
class StoredTable:
    """Entries of the next root, and the store that `commit` writes it to."""

    definition: TableDefinition
    store: MemoryObjectStore = field(default_factory=MemoryObjectStore)
    entries: list[ContentEntry] = field(default_factory=list)
    version: int = -1
    sequence_number: int = 1
    ids: Iterator[uuid.UUID] = field(default_factory=uuids)
    cache: ReadCache = field(default_factory=ReadCache)

    @property
    def codec(self) -> EntryCodec:
        return EntryCodec.of_definition(self.definition)

    def info(self, status: Status = Status.EXISTING) -> VersionInfo:
        return VersionInfo(status, 7, self.sequence_number, self.sequence_number)

    def write(self, rows: pa.Table, **options: int) -> list[ContentEntry]:
        """Data files of `rows`, in the store; their entries are not yet in the root."""
        found = []
        for written in write_files(rows, self.definition, self.ids, **options):
            self.store.place(key_of(TABLE, written.data_file.location), written.body)
            found.append(self.entry_of(written))
        return found

    def entry_of(self, written: WrittenFile) -> ContentEntry:
        file = written.data_file
        assert file.content_stats is not None
        stats, _ = self.codec.statistics.decode(file.content_stats)
        return ContentEntry(
            ContentType.DATA,
            file.location,
            FileFormat.PARQUET,
            self.info(),
            file.partition_spec_id,
            file.record_count,
            file.file_size_in_bytes,
            split_offsets=file.split_offsets,
            content_stats=stats,
        )

    def vector(self, data: ContentEntry, positions: Sequence[int]) -> ContentEntry:
        """A Puffin file in the store with the vector of `data`; its entry is not yet in the root."""
        puffin = encode_puffin([VectorBlob(data.location, BitMap64(positions))])
        location = f"data/{next(self.ids)}.puffin"
        self.store.place(key_of(TABLE, location), puffin.body)
        place = puffin.places[0]
        return ContentEntry(
            ContentType.POSITION_DELETE,
            location,
            FileFormat.PUFFIN,
            self.info(),
            data.partition_spec_id,
            place.cardinality,
            len(puffin.body),
            DeletionVector(place.offset, place.size),
            referenced_file=data.location,
            content_stats=partition_statistics(
                data.content_stats, self.definition.spec_by_id(data.partition_spec_id).expr_ids
            ),
        )

    def leaf(
        self, entries: Sequence[ContentEntry], stats: ContentStats | None = None, referenced_file: str | None = None
    ) -> ContentEntry:
        """A leaf in the store; its root row is not yet in the root."""
        is_data = entries[0].content_type is ContentType.DATA
        content = LeafContent.DATA if is_data else LeafContent.DELETE
        leaf = encode_leaf(entries, self.definition, leaf_uuid=next(self.ids), content=content)
        self.store.place(key_of(TABLE, leaf.location), leaf.body)
        rows = sum(entry.record_count for entry in entries)
        return ContentEntry(
            ContentType.DATA_MANIFEST if is_data else ContentType.DELETE_MANIFEST,
            leaf.location,
            FileFormat.PARQUET,
            self.info(),
            entries[0].partition_spec_id,
            len(entries),
            len(leaf.body),
            manifest_stats=ManifestStats(0, len(entries), 0, 0, rows, 0, 1),
            referenced_file=referenced_file,
            content_stats=stats or {},
        )

    def adopted_leaf(self, entries: Sequence[ContentEntry]) -> ContentEntry:
        """A delete leaf of an older format, read already; its root row is not yet in the root."""
        location = f"metadata/{next(self.ids)}-m0.avro"
        self.cache.keep_leaf(TABLE, adopted(entries, self.definition, location, LeafContent.DELETE))
        rows = sum(entry.record_count for entry in entries)
        return ContentEntry(
            ContentType.DELETE_MANIFEST,
            location,
            FileFormat.AVRO,
            self.info(),
            entries[0].partition_spec_id,
            len(entries),
            1,
            manifest_stats=ManifestStats(0, len(entries), 0, 0, rows, 0, 1),
        )

    def manifest_vector(self, leaf: ContentEntry, ordinals: Sequence[int], status: Status) -> ContentEntry:
        return ContentEntry(
            ContentType.MANIFEST_DV,
            leaf.location,
            FileFormat.PUFFIN,
            self.info(status),
            leaf.partition_spec_id,
            len(ordinals),
            deletion_vector=DeletionVector(inline_content=encode_inline(BitMap(ordinals))),
            referenced_file=leaf.location,
        )

    def commit(self) -> Root:
        """The next root, with `entries`."""
        self.version += 1
        body = self.definition.to_json()
        location = definition_location(uuid.UUID(bytes=hashlib.sha256(body).digest()[:16]))
        self.store.place(key_of(TABLE, location), body)
        version = Version(self.version)
        header = RootHeader(
            table=TABLE,
            table_uuid=self.definition.table_uuid,
            version=version,
            parent_digest=None,
            snapshot=Snapshot(
                SnapshotId(snapshot_id_of(self.definition.table_uuid, version)),
                None,
                SequenceNumber(self.sequence_number),
                1,
                Operation.APPEND,
                {},
            ),
            definition=DefinitionReference(location, hashlib.sha256(body).digest()),
            commit_id=CommitId(f"{self.version:032x}"),
            coordinator_id="test",
        )
        sync = sync_marker(self.definition.table_uuid)
        rows = [Row.of(entry, self.codec) for entry in self.entries]
        blocks = [seal(rows, self.codec, sync)] if rows else []
        root, encoded = encode_root(header, blocks, self.codec, sync)
        self.store.place(root_key(TABLE, version), encoded)
        return root

    async def plan(self, where: str | None = None) -> ScanPlan:
        root = await read_root(self.store, TABLE, Version(self.version))
        pruning = PruningFilter.of(where, self.definition)
        return await plan_scan(self.store, root, self.definition, pruning, cache=self.cache)

    async def rows(self, where: str | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        wanted = RowsWanted.of(self.definition, columns)
        return await scan_table(self.store, TABLE, (await self.plan(where)).tasks(), wanted)

    def scan(self, where: str | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        return asyncio.run(self.rows(where, columns))


def deleted(entry: ContentEntry) -> ContentEntry:
    return replace(entry, version_info=replace(entry.version_info, status=Status.DELETED))


FLIGHTS = pa.schema([("id", pa.int64()), ("carrier", pa.string()), ("delay", pa.float64())])


def flights_definition(*partition_by: str) -> TableDefinition:
    return build_definition(FLIGHTS, partition_by=partition_by, table_uuid=uuid.UUID(int=3))


def flights(*ids: int) -> pa.Table:
    return pa.table({"id": ids, "carrier": [("UA", "AA")[i % 2] for i in ids], "delay": [i / 2 for i in ids]}, FLIGHTS)


def ids_of(table: pa.Table) -> list[int]:
    found: list[int] = table.column("id").to_pylist()
    return found


class CountingStore:
    """Passes reads on and remembers them."""

    def __init__(self, table: StoredTable) -> None:
        self.table = table
        self.read: list[str] = []
        self.most_at_once = 0
        self._running = 0

    async def get(self, key: ObjectKey) -> StoredObject | None:
        self.read.append(key)
        self._running += 1
        self.most_at_once = max(self.most_at_once, self._running)
        await asyncio.sleep(0)
        found = await self.table.store.get(key)
        self._running -= 1
        return found


def replaced(table: StoredTable, entry: ContentEntry, body: bytes, rows: int) -> ContentEntry:
    table.store.place(key_of(TABLE, entry.location), body)
    return replace(entry, file_size_in_bytes=len(body), record_count=rows, content_stats={})
