"""Iceberg types as Arrow ones, with field ids.

Owns: the in-memory form of rows. Does not own: the way back for schemas without ids
(`rootline.client.write.arrow_schema`).
Invariants: one Arrow type for each Iceberg type; every field carries its id under `PARQUET:field_id`, so that Parquet
files written from it carry the ids too.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
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
    UnknownType,
    UUIDType,
)

from rootline.schemas.errors import Invalid

FIELD_ID_KEY: Final = b"PARQUET:field_id"

_SIMPLE: Final[dict[type[IcebergType], pa.DataType]] = {
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
    BinaryType: pa.binary(),
    UUIDType: pa.uuid(),
    UnknownType: pa.null(),
}


def arrow_schema_of(schema: Schema) -> pa.Schema:
    """The Arrow schema of a table's rows.

    Raises:
        Invalid: `definition-invalid`, a column's type cannot be held in Arrow.

    """
    return pa.schema([arrow_field_of(field) for field in schema.fields])


def arrow_field_of(field: NestedField) -> pa.Field:
    """The Arrow field of a column; raises as `arrow_schema_of`."""
    metadata = {FIELD_ID_KEY: str(field.field_id).encode()}
    return pa.field(field.name, arrow_type_of(field.field_type), nullable=not field.required, metadata=metadata)


def arrow_type_of(field_type: IcebergType) -> pa.DataType:
    """The Arrow type of an Iceberg type; raises as `arrow_schema_of`."""
    simple = _SIMPLE.get(type(field_type))
    if simple is not None:
        return simple
    if isinstance(field_type, DecimalType):
        return pa.decimal128(field_type.precision, field_type.scale)
    if isinstance(field_type, FixedType):
        return pa.binary(len(field_type))
    if isinstance(field_type, StructType):
        return pa.struct([arrow_field_of(field) for field in field_type.fields])
    if isinstance(field_type, ListType):
        return pa.list_(arrow_field_of(field_type.element_field))
    if isinstance(field_type, MapType):
        return pa.map_(arrow_field_of(field_type.key_field), arrow_field_of(field_type.value_field))
    raise Invalid("definition-invalid", f"type {field_type} cannot be written to or read from Parquet")


def as_type(plain: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    """`plain` cast to `arrow_type`, which may be an extension type; raises Arrow's error where a value does not fit."""
    if isinstance(arrow_type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(arrow_type, plain.cast(arrow_type.storage_type))
    return plain.cast(arrow_type)


def repeated(one: pa.Array, length: int) -> pa.Array:
    """The value of `one`, an array of one, `length` times."""
    return one.take(pa.array(np.zeros(length, dtype=np.int64)))


def rows_without_columns(count: int) -> pa.RecordBatch:
    """`count` rows of which only their number is known."""
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), count, [None]))


def storage_of(array: pa.Array) -> pa.Array:
    """The array beneath an extension type, which compute functions understand; other arrays as they are."""
    return array.storage if isinstance(array, pa.ExtensionArray) else array
