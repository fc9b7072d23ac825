"""Commits with snapshots that a test makes by hand, with PyIceberg's writers of manifests and lists.

Owns: data files, manifests and lists in a table's folder, the request. Does not own: sending it (`WritingCatalog`).
Invariants: everything is of format 2, and by default as an honest client writes it. Names are fresh.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    read_manifest_list,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record

from tests.rest.writing_catalog import WritingCatalog

MAIN = {"type": "assert-ref-snapshot-id", "ref": "main"}
ADDED, EXISTING, DELETED = ManifestEntryStatus.ADDED, ManifestEntryStatus.EXISTING, ManifestEntryStatus.DELETED


@dataclass
class HandMade:
    """The commits of one client to a table, on the snapshot that it loads first."""

    catalog: WritingCatalog
    table: str
    io: PyArrowFileIO = field(default_factory=PyArrowFileIO)
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.metadata:
            self.load()

    def load(self) -> HandMade:
        """Load the table again. Later commits are on its newest snapshot."""
        self.metadata = self.catalog.load(self.table)
        return self

    def ids(self) -> list[int]:
        """The ids of the table's rows, ascending, as Rootline reads them."""
        found: list[int] = sorted(self.catalog.lake.table(self.table).scan().to_arrow().column("id").to_pylist())
        return found

    @property
    def location(self) -> str:
        """The table's location."""
        return str(self.metadata["location"])

    @property
    def folder(self) -> Path:
        """The table's folder."""
        return Path(self.location.removeprefix("file://"))

    @property
    def base(self) -> int | None:
        """The snapshot that commits are on."""
        return self.metadata.get("refs", {}).get("main", {}).get("snapshot-id")

    def file(self, *ids: int, path: str | None = None, **facts: Any) -> DataFile:
        """A stored data file with a row for each id. `path` and `facts` are what its entry states."""
        stored = f"{self.location}/data/{uuid.uuid4()}.parquet"
        rows = pa.table({"id": pa.array(ids, pa.int64()), "ts": pa.nulls(len(ids), pa.timestamp("us"))})
        metadata = {b"PARQUET:field_id": b"1"}, {b"PARQUET:field_id": b"2"}
        schema = pa.schema(
            [pa.field("id", pa.int64(), False, metadata[0]), pa.field("ts", pa.timestamp("us"), True, metadata[1])]
        )
        place = Path(stored.removeprefix("file://"))
        place.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows.cast(schema), place)
        named = {
            "content": DataFileContent.DATA,
            "file_path": stored if path is None else path,
            "file_format": FileFormat.PARQUET,
            "partition": Record(),
            "record_count": len(ids),
            "file_size_in_bytes": place.stat().st_size,
            "column_sizes": {},
            "value_counts": {1: len(ids), 2: len(ids)},
            "null_value_counts": {1: 0, 2: len(ids)},
            "nan_value_counts": {},
            "lower_bounds": {1: min(ids, default=0).to_bytes(8, "little", signed=True)},
            "upper_bounds": {1: max(ids, default=0).to_bytes(8, "little", signed=True)},
            "key_metadata": None,
            "split_offsets": [4],
            "equality_ids": None,
            "sort_order_id": None,
            **facts,
        }
        found = DataFile.from_args(**named)
        found.spec_id = 0
        return found

    def manifest(
        self,
        snapshot_id: int,
        entries: Iterable[tuple[ManifestEntryStatus, DataFile]],
        *,
        path: str | None = None,
        content: ManifestContent = ManifestContent.DATA,
    ) -> ManifestFile:
        """A stored manifest of these entries."""
        where = path or f"{self.location}/rest/metadata/{uuid.uuid4()}-m0.avro"
        self._make_folder(where)
        schema = Schema.model_validate(self.metadata["schemas"][-1])
        output = self.io.new_output(where)
        writer = write_manifest(2, UNPARTITIONED_PARTITION_SPEC, schema, output, snapshot_id, "deflate")
        with writer:
            for status, file in entries:
                number = None if status is ADDED else 1
                entry = ManifestEntry.from_args(
                    status=status,
                    snapshot_id=snapshot_id,
                    sequence_number=number,
                    file_sequence_number=number,
                    data_file=file,
                )
                writer.add_entry(entry)
        found = writer.to_manifest_file()
        found[3] = content
        return found

    def inherited(self) -> list[ManifestFile]:
        """The manifests of the snapshot that commits are on."""
        listed = {each["snapshot-id"]: each["manifest-list"] for each in self.metadata["snapshots"]}
        return [] if self.base is None else list(read_manifest_list(self.io.new_input(listed[self.base])))

    def manifest_list(self, snapshot_id: int, manifests: Sequence[ManifestFile], *, path: str | None = None) -> str:
        """The location of a stored manifest list."""
        where = path or f"{self.location}/rest/metadata/snap-{snapshot_id}-0-{uuid.uuid4()}.avro"
        self._make_folder(where)
        output = self.io.new_output(where)
        with write_manifest_list(2, output, snapshot_id, self.base, 99, "deflate") as writer:
            writer.add_manifests(list(manifests))
        return where

    def snapshot(self, snapshot_id: int, manifest_list: str, **summary: str) -> dict[str, Any]:
        """A snapshot as it is added."""
        words = {"operation": "append", **{key.replace("_", "-"): text for key, text in summary.items()}}
        return {
            "snapshot-id": snapshot_id,
            **({} if self.base is None else {"parent-snapshot-id": self.base}),
            "sequence-number": 99,
            "timestamp-ms": 1,
            "manifest-list": manifest_list,
            "summary": words,
            "schema-id": self.metadata["current-schema-id"],
        }

    def request(self, *snapshots: dict[str, Any]) -> tuple[list[Any], list[Any]]:
        """The updates and the requirements of a commit."""
        updates: list[Any] = [{"action": "add-snapshot", "snapshot": each} for each in snapshots]
        main = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch"}
        updates.append({**main, "snapshot-id": snapshots[-1]["snapshot-id"]})
        uuid_of = {"type": "assert-table-uuid", "uuid": self.metadata["table-uuid"]}
        return updates, [uuid_of, {**MAIN, "snapshot-id": self.base}]

    def append(self, *files: DataFile, snapshot_id: int | None = None, **summary: str) -> tuple[list[Any], list[Any]]:
        """The request of an honest append."""
        made = fresh_id() if snapshot_id is None else snapshot_id
        new = [self.manifest(made, [(ADDED, file) for file in files])] if files else []
        where = self.manifest_list(made, [*self.inherited(), *new])
        return self.request(self.snapshot(made, where, **{"added-data-files": str(len(files)), **summary}))

    def _make_folder(self, where: str) -> None:
        if where.startswith("file://"):
            Path(where.removeprefix("file://")).parent.mkdir(parents=True, exist_ok=True)


def fresh_id() -> int:
    """An id of a snapshot."""
    return random.getrandbits(62) + 1
