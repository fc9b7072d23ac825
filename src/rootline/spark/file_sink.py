"""The executor's side of a write: Arrow batches in, data files with statistics in the store, messages out.

Owns: buffering to about the target file size, writing through the store, the message that carries the files to the
driver. Does not own: how a file is written (`rootline.client.data_file_writer`), publishing (`batch_commit`).
Invariants: one Parquet file per partition value and target size, not per Arrow batch; nothing is published here, so
files of a failed task are orphans that no reader sees.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from rootline.client.data_file_writer import WrittenFile, write_files
from rootline.client.new_files import upload_all
from rootline.client.session import Session, oldest_date
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import DataFile, EqualityDeleteFile
from rootline.schemas.table_definition import TableDefinition
from rootline.spark.connection import guest_lake
from rootline.spark.options import PartitionMode, SourceOptions
from rootline.spark.replaced_rows import check_replaced
from rootline.spark.spark_types import batch_from_spark
from rootline.spark.upsert_files import delete_files

QUERY_ID_PROPERTY: Final = "sql.streaming.queryId"
PARTITION_MODE_PROPERTY: Final = "spark.sql.sources.partitionOverwriteMode"
"""Spark hands the session's settings to its tasks; the driver's Python worker does not see them."""

_HELD_TARGETS_MAX: Final = 2
_SAMPLE_BYTES: Final = 8 * 1024 * 1024


@dataclass
class FilesWritten(WriterCommitMessage):
    """What one task wrote, and under which table and schema. `query_id`: the streaming query's, `None` in a batch.

    `oldest_ms`: when it uploaded the first of its files, in the store's milliseconds; `None`: that is not known.
    `session_mode`: what the session says that an overwrite replaces. `deletes`, `keys`: of an upsert, the delete files
    and the keys in them.
    """

    files: tuple[DataFile, ...]
    table_uuid: uuid.UUID
    schema_id: int
    query_id: str | None = None
    oldest_ms: int | None = None
    session_mode: PartitionMode = PartitionMode.STATIC
    deletes: tuple[EqualityDeleteFile, ...] = ()
    keys: pa.Table | None = None


def write_task(
    batches: Iterable[pa.RecordBatch],
    definition: TableDefinition,
    options: SourceOptions,
    write: Callable[..., list[WrittenFile]] = write_files,
) -> FilesWritten:
    """Write what one task was given; `write` makes files of rows, as `write_files` does.

    Raises:
        Invalid: rows do not fit the table.
        Unavailable: `store-unavailable`.

    """
    files: list[DataFile] = []
    dates: list[int | None] = []
    deletes: list[EqualityDeleteFile] = []
    keys: list[pa.Table] = []
    fitting = (batch_from_spark(batch, definition.schema) for batch in batches if batch.num_rows)
    for part in parts_of(fitting, options.target_file_size_bytes):
        if options.replace_where is not None:
            check_replaced(part, definition, options.replace_where)
        written = write(part, definition, _fresh_ids(), target_file_size_bytes=options.target_file_size_bytes)
        of_keys: list[WrittenFile] = []
        if options.upsert:
            of_keys, of_part, part_keys = delete_files(part, definition, _fresh_ids())
            deletes.extend(of_part)
            keys.append(part_keys)
        bodies = [(item.data_file.location, item.body) for item in (*written, *of_keys)]
        uploaded_ms = guest_lake(options).holder.run(partial(_uploaded, table=options.table, files=bodies))
        dates.append(uploaded_ms)
        files.extend(item.data_file for item in written)
        del part, written, of_keys, bodies  # or they are in memory while the rows of the next files are collected
    said = (_said(QUERY_ID_PROPERTY), oldest_date(dates), _session_mode(), tuple(deletes))
    all_keys = pa.concat_tables(keys) if keys else None
    return FilesWritten(tuple(files), definition.table_uuid, definition.current_schema_id, *said, all_keys)


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


def parts_of(batches: Iterable[pa.RecordBatch], target_bytes: int) -> Iterator[list[pa.RecordBatch]]:
    """Batches in groups that make files of about `target_bytes`, by how well a part of each group compresses.

    A group never holds more than twice that in memory, so files of what compresses well stay smaller.
    """
    held: list[pa.RecordBatch] = []
    size = 0
    ratio: float | None = None
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size < target_bytes:
            continue
        ratio = _compressed(held) if ratio is None else ratio
        if size * ratio >= target_bytes or size >= _HELD_TARGETS_MAX * target_bytes:
            yield held
            held, size, ratio = [], 0, None
    if held:
        yield held


def _compressed(batches: Sequence[pa.RecordBatch]) -> float:
    """How many bytes of a file one byte in memory becomes, of the first batches."""
    sample: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        sample.append(batch)
        size += batch.nbytes
        if size >= _SAMPLE_BYTES:
            break
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_batches(sample), sink, compression="zstd")
    return int(sink.tell()) / max(size, 1)


def _fresh_ids() -> Iterator[uuid.UUID]:
    while True:
        yield uuid.uuid4()
