"""`rootline.spark.append` and `batch_appender`: append rows of a DataFrame or a stream with Spark's own Parquet
writer.

Owns: the order (write to a new folder, describe the files, publish one intent), the check that Spark's writer may
write the rows, the name of a stream's batch. Does not own: columns for Spark's writer (`fitted_columns`), partitions
and sort orders (`transform_columns`), describing the files (`parquet_files`), the commit (`batch_commit`), the other
way (`format("rootline")`).
Invariants: Spark's writer gets rows only where its files equal ours: the same columns with their ids and types, of one
partition. In doubt our own writer writes them. An intent names files only after Spark's job has succeeded, in a folder
to which no other job writes, with as many rows as Spark counted. Only what no intent can name is deleted. A
file with several partitions is refused, so a mistake in the grouping costs a write and never a row. A batch has the
same name as with `writeStream.format("rootline")`, so a query may switch between the two with its checkpoint, and a
replayed batch commits once.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from threading import Lock, Thread
from typing import TYPE_CHECKING, Final

from pyiceberg.schema import Schema
from pyiceberg.types import TimestamptzType
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812  # as everyone calls it

from rootline.client import checks
from rootline.client.checks import DEFAULT_TIMEOUT_S
from rootline.client.session import Session
from rootline.client.time_travel import read_head
from rootline.library_log import library_logger
from rootline.schemas.errors import Invalid
from rootline.schemas.object_keys import key_of, spark_folder
from rootline.schemas.table_definition import TableDefinition
from rootline.spark.batch_commit import QUERY_WRITER_PREFIX, MergedWrite, WrittenBatch, commit_append
from rootline.spark.connection import TableAt, guest_lake
from rootline.spark.daemon import classic_context
from rootline.spark.data_source import described_jobs, ensure_registered, local_property, session_defaults
from rootline.spark.file_sink import QUERY_ID_PROPERTY
from rootline.spark.fitted_columns import UnfitRows, fitted_columns
from rootline.spark.hadoop_bucket import COMMITTED_IN_BUCKET, is_in_bucket, remove_uploads, upload_folder, why_unreached
from rootline.spark.options import SourceOptions, Use, parse_options
from rootline.spark.parquet_files import lacks_ids, place_for_spark, written_files
from rootline.spark.source_writers import merged_write
from rootline.spark.spark_types import check_fit, check_types, renamed, resolved
from rootline.spark.transform_columns import GROUP, sort_columns, with_group
from rootline.storage.metadata.root_reader import read_definition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_TIMESTAMPS: Final = "spark.sql.parquet.outputTimestampType"
_MICROS: Final = "TIMESTAMP_MICROS"
_ANY_COMMITTER: Final = "spark.sql.sources.outputCommitterClass"
_NEEDED: Final = {
    "spark.sql.parquet.fieldId.write.enabled": "true",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.sources.commitProtocolClass": (
        "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
    ),
    "spark.sql.parquet.output.committer.class": "org.apache.parquet.hadoop.ParquetOutputCommitter",
}
"""Required settings of the session. The values are Spark's defaults."""


@dataclass(frozen=True, slots=True)
class HandedRows:
    """Rows for Spark's writer. `frame`: the table's columns with field ids, and `GROUP` last if partitioned.

    `order`: the columns to sort each task's rows by, in the order of the table, if it has one.
    """

    frame: DataFrame
    is_partitioned: bool
    order: tuple[Column, ...]


def handed_rows(frame: DataFrame, definition: TableDefinition, *, is_case_sensitive: bool) -> HandedRows | str:
    """The rows for Spark's writer, or the reason why our writer must write them."""
    fields = definition.schema.fields
    if any(field.name.lower().startswith(GROUP) for field in fields):
        return f"the name of a column begins with {GROUP!r}"
    reason = _unfit_session(frame.sparkSession, definition.schema)
    if reason is not None:
        return reason
    try:
        known = (classic_context(frame.sparkSession), frame.schema, definition.to_json())
        columns = fitted_columns(*known, is_case_sensitive=is_case_sensitive)
    except UnfitRows as unfit:
        return str(unfit)
    order = sort_columns(definition)
    if order is None:
        return "Spark has no function for its sort order"
    rows = frame.select(*columns)
    if not definition.spec_by_id(definition.default_spec_id).expr_ids:
        return HandedRows(rows, False, tuple(order))
    grouped = with_group(rows, definition)
    if grouped is None:
        return "Spark has no function for its partitions"
    return HandedRows(grouped, True, (F.col(GROUP), *order) if order else ())


def _unfit_session(spark: SparkSession, schema: Schema) -> str | None:
    for setting, needed in _NEEDED.items():
        if _setting(spark, setting).lower() != needed.lower():
            return f"{setting} is not {needed}"
    if spark.conf.get(_ANY_COMMITTER, None):
        return f"{_ANY_COMMITTER} is set"
    has_moments = any(isinstance(schema.find_type(field_id), TimestamptzType) for field_id in schema.field_ids)
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
_log = library_logger("rootline.spark")


def append(
    frame: DataFrame,
    name: str,
    *,
    writer_id: str | None = None,
    writer_sequence: int | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    warehouse: str | None = None,
    log: str | None = None,
    merge_schema: bool = False,
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
        merge_schema: the commit also adds columns that the table lacks, and widens types, as the option `mergeSchema`.

    Raises:
        Invalid: `table-unknown`, `setting-invalid`; `rows-invalid`, a column that does not fit, or a null in a required
            one; `definition-changed`, others changed columns during an append with `merge_schema`: repeat it; or the
            intent was rejected. No row was added then.
        OutcomeUnknown: `verdict-timeout`: the rows may still be committed. With a writer and a sequence it is safe to
            append them again.
        PySparkException: the job failed, for example at a value that does not fit. If the rows are written through
            Python, the errors above are of this type after the start of the job, with the code in the text.

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
        "mergeSchema": "true" if merge_schema else None,
    }
    texts = {option: text for option, text in given.items() if text is not None}
    options = parse_options({**session_defaults(spark), **texts}).checked_for(Use.BATCH_WRITE)
    place = spark_folder(uuid.uuid4())
    check_types(frame.schema, options.table)
    table, path = guest_lake(options).holder.run(partial(_target, options=options, place=place))
    merged = merged_write(frame.schema, table, options)
    definition = TableDefinition.from_json(table.definition if merged is None else merged.definition)
    check_fit(frame.schema, definition, options.table, is_case_sensitive=options.case_sensitive)
    names = [field.name for field in definition.schema.fields]
    frame = renamed(frame, resolved(frame.columns, names, is_case_sensitive=options.case_sensitive))
    changed = "Spark would change the path of the warehouse"
    unfit = why_unreached(spark, options.warehouse, to_write=True) if path else changed
    rows = unfit or handed_rows(frame, definition, is_case_sensitive=options.case_sensitive)
    with described_jobs(spark, f"rootline: append to {options.table}"):
        if isinstance(rows, str) or path is None:
            _log.info("appended through Python", action="spark-append", table=options.table, reason=rows)
            by_case = str(options.case_sensitive).lower()
            also = {**texts, "warehouse": options.warehouse, "log": options.log, "caseSensitive": by_case}
            also = {option: text for option, text in also.items() if text and option != "path"}
            ensure_registered(spark)
            return frame.write.format("rootline").options(**also).mode("append").save(name)
        return _append_files(rows, options, definition, merged, place, path)


async def _target(session: Session, options: SourceOptions, place: str) -> tuple[TableAt, str | None]:
    """The table's head, and the path or `s3a://` URL of the folder for Spark's writer, or `None` if Spark cannot write
    there.
    """
    store = session.store
    header = (await read_head(store, options.table)).header
    table = TableAt(header.version, (await read_definition(store, header)).to_json(), header.definition.digest)
    return table, place_for_spark(store, key_of(options.table, place))


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


def _append_files(
    rows: HandedRows,
    options: SourceOptions,
    definition: TableDefinition,
    merged: MergedWrite | None,
    place: str,
    path: str,
) -> None:
    counted = Observation()
    url, committed = f"file://{path}", _COMMITTED_AT_ONCE
    if is_in_bucket(path):
        is_copied = rows.is_partitioned or lacks_ids(definition)
        url, committed = upload_folder(path, is_copied=is_copied), COMMITTED_IN_BUCKET
    frame = rows.frame.observe(counted, F.expr("count(*) AS `rows`"))
    # sorted last, because Spark adds a sort by partition unless the plan ends with one that begins so
    writer = (frame.sortWithinPartitions(*rows.order) if rows.order else frame).write.options(**committed)
    try:
        (writer.partitionBy(GROUP) if rows.is_partitioned else writer).parquet(url)
        written = written_files(rows.frame.sparkSession, options, definition, place, path)
        expected = rows_told(counted, _COUNT_WAIT_S, options.table)
        if written.row_count != expected:
            raise Invalid(
                "rows-invalid",
                f"{options.table}: Spark wrote {expected} rows, but the folder {path} has {written.row_count}. Nothing "
                "was committed. All executors must write to the same folder or bucket as the driver; otherwise write "
                'with df.write.format("rootline")',
            )
    except Exception:  # nothing was published, so no intent needs these files
        if is_in_bucket(path):
            remove_uploads(rows.frame.sparkSession, path, [""])
        else:
            shutil.rmtree(path, ignore_errors=True)
        raise
    batch = WrittenBatch(
        written.files,
        definition.table_uuid,
        definition.current_schema_id,
        options.writer_id,
        options.writer_sequence,
        written.oldest_ms,
        query_id=local_property(rows.frame.sparkSession, QUERY_ID_PROPERTY),
    )
    commit_append(batch, definition, options, merged)
    _log.info(
        "appended by Spark's writer",
        action="spark-append",
        table=options.table,
        files=len(written.files),
        rows=written.row_count,
    )


_RUN: Final = "spark.jobGroup.id"
"""A local property that is the id of the query's run. Each run executes a batch once."""
_WRITERS_MAX: Final = 1_000
_plans: Final[dict[tuple[str, str | None, str, str], tuple[int, int]]] = {}
"""The newest batch's number and the hash of its plan, by run, warehouse, table and writer. The writer that appended
last is the last one. Of each only the newest batch is kept, because fast queries would displace a slow one's batch
between two parts of it.
"""
_plans_lock: Final = Lock()


def _check_whole(batch: DataFrame, number: int, warehouse: str | None, table: str, writer: str) -> None:
    """Check that a query does not append a batch in parts, because all parts would have one name, and only one of them
    would be added.

    Raises:
        Invalid: `setting-invalid`.
    """
    run = local_property(batch.sparkSession, _RUN)
    if run is None:
        return
    found, of = (number, batch.semanticHash()), (run, warehouse, table, writer)
    with _plans_lock:
        known = _plans.pop(of, found)
        _plans[of] = known = known if known[0] == number else found
        if len(_plans) > _WRITERS_MAX:
            del _plans[next(iter(_plans))]
    if known != found:
        raise Invalid(
            "setting-invalid",
            f"{table}: batch {number} was appended already, with another DataFrame. Only one of the two would be "
            "added, because both have one name: append their union, or give each batch_appender its own writer_id",
        )


def batch_appender(
    name: str,
    *,
    writer_id: str | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    warehouse: str | None = None,
    log: str | None = None,
    merge_schema: bool = False,
) -> Callable[[DataFrame, int], None]:
    """A function for `writeStream.foreachBatch` that appends each batch to a table, in one commit.

    The id of the query and the number of the batch identify a batch, so a batch that Spark repeats is committed once.
    A function that appends a batch to one table in parts needs an appender with its own `writer_id` for each part.

    Args:
        name: `namespace.table`.
        writer_id: instead of the query's id. Needed where Spark does not provide it.
        timeout_s: seconds to wait for each verdict.
        warehouse: instead of the session's `spark.rootline.warehouse`.
        log: instead of the session's `spark.rootline.log`.
        merge_schema: as in `append`.

    Raises:
        Invalid: `setting-invalid`. The returned function raises the errors of `append`. They end the query. A
            restarted query continues with the same batch.

    """
    table = checks.text(name, "name")

    def append_batch(batch: DataFrame, number: int) -> None:
        query_id = local_property(batch.sparkSession, QUERY_ID_PROPERTY)
        if writer_id is None and not query_id:
            raise Invalid(
                "setting-invalid",
                f"{table}: Spark provides no id of the query, as with Spark Connect: give batch_appender a writer_id, "
                "or use writeStream.format('rootline')",
            )
        writer = writer_id or f"{QUERY_WRITER_PREFIX}{query_id}"
        _check_whole(batch, number, warehouse, table, writer)
        append(
            batch,
            table,
            writer_id=writer,
            writer_sequence=number,
            timeout_s=timeout_s,
            warehouse=warehouse,
            log=log,
            merge_schema=merge_schema,
        )

    return append_batch
