"""Spark's writer interfaces over one table: a batch or a micro-batch becomes one intent.

Owns: the classes that Spark calls, and how a batch is named. Does not own: files (`file_sink`), the commit
(`batch_commit`).
Invariants: picklable; `commit` may run on a fresh copy in another process; a stream's batch is named by the query's
id (or `writerId`) and its batch id, so that a replay commits once; `abort` deletes nothing, because Spark calls it
even when `commit` has published already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import TableDefinition
from rootline.spark.batch_commit import QUERY_WRITER_PREFIX, WrittenBatch, commit_append, commit_overwrite
from rootline.spark.file_sink import FilesWritten, write_task
from rootline.spark.given_columns import as_table_names
from rootline.spark.merged_write import MergedWrite
from rootline.spark.options import SourceOptions
from rootline.spark.upsert_files import check_keys

if TYPE_CHECKING:
    import pyarrow as pa

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
        """On an executor: write files."""
        return _written_by_task(iterator, self._definition, self._options)

    def commit(self, messages: Messages) -> None:
        """On the driver: publish one intent and wait for its verdict."""
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
        """On an executor: write files."""
        return _written_by_task(iterator, self._definition, self._options)

    def commit(self, messages: Messages, batchId: int) -> None:
        """On the driver: publish one intent under (query, batch) and wait for its verdict."""
        written = [message for message in _written(messages) if message.files]
        if written:
            _check_keys(self._options, written)
            batch = WrittenBatch.of(written, self._writer_id(written), batchId)
            commit_append(batch, TableDefinition.from_json(self._definition), self._options, self._merged)

    def abort(self, messages: Messages, batchId: int) -> None:
        """Do nothing: the intent may have been published already, and its files with it."""

    def _writer_id(self, written: Sequence[FilesWritten]) -> str:
        query_id = next((message.query_id for message in written if message.query_id), None)
        if self._options.writer_id is not None:
            return self._options.writer_id
        if query_id is None:
            raise Invalid(
                "setting-invalid", f"{self._options.table}: Spark did not name the query: set option 'writerId'"
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
    """Of an upsert. Raises `Invalid` (`rows-invalid`): a key is there twice."""
    check_keys(options.table, [message.keys for message in _written(messages) if message.keys is not None])
