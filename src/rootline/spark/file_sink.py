"""The executor's side of a write: Arrow batches in, data files with statistics in the store, messages out.

Owns: buffering to the target file size, writing through the store, the message that carries the files to the driver.
Does not own: how a file is written (`rootline.client.write.data_file_writer`), publishing (`batch_commit`).
Invariants: one Parquet file per partition value and target size, not per Arrow batch; nothing is published here, so
files of a failed task are orphans that no reader sees.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from rootline.client.session.session import Session
from rootline.client.session.upload import upload_all
from rootline.client.session.upload_dates import oldest_date
from rootline.client.write.data_file_writer import write_files
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import DataFile
from rootline.schemas.table_definition import TableDefinition
from rootline.spark.connection import guest_lake
from rootline.spark.options import PartitionMode, SourceOptions
from rootline.spark.replaced_rows import check_replaced
from rootline.spark.spark_types import batch_from_spark

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_ID_PROPERTY: Final = "sql.streaming.queryId"
PARTITION_MODE_PROPERTY: Final = "spark.sql.sources.partitionOverwriteMode"
"""Spark hands the session's settings to its tasks; the driver's Python worker does not see them."""


@dataclass
class FilesWritten(WriterCommitMessage):
    """What one task wrote, and under which table and schema. `query_id`: the streaming query's, `None` in a batch.

    `oldest_ms`: when it uploaded the first of its files, in the store's milliseconds; `None`: that is not known.
    `session_mode`: what the session says that an overwrite replaces.
    """

    files: tuple[DataFile, ...]
    table_uuid: uuid.UUID
    schema_id: int
    query_id: str | None = None
    oldest_ms: int | None = None
    session_mode: PartitionMode = PartitionMode.STATIC


def write_task(batches: Iterable[pa.RecordBatch], definition: TableDefinition, options: SourceOptions) -> FilesWritten:
    """Write what one task was given. Raises `Invalid` when rows do not fit the table, `Unavailable` for the store."""
    files: list[DataFile] = []
    dates: list[int | None] = []
    fitting = (batch_from_spark(batch, definition.schema) for batch in batches if batch.num_rows)
    for part in _parts(fitting, options.target_file_size_bytes):
        if options.replace_where is not None:
            check_replaced(part, definition, options.replace_where)
        written = write_files(part, definition, _fresh_ids(), target_file_size_bytes=options.target_file_size_bytes)
        bodies = [(item.data_file.location, item.body) for item in written]
        uploaded_ms = guest_lake(options).holder.run(partial(_uploaded, table=options.table, files=bodies))
        dates.append(uploaded_ms)
        files.extend(item.data_file for item in written)
    said = (_said(QUERY_ID_PROPERTY), oldest_date(dates), _session_mode())
    return FilesWritten(tuple(files), definition.table_uuid, definition.current_schema_id, *said)


def _said(name: str) -> str | None:
    """What Spark tells its tasks."""
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)


def _session_mode() -> PartitionMode:
    is_dynamic = (_said(PARTITION_MODE_PROPERTY) or "").lower() == PartitionMode.DYNAMIC
    return PartitionMode.DYNAMIC if is_dynamic else PartitionMode.STATIC


async def _uploaded(session: Session, table: TableName, files: Sequence[tuple[str, bytes]]) -> int | None:
    await upload_all(session, table, files)
    return session.uploads.oldest(table, [location for location, _ in files])


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
