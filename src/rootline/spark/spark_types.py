"""A table's types as Spark's types, and Arrow values of the one as values of the other.

Owns: both mappings. Does not own: types in files (`rootline.storage.rows.arrow_types`), checks of rows to write
(`rootline.storage.rows.row_projection`).
Invariants: no value changes silently: a value that Spark's type cannot hold is an error that names the column;
moments are moments, whatever time zone a session shows them in.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import reduce
from inspect import signature
from typing import Final

import pyarrow as pa
from pyiceberg import types as iceberg
from pyiceberg.schema import Schema
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema

from rootline.schemas.errors import Invalid

_SIMPLE: Final[dict[type[iceberg.IcebergType], spark.DataType]] = {
    iceberg.BooleanType: spark.BooleanType(),
    iceberg.IntegerType: spark.IntegerType(),
    iceberg.LongType: spark.LongType(),
    iceberg.FloatType: spark.FloatType(),
    iceberg.DoubleType: spark.DoubleType(),
    iceberg.DateType: spark.DateType(),
    iceberg.TimeType: spark.TimeType(6),
    iceberg.TimestampType: spark.TimestampNTZType(),
    iceberg.TimestampNanoType: spark.TimestampNTZType(),
    iceberg.TimestamptzType: spark.TimestampType(),
    iceberg.TimestamptzNanoType: spark.TimestampType(),
    iceberg.StringType: spark.StringType(),
    iceberg.UUIDType: spark.StringType(),
    iceberg.FixedType: spark.BinaryType(),
    iceberg.BinaryType: spark.BinaryType(),
    iceberg.UnknownType: spark.NullType(),
}
_arrow_schema_of: Final[Callable[..., pa.Schema]] = to_arrow_schema
_MOMENTS_IN_UTC: Final = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
"""Spark 4.1 has them in UTC without being told."""
_WIDER: Final[dict[type[spark.DataType], tuple[type[spark.DataType], ...]]] = {
    spark.IntegerType: (spark.LongType, spark.DoubleType),
    spark.FloatType: (spark.DoubleType,),
}


def spark_schema_of(schema: Schema) -> spark.StructType:
    """The columns of a table as Spark sees them. Raises `Invalid` (`definition-invalid`) if Spark has no such type."""
    return spark.StructType([_field(field, "") for field in schema.fields])


def _field(field: iceberg.NestedField, path: str) -> spark.StructField:
    name = f"{path}{field.name}"
    return spark.StructField(field.name, _type(field.field_type, name), not field.required)


def _type(wanted: iceberg.IcebergType, name: str) -> spark.DataType:
    simple = _SIMPLE.get(type(wanted))
    if simple is not None:
        return simple
    match wanted:
        case iceberg.DecimalType(precision=precision, scale=scale):
            return spark.DecimalType(precision, scale)
        case iceberg.StructType(fields=fields):
            return spark.StructType([_field(field, f"{name}.") for field in fields])
        case iceberg.ListType():
            return spark.ArrayType(_type(wanted.element_type, f"{name}.element"), not wanted.element_required)
        case iceberg.MapType():
            key, value = _type(wanted.key_type, f"{name}.key"), _type(wanted.value_type, f"{name}.value")
            return spark.MapType(key, value, not wanted.value_required)
    raise Invalid("definition-invalid", f"column {name}: Spark has no type for {wanted}")


def check_columns(wanted: spark.StructType, whole: spark.StructType, table: str) -> None:
    """Check that a schema that a user gave can be read from a table whose columns are `whole`.

    Raises:
        Invalid: `column-unknown`; `setting-invalid`, a column has another type, or is declared never null.

    """
    for field in wanted.fields:
        if field.name not in whole.names:
            known = ", ".join(whole.names[:40])
            raise Invalid("column-unknown", f"{table}: there is no column {field.name!r}; the table has {known}")
        stored = whole[field.name]
        if not _fits(stored.dataType, field.dataType):
            given, own = field.dataType.simpleString(), stored.dataType.simpleString()
            raise Invalid("setting-invalid", f"{table}: column {field.name} is of type {own}, not {given}")
        if stored.nullable and not field.nullable:
            raise Invalid("setting-invalid", f"{table}: column {field.name} may be null; do not declare it NOT NULL")


def _fits(stored: spark.DataType, wanted: spark.DataType) -> bool:
    match stored, wanted:
        case spark.StructType(), spark.StructType():
            return stored.names == wanted.names and all(
                _fits(stored[name].dataType, wanted[name].dataType)
                and (wanted[name].nullable or not stored[name].nullable)
                for name in stored.names
            )
        case spark.ArrayType(), spark.ArrayType():
            may_be_null = wanted.containsNull or not stored.containsNull
            return may_be_null and _fits(stored.elementType, wanted.elementType)
        case spark.MapType(), spark.MapType():
            may_be_null = wanted.valueContainsNull or not stored.valueContainsNull
            is_key = _fits(stored.keyType, wanted.keyType)
            return may_be_null and is_key and _fits(stored.valueType, wanted.valueType)
        case spark.DecimalType(), spark.DecimalType():
            return wanted.scale == stored.scale and wanted.precision >= stored.precision
    return stored == wanted or isinstance(wanted, _WIDER.get(type(stored), ()))


def arrow_schema_for_spark(schema: spark.StructType) -> pa.Schema:
    """The exact Arrow schema that Spark expects of a reader."""
    return _arrow_schema_of(schema, **_MOMENTS_IN_UTC)


def batch_for_spark(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """`batch` with exactly the types of `target`, whose columns it has in order.

    Raises:
        Invalid: `file-unreadable`, a value does not fit; the message names the column.

    """
    columns = [_for_spark(column, field) for column, field in zip(batch.columns, target, strict=True)]
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * batch.num_rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _for_spark(column: pa.Array, field: pa.Field) -> pa.Array:
    if isinstance(column, pa.ExtensionArray) and pa.types.is_string(field.type):
        texts = [None if value is None else str(uuid.UUID(bytes=value)) for value in column.storage.to_pylist()]
        return pa.array(texts, field.type)
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise Invalid("file-unreadable", f"column {field.name}: Spark's type cannot hold a value: {error}") from error


def batch_from_spark(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """`batch` with the texts of UUID columns as UUIDs; every other column as it is.

    Raises:
        Invalid: `rows-invalid`, a text is not a UUID; the message names the column.

    """
    ids = [field.name for field in schema.fields if isinstance(field.field_type, iceberg.UUIDType)]
    return reduce(_with_uuids, (name for name in ids if name in batch.schema.names), batch)


def _with_uuids(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    at = batch.schema.get_field_index(name)
    if not pa.types.is_string(batch.column(at).type) and not pa.types.is_large_string(batch.column(at).type):
        return batch
    values: list[bytes | None] = []
    for text in batch.column(at).to_pylist():
        try:
            values.append(None if text is None else uuid.UUID(text).bytes)
        except ValueError as error:
            raise Invalid("rows-invalid", f"rows: column {name} is a uuid, and {text[:40]!r} is not a UUID") from error
    return batch.set_column(at, name, pa.array(values, pa.binary(16)))
