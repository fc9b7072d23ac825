"""Spark's writer interfaces over one table: a batch or a micro-batch becomes one intent.

Owns: the classes that Spark calls. Does not own: files (`file_sink`), the commit (`batch_commit`).
Invariants: picklable; `commit` may run on a fresh copy in another process; a stream's batch is named by the query's
id (or `writerId`) and its batch id, so that a replay commits once; `abort` deletes nothing, because Spark calls it
even when `commit` has published already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from rootline.schemas.errors import Invalid
from rootline.schemas.intent import DataFile
from rootline.schemas.table_definition import TableDefinition
from rootline.spark.batch_commit import commit_append, commit_overwrite
from rootline.spark.file_sink import FilesWritten, write_task
from rootline.spark.options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

Messages = Sequence[WriterCommitMessage | None]


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("rootline").mode("append" | "overwrite").save("namespace.table")`."""

    def __init__(self, options: SourceOptions, definition: bytes, overwrite: bool) -> None:
        self._options = options
        self._definition = definition
        self._overwrite = overwrite

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """On an executor: write files."""
        return write_task(iterator, TableDefinition.from_json(self._definition), self._options)

    def commit(self, messages: Messages) -> None:
        """On the driver: publish one intent and wait for its verdict."""
        files, _ = _gathered(messages)
        settle = commit_overwrite if self._overwrite else commit_append
        settle(files, self._options, self._options.writer_id, self._options.writer_sequence)

    def abort(self, messages: Messages) -> None:
        """Nothing: files that no intent names are orphans for the sweep."""


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("rootline").option("checkpointLocation", …).start("namespace.table")`."""

    def __init__(self, options: SourceOptions, definition: bytes) -> None:
        self._options = options
        self._definition = definition

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """On an executor: write files."""
        return write_task(iterator, TableDefinition.from_json(self._definition), self._options)

    def commit(self, messages: Messages, batchId: int) -> None:
        """On the driver: publish one intent under (query, batch) and wait for its verdict."""
        files, query_id = _gathered(messages)
        writer_id = self._options.writer_id or (None if query_id is None else f"spark/{query_id}")
        if files and writer_id is None:
            raise Invalid("setting-invalid", f"{self._options.table}: the query has no id; set option 'writerId'")
        commit_append(files, self._options, writer_id, batchId)

    def abort(self, messages: Messages, batchId: int) -> None:
        """Nothing: the intent may have been published already, and its files with it."""


def _gathered(messages: Messages) -> tuple[list[DataFile], str | None]:
    written = [message for message in messages if isinstance(message, FilesWritten)]
    files = [data_file for message in written for data_file in message.files]
    return files, next((message.query_id for message in written if message.query_id is not None), None)
