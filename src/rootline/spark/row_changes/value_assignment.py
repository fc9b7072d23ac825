"""Values that a change assigns to columns: cast where no value can change, else left to the check of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sql
from pyspark.sql import types as spark

from rootline.schemas.table_definition import TableDefinition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_WHOLE: Final = (spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType)
_FLOATING: Final = (spark.FloatType, spark.DoubleType)


def assigned(rows: DataFrame, value: str | Column, kind: spark.DataType, name: str) -> Column:
    """`value` over `rows` for a column of type `kind`; one that would change is refused where it is written."""
    column = sql.expr(value) if isinstance(value, str) else value
    return column.cast(kind) if _may_become(rows.select(column.alias(name)).schema[name].dataType, kind) else column


def default_value(definition: TableDefinition, name: str, kind: spark.DataType) -> Column:
    """What a new row has in a column that no one gives a value."""
    field = next(field for field in definition.schema.fields if field.name == name)
    value = field.write_default
    is_text = value is not None and isinstance(kind, spark.StringType)  # a UUID is a text to Spark
    return sql.lit(str(value) if is_text else value).cast(kind)


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
