"""Deletes and updates that run on the cluster: `rootline.spark.delete_where` and `update_where`.

Owns: the public functions, the DataFrame of changes that each makes, the casts and defaults of assigned values. Does
not own: merges (`merge_statement`), executing the changes (`row_change_job`), the check of written rows
(`data_file_writer`).
Invariants: conditions and values have Spark's semantics. A DataFrame of changes has a row for each changed row: its
position in the table, its action, its new values. A cast changes no value. A value without such a cast is passed to
the check of rows, which names the column. A default does not depend on the session's time zone.
"""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from pyspark.sql import functions as sql
from pyspark.sql import types as spark

from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import TableDefinition
from rootline.spark.row_change_job import JobBegin, Mode, RowsChanged, carried_out, change_options
from rootline.spark.row_change_tasks import ACTION_COLUMN, FILE_COLUMN, POS_COLUMN, Action
from rootline.spark.spark_types import quoted, spark_schema_of
from rootline.storage.rows.metadata_columns import FILE, POS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["RowsChanged", "delete_where", "update_where"]

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
"""Floating type → the integer types of which it represents every value."""
_NESTED: Final = (spark.StructType, spark.ArrayType, spark.MapType)


def cast_values(
    rows: DataFrame, values: Mapping[str, str | Column], kinds: Mapping[str, spark.DataType]
) -> dict[str, Column]:
    """`values` over `rows`, each of the type of its column. A value that a cast could change is not cast, so that the
    writer refuses it.
    """
    columns = {name: sql.expr(value) if isinstance(value, str) else value for name, value in values.items()}
    given = rows.select(*(column.alias(name) for name, column in columns.items())).schema.fields
    pairs = zip(columns.items(), given, strict=True)
    return {
        name: column.cast(kinds[name]) if _may_become(field.dataType, kinds[name]) else column
        for (name, column), field in pairs
    }


def default_value(definition: TableDefinition, name: str, kind: spark.DataType) -> Column:
    """The value of a new row in a column without an assigned value.

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
    if isinstance(value, dt.date | dt.time):  # a text is independent of the time zone
        return sql.lit(value.isoformat()).cast(kind)
    return sql.lit(str(value) if isinstance(value, uuid.UUID) else value).cast(kind)


def _may_become(given: spark.DataType, kind: spark.DataType) -> bool:
    """Whether a cast loses no values (`holds`), or is from decimal to floating point: in Spark, 1.5 is a decimal."""
    if isinstance(kind, _NESTED):
        return given == kind
    return holds(given, kind) or (isinstance(given, spark.DecimalType) and type(kind) in _IN_FLOATING)


def holds(given: spark.DataType, kind: spark.DataType) -> bool:
    """Whether `kind` represents every value of `given`."""
    if given == kind or isinstance(given, spark.NullType):
        return True
    match given, kind:
        case spark.StructType(), spark.StructType():
            pairs = zip(given.fields, kind.fields, strict=True)
            return given.names == kind.names and all(holds(one.dataType, other.dataType) for one, other in pairs)
        case spark.ArrayType(), spark.ArrayType():
            return holds(given.elementType, kind.elementType)
        case spark.MapType(), spark.MapType():
            return holds(given.keyType, kind.keyType) and holds(given.valueType, kind.valueType)
        case spark.DecimalType(), spark.DecimalType():
            return given.scale <= kind.scale and given.precision - given.scale <= kind.precision - kind.scale
        case _, spark.DecimalType():
            return _DIGITS.get(type(given), math.inf) <= kind.precision - kind.scale
        case spark.FloatType(), spark.DoubleType():
            return True
    if isinstance(kind, _WHOLE):
        return isinstance(given, _WHOLE) and _WHOLE.index(type(given)) <= _WHOLE.index(type(kind))
    return isinstance(given, _IN_FLOATING.get(type(kind), ()))


ModeName: TypeAlias = Literal["merge-on-read", "copy-on-write"]
Values: TypeAlias = "Mapping[str, str | Column]"


def delete_where(
    spark: SparkSession, table: str, predicate: str | Column, *, mode: ModeName = "merge-on-read", **options: Any
) -> RowsChanged:
    """Delete the rows for which `predicate` is true in Spark.

    Args:
        spark: the session that reads the rows. `register` it first.
        table: `namespace.table`.
        predicate: Spark SQL, or a column.
        mode: `merge-on-read` marks rows in vectors, `copy-on-write` rewrites the files without them.
        options: of a write: `warehouse`, `log`, `isolationLevel`, `writerId` with `writerSequence`, `verdictTimeoutMs`,
            `targetFileSizeBytes`.

    Returns:
        The number of deleted rows, and the version, `None` if no row matched.

    Raises:
        Invalid: `setting-invalid`, `table-unknown`; or a rejection that a new plan cannot avoid.
        OutcomeUnknown: `verdict-timeout`.

    """
    given = change_options(spark, table, options)

    def frame(begin: JobBegin) -> DataFrame:
        wanted = begin.read(spark, [*begin.columns_of(predicate), FILE, POS], predicate)
        action = sql.lit(int(Action.DELETE)).alias(ACTION_COLUMN)
        return wanted.select(sql.col(FILE).alias(FILE_COLUMN), sql.col(POS).alias(POS_COLUMN), action)

    return carried_out(spark, given, Mode.of(mode), frame, predicate)


def update_where(
    spark: SparkSession,
    table: str,
    predicate: str | Column,
    set: Values,  # noqa: A002 -- SQL's word
    *,
    mode: ModeName = "merge-on-read",
    **options: Any,
) -> RowsChanged:
    """Update the rows for which `predicate` is true in Spark. They keep their row ids.

    Args:
        spark: as in `delete_where`.
        table: `namespace.table`.
        predicate: Spark SQL, or a column.
        set: column → Spark SQL over the row's current values, or a column.
        mode: as in `delete_where`.
        options: as in `delete_where`.

    Returns:
        The number of updated rows, and the version.

    Raises:
        Invalid: `column-unknown`; and as `delete_where`.
        OutcomeUnknown: `verdict-timeout`.

    """
    given = change_options(spark, table, options)
    if not set:
        raise Invalid("setting-invalid", f"{table}: update_where sets no column: name at least one in `set`")

    def frame(begin: JobBegin) -> DataFrame:
        new = begin.named_values(set)
        rows = begin.read(spark, [*begin.own_columns, FILE, POS, *begin.lineage], predicate)
        kept = {name: sql.col(quoted(name)) for name in begin.own_columns}
        values = cast_values(rows, kept | new, types_of(begin))
        return rows.select(
            sql.col(FILE).alias(FILE_COLUMN),
            sql.col(POS).alias(POS_COLUMN),
            sql.lit(int(Action.UPDATE)).alias(ACTION_COLUMN),
            *(value.alias(name) for name, value in values.items()),
            *map(sql.col, begin.lineage),
        )

    return carried_out(spark, given, Mode.of(mode), frame, predicate)


def types_of(begin: JobBegin) -> dict[str, spark.DataType]:
    """Spark's types of the table's columns."""
    return {field.name: field.dataType for field in spark_schema_of(begin.definition.schema).fields}
