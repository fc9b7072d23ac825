"""The columns of a leaf manifest: names, types and field ids in Arrow's terms.

Owns: the Arrow schema of leaves, the Arrow type of each physical value, the conversion between the two. Does not own:
the file (`leaf_codec`), rows (`leaf`), the field ids themselves (`field_ids`).
Invariants: every field has its field id. A bound that is read back is the physical value that was written.
`manifest_stats` (521) has no column, because no row of a leaf has a value: an absent optional column reads as null.

Source: format page, "Leaf manifest" and "Root manifest" (`content_stats`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
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

from rootline.schemas import field_ids
from rootline.schemas.table_definition import TrackedField

CONTENT_STATS: Final = "content_stats"

_FIELD_ID: Final = b"PARQUET:field_id"
SIMPLE_TYPES: Final[dict[type[IcebergType], pa.DataType]] = {
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    DateType: pa.date32(),
    TimeType: pa.time64("us"),
    TimestampType: pa.timestamp("us"),
    TimestamptzType: pa.timestamp("us", "UTC"),
    TimestampNanoType: pa.timestamp("ns"),
    TimestamptzNanoType: pa.timestamp("ns", "UTC"),
    StringType: pa.string(),
    UUIDType: pa.binary(16),
    BinaryType: pa.binary(),
}
"""The Arrow types of values as Parquet stores them physically."""
_BOUND_OFFSETS: Final = {
    "lower_bound": field_ids.LOWER_BOUND_OFFSET,
    "upper_bound": field_ids.UPPER_BOUND_OFFSET,
}
COUNT_FIELDS: Final[tuple[tuple[str, int, pa.DataType], ...]] = (
    ("tight_bounds", field_ids.TIGHT_BOUNDS_OFFSET, pa.bool_()),
    ("value_count", field_ids.VALUE_COUNT_OFFSET, pa.int64()),
    ("null_value_count", field_ids.NULL_VALUE_COUNT_OFFSET, pa.int64()),
    ("nan_value_count", field_ids.NAN_VALUE_COUNT_OFFSET, pa.int64()),
    ("avg_value_size_in_bytes", field_ids.AVG_VALUE_SIZE_OFFSET, pa.int32()),
    ("max_value_size_in_bytes", field_ids.MAX_VALUE_SIZE_OFFSET, pa.int32()),
)


def with_id(field: pa.Field, field_id: int) -> pa.Field:
    """`field` with its field id, as Parquet stores it."""
    return field.with_metadata({_FIELD_ID: str(field_id).encode()})


def id_of(field: pa.Field) -> int | None:
    """The field id of a field that was read from Parquet."""
    found = (field.metadata or {}).get(_FIELD_ID)
    return None if found is None else int(found)


def _required(name: str, kind: pa.DataType, field_id: int) -> pa.Field:
    return with_id(pa.field(name, kind, nullable=False), field_id)


def _optional(name: str, kind: pa.DataType, field_id: int) -> pa.Field:
    return with_id(pa.field(name, kind), field_id)


ROW_FIELDS: Final[tuple[pa.Field, ...]] = (
    _required("content_type", pa.int32(), field_ids.CONTENT_TYPE),
    _required("location", pa.string(), field_ids.LOCATION),
    _required("file_format", pa.string(), field_ids.FILE_FORMAT),
    _required(
        "version_info",
        pa.struct(
            [
                _required("status", pa.int32(), field_ids.STATUS),
                _optional("snapshot_id", pa.int64(), field_ids.SNAPSHOT_ID),
                _optional("sequence_number", pa.int64(), field_ids.SEQUENCE_NUMBER),
                _optional("file_sequence_number", pa.int64(), field_ids.FILE_SEQUENCE_NUMBER),
            ]
        ),
        field_ids.VERSION_INFO,
    ),
    _optional(
        "deletion_vector",
        pa.struct(
            [
                _optional("offset", pa.int64(), field_ids.VECTOR_OFFSET),
                _optional("size_in_bytes", pa.int64(), field_ids.VECTOR_SIZE_IN_BYTES),
                _optional("inline_content", pa.binary(), field_ids.VECTOR_INLINE_CONTENT),
            ]
        ),
        field_ids.DELETION_VECTOR,
    ),
    _required("partition_spec_id", pa.int32(), field_ids.PARTITION_SPEC_ID),
    _optional("sort_order_id", pa.int32(), field_ids.SORT_ORDER_ID),
    _required("record_count", pa.int64(), field_ids.RECORD_COUNT),
    _optional("file_size_in_bytes", pa.int64(), field_ids.FILE_SIZE_IN_BYTES),
    _optional("referenced_file", pa.string(), field_ids.REFERENCED_FILE),
    _optional("key_metadata", pa.binary(), field_ids.KEY_METADATA),
    _optional(
        "split_offsets",
        pa.list_(_required("element", pa.int64(), field_ids.SPLIT_OFFSETS_ELEMENT)),
        field_ids.SPLIT_OFFSETS,
    ),
    _optional(
        "equality_ids",
        pa.list_(_required("element", pa.int32(), field_ids.EQUALITY_IDS_ELEMENT)),
        field_ids.EQUALITY_IDS,
    ),
    _optional("first_row_id", pa.int64(), field_ids.FIRST_ROW_ID),
)
"""Every column except the statistics, in the entry's own order."""


def arrow_type_of_bound(kind: PrimitiveType) -> pa.DataType | None:
    """The Arrow type of a column's bounds, or `None` for types with counts only."""
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, FixedType):
        return pa.binary(len(kind))
    return SIMPLE_TYPES.get(type(kind))


def statistics_field(tracked: TrackedField) -> pa.Field:
    """The struct of one column's or expression's statistics, named `_<id>`."""
    bound = arrow_type_of_bound(tracked.type)
    members = [
        _optional(name, kind, field_ids.statistics_field_id(tracked.tracked_id, offset))
        for name, offset, kind in (
            *(() if bound is None else (("lower_bound", field_ids.LOWER_BOUND_OFFSET, bound),)),
            *(() if bound is None else (("upper_bound", field_ids.UPPER_BOUND_OFFSET, bound),)),
            *COUNT_FIELDS,
        )
    ]
    return _optional(f"_{tracked.tracked_id}", pa.struct(members), field_ids.statistics_field_id(tracked.tracked_id))


def is_statistics_field(field: pa.Field) -> bool:
    """Whether `field` is a struct of `statistics_field`, for a column of any type."""
    text = field.name.removeprefix("_")
    if not (text.isascii() and text.isdecimal() and len(text) <= 8 and 0 < int(text) <= field_ids.MAX_TRACKED_ID):
        return False
    tracked_id = int(text)
    if not pa.types.is_struct(field.type) or id_of(field) != field_ids.statistics_field_id(tracked_id):
        return False
    bounds = [child for child in field.type if child.name in _BOUND_OFFSETS]
    if bounds and (len(bounds) != 2 or bounds[0].type != bounds[1].type or not _holds_bounds(bounds[0].type)):
        return False
    counts = [(child.name, id_of(child), child.type) for child in field.type if child.name not in _BOUND_OFFSETS]
    expected = [(name, field_ids.statistics_field_id(tracked_id, offset), kind) for name, offset, kind in COUNT_FIELDS]
    return counts == expected and all(
        id_of(child) == field_ids.statistics_field_id(tracked_id, _BOUND_OFFSETS[child.name]) for child in bounds
    )


def _holds_bounds(kind: pa.DataType) -> bool:
    fixed = pa.types.is_fixed_size_binary(kind) or pa.types.is_decimal128(kind)
    return fixed or kind in SIMPLE_TYPES.values()


def leaf_schema(tracked: Iterable[TrackedField]) -> pa.Schema:
    """The schema of a leaf whose entries have statistics of exactly `tracked`."""
    statistics = [statistics_field(field) for field in tracked]
    if not statistics:
        return pa.schema(ROW_FIELDS)
    return pa.schema([*ROW_FIELDS, _optional(CONTENT_STATS, pa.struct(statistics), field_ids.CONTENT_STATS)])


def column_of_physical(values: list[Any], kind: pa.DataType) -> pa.Array:
    """An array of type `kind` from physical values. Raises Arrow's own errors when a value does not fit."""
    plain = _integer_behind(kind)
    return pa.array(values, kind) if plain is None else pa.array(values, plain).view(kind)


def physical_column(column: pa.Array) -> pa.Array:
    """The same values as physical ones: dates, times and timestamps become integers."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    plain = _integer_behind(column.type)
    return column if plain is None else column.view(plain)


def _integer_behind(kind: pa.DataType) -> pa.DataType | None:
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_time64(kind) or pa.types.is_timestamp(kind):
        return pa.int64()
    return None
