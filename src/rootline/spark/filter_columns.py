"""Our row filters as conditions of Spark, for the rows that Spark's own Parquet reader reads.

Owns: the translation. Does not own: Spark's filters as ours (`filter_translation`), what a filter means to rows
(`rootline.tree.filter.column_predicates`).
Invariants: the condition is true of exactly the rows that satisfy the filter; a filter with a test that cannot be
said so has none. The two differ on NaN, which in Spark is greater than every number and equal to itself.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from functools import reduce
from typing import Final

from pyiceberg import types as iceberg
from pyiceberg.schema import Schema
from pyspark.sql import Column
from pyspark.sql import functions as spark

from rootline.schemas.content_entry import Bound
from rootline.tree.filter.conditions import AllOf, AnyOf, Condition, Operator, Predicate

_EPOCH: Final = dt.datetime(1970, 1, 1)
_COMPARED: Final[dict[Operator, Callable[[Column, Column], Column]]] = {
    Operator.EQ: lambda column, value: column == value,
    Operator.NE: lambda column, value: column != value,
    Operator.LT: lambda column, value: column < value,
    Operator.LE: lambda column, value: column <= value,
    Operator.GT: lambda column, value: column > value,
    Operator.GE: lambda column, value: column >= value,
}
_ABOVE: Final = (Operator.GT, Operator.GE)
_NUMBERS: Final[dict[type[iceberg.IcebergType], str]] = {
    iceberg.IntegerType: "int",
    iceberg.LongType: "bigint",
    iceberg.FloatType: "float",
    iceberg.DoubleType: "double",
}


class _Unsaid(Exception):
    """There is no such condition."""


def spark_condition(condition: Condition, schema: Schema) -> Column | None:
    """A condition on the columns of `schema` that is true where `condition` is; `None` if there is none."""
    try:
        return _said(condition, schema)
    except (_Unsaid, OverflowError):
        return None


def _said(condition: Condition, schema: Schema) -> Column:
    match condition:
        case AllOf(parts=()) | AnyOf(parts=()):
            return spark.lit(isinstance(condition, AllOf))
        case AllOf(parts=parts):
            return reduce(lambda left, right: left & right, [_said(part, schema) for part in parts])
        case AnyOf(parts=parts):
            return reduce(lambda left, right: left | right, [_said(part, schema) for part in parts])
        case Predicate():
            return _tested(condition, schema)
    raise _Unsaid


def _tested(test: Predicate, schema: Schema) -> Column:
    field = _field(schema, test.field_id)
    column, kind = _column(schema, test.field_id), field.field_type
    values = [_literal(value, kind) for value in test.values]
    match test.operator:
        case Operator.IS_NULL:
            return column.isNull()
        case Operator.NOT_NULL:
            return column.isNotNull()
        case Operator.IS_NAN if _is_float(kind):
            return spark.isnan(column)
        case Operator.NOT_NAN if _is_float(kind):
            return ~spark.isnan(column) & column.isNotNull()
        case Operator.IN if values:
            return column.isin(*values)
        case Operator.NOT_IN if values:
            return ~column.isin(*values)
        case Operator.STARTS_WITH | Operator.NOT_STARTS_WITH if isinstance(kind, iceberg.StringType):
            starts = column.startswith(values[0])
            return starts if test.operator is Operator.STARTS_WITH else ~starts
        case Operator.LIKE | Operator.NOT_LIKE if isinstance(kind, iceberg.StringType):
            alike = column.like(str(test.values[0]))
            return alike if test.operator is Operator.LIKE else ~alike
    if test.operator not in _COMPARED:
        raise _Unsaid
    compared = _COMPARED[test.operator](column, values[0])
    return compared & ~spark.isnan(column) if test.operator in _ABOVE and _is_float(kind) else compared


def _is_float(kind: iceberg.IcebergType) -> bool:
    return isinstance(kind, iceberg.FloatType | iceberg.DoubleType)


def _field(schema: Schema, field_id: int) -> iceberg.NestedField:
    return schema.find_field(field_id)


def _column(schema: Schema, field_id: int) -> Column:
    """The column by its path; a name with a dot or a backtick in it is quoted."""
    path = _path_to(schema.as_struct(), field_id)
    if path is None:
        raise _Unsaid
    return spark.col(".".join("`" + name.replace("`", "``") + "`" for name in path))


def _path_to(struct: iceberg.StructType, field_id: int) -> tuple[str, ...] | None:
    for field in struct.fields:
        if field.field_id == field_id:
            return (field.name,)
        if isinstance(field.field_type, iceberg.StructType):
            inner = _path_to(field.field_type, field_id)
            if inner is not None:
                return (field.name, *inner)
    return None


def _literal(value: Bound, kind: iceberg.IcebergType) -> Column:
    number = _NUMBERS.get(type(kind))
    if number is not None and isinstance(value, int | float) and not isinstance(value, bool):
        return spark.lit(value).cast(number)
    match kind, value:
        case (iceberg.BooleanType(), bool()) | (iceberg.StringType(), str()):
            return spark.lit(value)
        case iceberg.DecimalType(precision=precision, scale=scale), Decimal():
            return spark.lit(str(value)).cast(f"decimal({precision}, {scale})")
        case iceberg.DateType(), int():
            return spark.date_from_unix_date(spark.lit(value))
        case iceberg.TimestamptzType(), int():
            return spark.timestamp_micros(spark.lit(value).cast("bigint"))
        case iceberg.TimestampType(), int():
            return spark.lit(str(_EPOCH + dt.timedelta(microseconds=value))).cast("timestamp_ntz")
    raise _Unsaid
