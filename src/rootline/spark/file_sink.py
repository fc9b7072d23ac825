"""The executor's side of a write: Arrow batches in, data files with statistics in the store, messages out.

Owns: buffering to the target file size, writing through the store, the message that carries the files to the driver.
Does not own: how a file is written (`rootline.client.write.data_file_writer`), publishing (`batch_commit`).
Invariants: one Parquet file per partition value and target size, not per Arrow batch; nothing is published here, so
files of a failed task are orphans that no reader sees.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from rootline.client.session.upload import upload_all
from rootline.client.write.data_file_writer import write_files
from rootline.schemas.intent import DataFile
from rootline.schemas.table_definition import TableDefinition
from rootline.spark.connection import guest_lake
from rootline.spark.options import SourceOptions
from rootline.spark.spark_types import batch_from_spark

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_ID_PROPERTY: Final = "sql.streaming.queryId"


@dataclass
class FilesWritten(WriterCommitMessage):
    """What one task wrote, and under which table and schema. `query_id`: the streaming query's, `None` in a batch."""

    files: tuple[DataFile, ...]
    table_uuid: uuid.UUID
    schema_id: int
    query_id: str | None = None


def write_task(batches: Iterable[pa.RecordBatch], definition: TableDefinition, options: SourceOptions) -> FilesWritten:
    """Write what one task was given. Raises `Invalid` when rows do not fit the table, `Unavailable` for the store."""
    files: list[DataFile] = []
    fitting = (batch_from_spark(batch, definition.schema) for batch in batches if batch.num_rows)
    for part in _parts(fitting, options.target_file_size_bytes):
        written = write_files(part, definition, _fresh_ids(), target_file_size_bytes=options.target_file_size_bytes)
        bodies = [(item.data_file.location, item.body) for item in written]
        guest_lake(options).holder.run(partial(upload_all, table=options.table, files=bodies))
        files.extend(item.data_file for item in written)
    context = TaskContext.get()
    query_id = None if context is None else context.getLocalProperty(QUERY_ID_PROPERTY)
    return FilesWritten(tuple(files), definition.table_uuid, definition.current_schema_id, query_id)


def _parts(batches: Iterable[pa.RecordBatch], part_bytes: int) -> Iterator[list[pa.RecordBatch]]:
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= part_bytes:
            yield held
            held, size = [], 0
    if held:
        yield held


def _fresh_ids() -> Iterator[uuid.UUID]:
    while True:
        yield uuid.uuid4()
