"""`rootline.spark.append` and `batch_appender`: append rows of a DataFrame or a stream with Spark's own Parquet
writer.

Owns: the order (write to a new folder, describe the files, publish one intent), the check that Spark's writer may
write the rows, the expression that groups rows by partition, the name of a stream's batch. Does not own: describing
the files (`parquet_files`), the commit (`batch_commit`), the other way (`format("rootline")`).
Invariants: Spark's writer gets rows only where its files equal ours: the same columns with their ids and types, of one
partition. In doubt our own writer writes them. An intent names files only after Spark's job has succeeded, in a folder
to which no other job writes, with as many rows as Spark counted. Nothing is ever deleted. A file with several
partitions is refused, so a mistake in the grouping costs a write and never a row. A batch has the same name as with
`writeStream.format("rootline")`, so a query may switch between the two with its checkpoint, and a replayed batch
commits once.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Final

import structlog
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812  # as everyone calls it
from pyspark.sql.types import StructType

from rootline.client import checks
from rootline.client.checks import DEFAULT_TIMEOUT_S
from rootline.client.session import Session
from rootline.client.time_travel import read_head
from rootline.ports.object_store import ObjectFiles
from rootline.schemas.errors import Invalid
from rootline.schemas.object_keys import key_of, spark_folder
from rootline.schemas.table_definition import TableDefinition
from rootline.spark.batch_commit import QUERY_WRITER_PREFIX, WrittenBatch, commit_append
from rootline.spark.connection import guest_lake
from rootline.spark.daemon import classic_context
from rootline.spark.data_source import ensure_registered, session_defaults
from rootline.spark.file_sink import QUERY_ID_PROPERTY
from rootline.spark.options import SourceOptions, Use, parse_options
from rootline.spark.parquet_files import is_plain, is_scalar, written_files
from rootline.spark.spark_types import check_fit, check_types, renamed, resolved, spark_schema_of
from rootline.storage.metadata.root_reader import read_definition
from rootline.storage.rows.arrow_types import arrow_field_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

_EXACT: Final = (
    BooleanType,
    IntegerType,
    LongType,
    DateType,
    DecimalType,
    StringType,
    BinaryType,
    TimestampType,
    TimestamptzType,
)
"""Types whose equality is the same in Spark. Floats are excluded, because they have two zeros."""
_HOUR_US: Final = 3_600_000_000
_DAY_US: Final = 24 * _HOUR_US


def partition_group(definition: TableDefinition) -> Column | None:
    """A number that is the same for all rows of one partition of the default spec.

    `None` if Spark has no function for a field of the spec (such as a bucket), or the spec has no fields.
    """
    members: list[Column] = []
    for member in definition.spec_by_id(definition.default_spec_id).expr_ids:
        found = _member(definition, member)
        if found is None:
            return None
        members += found
    return F.xxhash64(*members) if members else None


def _member(definition: TableDefinition, member: int) -> list[Column] | None:
    """The Spark columns whose values identify the value of one partition field.

    The list is empty for a field that is always null. `None`: Spark has no function for the transform.
    """
    expression = definition.expressions_by_id.get(member)
    source_ids = (member,) if expression is None else expression.source_ids
    transform = IdentityTransform() if expression is None else expression.parsed
    if isinstance(transform, VoidTransform):
        return []
    field = next((field for field in definition.schema.fields if (field.field_id,) == source_ids), None)
    if field is None:
        return None
    value = _value(transform, field.field_type, F.col(f"`{field.name.replace('`', '``')}`"))
    return None if value is None else [value, value.isNull()]  # a hash ignores nulls


def _value(transform: Transform, kind: IcebergType, column: Column) -> Column | None:  # type: ignore[type-arg]
    match transform:
        case IdentityTransform() if isinstance(kind, _EXACT):
            return column
        case TruncateTransform(width=width) if isinstance(kind, IntegerType | LongType):
            return F.try_subtract(column, F.pmod(column, F.lit(width)))
        case TruncateTransform(width=width) if isinstance(kind, StringType):
            return F.substring(column, 1, width)
        case HourTransform():
            return _hour(kind, column)
        case DayTransform():
            return _day(kind, column)
        case MonthTransform() | YearTransform():
            day = _day(kind, column)
            return None if day is None else F.trunc(day, "month" if isinstance(transform, MonthTransform) else "year")
    return None


def _day(kind: IcebergType, column: Column) -> Column | None:
    match kind:
        case DateType() | TimestampType():
            return column.cast("date")
        case TimestamptzType():  # in UTC, whatever the session's time zone is
            return F.date_from_unix_date(_whole(F.unix_micros(column), _DAY_US).cast("int"))
    return None


def _hour(kind: IcebergType, column: Column) -> Column | None:
    match kind:
        case TimestampType():
            return F.unix_date(column.cast("date")).cast("long") * 24 + F.hour(column)
        case TimestamptzType():
            return _whole(F.unix_micros(column), _HOUR_US)
    return None


def _whole(number: Column, unit: int) -> Column:
    """The quotient rounded down, in integers. A double would round the last microseconds of a year up."""
    long = F.lit(unit).cast("long")
    return F.call_function("div", number, long) - F.when(number % long < 0, 1).otherwise(0)


GROUP: Final = "partition_group"
"""The name of the folders for Spark, one for each partition: `partition_group=1234`. The number is never read."""
_FIELD_ID: Final = "parquet.field.id"
_TIMESTAMPS: Final = "spark.sql.parquet.outputTimestampType"
_MICROS: Final = "TIMESTAMP_MICROS"
_ANY_COMMITTER: Final = "spark.sql.sources.outputCommitterClass"
_NEEDED: Final = {
    "spark.sql.parquet.fieldId.write.enabled": "true",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.sources.commitProtocolClass": (
        "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
    ),
    "spark.sql.parquet.output.committer.class": "org.apache.parquet.hadoop.ParquetOutputCommitter",
}
"""Required settings of the session. The values are Spark's defaults."""


@dataclass(frozen=True, slots=True)
class HandedRows:
    """Rows for Spark's writer. `frame`: the table's columns with field ids, and `GROUP` last if partitioned."""

    frame: DataFrame
    is_partitioned: bool


def handed_rows(frame: DataFrame, definition: TableDefinition) -> HandedRows | str:
    """The rows for Spark's writer, or the reason why our writer must write them."""
    fields = definition.schema.fields
    reason = _unfit_table(definition) or _unfit_columns(frame.schema, fields)
    reason = reason or _unfit_session(frame.sparkSession, fields)
    if reason is not None:
        return reason
    group = partition_group(definition)
    is_partitioned = bool(definition.spec_by_id(definition.default_spec_id).expr_ids)
    if is_partitioned and group is None:
        return "Spark has no function for its partitions"
    columns = [_column(field) for field in fields]
    return HandedRows(frame.select(*columns, *([] if group is None else [group.alias(GROUP)])), group is not None)


def _column(field: NestedField) -> Column:
    """The column with its field id. `DataFrame.to` sets all ids together, but loses them where the order is
    unchanged.
    """
    quoted = "`" + field.name.replace("`", "``") + "`"
    return F.col(quoted).alias(field.name, metadata={_FIELD_ID: field.field_id})


def _unfit_table(definition: TableDefinition) -> str | None:
    if any(order.order_id == definition.default_sort_order_id and order.fields for order in definition.sort_orders):
        return "the table has a sort order"
    return None


def _unfit_columns(rows: StructType, fields: Sequence[NestedField]) -> str | None:
    names = [field.name for field in fields]
    if not names or sorted(rows.names) != sorted(names):
        return "the rows have other columns than the table"
    if len({name.lower() for name in (*names, GROUP)}) != len(names) + 1:
        return f"column names differ only in case, or one is {GROUP!r}"
    for field in fields:
        if not isinstance(field.field_type, PrimitiveType) or not is_scalar(arrow_field_of(field).type):
            return f"column {field.name} is of type {field.field_type}"
    wanted = spark_schema_of(Schema(*fields))
    other = next((name for name in names if rows[name].dataType != wanted[name].dataType), None)
    return None if other is None else f"column {other} is {rows[other].dataType.simpleString()} in the rows"


def _unfit_session(spark: SparkSession, fields: Sequence[NestedField]) -> str | None:
    for setting, needed in _NEEDED.items():
        if _setting(spark, setting).lower() != needed.lower():
            return f"{setting} is not {needed}"
    if spark.conf.get(_ANY_COMMITTER, None):
        return f"{_ANY_COMMITTER} is set"
    has_moments = any(isinstance(field.field_type, TimestamptzType) for field in fields)
    if has_moments and _setting(spark, _TIMESTAMPS).upper() != _MICROS:
        return f"{_TIMESTAMPS} is not {_MICROS}"
    return None


def _setting(spark: SparkSession, name: str) -> str:
    return spark.conf.get(name) or ""


_COMMITTED_AT_ONCE: Final = {
    "mapreduce.fileoutputcommitter.algorithm.version": "1",  # version 2 keeps files of tasks that died committing
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",  # the default one writes a checksum file for each file
    "fs.file.impl.disable.cache": "true",
}
_COUNT_WAIT_S: Final = 120.0
_log = structlog.get_logger("rootline.spark")


def append(
    frame: DataFrame,
    name: str,
    *,
    writer_id: str | None = None,
    writer_sequence: int | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    warehouse: str | None = None,
    log: str | None = None,
) -> None:
    """Append the rows of a DataFrame to a table, in one commit.

    If possible, Spark's own Parquet writer writes the files, at the speed of `frame.write.parquet`. Each file is then
    read for its statistics and partition. Otherwise the rows are written by `frame.write.format("rootline")`, and the
    reason is logged.

    Args:
        frame: columns are found by name. In a stream, call this in `foreachBatch`.
        name: `namespace.table`.
        writer_id: with `writer_sequence` the batch's name. A batch that is sent again under its name commits once.
        writer_sequence: the number of the batch among those of its writer.
        timeout_s: seconds to wait for the verdict.
        warehouse: instead of the session's `spark.rootline.warehouse`.
        log: instead of the session's `spark.rootline.log`.

    Raises:
        Invalid: `table-unknown`, `setting-invalid`; `rows-invalid`, a column that does not fit, or a null in a required
            one; or the intent was rejected. No row was added then.
        OutcomeUnknown: `verdict-timeout`: the rows may still be committed. With a writer and a sequence it is safe to
            append them again.
        PySparkException: the job failed. If the rows are written through Python, the errors above are of this type
            after the start of the job, with the code in the text.

    """
    if frame.isStreaming:
        raise Invalid("setting-invalid", "append takes a batch: call it in writeStream.foreachBatch")
    spark = frame.sparkSession
    wait_s, _, _ = checks.write_options(timeout_s, 1, None)
    given = {
        "path": checks.text(name, "name"),
        "warehouse": warehouse,
        "log": log,
        "writerId": writer_id,
        "writerSequence": None if writer_sequence is None else str(writer_sequence),
        "verdictTimeoutMs": str(max(1, int(wait_s * 1000))),
    }
    texts = {option: text for option, text in given.items() if text is not None}
    options = parse_options({**session_defaults(spark), **texts}).checked_for(Use.BATCH_WRITE)
    ensure_registered(spark)
    place = spark_folder(uuid.uuid4())
    check_types(frame.schema, options.table)
    definition, path = guest_lake(options).holder.run(partial(_target, options=options, place=place))
    check_fit(frame.schema, definition, options.table, is_case_sensitive=options.case_sensitive)
    names = [field.name for field in definition.schema.fields]
    frame = renamed(frame, resolved(frame.columns, names, is_case_sensitive=options.case_sensitive))
    rows = (
        "the warehouse is not a folder, or Spark would change its path"
        if path is None
        else handed_rows(frame, definition)
    )
    if isinstance(rows, str) or path is None:
        _log.info("appended through Python", action="spark-append", table=options.table, reason=rows)
        by_case = str(options.case_sensitive).lower()
        also = {**texts, "warehouse": options.warehouse, "log": options.log, "caseSensitive": by_case}
        also = {option: text for option, text in also.items() if text and option != "path"}
        return frame.write.format("rootline").options(**also).mode("append").save(name)
    _append_files(rows, options, definition, place, path)
    return None


async def _target(session: Session, options: SourceOptions, place: str) -> tuple[TableDefinition, str | None]:
    """The table's definition, and the path of the folder for Spark's writer, or `None` if Spark cannot write there."""
    store = session.store
    definition = await read_definition(store, (await read_head(store, options.table)).header)
    path = store.place_of(key_of(options.table, place)) if isinstance(store, ObjectFiles) else None
    return definition, path if path is not None and is_plain(path) else None


def rows_told(counted: Observation, timeout_s: float, table: str) -> int:
    """The number of rows that Spark reports as written. Before Spark 4.3 an event reports it, and Spark drops
    events under load.

    Raises:
        Invalid: `rows-invalid`, Spark did not report it in time.
    """
    told: Future[int] = Future()

    def ask() -> None:
        try:
            told.set_result(counted.get["rows"])
        except Exception as error:
            told.set_exception(error)

    Thread(target=ask, name="rootline-spark-rows", daemon=True).start()
    try:
        return told.result(timeout_s)
    except TimeoutError as error:
        raise Invalid(
            "rows-invalid",
            f"{table}: Spark did not report its number of rows within {timeout_s:g} s, so nothing was committed: run "
            "the write again, with a larger spark.scheduler.listenerbus.eventqueue.capacity if its log "
            "reports dropped events",
        ) from error


def _append_files(rows: HandedRows, options: SourceOptions, definition: TableDefinition, place: str, path: str) -> None:
    counted = Observation()
    writer = rows.frame.observe(counted, F.count(F.lit(1)).alias("rows")).write.options(**_COMMITTED_AT_ONCE)
    (writer.partitionBy(GROUP) if rows.is_partitioned else writer).parquet(f"file://{path}")
    written = written_files(rows.frame.sparkSession, options, definition, place, path)
    expected = rows_told(counted, _COUNT_WAIT_S, options.table)
    if written.row_count != expected:
        raise Invalid(
            "rows-invalid",
            f"{options.table}: Spark wrote {expected} rows, but the folder {path} has {written.row_count}. Nothing was "
            "committed. The warehouse must be a folder that all executors share; otherwise write with "
            'df.write.format("rootline") to a bucket',
        )
    batch = WrittenBatch(
        written.files,
        definition.table_uuid,
        definition.current_schema_id,
        options.writer_id,
        options.writer_sequence,
        written.oldest_ms,
    )
    commit_append(batch, definition, options)
    _log.info(
        "appended by Spark's writer",
        action="spark-append",
        table=options.table,
        files=len(written.files),
        rows=written.row_count,
    )


def batch_appender(
    name: str,
    *,
    writer_id: str | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    warehouse: str | None = None,
    log: str | None = None,
) -> Callable[[DataFrame, int], None]:
    """A function for `writeStream.foreachBatch` that appends each batch to a table, in one commit.

    The id of the query and the number of the batch identify a batch, so a batch that Spark repeats is committed once.

    Args:
        name: `namespace.table`.
        writer_id: instead of the query's id. Needed where Spark does not provide it.
        timeout_s: seconds to wait for each verdict.
        warehouse: instead of the session's `spark.rootline.warehouse`.
        log: instead of the session's `spark.rootline.log`.

    Raises:
        Invalid: `setting-invalid`. The returned function raises the errors of `append`. They end the query. A
            restarted query continues with the same batch.

    """
    table = checks.text(name, "name")

    def append_batch(batch: DataFrame, number: int) -> None:
        context = classic_context(batch.sparkSession)
        query_id = None if context is None else context.getLocalProperty(QUERY_ID_PROPERTY)
        if writer_id is None and not query_id:
            raise Invalid(
                "setting-invalid",
                f"{table}: Spark provides no id of the query, as with Spark Connect: give batch_appender a writer_id, "
                "or use writeStream.format('rootline')",
            )
        writer = writer_id or f"{QUERY_WRITER_PREFIX}{query_id}"
        append(
            batch,
            table,
            writer_id=writer,
            writer_sequence=number,
            timeout_s=timeout_s,
            warehouse=warehouse,
            log=log,
        )

    return append_batch
