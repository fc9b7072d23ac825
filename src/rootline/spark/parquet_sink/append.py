"""`rootline.spark.append`: rows of a DataFrame into a table, written by Spark's own Parquet writer wherever that fits.

Owns: the order: write into a new folder, look through the files, publish one intent. Does not own: which rows Spark's
writer may write (`handed_rows`), the files (`written_files`), the commit (`batch_commit`), the other way
(`format("rootline")`).
Invariants: files are named by an intent only after Spark's job has ended well, all in a folder that no other job
writes to; there are as many rows in them as Spark counted; nothing is ever deleted.
"""

from __future__ import annotations

import uuid
from concurrent.futures import Future
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Final

import structlog
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812  # as everyone calls it

from rootline.client import checks
from rootline.client.producer import DEFAULT_TIMEOUT_S
from rootline.client.session import Session
from rootline.client.time_travel import read_head
from rootline.ports.object_store import ObjectFiles
from rootline.schemas.errors import Invalid
from rootline.schemas.object_keys import key_of, spark_folder
from rootline.schemas.table_definition import TableDefinition
from rootline.spark.batch_commit import WrittenBatch, commit_append
from rootline.spark.connection import guest_lake
from rootline.spark.data_source import ensure_registered, session_defaults
from rootline.spark.given_columns import check_fit, check_types, renamed, resolved
from rootline.spark.options import SourceOptions, Use, parse_options
from rootline.spark.parquet_files import is_plain
from rootline.spark.parquet_sink.handed_rows import GROUP, HandedRows, handed_rows
from rootline.spark.parquet_sink.written_files import written_files
from rootline.storage.metadata.root_reader import read_definition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COMMITTED_AT_ONCE: Final = {
    "mapreduce.fileoutputcommitter.algorithm.version": "1",  # 2 leaves files of tasks that died while they committed
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",  # the other one writes a checksum beside each file
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

    Where it can, Spark's own Parquet writer writes the files, at the speed of `frame.write.parquet`; each is looked
    through afterwards for its statistics and partition. Otherwise the rows go through
    `frame.write.format("rootline")`, and the log says why.

    Args:
        frame: columns are found by name. In a stream, call this in `foreachBatch`.
        name: `namespace.table`.
        writer_id: with `writer_sequence` the batch's name: what is sent again under it lands once.
        writer_sequence: the number of the batch among those of its writer.
        timeout_s: how many seconds to wait for the verdict.
        warehouse: instead of the session's `spark.rootline.warehouse`.
        log: instead of the session's `spark.rootline.log`.

    Raises:
        Invalid: `table-unknown`, `setting-invalid`; `rows-invalid`, a column that does not fit, or a null in a required
            one; or the intent was rejected. Nothing is in the table then.
        OutcomeUnknown: `verdict-timeout`: the rows may still land; with a writer and a sequence it is safe to append
            them again.
        PySparkException: the job failed. Where the rows go through Python, the errors above that come after the start
            are one too: its text has the code.

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
    rows = "the warehouse is no folder, or its path is odd" if path is None else handed_rows(frame, definition)
    if isinstance(rows, str) or path is None:
        _log.info("appended through Python", action="spark-append", table=options.table, reason=rows)
        by_case = str(options.case_sensitive).lower()
        also = {**texts, "warehouse": options.warehouse, "log": options.log, "caseSensitive": by_case}
        also = {option: text for option, text in also.items() if text and option != "path"}
        return frame.write.format("rootline").options(**also).mode("append").save(name)
    _append_files(rows, options, definition, place, path)
    return None


async def _target(session: Session, options: SourceOptions, place: str) -> tuple[TableDefinition, str | None]:
    """The table's definition, and the path of the folder for Spark to write; `None`: it cannot."""
    store = session.store
    definition = await read_definition(store, (await read_head(store, options.table)).header)
    path = store.place_of(key_of(options.table, place)) if isinstance(store, ObjectFiles) else None
    return definition, path if path is not None and is_plain(path) else None


def rows_told(counted: Observation, timeout_s: float, table: str) -> int:
    """How many rows Spark says it wrote. Before 4.3 an event brings the number, and Spark drops events when busy.

    Raises:
        Invalid: `rows-invalid`, Spark did not say it in time.

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
            f"{table}: Spark did not say within {timeout_s:g} s how many rows it wrote, so nothing was committed: run "
            "the write again, with a larger spark.scheduler.listenerbus.eventqueue.capacity if its log says that "
            "events were dropped",
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
            f"{options.table}: Spark wrote {expected} rows, and the folder {path} has {written.row_count}; nothing was "
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
