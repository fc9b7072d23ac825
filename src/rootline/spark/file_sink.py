"""The executor's side of a write: takes Arrow batches, writes data files with statistics to the store, returns
messages.

Owns: buffering to about the target file size, writing through the store, the message that reports the files to the
driver, the delete files of the option `upsert`. Does not own: writing one file (`data_file_writer`), publishing
(`batch_commit`).
Invariants: one Parquet file for each partition value and target size, not for each Arrow batch. Nothing is published
here, so files of a failed task are orphans that no reader sees. A delete file of an upsert has the identifier fields
only, and the partition of the rows that it may delete, so the spec may use identifier fields only. A batch with a
duplicate key is refused, because there is no order by which one of the rows is newer.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from rootline.client.data_file_writer import WrittenFile, checked_rows, write_files
from rootline.client.new_files import upload_all
from rootline.client.session import Session, oldest_date
from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.bytes.single_values import to_generic
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import DataFile, EqualityDeleteFile
from rootline.schemas.table_definition import SortOrder, TableDefinition
from rootline.spark.connection import guest_lake
from rootline.spark.options import PartitionMode, SourceOptions
from rootline.spark.replaced_rows import check_replaced
from rootline.spark.spark_types import batch_from_spark


def check_upsert(table: TableName, definition: TableDefinition) -> None:
    """Check that all rows with a key are in the partition to which an equality delete of that key applies.

    Raises:
        Invalid: `setting-invalid`. The message names what the table needs for upserts, such as identifier fields.
    """
    keys = set(definition.schema.identifier_field_ids)
    top = {field.field_id for field in definition.schema.fields}
    if not keys or not keys <= top:
        raise Invalid(
            "setting-invalid",
            f"{table}: option 'upsert' needs identifier fields, which identify a row: set them in the schema",
        )
    if len(definition.partition_specs) > 1:
        raise Invalid(
            "setting-invalid",
            f"{table}: its partitioning has changed, and an equality delete reaches files of one spec only: use "
            "rootline.spark.merge_into in foreachBatch",
        )
    members = definition.partition_specs[0].expr_ids
    sources = {source for member in members for source in _sources_of(definition, member)}
    if not sources <= keys:
        raise Invalid(
            "setting-invalid",
            f"{table}: it is partitioned by a column that is no identifier field, so a row may move to a partition "
            "that its delete does not reach: use rootline.spark.merge_into in foreachBatch",
        )


def delete_files(
    rows: Sequence[pa.RecordBatch], definition: TableDefinition, ids: Iterable[uuid.UUID]
) -> tuple[list[WrittenFile], list[EqualityDeleteFile], pa.Table]:
    """The files that delete older rows with the keys in `rows`, their entries in the intent, and the keys.

    Raises:
        Invalid: `rows-invalid`, a key is null or of another type.
    """
    keys = _of_keys(definition)
    names = [field.name for field in keys.schema.fields]
    table = pa.Table.from_batches(rows)
    missing = [name for name in names if name not in table.column_names]
    if missing:
        raise Invalid("rows-invalid", f"rows: the identifier field {missing[0]} is missing: add the column to the rows")
    own = table.select(names)
    codec = EntryCodec.of_definition(keys).statistics
    written = write_files(own, keys, ids)
    files = []
    for file in written:
        held = file.data_file
        statistics, _ = codec.decode(held.content_stats or b"")
        files.append(
            EqualityDeleteFile(
                location=held.location,
                partition_spec_id=held.partition_spec_id,
                record_count=held.record_count,
                file_size_in_bytes=held.file_size_in_bytes,
                statistics=to_generic(statistics, definition.tracked_by_id),
                split_offsets=held.split_offsets,
                equality_ids=tuple(sorted(field.field_id for field in keys.schema.fields)),
            )
        )
    return written, files, checked_rows(own, keys)


def check_keys(table: TableName, keys: Sequence[pa.Table]) -> None:
    """Check that no key is in a batch twice. Raises `Invalid` (`rows-invalid`)."""
    if not keys:
        return
    every = pa.concat_tables(keys)
    twice = len(every) - len(every.group_by(every.column_names).aggregate([]))
    if twice:
        raise Invalid(
            "rows-invalid",
            f"{table}: {twice} rows of the batch have the same identifier fields as another row of it, and their order "
            "is undefined: keep one row for each key (dropDuplicates, or a window over the order)",
        )


def _of_keys(definition: TableDefinition) -> TableDefinition:
    """The table's definition, reduced to its identifier fields."""
    ids = set(definition.schema.identifier_field_ids)
    fields = [field for field in definition.schema.fields if field.field_id in ids]
    members = set(definition.partition_specs[0].expr_ids)
    return replace(
        definition,
        schemas=(Schema(*fields, schema_id=definition.current_schema_id),),
        expressions=tuple(each for each in definition.expressions if each.expr_id in members),
        sort_orders=(SortOrder(0),),
        default_sort_order_id=0,
        past_layouts=(),
    )


def _sources_of(definition: TableDefinition, member: int) -> Sequence[int]:
    expression = definition.expressions_by_id.get(member)
    return (member,) if expression is None else expression.source_ids


QUERY_ID_PROPERTY: Final = "sql.streaming.queryId"
PARTITION_MODE_PROPERTY: Final = "spark.sql.sources.partitionOverwriteMode"
"""Spark passes the session's settings to its tasks only. The driver's Python worker does not have them."""

_HELD_TARGETS_MAX: Final = 2
_SAMPLE_BYTES: Final = 8 * 1024 * 1024


@dataclass
class FilesWritten(WriterCommitMessage):
    """The files of one task, with the table and schema. `query_id`: of a streaming query, `None` in a batch.

    `oldest_ms`: the time of its first upload, in the store's milliseconds, or `None` if unknown. `session_mode`: the
    session's setting for the rows that an overwrite replaces. `deletes`, `keys`: of an upsert, the delete files and
    their keys.
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
    """Write the rows of one task. `write` makes files of rows, as `write_files` does.

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
        del part, written, of_keys, bodies  # free the memory before the rows of the next files are collected
    said = (_said(QUERY_ID_PROPERTY), oldest_date(dates), _session_mode(), tuple(deletes))
    all_keys = pa.concat_tables(keys) if keys else None
    return FilesWritten(tuple(files), definition.table_uuid, definition.current_schema_id, *said, all_keys)


def _said(name: str) -> str | None:
    """The value of a local property that Spark sets for its tasks. `None`: not set, or not in a task."""
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)


def _session_mode() -> PartitionMode:
    is_dynamic = (_said(PARTITION_MODE_PROPERTY) or "").lower() == PartitionMode.DYNAMIC
    return PartitionMode.DYNAMIC if is_dynamic else PartitionMode.STATIC


async def _uploaded(session: Session, table: TableName, files: Sequence[tuple[str, bytes]]) -> int | None:
    await upload_all(session, table, files)
    return session.uploads.oldest(table, [location for location, _ in files])


def parts_of(batches: Iterable[pa.RecordBatch], target_bytes: int) -> Iterator[list[pa.RecordBatch]]:
    """Batches in groups for files of about `target_bytes`, estimated by the compression of a sample of each group.

    A group never takes more than twice that in memory, so files of highly compressible rows are smaller.
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
    """The compression ratio of the first batches: bytes in a file for one byte in memory."""
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
