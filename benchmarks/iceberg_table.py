"""The files of `large_table` in a table of Iceberg V2, written, planned and committed to by PyIceberg: a yardstick.

Owns: its manifests and metadata, as a writer of manifests of 8 MB leaves them. Does not own: the files.
Invariants: the same files with the same bounds and counts; a plan is cold: it keeps nothing from the one before.
"""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path
from typing import Final

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import CommitTableResponse, StaticTable, Table
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.typedef import Record

from benchmarks.measure import Spread
from benchmarks.sample_table import definition, rows_of, statistics

_ENTRIES: Final = 12_500  # about 8 MB, which Iceberg's writers aim at
_SNAPSHOT: Final = 4_711
_PLANS: Final = 2


def plan_seconds(folder: Path, files: int, where: str) -> dict[str, Spread]:
    """`all` and `selective` → seconds of cold plans of a table of `files` files, which is made in `folder`."""
    metadata = _written(folder, files)
    taken: dict[str, list[float]] = {"all": [], "selective": []}
    for _ in range(_PLANS):
        for which, row_filter in (("all", AlwaysTrue()), ("selective", where)):
            began = time.perf_counter()
            found = sum(1 for _ in StaticTable.from_metadata(metadata).scan(row_filter=row_filter).plan_files())
            taken[which].append(time.perf_counter() - began)
            assert found == (files if which == "all" else 50), found
    return {which: Spread.of(seconds) for which, seconds in taken.items()}


class _FreeCatalog(NoopCatalog):
    """Commits as PyIceberg's catalogs do, except for the swap of the pointer, which costs nothing here."""

    def __init__(self, folder: Path) -> None:
        super().__init__("free")
        self._folder = folder
        self._commits = 0

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        for requirement in requirements:
            requirement.validate(table.metadata)
        metadata = update_table_metadata(table.metadata, updates)
        self._commits += 1
        location = str(self._folder / f"v{self._commits + 1}.metadata.json")
        ToOutputFile.table_metadata(metadata, table.io.new_output(location))
        return CommitTableResponse(metadata=metadata, metadata_location=location)


class IcebergWriter:
    """A table that PyIceberg wrote in `folder`, and commits to; `seconds` and `size` are of its manifests."""

    def __init__(self, folder: Path, files: int) -> None:
        began = time.perf_counter()
        location = _written(folder, files)
        self.seconds = time.perf_counter() - began
        self.size = sum(path.stat().st_size for path in folder.glob("manifest-*.avro"))
        self.files = files
        static = StaticTable.from_metadata(location)
        self._table = Table(("bench", "events"), static.metadata, location, static.io, _FreeCatalog(folder))

    def commit(self) -> float:
        """The seconds of a fast append of one file."""
        file = _data_file(self.files)
        self.files += 1
        began = time.perf_counter()
        with self._table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
            append.append_data_file(file)
        return time.perf_counter() - began


def _written(folder: Path, files: int) -> str:
    folder.mkdir(parents=True)
    io, schema = PyArrowFileIO(), definition().schema
    manifests: list[ManifestFile] = []
    for first in range(0, files, _ENTRIES):
        output = io.new_output(str(folder / f"manifest-{first}.avro"))
        with write_manifest(2, UNPARTITIONED_PARTITION_SPEC, schema, output, _SNAPSHOT, "deflate") as writer:
            for number in range(first, min(first + _ENTRIES, files)):
                writer.add_entry(_entry(number))
        manifests.append(writer.to_manifest_file())
    listed = io.new_output(str(folder / "list.avro"))
    with write_manifest_list(2, listed, _SNAPSHOT, None, 1, "deflate") as writer:
        writer.add_manifests(manifests)
    now_ms = 1_700_000_000_000
    snapshot = {
        "snapshot-id": _SNAPSHOT,
        "sequence-number": 1,
        "timestamp-ms": now_ms,
        "manifest-list": str(folder / "list.avro"),
        "summary": {"operation": "append"},
        "schema-id": schema.schema_id,
    }
    metadata = {
        "format-version": 2,
        "table-uuid": str(uuid.UUID(int=1)),
        "location": str(folder),
        "last-sequence-number": 1,
        "last-updated-ms": now_ms,
        "last-column-id": schema.highest_field_id,
        "schemas": [json.loads(schema.model_dump_json())],
        "current-schema-id": schema.schema_id,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "default-spec-id": 0,
        "last-partition-id": 999,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "current-snapshot-id": _SNAPSHOT,
        "snapshots": [snapshot],
    }
    place = folder / "v1.metadata.json"
    place.write_text(json.dumps(metadata))
    return str(place)


def _entry(number: int) -> ManifestEntry:
    file = _data_file(number)
    return ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=_SNAPSHOT, data_file=file)


def _data_file(number: int) -> DataFile:
    held = statistics(number)
    types = {field.field_id: field.field_type for field in definition().schema.fields}
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"data/{uuid.UUID(int=number)}.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=rows_of(number),
        file_size_in_bytes=1_000_000 + number,
        value_counts={column: found.value_count for column, found in held.items()},
        null_value_counts={column: found.null_value_count for column, found in held.items()},
        nan_value_counts=dict.fromkeys(range(9, 13), 0),
        lower_bounds={column: to_bytes(types[column], found.lower_bound) for column, found in held.items()},
        upper_bounds={column: to_bytes(types[column], found.upper_bound) for column, found in held.items()},
    )
    file.spec_id = 0
    return file
