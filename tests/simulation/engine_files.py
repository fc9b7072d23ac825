"""What simulated engines write before they commit: data files, a manifest of them, and the list of a snapshot.

Owns: these objects' bytes and names. Does not own: when they are written or deleted (`engines`).
Invariants: a list names every manifest of the rows that it is made of, and one more; names are never used twice.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from struct import pack
from typing import Any, Final, Literal, cast

import fastavro
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from rootline.schemas.content_entry import Status
from tests.schemas.iceberg_manifests import list_entry, manifest, manifest_list, pairs, record

ROWS = 100
BODY = b"neither coordinators nor catalogs read a data file"

SCHEMA: Final = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "type": "long", "required": False},
        {"id": 2, "name": "k", "type": "int", "required": False},
    ],
}
BY_K: Final = {"spec-id": 0, "fields": [{"source-id": 2, "field-id": 1000, "name": "k", "transform": "identity"}]}


def created(metadata: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The updates that create a staged table."""
    [schema], [spec], [order] = metadata["schemas"], metadata["partition-specs"], metadata["sort-orders"]
    return [
        {"action": "assign-uuid", "uuid": metadata["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": metadata["format-version"]},
        {"action": "add-schema", "schema": schema, "last-column-id": metadata["last-column-id"]},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": spec},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": order},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": metadata["location"]},
        {"action": "set-properties", "updates": metadata["properties"]},
    ]


def data_file(path: str, k: int) -> dict[str, Any]:
    """A manifest's description of a file whose rows all have this `k`."""
    return {
        "file_path": path,
        "file_size_in_bytes": len(BODY),
        "record_count": ROWS,
        "partition": {"k": k},
        "value_counts": pairs({1: ROWS, 2: ROWS}),
        "null_value_counts": pairs({1: 0, 2: 0}),
        "lower_bounds": pairs({1: pack("<q", 0), 2: pack("<i", k)}),
        "upper_bounds": pairs({1: pack("<q", 9), 2: pack("<i", k)}),
    }


def own_manifest(metadata: Mapping[str, Any], snapshot_id: int, files: Sequence[Mapping[str, Any]]) -> bytes:
    """The manifest of an append."""
    entries = [{**record("", Status.ADDED, **file), "snapshot_id": snapshot_id} for file in files]
    return _manifest(metadata, entries, metadata["default-spec-id"])


def live_files(manifest: bytes) -> list[str]:
    """The locations of the live files of a manifest, as clients name them."""
    entries = [cast(dict[str, Any], entry) for entry in fastavro.reader(io.BytesIO(manifest))]
    return [entry["data_file"]["file_path"] for entry in entries if entry["status"] != Status.DELETED]


def manifest_without(
    metadata: Mapping[str, Any], listed: Mapping[str, Any], body: bytes, location: str, snapshot_id: int
) -> bytes:
    """The manifest `body`, which a list names with the row `listed`: one of its files is DELETED in the copy."""
    entries = []
    for entry in (cast(dict[str, Any], entry) for entry in fastavro.reader(io.BytesIO(body))):
        is_it = entry["data_file"]["file_path"] == location
        if is_it or entry["status"] != Status.DELETED:
            numbers = {
                name: listed["sequence_number"] if entry[name] is None else entry[name]
                for name in ("sequence_number", "file_sequence_number")
            }
            by = (
                {"status": int(Status.DELETED), "snapshot_id": snapshot_id}
                if is_it
                else {"status": int(Status.EXISTING)}
            )
            entries.append({**entry, **numbers, **by})
    return _manifest(metadata, entries, listed["partition_spec_id"])


def rows_of(manifest_list: bytes) -> list[dict[str, Any]]:
    """The rows of a list."""
    return [cast(dict[str, Any], row) for row in fastavro.reader(io.BytesIO(manifest_list))]


def own_list(
    metadata: Mapping[str, Any], rows: Sequence[dict[str, Any]], path: str, length: int, snapshot_id: int, files: int
) -> bytes:
    """The list of an append: its parent's `rows`, and the manifest at `path` if it adds a file."""
    version, number = _version(metadata), metadata["last-sequence-number"] + 1
    of_3 = {"first_row_id": metadata.get("next-row-id", 0)} if version == 3 else {}
    counts = {"added_files_count": files, "added_rows_count": files * ROWS}
    made = list_entry(
        path,
        length,
        partition_spec_id=metadata["default-spec-id"],
        sequence_number=number,
        min_sequence_number=number,
        added_snapshot_id=snapshot_id,
        **counts,
        **of_3,
    )
    return manifest_list(version, [*rows, *([made] if files else [])])


def snapshot_of(
    metadata: Mapping[str, Any], snapshot_id: int, list_path: str, files: int, now_ms: int
) -> dict[str, Any]:
    """The snapshot as a request adds it."""
    parent = metadata.get("current-snapshot-id")
    of_3 = (
        {"first-row-id": metadata.get("next-row-id", 0), "added-rows": files * ROWS} if _version(metadata) == 3 else {}
    )
    return {
        "snapshot-id": snapshot_id,
        **({} if parent in (None, -1) else {"parent-snapshot-id": parent}),
        "sequence-number": metadata["last-sequence-number"] + 1,
        "timestamp-ms": now_ms,
        "manifest-list": list_path,
        "summary": {
            "operation": "append",
            "added-data-files": str(files),
            "added-records": str(files * ROWS),
            "added-files-size": str(files * len(BODY)),
        },
        "schema-id": metadata["current-schema-id"],
        **of_3,
    }


def _manifest(metadata: Mapping[str, Any], entries: Sequence[Mapping[str, Any]], spec_id: int) -> bytes:
    schema = next(each for each in metadata["schemas"] if each["schema-id"] == metadata["current-schema-id"])
    spec = next(each for each in metadata["partition-specs"] if each["spec-id"] == spec_id)
    return manifest(
        _version(metadata), entries, spec=PartitionSpec.model_validate(spec), schema=Schema.model_validate(schema)
    )


def _version(metadata: Mapping[str, Any]) -> Literal[2, 3]:
    return cast(Literal[2, 3], metadata["format-version"])
