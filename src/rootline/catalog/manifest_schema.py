"""The Avro of exported manifests and manifest lists: schemas, container, bounds and partition values of V2 and V3.

Owns: names, types and field ids as in Iceberg's own writers, the metadata of a manifest file, the deflated container,
single-value bytes of bounds, Avro values of partition tuples, the comparison of two Avro files. Does not own: rows
(`manifest_encoder`, `manifest_list_encoder`), reading bounds back (`single_values`).
Invariants: the fields of a row are written in the order of these schemas. Every optional field is `["null", T]`. Each
named type is defined once, at its use, because some readers do not support references. NaN is never a bound. A lower
bound of zero is -0.0, and an upper bound of zero is +0.0. UUIDs have no bounds. The same rows make the same bytes with
the same zlib build. Other builds compress differently, so a caller that finds other bytes under the same name compares
their content. An unreadable file never equals another.

Source: the Iceberg specification, "Manifests", "Manifest Lists", Appendix A (Avro) and Appendix D.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any, Final, NamedTuple

from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from rootline.catalog.export_keys import FormatVersion
from rootline.catalog.exported_definition import ExportedDefinition, ExportedField
from rootline.schemas.bytes import avro_encoding as avro_container
from rootline.schemas.bytes.avro_encoding import SYNC_BYTES
from rootline.schemas.bytes.bound_codec import Encode, bound_codec
from rootline.schemas.bytes.entry_schema import COUNTS_ONLY, AvroType, avro_type_of, kind_of
from rootline.schemas.bytes.foreign_avro import BROKEN, ForeignAvro
from rootline.schemas.bytes.leaf import LeafContent

__all__ = [
    "CODEC",
    "LAYOUTS",
    "SYNC_BYTES",
    "BoundBytes",
    "bound_bytes",
    "encode_container",
    "has_bounds",
    "partition_encoder",
]

CODEC: Final = "deflate"
"""The only codec besides `null` that every Avro library has."""
_BLOCK_BYTES: Final = 256 * 1024
_LEVEL: Final = 1
"""For statistics of 20 columns, this takes 0.4 of the time of zlib's default level and makes 1.03 of its bytes."""


def encode_container(metadata: Mapping[str, bytes], rows: Iterable[bytes], sync: bytes) -> bytes:
    """The Avro file of `rows`, compressed with `CODEC`. `metadata`: the file metadata without `avro.codec`."""
    metadata = {**metadata, "avro.codec": CODEC.encode()}
    return avro_container.encode_container(metadata, rows, sync, pack=_deflated, block_bytes=_BLOCK_BYTES)


def _deflated(plain: bytes) -> bytes:
    """The deflated bytes, without zlib's header and checksum, as Avro requires."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(plain) + packer.flush()


def same_avro(stored: bytes, made: bytes) -> bool:
    """Whether both have the same schema, the same metadata and the same records."""
    try:
        return _content_of(stored) == _content_of(made)
    except BROKEN:
        return False


def _content_of(body: bytes) -> tuple[Any, ...]:
    file = ForeignAvro.of(body)
    metadata = {key: value for key, value in file.metadata.items() if key != "avro.codec"}
    return metadata, [
        repr(record) for records in file.blocks() for record in records
    ]  # compared as text, because NaN differs from itself


CONTENT_NAMES: Final = {LeafContent.DATA: "data", LeafContent.DELETE: "deletes"}
"""The content of a manifest, by its name in the file metadata."""
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
    """The record `manifest_entry`, with a partition tuple of `fields`."""
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
    """A map in Iceberg's form: an array of pairs, because Avro's maps have only string keys."""
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


_EXACT: Final = Context(prec=80)
LAYOUTS: Final[dict[type[PrimitiveType], str]] = {
    IntegerType: "<i", DateType: "<i", FloatType: "<f", DoubleType: "<d", LongType: "<q", TimeType: "<q",
    TimestampType: "<q", TimestamptzType: "<q", TimestampNanoType: "<q", TimestamptzNanoType: "<q",
}  # fmt: skip
"""The binary layouts of numbers of a fixed size."""


class BoundBytes(NamedTuple):
    """Encoders of a type's lower and upper bounds: single-value bytes, `None` for a value that cannot be a bound."""

    lower: Callable[[Any], bytes | None]
    upper: Callable[[Any], bytes | None]


@lru_cache(maxsize=1024)
def bound_bytes(kind: PrimitiveType) -> BoundBytes:
    """The encoders for bounds of a column of type `kind`, which take physical values."""
    if isinstance(kind, FloatType | DoubleType):
        pack = struct.Struct(LAYOUTS[type(kind)]).pack
        return BoundBytes(
            lambda value: pack(value or -0.0) if value == value else None,
            lambda value: pack(value or 0.0) if value == value else None,
        )
    encode = _encoder(kind)
    return BoundBytes(encode, encode)


def has_bounds(kind: PrimitiveType) -> bool:
    """Whether bounds of the type are written. Bounds of UUIDs are not: Iceberg's Java misreads them."""
    return kind_of(kind) != COUNTS_ONLY and not isinstance(kind, UUIDType)


@lru_cache(maxsize=1024)
def partition_encoder(kind: PrimitiveType) -> Encode:
    """The encoder of a partition value, or of `None`, as Avro's `["null", T]`. NaN is encoded like any other value."""
    return bound_codec(kind, allow_nan=True).encode


def _encoder(kind: PrimitiveType) -> Callable[[Any], bytes]:
    layout = LAYOUTS.get(type(kind))
    if layout is not None:
        return struct.Struct(layout).pack
    if isinstance(kind, BooleanType):
        return lambda value: b"\x01" if value else b"\x00"
    if isinstance(kind, StringType):
        return str.encode
    if isinstance(kind, DecimalType):
        return _decimal(kind.scale)
    return bytes


def _decimal(scale: int) -> Callable[[Decimal], bytes]:
    def encode(value: Decimal) -> bytes:
        unscaled = int(_EXACT.scaleb(value, scale))
        magnitude = unscaled if unscaled >= 0 else ~unscaled
        return unscaled.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)

    return encode
