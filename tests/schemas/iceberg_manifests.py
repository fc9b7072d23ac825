"""Manifests and manifest lists as writers of Iceberg V1 to V3 write them: by fastavro, under pyiceberg's schemas."""

from __future__ import annotations

import io
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import fastavro
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.partitioning import PartitionField
from pyiceberg.partitioning import PartitionSpec as IcebergSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.typedef import TableVersion
from pyiceberg.types import DecimalType, LongType, NestedField, StringType, TimestamptzType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from rootline.schemas.content_entry import ContentEntry, ContentType, FileFormat, ManifestStats, Status, VersionInfo
from rootline.schemas.table_definition import Expression, PartitionSpec, SortOrder, TableDefinition

ID, CARRIER, AT, AMOUNT, DAY = 1, 2, 3, 4, 5
SCHEMA = Schema(
    NestedField(ID, "id", LongType(), required=False),
    NestedField(CARRIER, "carrier", StringType(), required=False),
    NestedField(AT, "at", TimestamptzType(), required=False),
    NestedField(AMOUNT, "amount", DecimalType(9, 2), required=False),
    schema_id=0,
)
BY_CARRIER_AND_DAY = IcebergSpec(
    PartitionField(CARRIER, 1000, IdentityTransform(), "carrier"),
    PartitionField(AT, 1001, DayTransform(), "at_day"),
    spec_id=3,
)
DEFINITION = TableDefinition(
    table_uuid=uuid.UUID(int=77),
    schemas=(SCHEMA,),
    current_schema_id=0,
    expressions=(Expression(DAY, (AT,), "day", "at_day", 1001),),
    partition_specs=(PartitionSpec(0), PartitionSpec(3, (CARRIER, DAY))),
    default_spec_id=3,
    sort_orders=(SortOrder(0),),
    default_sort_order_id=0,
    last_column_id=5,
    properties={},
)
ONE_DAY = 20_259  # 2025-06-20


def record(name: str, status: Status = Status.ADDED, number: int | None = None, **more: Any) -> dict[str, Any]:
    """A manifest entry of any version; what the version has no field for is left out when it is written."""
    data_file: dict[str, Any] = {
        "content": 0,
        "file_path": f"data/{name}.parquet",
        "file_format": "PARQUET",
        "partition": {"carrier": "UA", "at_day": ONE_DAY},
        "record_count": 10,
        "file_size_in_bytes": 1_000,
        "block_size_in_bytes": 64,
    }
    return {
        "status": int(status),
        "snapshot_id": 7,
        "sequence_number": number,
        "file_sequence_number": number,
        "data_file": data_file | more,
    }


def pairs(values: Mapping[int, Any]) -> list[dict[str, Any]]:
    """A map as Avro has those whose keys are numbers."""
    return [{"key": key, "value": value} for key, value in values.items()]


def manifest(
    version: TableVersion,
    records: Sequence[Mapping[str, Any]],
    *,
    content: str = "data",
    spec: IcebergSpec = BY_CARRIER_AND_DAY,
    schema: Schema = SCHEMA,
    without: Sequence[str] = (),
    codec: str = "deflate",
) -> bytes:
    """A manifest; `without`: fields of the entry that this writer did not know."""
    data_file = data_file_with_partition(spec.partition_type(schema), version)
    avro = _avro(manifest_entry_schema_with_data_file(version, data_file), "manifest_entry")
    avro["fields"] = [field for field in avro["fields"] if field["name"] not in without]
    metadata = {
        "schema": schema.model_dump_json(),
        "partition-spec": "[" + ",".join(field.model_dump_json() for field in spec.fields) + "]",
        "format-version": str(version),
    }
    if version > 1:
        metadata |= {"content": content, "partition-spec-id": str(spec.spec_id)}
    return _written(avro, records, metadata, codec)


def manifest_list(version: TableVersion, rows: Sequence[Mapping[str, Any]], *, codec: str = "deflate") -> bytes:
    avro = _avro(MANIFEST_LIST_FILE_SCHEMAS[version], "manifest_file")
    return _written(avro, rows, {"format-version": str(version), "snapshot-id": "9"}, codec)


def list_entry(path: str, length: int, **more: Any) -> dict[str, Any]:
    """A manifest-list entry of any version: of one added file of ten rows, of snapshot 7."""
    return {
        "manifest_path": path,
        "manifest_length": length,
        "partition_spec_id": 3,
        "content": 0,
        "sequence_number": 4,
        "min_sequence_number": 4,
        "added_snapshot_id": 7,
        "added_files_count": 1,
        "existing_files_count": 0,
        "deleted_files_count": 0,
        "added_rows_count": 10,
        "existing_rows_count": 0,
        "deleted_rows_count": 0,
    } | more


def leaf_row(body: bytes, count: int, *, is_delete: bool = False, number: int = 4, **more: Any) -> ContentEntry:
    """The root row of a manifest, as far as reading it needs one."""
    fields: dict[str, Any] = {
        "content_type": ContentType.DELETE_MANIFEST if is_delete else ContentType.DATA_MANIFEST,
        "location": "metadata/m.avro",
        "file_format": FileFormat.AVRO,
        "version_info": VersionInfo(Status.EXISTING, 7, number, number),
        "partition_spec_id": 3,
        "record_count": count,
        "file_size_in_bytes": len(body),
        "manifest_stats": ManifestStats(count, 0, 0, 10 * count, 0, 0, number),
    }
    return ContentEntry(**fields | more)


def _avro(schema: Schema, name: str) -> dict[str, Any]:
    made: Any = AvroSchemaConversion().iceberg_to_avro(schema, schema_name=name)
    return dict(made)


def _written(
    schema: dict[str, Any], records: Sequence[Mapping[str, Any]], metadata: dict[str, str], codec: str
) -> bytes:
    sink = io.BytesIO()
    fastavro.writer(sink, schema, list(records), codec=codec, metadata=metadata, sync_interval=200)
    return sink.getvalue()
