"""Values that a change assigns to columns.

Owns: what is cast for a column, and what new rows have where no one gives them a value. Does not own: the check of the
rows that are written (`rootline.client.data_file_writer`).
Invariants: a cast changes no value; what cannot be cast so is left to the check of rows, which names the column; a
default does not depend on the session's time zone.
"""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sql
from pyspark.sql import types as spark

from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import TableDefinition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_WHOLE: Final = (spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType)
_DIGITS: Final[Mapping[type[spark.DataType], int]] = {
    spark.ByteType: 3,
    spark.ShortType: 5,
    spark.IntegerType: 10,
    spark.LongType: 19,
}
_IN_FLOATING: Final[Mapping[type[spark.DataType], tuple[type[spark.DataType], ...]]] = {
    spark.FloatType: _WHOLE[:2],
    spark.DoubleType: _WHOLE[:3],
}
"""The whole numbers that a floating type holds, all of them."""
_NESTED: Final = (spark.StructType, spark.ArrayType, spark.MapType)


def assigned(rows: DataFrame, value: str | Column, kind: spark.DataType, name: str) -> Column:
    """`value` over `rows` for a column of type `kind`; one that would change is refused where it is written."""
    column = sql.expr(value) if isinstance(value, str) else value
    return column.cast(kind) if _may_become(rows.select(column.alias(name)).schema[name].dataType, kind) else column


def one_of(rows: DataFrame, is_first: Column, first: Column, second: Column, name: str) -> Column:
    """`first` in the rows for which `is_first` is true, `second` in the others.

    Raises:
        Invalid: `rows-invalid`, the two are of types of which Spark would make a third that may change a value.

    """
    column = sql.when(is_first, first).otherwise(second)
    *given, common = (field.dataType for field in rows.select(first, second, column).schema)
    if all(_holds(kind, common) for kind in given):
        return column
    of_first, of_second = (kind.simpleString() for kind in given)
    raise Invalid(
        "rows-invalid",
        f"column {name!r}: rows that match get a value of type {of_first}, new rows one of type {of_second}; both "
        f"would become {common.simpleString()}, which may change them: cast the value to the type of the column",
    )


def default_value(definition: TableDefinition, name: str, kind: spark.DataType) -> Column:
    """What a new row has in a column that no one gives a value.

    Raises:
        Invalid: `setting-invalid`, the default is of a struct, a list or a map.

    """
    field = next(field for field in definition.schema.fields if field.name == name)
    value = field.write_default
    if value is not None and isinstance(kind, _NESTED):
        raise Invalid(
            "setting-invalid",
            f"column {name!r} has a default of type {kind.simpleString()}, which new rows of a merge do not get: give "
            "the column a value in when_not_matched, or in the source",
        )
    if isinstance(value, dt.date | dt.time):  # as a text it depends on no time zone
        return sql.lit(value.isoformat()).cast(kind)
    return sql.lit(str(value) if isinstance(value, uuid.UUID) else value).cast(kind)


def _may_become(given: spark.DataType, kind: spark.DataType) -> bool:
    """As `_holds`; and a decimal becomes a floating number, because 1.5 is a decimal to Spark."""
    if isinstance(kind, _NESTED):
        return given == kind
    return _holds(given, kind) or (isinstance(given, spark.DecimalType) and type(kind) in _IN_FLOATING)


def _holds(given: spark.DataType, kind: spark.DataType) -> bool:
    """Whether `kind` has every value of `given`."""
    if given == kind or isinstance(given, spark.NullType):
        return True
    match given, kind:
        case spark.StructType(), spark.StructType():
            pairs = zip(given.fields, kind.fields, strict=True)
            return given.names == kind.names and all(_holds(one.dataType, other.dataType) for one, other in pairs)
        case spark.ArrayType(), spark.ArrayType():
            return _holds(given.elementType, kind.elementType)
        case spark.MapType(), spark.MapType():
            return _holds(given.keyType, kind.keyType) and _holds(given.valueType, kind.valueType)
        case spark.DecimalType(), spark.DecimalType():
            return given.scale <= kind.scale and given.precision - given.scale <= kind.precision - kind.scale
        case _, spark.DecimalType():
            return _DIGITS.get(type(given), math.inf) <= kind.precision - kind.scale
        case spark.FloatType(), spark.DoubleType():
            return True
    if isinstance(kind, _WHOLE):
        return isinstance(given, _WHOLE) and _WHOLE.index(type(given)) <= _WHOLE.index(type(kind))
    return isinstance(given, _IN_FLOATING.get(type(kind), ()))
