"""Deletes, updates and merges that run on the cluster: `rootline.spark.delete_where`, `update_where`, `merge_into`.

Owns: the public functions, the DataFrame of changes that each makes, the casts and defaults of assigned values. Does
not own: executing the changes (`row_change_job`), the check of written rows (`data_file_writer`).
Invariants: conditions and values have Spark's semantics. A DataFrame of changes has a row for each changed row: its
position in the table, its action, its new values. A cast changes no value. A value without such a cast is passed to
the check of rows, which names the column. A default does not depend on the session's time zone.
"""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from pyspark.sql import functions as sql
from pyspark.sql import types as spark

from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import TableDefinition
from rootline.spark.row_change_job import JobBegin, Mode, RowsChanged, carried_out, change_options
from rootline.spark.row_change_tasks import ACTION_COLUMN, FILE_COLUMN, POS_COLUMN, Action
from rootline.spark.spark_types import renamed, spark_schema_of
from rootline.storage.rows.metadata_columns import FILE, POS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["RowsChanged", "delete_where", "merge_into", "update_where"]

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


def assigned(rows: DataFrame, value: str | Column, kind: spark.DataType, name: str) -> Column:
    """`value` over `rows` for a column of type `kind`. A value that a cast could change is not cast, so that
    the writer refuses it.
    """
    column = sql.expr(value) if isinstance(value, str) else value
    return column.cast(kind) if _may_become(rows.select(column.alias(name)).schema[name].dataType, kind) else column


def one_of(rows: DataFrame, is_first: Column, first: Column, second: Column, name: str) -> Column:
    """`first` in the rows for which `is_first` is true, `second` in the others.

    Raises:
        Invalid: `rows-invalid`, Spark would convert both to a third type that may change a value.
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
    """Whether a cast loses no values (`_holds`), or is from decimal to floating point: in Spark, 1.5 is a decimal."""
    if isinstance(kind, _NESTED):
        return given == kind
    return _holds(given, kind) or (isinstance(given, spark.DecimalType) and type(kind) in _IN_FLOATING)


def _holds(given: spark.DataType, kind: spark.DataType) -> bool:
    """Whether `kind` represents every value of `given`."""
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


ModeName: TypeAlias = Literal["merge-on-read", "copy-on-write"]
Values: TypeAlias = "Mapping[str, str | Column]"
_SOURCE: Final = "source"
_TARGET: Final = "target"


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
        values = [
            assigned(rows, new[name], kind, name) if name in new else sql.col(_quoted(name))
            for name, kind in _types(begin).items()
        ]
        return rows.select(
            sql.col(FILE).alias(FILE_COLUMN),
            sql.col(POS).alias(POS_COLUMN),
            sql.lit(int(Action.UPDATE)).alias(ACTION_COLUMN),
            *(value.alias(name) for name, value in zip(begin.own_columns, values, strict=True)),
            *map(sql.col, begin.lineage),
        )

    return carried_out(spark, given, Mode.of(mode), frame, predicate)


def merge_into(
    spark: SparkSession,
    table: str,
    source: DataFrame,
    *,
    on: Sequence[str] | None = None,
    condition: str | Column | None = None,
    when_matched: Values | Literal["update", "delete"] | None = "update",
    when_not_matched: Values | Literal["insert"] | None = "insert",
    mode: ModeName = "merge-on-read",
    **options: Any,
) -> RowsChanged:
    """Merge rows of `source` into the table, in one commit.

    In `condition` and in values the two sides are called `source` and `target`.

    Args:
        spark: as in `delete_where`.
        table: `namespace.table`.
        source: the rows to merge. At most one of them may match a row of the table. If it reads the table itself, it
            keeps the version at which it was loaded, also when the merge is replanned.
        on: columns of both sides that are equal in matching rows (null matches nothing), or
        condition: Spark SQL, or a column, that is true for matching rows.
        when_matched: `update` sets every column that the source has; `delete`; column → Spark SQL; `None` keeps the
            row unchanged.
        when_not_matched: `insert` adds the source's row; column → Spark SQL; `None` adds none.
        mode: as in `delete_where`.
        options: as in `delete_where`.

    Returns:
        The numbers of updated, deleted and inserted rows, and the version.

    Raises:
        Invalid: `merge-ambiguous`, two rows of the source match one row of the table; `column-unknown`;
            `rows-invalid`, Spark would convert a value and its column to a third type that may change either; and as
            `delete_where`.
        OutcomeUnknown: `verdict-timeout`.

    """
    given = change_options(spark, table, options)
    if (on is None) == (condition is None):
        raise Invalid("setting-invalid", f"{table}: merge_into takes either `on` or `condition`")
    if on is not None and not on:
        raise Invalid(
            "setting-invalid", f"{table}: `on` names no column: name the columns that are equal in matching rows"
        )
    if when_matched is None and when_not_matched is None:
        raise Invalid("setting-invalid", f"{table}: merge_into does nothing with both clauses None")
    for clause, words in ((when_matched, ("update", "delete")), (when_not_matched, ("insert",))):
        if isinstance(clause, str) and clause not in words:
            raise Invalid("setting-invalid", f"{table}: {clause!r:.80} is no clause: write {' or '.join(words)}")
    is_delete = when_matched == "delete"

    def frame(begin: JobBegin) -> DataFrame:
        is_whole = when_matched == "update" or when_not_matched == "insert"
        given_rows = renamed(source, begin.named(source.columns)) if is_whole else source
        matched, not_matched = _named(begin, when_matched), _named(begin, when_not_matched)
        keys = begin.named(on or ())
        needed = keys if on is not None and (is_delete or matched is None) else begin.own_columns
        rows = begin.read(spark, [*needed, FILE, POS, *begin.lineage], None).alias(_TARGET)
        columns, given_rows = given_rows.columns, given_rows.alias(_SOURCE)
        match = sql.expr(condition) if isinstance(condition, str) else condition
        for name in keys:
            same = _of(_TARGET, name) == _of(_SOURCE, name)
            match = same if match is None else match & same
        if matched is None:
            joined = given_rows.join(rows.select(*map(_quoted_column, needed)).alias(_TARGET), match, "left_anti")
            return _inserts(joined, begin, not_matched, columns)
        joined = given_rows.join(rows, match, "inner" if not_matched is None else "left")
        return _merged(joined, begin, matched, not_matched, columns)

    return carried_out(spark, given, Mode.of(mode), frame, None)


def _named(begin: JobBegin, clause: Values | str | None) -> Values | str | None:
    return clause if clause is None or isinstance(clause, str) else begin.named_values(clause)


def _merged(
    joined: DataFrame, begin: JobBegin, matched: Values | str, not_matched: Values | str | None, given: Sequence[str]
) -> DataFrame:
    is_matched = _of(_TARGET, FILE).isNotNull()
    changed = Action.DELETE if matched == "delete" else Action.UPDATE
    action = sql.when(is_matched, sql.lit(int(changed))).otherwise(sql.lit(int(Action.INSERT)))
    values: list[Column] = []
    for name, kind in _types(begin).items():
        inserted = _inserted(joined, begin, not_matched, given, name, kind)
        if changed is Action.DELETE:
            values.append(inserted)
            continue
        kept = _of(_TARGET, name)
        if matched == "update":
            kept = assigned(joined, _of(_SOURCE, name), kind, name) if name in given else kept
        elif not isinstance(matched, str) and name in matched:
            kept = assigned(joined, matched[name], kind, name)
        values.append(one_of(joined, is_matched, kept, inserted, name))
    lineage = [sql.when(is_matched, _of(_TARGET, name)).alias(name) for name in begin.lineage]
    return joined.select(
        _of(_TARGET, FILE).alias(FILE_COLUMN),
        _of(_TARGET, POS).alias(POS_COLUMN),
        action.alias(ACTION_COLUMN),
        *(value.alias(name) for name, value in zip(begin.own_columns, values, strict=True)),
        *lineage,
    )


def _inserts(joined: DataFrame, begin: JobBegin, clause: Values | str | None, given: Sequence[str]) -> DataFrame:
    values = [_inserted(joined, begin, clause, given, name, kind).alias(name) for name, kind in _types(begin).items()]
    return joined.select(
        sql.lit(None).cast("string").alias(FILE_COLUMN),
        sql.lit(None).cast("long").alias(POS_COLUMN),
        sql.lit(int(Action.INSERT)).alias(ACTION_COLUMN),
        *values,
    )


def _inserted(
    joined: DataFrame, begin: JobBegin, clause: Values | str | None, given: Sequence[str], name: str, kind: Any
) -> Column:
    """A column of a new row: the clause's value, the source's column of that name, or the table's default."""
    if clause is None:  # there are no new rows
        return sql.lit(None).cast(kind)
    if clause == "insert" and name in given:
        return assigned(joined, _of(_SOURCE, name), kind, name)
    if not isinstance(clause, str) and name in clause:
        return assigned(joined, clause[name], kind, name)
    return default_value(begin.definition, name, kind)


def _types(begin: JobBegin) -> dict[str, Any]:
    schema = spark_schema_of(begin.definition.schema)
    return {field.name: field.dataType for field in schema.fields}


def _of(side: str, name: str) -> Column:
    return sql.col(f"{side}.{_quoted(name)}")


def _quoted_column(name: str) -> Column:
    return sql.col(_quoted(name))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
