"""The files of `large_table` in a table of Iceberg V2, written and planned by PyIceberg: goal 10's yardstick.

Owns: its manifests and metadata, as a writer of manifests of 8 MB leaves them. Does not own: the files.
Invariants: the same files with the same bounds and counts; a plan is cold: nothing is kept from the one before.
"""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path
from typing import Final

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
from pyiceberg.table import StaticTable
from pyiceberg.typedef import Record

from benchmarks.measure import Spread
from benchmarks.sample_table import definition, rows_of, statistics

_ENTRIES: Final = 12_500  # about 8 MB, which Iceberg's writers aim at
_SNAPSHOT: Final = 4_711
_PLANS: Final = 2


def plan_seconds(folder: Path, files: int, where: str) -> dict[str, Spread]:
    """`all` and `selective` → cold plans of a table of `files` files, which is made in `folder`."""
    metadata = _written(folder, files)
    taken: dict[str, list[float]] = {"all": [], "selective": []}
    for _ in range(_PLANS):
        for which, row_filter in (("all", AlwaysTrue()), ("selective", where)):
            began = time.perf_counter()
            found = sum(1 for _ in StaticTable.from_metadata(metadata).scan(row_filter=row_filter).plan_files())
            taken[which].append(time.perf_counter() - began)
            assert found == (files if which == "all" else 50), found
    return {which: Spread.of(seconds) for which, seconds in taken.items()}


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
    return ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=_SNAPSHOT, data_file=file)
