"""The executor's side of a write: takes Arrow batches, writes data files with statistics to the store, returns
messages.

Owns: grouping batches into pieces, writing through the store, the message that reports the files to the driver, the
delete files of the option `upsert`. Does not own: files and the rows that wait for them (`data_file_writer`),
publishing (`batch_commit`).
Invariants: row groups are made from many Arrow batches, not from each. Only a few bytes of rows and files are in memory
(`FileStream`), however many rows and partitions a task has. Nothing is published here, so files of a failed task are
orphans that no reader sees. A delete file of an upsert has the identifier fields only, and the partition of the rows
that it may delete, so the spec may use identifier fields only. A batch with a duplicate key is refused, because neither
of the two rows is newer.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import pyarrow as pa
from pyiceberg.schema import Schema
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from rootline.client.data_file_writer import FileStream, WrittenFile, checked_rows, write_files
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


def key_rows(rows: Sequence[pa.RecordBatch], definition: TableDefinition) -> pa.Table:
    """A copy of the identifier fields of `rows`. The memory of the other columns is not kept.

    Raises:
        Invalid: `rows-invalid`, a key is missing, null or of another type.
    """
    keys = _of_keys(definition)
    names = [field.name for field in keys.schema.fields]
    table = pa.Table.from_batches(rows)
    missing = [name for name in names if name not in table.column_names]
    if missing:
        raise Invalid("rows-invalid", f"rows: the identifier field {missing[0]} is missing: add the column to the rows")
    own = checked_rows(table.select(names), keys)
    return own.take(pa.array(range(len(own))))


def delete_files(
    keys: pa.Table, definition: TableDefinition, ids: Iterable[uuid.UUID]
) -> tuple[list[WrittenFile], list[EqualityDeleteFile]]:
    """The files that delete older rows with these keys, and their entries in the intent."""
    own = _of_keys(definition)
    codec = EntryCodec.of_definition(own).statistics
    written = write_files(keys, own, ids)
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
                equality_ids=tuple(sorted(field.field_id for field in own.schema.fields)),
            )
        )
    return written, files


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

_PIECE_BYTES: Final = 16 * 1024 * 1024


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
    rows_of: Callable[[list[pa.RecordBatch], TableDefinition], pa.Table] = checked_rows,
) -> FilesWritten:
    """Write the rows of one task. `rows_of` returns rows in the table's schema, as `checked_rows` does.

    Raises:
        Invalid: rows do not fit the table.
        Unavailable: `store-unavailable`.
    """
    files: list[DataFile] = []
    dates: list[int | None] = []
    deletes: list[EqualityDeleteFile] = []
    keys: list[pa.Table] = []
    target = options.target_file_size_bytes
    stream = FileStream(definition, _fresh_ids(), target)

    def upload(written: Sequence[WrittenFile]) -> None:
        if written:
            bodies = [(item.data_file.location, item.body) for item in written]
            dates.append(guest_lake(options).holder.run(partial(_uploaded, table=options.table, files=bodies)))

    def store(written: Sequence[WrittenFile]) -> None:
        upload(written)
        files.extend(item.data_file for item in written)

    fitting = (batch_from_spark(batch, definition.schema) for batch in batches if batch.num_rows)
    for piece in pieces_of(fitting, min(_PIECE_BYTES, target)):
        if options.replace_where is not None:
            check_replaced(piece, definition, options.replace_where)
        if options.upsert:
            keys.append(key_rows(piece, definition))
        store(stream.add(rows_of(piece, definition)))
        piece.clear()  # free the memory while the next batches are collected
    store(stream.finish())
    all_keys = pa.concat_tables(keys) if keys else None
    if all_keys is not None:
        of_keys, deletes = delete_files(all_keys, definition, _fresh_ids())
        upload(of_keys)
    said = (_said(QUERY_ID_PROPERTY), oldest_date(dates), _session_mode(), tuple(deletes))
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


def pieces_of(batches: Iterable[pa.RecordBatch], least_bytes: int) -> Iterator[list[pa.RecordBatch]]:
    """Batches in pieces of about `least_bytes`, so that rows are split by partition a few times only.

    A batch of several pieces is sliced.
    """
    piece: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        rows = max(1, least_bytes * batch.num_rows // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, rows):
            piece.append(batch.slice(start, rows))
            size += piece[-1].nbytes
            if size >= least_bytes:
                yield piece
                piece, size = [], 0
    if piece:
        yield piece


def _fresh_ids() -> Iterator[uuid.UUID]:
    while True:
        yield uuid.uuid4()
