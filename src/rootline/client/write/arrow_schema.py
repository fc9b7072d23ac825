"""Arrow types to Iceberg types.

Owns: the mapping of a schema that has no ids yet. Does not own: the way back (`rootline.storage`), partitioning.
Invariants: no type is narrowed: one that would lose values is refused, and the error names the column; ids are fresh,
columns of the top level first, from 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Final

import pyarrow as pa
from pyiceberg.schema import Schema, assign_fresh_schema_ids
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
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from rootline.schemas.errors import Invalid

_UTC: Final = {"UTC", "utc", "Etc/UTC", "+00:00", "Z", "GMT"}


def iceberg_schema(schema: pa.Schema) -> Schema:
    """The Iceberg schema (id 0) of an Arrow one, with fresh field ids whatever its metadata says.

    Raises:
        Invalid: `definition-invalid`, a column's type cannot be stored, or two columns share a name.

    """
    struct = StructType(*_fields(schema, "", count(1)))
    return assign_fresh_schema_ids(Schema(*struct.fields, schema_id=0))


def _fields(fields: Iterable[pa.Field], path: str, ids: Iterator[int]) -> list[NestedField]:
    found: dict[str, NestedField] = {}
    for field in fields:
        where = f"{path}{field.name}"
        if not field.name or field.name in found:
            raise Invalid("definition-invalid", f"column {where!r}: every column needs a name, and names must differ")
        field_type = iceberg_type(field.type, where, ids)
        found[field.name] = NestedField(next(ids), field.name, field_type, required=not field.nullable)
    return list(found.values())


def iceberg_type(arrow: pa.DataType, where: str, ids: Iterator[int]) -> IcebergType:
    """The Iceberg type of column `where`; `ids` are for the fields of nested types. Raises as `iceberg_schema`."""
    types = pa.types
    if types.is_dictionary(arrow):
        return iceberg_type(arrow.value_type, where, ids)
    if types.is_struct(arrow):
        if not arrow.num_fields:
            reason = "a struct without members cannot be stored; leave it out until it has some"
            raise Invalid("definition-invalid", f"column {where}: {reason}")
        return StructType(*_fields([arrow.field(at) for at in range(arrow.num_fields)], f"{where}.", ids))
    if types.is_list(arrow) or types.is_large_list(arrow) or types.is_fixed_size_list(arrow):
        element = iceberg_type(arrow.value_type, f"{where}.element", ids)
        return ListType(next(ids), element, element_required=not arrow.value_field.nullable)
    if types.is_map(arrow):
        key, value = (
            iceberg_type(arrow.key_type, f"{where}.key", ids),
            iceberg_type(arrow.item_type, f"{where}.value", ids),
        )
        return MapType(next(ids), key, next(ids), value, value_required=not arrow.item_field.nullable)
    return _primitive(arrow, where)


def _primitive(arrow: pa.DataType, where: str) -> IcebergType:
    types = pa.types
    if isinstance(arrow, pa.BaseExtensionType):
        if arrow.extension_name == "arrow.uuid":
            return UUIDType()
    elif types.is_decimal(arrow) and arrow.precision <= 38 and 0 <= arrow.scale <= arrow.precision:
        return DecimalType(arrow.precision, arrow.scale)
    elif types.is_timestamp(arrow):
        return _timestamp(arrow, where)
    elif types.is_fixed_size_binary(arrow):
        return FixedType(arrow.byte_width)
    for accepts, iceberg in _SIMPLE:
        if accepts(arrow):
            return iceberg
    if types.is_null(arrow):
        raise Invalid(
            "definition-invalid", f"column {where}: it has only nulls, so its type is not known; give the column a type"
        )
    raise Invalid("definition-invalid", f"column {where}: Arrow type {arrow} cannot be stored; cast the column first")


def _timestamp(arrow: pa.TimestampType, where: str) -> IcebergType:
    if arrow.tz is not None and arrow.tz not in _UTC:
        raise Invalid(
            "definition-invalid", f"column {where}: time zone {arrow.tz} cannot be stored; cast the column to UTC"
        )
    if arrow.unit == "ns":
        return TimestampNanoType() if arrow.tz is None else TimestamptzNanoType()
    return TimestampType() if arrow.tz is None else TimestamptzType()


def _is_int32(arrow: pa.DataType) -> bool:
    width = 32 if pa.types.is_signed_integer(arrow) else 16
    return bool(pa.types.is_integer(arrow)) and arrow.bit_width <= width


def _is_int64(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_integer(arrow)) and not pa.types.is_uint64(arrow)


def _is_micro_time(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_time32(arrow)) or (bool(pa.types.is_time64(arrow)) and arrow.unit == "us")


def _is_text(arrow: pa.DataType) -> bool:
    return any(accepts(arrow) for accepts in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def _is_bytes(arrow: pa.DataType) -> bool:
    return any(accepts(arrow) for accepts in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view))


_SIMPLE: Final = (
    (pa.types.is_boolean, BooleanType()),
    (_is_int32, IntegerType()),
    (_is_int64, LongType()),
    (pa.types.is_float16, FloatType()),
    (pa.types.is_float32, FloatType()),
    (pa.types.is_float64, DoubleType()),
    (pa.types.is_date, DateType()),
    (_is_micro_time, TimeType()),
    (_is_text, StringType()),
    (_is_bytes, BinaryType()),
)
