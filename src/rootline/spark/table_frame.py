"""`rootline.spark.table`: a table as a DataFrame that reads with Spark's own Parquet reader where possible.

Owns: the reader of each planned file, the DataFrame of both readers and its count, our row filters as conditions of
Spark. Does not own: the choice of files for Spark (`parquet_files`), our reader (`batch_reader`), planning
(`planned_files`).
Invariants: every file of the plan is read by exactly one of the two readers. Both read one version. A condition is
true for exactly the rows that satisfy the filter. A filter with a test that Spark cannot express has no condition. The
two differ on NaN, which in Spark is greater than every number and equal to itself.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial, reduce
from typing import TYPE_CHECKING, Final

from pyiceberg import types as iceberg
from pyiceberg.schema import Schema
from pyspark.sql import Column
from pyspark.sql import functions as spark

from rootline.client import checks
from rootline.client.planned_files import FilePlan, plan_files
from rootline.client.session import Session
from rootline.client.time_travel import PointInTime, milliseconds
from rootline.library_log import library_logger
from rootline.schemas.content_entry import Bound
from rootline.schemas.errors import Invalid
from rootline.spark.batch_reader import TaskChoice
from rootline.spark.connection import guest_lake
from rootline.spark.data_source import ensure_registered, session_defaults
from rootline.spark.hadoop_bucket import why_unreached
from rootline.spark.options import SourceOptions, parse_options
from rootline.spark.parquet_files import ParquetFile, files_to_hand_over
from rootline.spark.spark_types import quoted, spark_schema_of
from rootline.spark.transform_columns import column_by_id
from rootline.storage.rows.data_file_reader import RowsWanted
from rootline.tree.filter.conditions import AllOf, AnyOf, Condition, Operator, Predicate
from rootline.tree.scan.file_task import FileTask

if TYPE_CHECKING:
    from pyiceberg.types import NestedField
    from pyspark.sql import DataFrame, SparkSession

    from rootline.client.time_travel import Moment

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


class _NoCondition(Exception):
    """Spark has no condition with the same meaning."""


def spark_condition(condition: Condition, schema: Schema) -> Column | None:
    """The condition on the columns of `schema` that is true where `condition` is, or `None` if there is none."""
    try:
        return _condition_of(condition, schema)
    except (_NoCondition, OverflowError):
        return None


def _condition_of(condition: Condition, schema: Schema) -> Column:
    match condition:
        case AllOf(parts=()) | AnyOf(parts=()):
            return spark.lit(isinstance(condition, AllOf))
        case AllOf(parts=parts):
            return reduce(lambda left, right: left & right, [_condition_of(part, schema) for part in parts])
        case AnyOf(parts=parts):
            return reduce(lambda left, right: left | right, [_condition_of(part, schema) for part in parts])
        case Predicate():
            return _tested(condition, schema)
    raise _NoCondition


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
        raise _NoCondition
    compared = _COMPARED[test.operator](column, values[0])
    return compared & ~spark.isnan(column) if test.operator in _ABOVE and _is_float(kind) else compared


def _is_float(kind: iceberg.IcebergType) -> bool:
    return isinstance(kind, iceberg.FloatType | iceberg.DoubleType)


def _field(schema: Schema, field_id: int) -> iceberg.NestedField:
    return schema.find_field(field_id)


def _column(schema: Schema, field_id: int) -> Column:
    column = column_by_id(schema, field_id)
    if column is None:
        raise _NoCondition
    return column


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
    raise _NoCondition


_READ_AS_IT_IS: Final = {
    "recursiveFileLookup": "true",  # ignore folders named `column=value`: the columns are in the files
    "mergeSchema": "false",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "__globPaths__": "false",
}
_TRUST_NO_BOUNDS: Final = {"parquet.filter.stats.enabled": "false", "parquet.filter.columnindex.enabled": "false"}
"""For columns that may contain NaN: bounds ignore NaN, and in Spark it is greater than every number."""
_TRUST_NO_DICTIONARY: Final = {"parquet.filter.dictionary.enabled": "false"}
"""For floats: a dictionary distinguishes -0.0 from 0.0, and Spark does not."""
_log = library_logger("rootline.spark")


@dataclass(frozen=True, slots=True)
class _Shares:
    """A plan's files: those for Spark's reader, and the numbers of the others.

    `fields`: the wanted columns, and the columns of the filter. `count`: the number of rows, where it is known.
    """

    plan: FilePlan
    wanted: RowsWanted
    fields: tuple[NestedField, ...]
    handed_over: tuple[ParquetFile, ...]
    condition: Column | None
    others: tuple[int, ...]
    tasks: tuple[FileTask, ...]
    count: int | None


def table(
    spark: SparkSession,
    name: str,
    *,
    where: str | None = None,
    columns: Sequence[str] | None = None,
    version: int | None = None,
    snapshot_id: int | None = None,
    timestamp: Moment | None = None,
    tag: str | None = None,
    warehouse: str | None = None,
    log: str | None = None,
) -> DataFrame:
    """The rows of a table as a DataFrame, at the newest version, or at the one that an argument selects.

    Files without deleted rows whose columns are the table's are read by Spark's own Parquet reader, with column pruning
    and with filters that are added to the DataFrame later. The other files are read as by `format("rootline")`.
    `count()` of this DataFrame uses the table's metadata, without a job, where it has the number.

    Args:
        spark: the session, with the same settings as for `rootline.spark.register`.
        name: `namespace.table`.
        where: a filter of rows, as in `scan`. Files without matching rows are not opened, so put selective conditions
            here rather than on the DataFrame.
        columns: the columns, in this order. With metadata columns, our reader reads all files.
        version: as of this version.
        snapshot_id: as of this snapshot.
        timestamp: as of this time.
        tag: as of the version with this tag.
        warehouse: instead of the session's `spark.rootline.warehouse`.
        log: instead of the session's `spark.rootline.log`.

    Raises:
        Invalid: `table-unknown`, `version-unknown`, `tag-unknown`, `filter-invalid`, `column-unknown`,
            `setting-invalid`.

    """
    point = PointInTime(version, snapshot_id, None if timestamp is None else milliseconds(timestamp), tag)
    given = {"path": checks.text(name, "name"), "warehouse": warehouse, "log": log, "where": where}
    asked = {option: value for option, value in given.items() if value is not None}
    options = parse_options({**session_defaults(spark), **asked})
    names = None if columns is None else checks.texts(columns, "columns")
    if names is not None and (not names or len(set(names)) != len(names)):
        raise Invalid("setting-invalid", f"columns={list(names)!r:.200}: name each column once, and at least one")
    reason = why_unreached(spark, options.warehouse)
    share_out = partial(_shared_out, options=options, columns=names, point=point, by_spark=reason is None)
    shares = guest_lake(options).holder.run(share_out)
    frames = [*_parquet_frame(spark, shares), *_other_frame(spark, options, names, shares)]
    frame = frames[0] if len(frames) == 1 else frames[0].union(frames[1])
    root, files = shares.plan.root.header, len(shares.tasks)
    _log.info(
        "table planned for Spark",
        action="spark-table",
        table=options.table,
        version=root.version,
        files=files,
        files_skipped=root.totals.data_files - files,
        files_by_spark=len(shares.handed_over),
        rows_known=shares.count,
        reason=reason,
    )
    return frame if shares.count is None else _with_count(frame, shares.count)


async def _shared_out(
    session: Session, options: SourceOptions, columns: tuple[str, ...] | None, point: PointInTime, *, by_spark: bool
) -> _Shares:
    plan = await plan_files(session, options.table, options.where, point)
    wanted, tasks = RowsWanted.of(plan.definition, columns), tuple(plan.scan.tasks())
    schema, bound = plan.definition.schema, plan.pruning.bound
    condition = None if bound.is_always_true else spark_condition(bound.condition, schema)
    found: Sequence[ParquetFile | None] = [None] * len(tasks)
    fields = tuple(wanted.fields_with(bound))
    if by_spark and len(wanted.own_fields) == len(wanted.fields):
        found = await files_to_hand_over(session, options.table, tasks, fields)
    numbers = {
        number
        for number, (task, file) in enumerate(zip(tasks, found, strict=True))
        if file is not None and (condition is not None or task.residual is None)
    }
    return _Shares(
        plan,
        wanted,
        fields,
        tuple(file for number, file in enumerate(found) if file is not None and number in numbers),
        condition if any(tasks[number].residual is not None for number in numbers) else None,
        tuple(number for number in range(len(tasks)) if number not in numbers),
        tasks,
        None if wanted.shows_deleted else plan.scan.row_count(),
    )


def _parquet_frame(spark: SparkSession, shares: _Shares) -> list[DataFrame]:
    """The DataFrame of the files that Spark's own reader reads, if there are any."""
    files = shares.handed_over
    if not files:
        return []
    doubt = _TRUST_NO_BOUNDS if any(file.may_hold_nan for file in files) else {}
    reader = spark.read.schema(spark_schema_of(Schema(*shares.fields))).options(
        **_READ_AS_IT_IS, **_TRUST_NO_DICTIONARY, **doubt
    )
    frame = reader.parquet(*(file.url for file in files))
    if shares.condition is not None:
        frame = frame.where(shares.condition)
    return [frame.select(*(quoted(field.name) for field in shares.wanted.fields))]


def _other_frame(
    spark: SparkSession, options: SourceOptions, columns: tuple[str, ...] | None, shares: _Shares
) -> list[DataFrame]:
    """The DataFrame of the other files, for our reader. Without any file at all, it has no rows."""
    if shares.handed_over and not shares.others:
        return []
    ensure_registered(spark)
    choice = TaskChoice.of(shares.others, shares.tasks)
    # the option `columns` cannot represent a name with a comma
    named = columns is not None and all("," not in name and name == name.strip() for name in columns)
    more = {"log": options.log, "where": options.where, "columns": ",".join(columns or ()) if named else None}
    reader = spark.read.format("rootline").option("warehouse", options.warehouse)
    reader = reader.options(**{option: value for option, value in more.items() if value is not None})
    version = int(shares.plan.root.header.version)
    frame = reader.option("versionAsOf", version).option("filesOfPlan", str(choice)).load(options.table)
    return [frame if columns is None or named else frame.select(*map(quoted, columns))]


def _with_count(frame: DataFrame, count: int) -> DataFrame:
    """The same DataFrame, with a known `count()`. DataFrames derived from it do not have it."""
    setattr(frame, "count", lambda: count)  # noqa: B010  # an attribute of this object alone, before the class's method
    return frame
