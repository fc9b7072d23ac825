"""The Avro schemas of manifests and manifest lists of V2 and V3, and the file metadata of a manifest.

Owns: names, types and field ids as Iceberg's own writers have them. Does not own: rows (`manifest_encoder`,
`manifest_list_encoder`), the file around them (`avro_container`).
Invariants: the fields of a row are written in the order of these schemas; every optional field is `["null", T]`; each
named type is defined once, and used where it is defined, because some readers do not know references.

Source: the Iceberg specification, "Manifests", "Manifest Lists" and Appendix A (Avro).
"""

from __future__ import annotations

import json
from typing import Any, Final

from rootline.catalog.manifest.exported_definition import ExportedDefinition, ExportedField
from rootline.catalog.manifest.format_version import FormatVersion
from rootline.schemas.bytes.entry_schema import AvroType, avro_type_of
from rootline.schemas.bytes.leaf import LeafContent

CONTENT_NAMES: Final = {LeafContent.DATA: "data", LeafContent.DELETE: "deletes"}
"""What a manifest holds, as its file metadata calls it."""
_SCHEMA_KEY: Final = "avro.schema"


def manifest_metadata(exported: ExportedDefinition, spec_id: int, content: LeafContent) -> dict[str, bytes]:
    """The file metadata of a manifest of a spec."""
    schema = exported.schema_json(spec_id)
    texts = {
        _SCHEMA_KEY: _text(manifest_entry_schema(exported.format_version, exported.fields(spec_id))),
        "schema": _text(schema),
        "schema-id": str(schema["schema-id"]),
        "partition-spec": _text(exported.spec_json(spec_id)),
        "partition-spec-id": str(exported.exported_spec_id(spec_id)),
        "format-version": str(int(exported.format_version)),
        "content": CONTENT_NAMES[content],
    }
    return {key: text.encode() for key, text in texts.items()}


def list_metadata(
    format_version: FormatVersion, snapshot_id: int, parent_id: int | None, sequence_number: int
) -> dict[str, bytes]:
    """The file metadata of a snapshot's manifest list."""
    texts = {
        _SCHEMA_KEY: _text(manifest_list_schema(format_version)),
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent_id is None else str(parent_id),
        "sequence-number": str(sequence_number),
        "format-version": str(int(format_version)),
    }
    return {key: text.encode() for key, text in texts.items()}


def manifest_entry_schema(format_version: FormatVersion, fields: tuple[ExportedField, ...]) -> dict[str, Any]:
    """The record `manifest_entry`, its partition tuple of `fields`."""
    partition = _record("r102", *(_partition_field(field) for field in fields))
    data_file = [
        _required("content", "int", 134),
        _required("file_path", "string", 100),
        _required("file_format", "string", 101),
        _required("partition", partition, 102),
        _required("record_count", "long", 103),
        _required("file_size_in_bytes", "long", 104),
        _optional("column_sizes", _map(117, 118, "long"), 108),
        _optional("value_counts", _map(119, 120, "long"), 109),
        _optional("null_value_counts", _map(121, 122, "long"), 110),
        _optional("nan_value_counts", _map(138, 139, "long"), 137),
        _optional("lower_bounds", _map(126, 127, "bytes"), 125),
        _optional("upper_bounds", _map(129, 130, "bytes"), 128),
        _optional("key_metadata", "bytes", 131),
        _optional("split_offsets", _array("long", 133), 132),
        _optional("equality_ids", _array("int", 136), 135),
        _optional("sort_order_id", "int", 140),
    ]
    if format_version is FormatVersion.V3:
        data_file += [_optional("first_row_id", "long", 142)]
    data_file += [_optional("referenced_data_file", "string", 143)]
    if format_version is FormatVersion.V3:
        data_file += [_optional("content_offset", "long", 144), _optional("content_size_in_bytes", "long", 145)]
    return _record(
        "manifest_entry",
        _required("status", "int", 0),
        _optional("snapshot_id", "long", 1),
        _optional("sequence_number", "long", 3),
        _optional("file_sequence_number", "long", 4),
        _required("data_file", _record("r2", *data_file), 2),
    )


def manifest_list_schema(format_version: FormatVersion) -> dict[str, Any]:
    """The record `manifest_file`."""
    summary = _record(
        "r508",
        _required("contains_null", "boolean", 509),
        _optional("contains_nan", "boolean", 518),
        _optional("lower_bound", "bytes", 510),
        _optional("upper_bound", "bytes", 511),
    )
    fields = [
        _required("manifest_path", "string", 500),
        _required("manifest_length", "long", 501),
        _required("partition_spec_id", "int", 502),
        _required("content", "int", 517),
        _required("sequence_number", "long", 515),
        _required("min_sequence_number", "long", 516),
        _required("added_snapshot_id", "long", 503),
        _required("added_files_count", "int", 504),
        _required("existing_files_count", "int", 505),
        _required("deleted_files_count", "int", 506),
        _required("added_rows_count", "long", 512),
        _required("existing_rows_count", "long", 513),
        _required("deleted_rows_count", "long", 514),
        _optional("partitions", _array(summary, 508), 507),
        _optional("key_metadata", "bytes", 519),
    ]
    if format_version is FormatVersion.V3:
        fields.append(_optional("first_row_id", "long", 520))
    return _record("manifest_file", *fields)


def _partition_field(field: ExportedField) -> dict[str, Any]:
    avro = avro_type_of(field.result_type)
    if isinstance(avro, dict) and "name" in avro:
        avro = avro | {"name": f"{avro['name']}_of_{field.field_id}"}
    original = {} if field.avro_name == field.name else {"iceberg-field-name": field.name}
    return _optional(field.avro_name, avro, field.field_id) | original


def _map(key_id: int, value_id: int, values: str) -> dict[str, Any]:
    """A map as Iceberg has it: an array of pairs, because Avro's maps have only strings as keys."""
    pair = _record(f"k{key_id}_v{value_id}", _required("key", "int", key_id), _required("value", values, value_id))
    return {"type": "array", "logicalType": "map", "items": pair}


def _array(items: AvroType, element_id: int) -> dict[str, Any]:
    return {"type": "array", "items": items, "element-id": element_id}


def _record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def _required(name: str, avro: AvroType, field_id: int) -> dict[str, Any]:
    return {"name": name, "type": avro, "field-id": field_id}


def _optional(name: str, avro: AvroType, field_id: int) -> dict[str, Any]:
    return {"name": name, "type": ["null", avro], "default": None, "field-id": field_id}


def _text(body: Any) -> str:
    return json.dumps(body, separators=(",", ":"))
