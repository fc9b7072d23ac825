"""Option `upsert`: a task's rows replace those with the same identifier fields, by an equality delete beside them.

Owns: whether a table can be upserted to, the delete files of a task, and finding keys that a batch has twice. Does not
own: data files (`file_sink`), the intent (`batch_commit`).
Invariants: a delete file holds the identifier fields only; it is of the partition of the rows that it may delete, so
the spec is over identifier fields alone; a batch that has a key twice is refused, because no order says which is newer.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.schema import Schema

from rootline.client.data_file_writer import WrittenFile, checked_rows, write_files
from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.bytes.single_values import to_generic
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import EqualityDeleteFile
from rootline.schemas.table_definition import SortOrder, TableDefinition

if TYPE_CHECKING:
    from rootline.schemas.identifiers import TableName


def check_upsert(table: TableName, definition: TableDefinition) -> None:
    """Check that rows with a key can only be where an equality delete of that key reaches.

    Raises:
        Invalid: `setting-invalid`, saying what the table lacks.

    """
    keys = set(definition.schema.identifier_field_ids)
    top = {field.field_id for field in definition.schema.fields}
    if not keys or not keys <= top:
        raise Invalid(
            "setting-invalid",
            f"{table}: option 'upsert' needs identifier fields, which say what row is the same: set them in the schema",
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
    """Files that delete older rows of the keys in `rows`, to store; the same as an intent names them; and the keys.

    Raises:
        Invalid: `rows-invalid`, a key is null or of another type.

    """
    keys = _of_keys(definition)
    names = [field.name for field in keys.schema.fields]
    table = pa.Table.from_batches(rows)
    missing = [name for name in names if name not in table.column_names]
    if missing:
        raise Invalid("rows-invalid", f"rows: column {missing[0]} is an identifier field, and the rows have none")
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
            f"{table}: {twice} rows of the batch have the identifier fields of another row of it, and nothing says "
            "which is newer: leave one for each key (dropDuplicates, or a window over the order)",
        )


def _of_keys(definition: TableDefinition) -> TableDefinition:
    """The table's definition, as if it had its identifier fields alone."""
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
