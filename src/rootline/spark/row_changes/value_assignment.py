"""Values that a change assigns to columns.

Owns: what is cast for a column, and what new rows have where no one gives them a value. Does not own: the check of the
rows that are written (`rootline.client.write.data_file_writer`).
Invariants: a cast changes no value; what cannot be cast so is left to the check of rows, which names the column; a
default does not depend on the session's time zone.
"""

from __future__ import annotations

import datetime as dt
import uuid
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sql
from pyspark.sql import types as spark

from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import TableDefinition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_WHOLE: Final = (spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType)
_FLOATING: Final = (spark.FloatType, spark.DoubleType)
_NESTED: Final = (spark.StructType, spark.ArrayType, spark.MapType)


def assigned(rows: DataFrame, value: str | Column, kind: spark.DataType, name: str) -> Column:
    """`value` over `rows` for a column of type `kind`; one that would change is refused where it is written."""
    column = sql.expr(value) if isinstance(value, str) else value
    return column.cast(kind) if _may_become(rows.select(column.alias(name)).schema[name].dataType, kind) else column


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
    if given == kind or isinstance(given, spark.NullType):
        return True
    if isinstance(kind, _FLOATING):
        is_decimal = isinstance(given, spark.DecimalType)
        return is_decimal or isinstance(given, (*_WHOLE[:3], spark.FloatType))
    if isinstance(kind, _WHOLE):
        return isinstance(given, _WHOLE) and _WHOLE.index(type(given)) <= _WHOLE.index(type(kind))
    if isinstance(kind, spark.DecimalType):
        if isinstance(given, spark.DecimalType):
            return given.scale <= kind.scale and given.precision - given.scale <= kind.precision - kind.scale
        return isinstance(given, _WHOLE)
    return False
