"""The Avro schema of the content entry, for the statistics that a table tracks.

Owns: Avro names, types and field ids of the entry and of `content_stats`, the names of the statistics records, the
conversion from a schema back to the tracked fields. Does not own: bytes (`entry_codec`, `statistics_codec`), Parquet.
Invariants: `version_info` is the first field and `content_stats` the last. The statistics record of a type is defined
once and shared, so a header stays small. The record's name contains the type, so the schema alone decodes a root.

Source: the Single File Commits proposal, "V4 content entry structure"; format page, "Root manifest"; the Iceberg
specification, Appendix A (Avro).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from typing import Any, Final

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
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
    UnknownType,
    UUIDType,
)

from rootline.schemas import field_ids as ids
from rootline.schemas.table_definition import TrackedField

AvroType = str | dict[str, Any] | list[Any]
_RECORD_PREFIX: Final = "stats_"
COUNTS_ONLY: Final = "counts"
"""The kind of types without bounds: unknown, geometry, geography, variant."""

_SIMPLE: Final[dict[str, tuple[type[PrimitiveType], AvroType]]] = {
    "boolean": (BooleanType, "boolean"),
    "int": (IntegerType, "int"),
    "long": (LongType, "long"),
    "float": (FloatType, "float"),
    "double": (DoubleType, "double"),
    "date": (DateType, {"type": "int", "logicalType": "date"}),
    "time": (TimeType, {"type": "long", "logicalType": "time-micros"}),
    "timestamp": (TimestampType, {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": False}),
    "timestamptz": (TimestamptzType, {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True}),
    "timestamp_ns": (TimestampNanoType, {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": False}),
    "timestamptz_ns": (TimestamptzNanoType, {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": True}),
    "string": (StringType, "string"),
    "binary": (BinaryType, "bytes"),
    "uuid": (UUIDType, {"type": "fixed", "name": "uuid_fixed", "size": 16, "logicalType": "uuid"}),
}
_KIND_OF: Final = {simple[0]: kind for kind, simple in _SIMPLE.items()}
FIXED_LENGTH_MAX: Final = 999_999_999
"""The greatest length of a `fixed` column that `_FIXED` matches."""
_DECIMAL: Final = re.compile(r"decimal_([1-9]|[1-2][0-9]|3[0-8])_([0-9]|[1-2][0-9]|3[0-8])\Z")
_FIXED: Final = re.compile(r"fixed_([1-9][0-9]{0,8})\Z")
_STRUCT_NAME: Final = re.compile(r"_([1-9][0-9]{0,7})\Z")


def decimal_size_in_bytes(precision: int) -> int:
    """The least number of bytes for every unscaled value of `precision` digits."""
    return (int(10**precision - 1).bit_length() + 1 + 7) // 8


def kind_of(field_type: PrimitiveType) -> str:
    """The word for a type in names of statistics records: `int`, `decimal_10_2`, `fixed_16`, … `counts` stands for
    types without bounds.
    """
    if isinstance(field_type, DecimalType):
        return f"decimal_{field_type.precision}_{field_type.scale}"
    if isinstance(field_type, FixedType):
        return f"fixed_{len(field_type)}"
    return _KIND_OF.get(type(field_type), COUNTS_ONLY)


def type_of_kind(kind: str) -> PrimitiveType:
    """The inverse of `kind_of`. `counts` yields the unknown type. Raises `ValueError` for any other word."""
    if kind in _SIMPLE:
        return _SIMPLE[kind][0]()
    if kind == COUNTS_ONLY:
        return UnknownType()
    decimal = _DECIMAL.match(kind)
    if decimal is not None:
        return DecimalType(int(decimal[1]), int(decimal[2]))
    fixed = _FIXED.match(kind)
    if fixed is not None:
        return FixedType(int(fixed[1]))
    raise ValueError(f"{kind[:40]!r} is not a type of statistics")


def layout_of_kind(kind: str) -> str:
    """The byte layout of a bound. Types that encode bounds alike, such as int and long, have the same layout."""
    if kind == "int":
        return "long"
    decimal = _DECIMAL.match(kind)
    return f"decimal_{decimal_size_in_bytes(int(decimal[1]))}_{decimal[2]}" if decimal else kind


def content_stats_schema(tracked: Sequence[TrackedField], nan_bounds: Collection[int] = ()) -> dict[str, Any]:
    """The record `content_stats`: one optional struct `_<id>` for each tracked field, in order.

    Args:
        tracked: columns and expressions.
        nan_bounds: ids whose bounds may be NaN, because a partition spec uses them by identity.
    """
    defined: set[str] = set()
    fields = [_struct_field(field, field.tracked_id in nan_bounds, defined) for field in tracked]
    return {"type": "record", "name": "content_stats", "fields": fields}


def stats_fingerprint(tracked: Sequence[TrackedField]) -> bytes:
    """CRC-64-AVRO of the parsing canonical form of `content_stats`, 8 bytes, little-endian as in Avro's framing."""
    from fastavro.schema import fingerprint, to_parsing_canonical_form

    canonical = to_parsing_canonical_form(content_stats_schema(tracked))
    return bytes.fromhex(fingerprint(canonical, "CRC-64-AVRO"))


def content_entry_schema(tracked: Sequence[TrackedField], nan_bounds: Collection[int] = ()) -> dict[str, Any]:
    """The record `content_entry`: the schema of a root's rows."""
    return {
        "type": "record",
        "name": "content_entry",
        "fields": [
            _optional("version_info", _VERSION_INFO, ids.VERSION_INFO),
            _required("content_type", "int", ids.CONTENT_TYPE),
            _required("location", "string", ids.LOCATION),
            _required("file_format", "string", ids.FILE_FORMAT),
            _required("partition_spec_id", "int", ids.PARTITION_SPEC_ID),
            _required("record_count", "long", ids.RECORD_COUNT),
            _optional("file_size_in_bytes", "long", ids.FILE_SIZE_IN_BYTES),
            _optional("deletion_vector", _DELETION_VECTOR, ids.DELETION_VECTOR),
            _optional("sort_order_id", "int", ids.SORT_ORDER_ID),
            _optional("manifest_stats", _MANIFEST_STATS, ids.MANIFEST_STATS),
            _optional("referenced_file", "string", ids.REFERENCED_FILE),
            _optional("key_metadata", "bytes", ids.KEY_METADATA),
            _optional("split_offsets", _array("long", ids.SPLIT_OFFSETS_ELEMENT), ids.SPLIT_OFFSETS),
            _optional("equality_ids", _array("int", ids.EQUALITY_IDS_ELEMENT), ids.EQUALITY_IDS),
            _optional("first_row_id", "long", ids.FIRST_ROW_ID),
            _optional("content_stats", content_stats_schema(tracked, nan_bounds), ids.CONTENT_STATS),
        ],
    }


def schema_bytes(schema: dict[str, Any]) -> bytes:
    """The schema's JSON in a root's header."""
    return json.dumps(schema, separators=(",", ":")).encode()


def tracked_of_schema(schema: Any) -> tuple[tuple[TrackedField, ...], frozenset[int]]:
    """Read a content entry's schema: (columns and expressions with statistics, ids whose bounds may be NaN).

    Raises:
        ValueError: it is not a schema that `content_entry_schema` makes.
    """
    try:
        structs = schema["fields"][-1]["type"][1]["fields"]
        tracked = tuple(_tracked_of_struct(struct) for struct in structs)
        nan_bounds = frozenset(
            field.tracked_id for field, struct in zip(tracked, structs, strict=True) if struct.get("nan-bounds") is True
        )
    except (TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise ValueError(f"the schema is not a content entry's: {error!r}") from error
    if content_entry_schema(tracked, nan_bounds) != schema:
        raise ValueError(f"the schema is not a content entry's of profile {ids.PROFILE}")
    return tracked, nan_bounds


def _tracked_of_struct(struct: dict[str, Any]) -> TrackedField:
    name = struct["name"]
    match = _STRUCT_NAME.match(name)
    if match is None:
        raise ValueError(f"{name[:40]!r} is not the name of a statistics struct")
    record = struct["type"][1]
    record_name = record if isinstance(record, str) else record["name"]
    return TrackedField(int(match[1]), name, type_of_kind(record_name.removeprefix(_RECORD_PREFIX)))


def _struct_field(field: TrackedField, nan_bounds: bool, defined: set[str]) -> dict[str, Any]:
    kind = kind_of(field.type)
    name = _RECORD_PREFIX + kind
    record: AvroType = name if name in defined else _statistics_record(name, kind, field.type)
    defined.add(name)
    struct = _optional(f"_{field.tracked_id}", record, ids.statistics_field_id(field.tracked_id))
    return {**struct, "nan-bounds": True} if nan_bounds else struct


def _statistics_record(name: str, kind: str, field_type: PrimitiveType) -> dict[str, Any]:
    members: list[tuple[str, AvroType, int]] = []
    if kind != COUNTS_ONLY:
        lower = avro_type_of(field_type)
        upper = lower["name"] if isinstance(lower, dict) and "name" in lower else lower
        members += [
            ("lower_bound", lower, ids.LOWER_BOUND_OFFSET),
            ("upper_bound", upper, ids.UPPER_BOUND_OFFSET),
            ("tight_bounds", "boolean", ids.TIGHT_BOUNDS_OFFSET),
        ]
    members += [
        ("value_count", "long", ids.VALUE_COUNT_OFFSET),
        ("null_value_count", "long", ids.NULL_VALUE_COUNT_OFFSET),
        ("nan_value_count", "long", ids.NAN_VALUE_COUNT_OFFSET),
        ("avg_value_size_in_bytes", "int", ids.AVG_VALUE_SIZE_OFFSET),
        ("max_value_size_in_bytes", "int", ids.MAX_VALUE_SIZE_OFFSET),
    ]
    fields = [{"name": member, "type": ["null", avro], "stat-offset": offset} for member, avro, offset in members]
    return {"type": "record", "name": name, "fields": fields}


def avro_type_of(field_type: PrimitiveType) -> AvroType:
    """The Avro type, with its logical type, of the values of a column whose kind is not `counts`."""
    if isinstance(field_type, DecimalType):
        return {
            "type": "fixed",
            "name": kind_of(field_type),
            "size": decimal_size_in_bytes(field_type.precision),
            "logicalType": "decimal",
            "precision": field_type.precision,
            "scale": field_type.scale,
        }
    if isinstance(field_type, FixedType):
        return {"type": "fixed", "name": kind_of(field_type), "size": len(field_type)}
    return _SIMPLE[kind_of(field_type)][1]


def _required(name: str, avro: AvroType, field_id: int) -> dict[str, Any]:
    return {"name": name, "type": avro, "field-id": field_id}


def _optional(name: str, avro: AvroType, field_id: int) -> dict[str, Any]:
    return {"name": name, "type": ["null", avro], "default": None, "field-id": field_id}


def _array(items: str, element_id: int) -> dict[str, Any]:
    return {"type": "array", "items": items, "element-id": element_id}


def _record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


_VERSION_INFO: Final = _record(
    "version_info",
    _required("status", "int", ids.STATUS),
    _optional("snapshot_id", "long", ids.SNAPSHOT_ID),
    _optional("sequence_number", "long", ids.SEQUENCE_NUMBER),
    _optional("file_sequence_number", "long", ids.FILE_SEQUENCE_NUMBER),
)
_DELETION_VECTOR: Final = _record(
    "deletion_vector",
    _optional("offset", "long", ids.VECTOR_OFFSET),
    _optional("size_in_bytes", "long", ids.VECTOR_SIZE_IN_BYTES),
    _optional("inline_content", "bytes", ids.VECTOR_INLINE_CONTENT),
)
_MANIFEST_STATS: Final = _record(
    "manifest_stats",
    _required("added_files_count", "int", ids.ADDED_FILES_COUNT),
    _required("existing_files_count", "int", ids.EXISTING_FILES_COUNT),
    _required("deleted_files_count", "int", ids.DELETED_FILES_COUNT),
    _required("added_rows_count", "long", ids.ADDED_ROWS_COUNT),
    _required("existing_rows_count", "long", ids.EXISTING_ROWS_COUNT),
    _required("deleted_rows_count", "long", ids.DELETED_ROWS_COUNT),
    _required("min_sequence_number", "long", ids.MIN_SEQUENCE_NUMBER),
)
