"""A table in a memory store whose root was migrated from a manifest list, then read and changed by the real code."""

from __future__ import annotations

import datetime as dt
import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from rootline.adapters.memory import MemoryObjectStore
from rootline.schemas.bytes.leaf_codec import Leaf, LeafContent, decode_leaf, encode_leaf
from rootline.schemas.bytes.manifest_codec import MigratedList
from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.bytes.root.root_codec import Row, encode_root, seal, sync_marker
from rootline.schemas.bytes.vector_codec import VectorBlob, encode_puffin
from rootline.schemas.content_entry import ContentType, FieldStatistics, Status
from rootline.schemas.identifiers import (
    CommitId,
    LogId,
    LogPosition,
    SequenceNumber,
    SnapshotId,
    TableName,
    Version,
    snapshot_id_of,
)
from rootline.schemas.intent import AddedManifest, DataFile, Intent, IntentKind, RemovedFile, VectorReference
from rootline.schemas.object_keys import definition_location, key_of, root_key
from rootline.schemas.parts.definition import DefinitionReference
from rootline.schemas.parts.row_ids import RowIds
from rootline.schemas.root_header import Operation, RootHeader, Snapshot
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.root_reader import read_root
from rootline.storage.metadata.scan_loader import plan_scan
from rootline.storage.metadata.table_loader import load_to_build_on
from rootline.storage.rows.arrow_types import arrow_schema_of
from rootline.storage.rows.data_file_reader import RowsWanted
from rootline.storage.rows.scan_executor import scan_table
from rootline.tree.check.invariants import violations
from rootline.tree.commit.apply import apply_batch
from rootline.tree.draft.batch import Applied, FetchedObjects, Record, Stamp
from rootline.tree.filter.pruning import PruningFilter
from rootline.tree.rules.leaf_rules import LeafNeed, ReadLeaf
from rootline.tree.scan.scan_plan import ScanPlan
from rootline.tree.state.table_state import TableState
from rootline.tree.state.totals import totals_of
from tests.schemas.iceberg_manifests import CARRIER, DAY, ONE_DAY

_AT = dt.datetime(2025, 6, 20, 10, tzinfo=dt.UTC)


def rows_of(first_id: int, carrier: str, count: int = 10) -> dict[str, list[Any]]:
    return {
        "id": list(range(first_id, first_id + count)),
        "carrier": [carrier] * count,
        "at": [_AT] * count,
        "amount": [None] * count,
    }


@dataclass
class Migrated:
    """`migrate` makes version 0; every later version is an intent's."""

    store: MemoryObjectStore
    definition: TableDefinition
    name: TableName = TableName("old.flights")
    version: int = -1
    sizes: dict[str, int] = field(default_factory=dict)
    loaded: TableState | None = None

    @property
    def state(self) -> TableState:
        assert self.loaded is not None
        return self.loaded

    def place(self, location: str, body: bytes) -> None:
        self.sizes[location] = len(body)
        self.store.place(key_of(self.name, location), body)

    def size_of(self, location: str) -> int:
        return self.sizes[location]

    def write_rows(self, name: str, rows: dict[str, list[Any]]) -> None:
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table(rows, arrow_schema_of(self.definition.schema)), sink)
        self.place(f"data/{name}.parquet", sink.getvalue().to_pybytes())

    def write_position_deletes(self, name: str, positions: dict[str, list[int]]) -> None:
        """A position delete file, sorted by path and position, with the reserved ids of its columns."""
        rows = [(path, position) for path in sorted(positions) for position in sorted(positions[path])]
        columns = {"file_path": pa.array([path for path, _ in rows]), "pos": pa.array([at for _, at in rows])}
        ids = {"file_path": b"2147483546", "pos": b"2147483545"}
        fields = [
            pa.field(key, column.type, nullable=False, metadata={b"PARQUET:field_id": ids[key]})
            for key, column in columns.items()
        ]
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table(columns, pa.schema(fields)), sink)
        self.place(f"data/{name}.parquet", sink.getvalue().to_pybytes())

    def stored(self, record: dict[str, Any]) -> dict[str, Any]:
        """A manifest entry with the size that its file has."""
        size = self.sizes[record["data_file"]["file_path"]]
        return record | {"data_file": record["data_file"] | {"file_size_in_bytes": size}}

    def write_vector(self, name: str, target: str, positions: Sequence[int]) -> dict[str, Any]:
        """Store a vector; the manifest entry that V3 has of it."""
        puffin = encode_puffin([VectorBlob(target, BitMap64(positions))])
        self.place(f"data/{name}.puffin", puffin.body)
        [place] = puffin.places
        data_file = {
            "content": 1,
            "file_path": f"data/{name}.puffin",
            "file_format": "PUFFIN",
            "partition": {"carrier": "UA", "at_day": ONE_DAY},
            "record_count": len(positions),
            "file_size_in_bytes": len(puffin.body),
            "referenced_data_file": target,
            "content_offset": place.offset,
            "content_size_in_bytes": place.size,
        }
        numbers = {"sequence_number": None, "file_sequence_number": None}
        return {"status": 1, "snapshot_id": 7, **numbers, "data_file": data_file}

    async def migrate(self, migrated: MigratedList) -> None:
        """Version 0: the rows of a manifest list, and totals of what its manifests list."""
        codec, sync = EntryCodec.of_definition(self.definition), sync_marker(self.definition.table_uuid)
        body = self.definition.to_json()
        location = definition_location(uuid.UUID(int=5))
        self.place(location, body)
        version = Version(0)
        header = RootHeader(
            table=self.name,
            table_uuid=self.definition.table_uuid,
            version=version,
            parent_digest=None,
            snapshot=Snapshot(
                SnapshotId(snapshot_id_of(self.definition.table_uuid, version)),
                None,
                SequenceNumber(max(row.version_info.sequence_number or 0 for row in migrated.rows)),
                1,
                Operation.REPLACE,
                {},
            ),
            definition=DefinitionReference(location, hashlib.sha256(body).digest()),
            commit_id=CommitId("0" * 32),
            coordinator_id="test",
            row_ids=RowIds(next=migrated.next_row_id),
        )
        block = seal([Row.of(row, codec) for row in migrated.rows], codec, sync)
        for _ in range(2):  # the first root is only there to count what its leaves list
            _, encoded = encode_root(header, [block], codec, sync)
            self.store.place(root_key(self.name, version), encoded)
            self.version, self.loaded = 0, await self.reloaded(0)
            entries = [live.entry for live in self.state.live.entries()]
            totals = totals_of([*entries, *(row.entry for row in self.state.root.rows)])
            counted = {"total-data-files": str(totals.data_files), "total-records": str(totals.rows)}
            header = replace(header, totals=totals, snapshot=replace(header.snapshot, summary=counted))

    async def reloaded(self, version: int | None = None) -> TableState:
        """The table as a process loads it that knows nothing yet."""
        wanted = Version(self.version if version is None else version)
        return await load_to_build_on(self.store, self.name, wanted)

    async def commit(self, intent: Intent, leaves: dict[str, Leaf] | None = None) -> None:
        position = LogPosition(LogId("embedded/log"), 0, self.version)
        stamp = Stamp(CommitId(f"{self.version + 1:032x}"), "coordinator-1", 1_000_000 + self.version)
        fetched = FetchedObjects({LeafNeed(location): ReadLeaf(leaf) for location, leaf in (leaves or {}).items()})
        applied = apply_batch(self.state, self.name, [Record(position, intent, 100)], fetched, stamp)
        assert isinstance(applied, Applied)
        assert [verdict.code for verdict in applied.verdicts] == [None]
        assert violations(self.state, applied.state) == []
        self.version += 1
        self.store.place(root_key(self.name, Version(self.version)), applied.body)
        self.loaded = applied.state

    async def remove(self, location: str) -> None:
        vector = self.state.vector_of(location)
        seen = None
        if vector is not None and vector.deletion_vector is not None:
            seen = VectorReference(location=vector.location, offset=vector.deletion_vector.offset or 0)
        item = RemovedFile(location=location, vector=seen)
        await self.commit(Intent(intent_id="r", table=self.name, kind=IntentKind.REMOVE, remove_files=(item,)))

    async def append(self, name: str, rows: dict[str, list[Any]]) -> None:
        added = (self._written(name, rows),)
        await self.commit(Intent(intent_id="a", table=self.name, kind=IntentKind.APPEND, add_data_files=added))

    async def replace(self, source: str, name: str, rows: dict[str, list[Any]]) -> None:
        """What is left of a file without a vector, in a new one."""
        number = self.state.header.snapshot.sequence_number
        intent = Intent(
            intent_id="w",
            table=self.name,
            kind=IntentKind.REWRITE,
            read_sequence_number=number,
            add_data_files=(self._written(name, rows),),
            remove_files=(RemovedFile(location=source),),
        )
        await self.commit(intent)

    def _written(self, name: str, rows: dict[str, list[Any]]) -> DataFile:
        self.write_rows(name, rows)
        statistics = EntryCodec.of_definition(self.definition).statistics
        carrier = rows["carrier"][0]
        values = {CARRIER: FieldStatistics(carrier, carrier), DAY: FieldStatistics(ONE_DAY, ONE_DAY)}
        return DataFile(
            location=f"data/{name}.parquet",
            partition_spec_id=3,
            record_count=len(rows["id"]),
            file_size_in_bytes=self.size_of(f"data/{name}.parquet"),
            content_stats=statistics.encode(values),
            stats_schema=statistics.fingerprint,
        )

    async def rewrite(self, *locations: str) -> str:
        """Write what is live in these leaves into one of ours, and replace them by it; its location."""
        live = [found.entry for found in self.state.live.entries() if found.leaf in locations]
        is_data = live[0].content_type is ContentType.DATA
        moved = [replace(one, version_info=replace(one.version_info, status=Status.EXISTING)) for one in live]
        content = LeafContent.DATA if is_data else LeafContent.DELETE
        leaf = encode_leaf(moved, self.definition, leaf_uuid=uuid.UUID(int=self.version + 50), content=content)
        self.place(leaf.location, leaf.body)
        manifest = AddedManifest(
            location=leaf.location,
            content_type=ContentType.DATA_MANIFEST if is_data else ContentType.DELETE_MANIFEST,
            file_size_in_bytes=len(leaf.body),
            record_count=len(moved),
            partition_spec_id=moved[0].partition_spec_id,
        )
        intent = Intent(
            intent_id=f"rewrite-{self.version}",
            table=self.name,
            kind=IntentKind.COMPACT_LEAVES,
            add_manifests=(manifest,),
            replaces=locations,
            made_from_version=self.version,
        )
        await self.commit(intent, {leaf.location: decode_leaf(leaf.body, location=leaf.location)})
        return leaf.location

    async def plan(self, where: str | None = None) -> ScanPlan:
        root = await read_root(self.store, self.name, Version(self.version))
        return await plan_scan(self.store, root, self.definition, PruningFilter.of(where, self.definition))

    async def ids(self, where: str | None = None) -> list[int]:
        """The ids of the rows that a scan yields, ascending."""
        wanted = RowsWanted.of(self.definition, None)
        rows = await scan_table(self.store, self.name, (await self.plan(where)).tasks(), wanted)
        return sorted(rows.column("id").to_pylist())

    def shown(self) -> dict[str, Status]:
        """The rows of the root that are no manifest vectors, and their status."""
        entries = [row.entry for row in self.state.root.rows]
        return {
            entry.location: entry.version_info.status
            for entry in entries
            if entry.content_type is not ContentType.MANIFEST_DV
        }
