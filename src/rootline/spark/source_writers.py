"""The writers of `format("rootline")`, and the option `createTable`.

Owns: the batch writer and the streaming writer, the name of a batch, creating the table of a first write, the checks
before anything is written. Does not own: files (`file_sink`), commits (`batch_commit`). A process that only reads does
not import this module (`data_source`).
Invariants: writers are picklable, and `commit` may run on a fresh copy in another process. A stream's batch is named by
the query's id (or `writerId`) and its batch id, so that a replay commits once. `abort` deletes nothing, because Spark
calls it even when `commit` has already published.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rootline.client.session import Session
from rootline.schemas.errors import Invalid, Unavailable
from rootline.schemas.table_definition import TableDefinition
from rootline.spark.batch_commit import QUERY_WRITER_PREFIX, MergedWrite, WrittenBatch, commit_append, commit_overwrite
from rootline.spark.connection import TableAt, committing_lake, guest_lake
from rootline.spark.file_sink import FilesWritten, check_keys, check_upsert, write_task
from rootline.spark.options import SourceOptions
from rootline.spark.spark_types import arrow_schema_for_spark, as_table_names, check_fit
from rootline.storage.metadata.root_reader import root_if_readable

if TYPE_CHECKING:
    import pyarrow as pa

_GONE: Final = ("table-unknown", "table-dropped")


def create_where_asked(options: SourceOptions, schema: StructType) -> None:
    """Create the table, empty, if the options ask for it and it does not exist. Rows are added when the write
    commits.

    Raises:
        Invalid: `definition-invalid`, naming the column or the term.
        OutcomeUnknown: `verdict-timeout`.
    """
    if not options.create_table or _is_there(options):
        return
    with committing_lake(options) as lake:
        try:
            lake.create_table(
                options.table,
                arrow_schema_for_spark(schema.toNullable()),  # as in tables that Spark creates
                partition_by=options.partitioned_by,
                sort_by=options.sorted_by,
                timeout_s=options.verdict_timeout_ms / 1000,
            )
        except Invalid as error:
            if error.code != "table-exists":  # created concurrently: the rows must fit that table
                raise


def _is_there(options: SourceOptions) -> bool:
    async def operation(session: Session) -> bool:
        try:
            await root_if_readable(session.store, options.table)
        except Invalid as error:
            if error.code in _GONE:
                return False
            raise
        return True

    try:
        return guest_lake(options).holder.run(operation)
    except Unavailable:  # the warehouse's folder does not exist yet; after any other error the create fails too
        return False


Messages = Sequence[WriterCommitMessage | None]


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("rootline").mode("append" | "overwrite").save("namespace.table")`."""

    def __init__(
        self, options: SourceOptions, definition: bytes, overwrite: bool, merged: MergedWrite | None = None
    ) -> None:
        self._options = options
        self._definition = definition if merged is None else merged.definition
        self._overwrite = overwrite
        self._merged = merged

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write files, on an executor."""
        return _written_by_task(iterator, self._definition, self._options)

    def commit(self, messages: Messages) -> None:
        """Publish one intent and wait for its verdict, on the driver."""
        options, definition = self._options, TableDefinition.from_json(self._definition)
        nothing = FilesWritten((), definition.table_uuid, definition.current_schema_id)
        batch = WrittenBatch.of([nothing, *_written(messages)], options.writer_id, options.writer_sequence)
        _check_keys(options, messages)
        if self._overwrite:
            commit_overwrite(batch, definition, options, self._merged)
        else:
            commit_append(batch, definition, options, self._merged)

    def abort(self, messages: Messages) -> None:
        """Do nothing: files that no intent names are orphans for the sweep."""


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("rootline").option("checkpointLocation", …).start("namespace.table")`."""

    def __init__(self, options: SourceOptions, definition: bytes, merged: MergedWrite | None = None) -> None:
        self._options = options
        self._definition = definition if merged is None else merged.definition
        self._merged = merged

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write files, on an executor."""
        return _written_by_task(iterator, self._definition, self._options)

    def commit(self, messages: Messages, batchId: int) -> None:
        """Publish one intent under (query, batch) and wait for its verdict, on the driver."""
        written = [message for message in _written(messages) if message.files]
        if written:
            _check_keys(self._options, written)
            batch = WrittenBatch.of(written, self._writer_id(written), batchId)
            commit_append(batch, TableDefinition.from_json(self._definition), self._options, self._merged)

    def abort(self, messages: Messages, batchId: int) -> None:
        """Do nothing: the intent with its files may have been published already."""

    def _writer_id(self, written: Sequence[FilesWritten]) -> str:
        query_id = next((message.query_id for message in written if message.query_id), None)
        if self._options.writer_id is not None:
            return self._options.writer_id
        if query_id is None:
            raise Invalid(
                "setting-invalid", f"{self._options.table}: Spark provides no id of the query: set option 'writerId'"
            )
        return f"{QUERY_WRITER_PREFIX}{query_id}"


def _written_by_task(batches: Iterator[pa.RecordBatch], definition: bytes, options: SourceOptions) -> FilesWritten:
    table = TableDefinition.from_json(definition)
    is_case_sensitive = options.case_sensitive
    named = (as_table_names(batch, table.schema, is_case_sensitive=is_case_sensitive) for batch in batches)
    return write_task(named, table, options)


def _written(messages: Messages) -> list[FilesWritten]:
    return [message for message in messages if isinstance(message, FilesWritten)]


def _check_keys(options: SourceOptions, messages: Messages) -> None:
    """Check an upsert. Raises `Invalid` (`rows-invalid`): a key is in the batch twice."""
    check_keys(options.table, [message.keys for message in _written(messages) if message.keys is not None])


def merged_write(rows: StructType, table: TableAt, options: SourceOptions) -> MergedWrite | None:
    """The changes of `table` that rows with these columns need, or `None` without the option `mergeSchema`.

    Raises:
        Invalid: `definition-invalid` or `evolution-illegal`, naming the column.
    """
    if not options.merge_schema:
        return None
    by_case = options.case_sensitive
    return MergedWrite.planned(options.table, rows, table.definition, table.digest, is_case_sensitive=by_case)


def checked_write(rows: StructType, table: TableAt, options: SourceOptions, *, overwrite: bool) -> MergedWrite | None:
    """As `merged_write`, after checks. Raises `Invalid`: the rows, or the option `upsert`, do not fit the table."""
    if options.upsert:
        if overwrite:
            raise Invalid("setting-invalid", "option 'upsert' has no meaning for an overwrite: use mode('append')")
        check_upsert(options.table, TableDefinition.from_json(table.definition))
    merged = merged_write(rows, table, options)
    definition = TableDefinition.from_json(table.definition if merged is None else merged.definition)
    check_fit(rows, definition, options.table, is_case_sensitive=options.case_sensitive)
    return merged
