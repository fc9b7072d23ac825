"""Writing Arrow rows as Parquet data files of a table, with exact statistics.

Owns: checking rows against the schema, writing Parquet, choosing the columns with a dictionary, describing each file,
the rows and files of a stream that are in memory.
Does not own: splitting and sorting (`partition_split`), statistics (`column_statistics`), the store. It returns bytes.
Invariants: a file has one partition. Every field carries its id. Statistics describe exactly the rows of the file. The
same rows and ids produce the same files. A column is written without a dictionary only if nearly all sampled values
differ, because Parquet's writer would build a dictionary and then drop it.
"""

from __future__ import annotations

import contextlib
import io
import re
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rootline.client.column_statistics import (
    ColumnPath,
    ColumnTally,
    column_paths,
    derived_columns,
    partition_statistics,
)
from rootline.client.partition_split import (
    PartitionPart,
    partition_folder,
    rows_by_partition,
    sorted_rows,
    split_by_partition,
)
from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.content_entry import Bound, ContentStats, FieldStatistics
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import DataFile
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.rows.arrow_types import arrow_field_of, arrow_schema_of, may_cast, storage_of
from rootline.storage.rows.metadata_columns import LAST_UPDATED, LINEAGE, ROW_ID, may_state_lineage, metadata_field
from rootline.storage.rows.row_projection import RowProjection, find_by_name, write_default

_STRETCHES: Final = 32
_STRETCH_ROWS: Final = 128
_SAMPLE_BYTES: Final = 4 * 1024 * 1024
"""Of a column. Parquet's writer drops a dictionary above a megabyte, so values that fit into one repeat in it."""
_DIFFERENT_SHARE: Final = 0.99
"""The distinct share of 4,096 samples of 200,000 values."""


def dictionary_columns(rows: pa.Table) -> list[str]:
    """Parquet paths of the columns of `rows` that are written with a dictionary."""
    return [
        path
        for name, column in zip(rows.column_names, rows.columns, strict=True)
        if not _is_all_different(column)
        for path in _paths(name, column.type)
    ]


def _sampled(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Sampled ranges from all over the column, which show both equal neighbours and values that repeat later."""
    rows = min(_STRETCH_ROWS, max(1, _SAMPLE_BYTES * len(column) // max(1, column.nbytes) // _STRETCHES))
    if len(column) <= _STRETCHES * rows:
        return column
    step = len(column) // _STRETCHES
    return pa.chunked_array([c for at in range(_STRETCHES) for c in column.slice(at * step, rows).chunks], column.type)


def _is_all_different(column: pa.ChunkedArray) -> bool:
    if pa.types.is_nested(column.type) or pa.types.is_boolean(column.type):
        return False
    column = _sampled(column)
    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.chunked_array([storage_of(chunk) for chunk in column.chunks], column.type.storage_type)
    if column.null_count == len(column):
        return False
    different: int = pc.count_distinct(column).as_py()
    return different > _DIFFERENT_SHARE * len(column)


def _paths(name: str, kind: pa.DataType) -> Iterator[str]:
    """Yield the Parquet paths of the primitive columns inside the column `name`. Parquet adds levels such as
    `list.element` to lists and maps.
    """
    if pa.types.is_struct(kind):
        for at in range(kind.num_fields):
            yield from _paths(f"{name}.{kind.field(at).name}", kind.field(at).type)
    elif pa.types.is_map(kind):
        yield from _paths(f"{name}.key_value.key", kind.key_type)
        yield from _paths(f"{name}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind):
        yield from _paths(f"{name}.list.element", kind.value_type)
    else:
        yield name


TARGET_FILE_SIZE_BYTES: Final = 256 * 1024 * 1024
_ROW_GROUP_BYTES: Final = 64 * 1024 * 1024
_COLUMN_BYTES_MIN: Final = 16 * 1024
"""The bytes of a column's rows in a small row group of a stream. A file of fewer rows gets no other row group."""
_WAITING_BYTES_MAX: Final = 48 * 1024 * 1024
_WAITING_SORTED_BYTES_MAX: Final = 80 * 1024 * 1024
"""The bytes of rows that wait in a stream, of all partitions together, beside the piece that is added. A sorted table
has no open files beside them.
"""
_KEPT_SHARE: Final = 0.5
"""Of the limit: the rows of small partitions that continue to wait."""
_OPEN_FILES_MAX: Final = 320
"""In a stream. An open file takes about 350 kB of memory beside its bytes."""
_ROW_GROUP_ROWS_MIN: Final = 256
_ROW_GROUP_ROWS_MAX: Final = 1_048_576


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A data file to add, and its bytes. Store `body` at `data_file.location` below the table's folder before you
    publish.
    """

    data_file: DataFile
    body: bytes


@dataclass(frozen=True, slots=True)
class Ordered:
    """Rows that keep their order. `sort_order_id` is the table's sort order that they follow, or `None`."""

    sort_order_id: int | None


def write_files(
    table: pa.Table | pa.RecordBatch | Iterable[pa.RecordBatch],
    definition: TableDefinition,
    fresh_ids: Iterable[uuid.UUID],
    *,
    target_file_size_bytes: int = TARGET_FILE_SIZE_BYTES,
) -> list[WrittenFile]:
    """Files of the rows of `table`, under the definition's current schema and default spec. No rows make no file.

    Columns are found by name. `fresh_ids` yields an id for each file's name. A file is closed once it has
    `target_file_size_bytes`.

    Raises:
        Invalid: `rows-invalid`, naming the column that does not fit; `definition-invalid`.
    """
    return _files_of(checked_rows(table, definition), definition, fresh_ids, target_file_size_bytes)


def write_rewritten_files(
    rows: pa.Table,
    definition: TableDefinition,
    fresh_ids: Iterable[uuid.UUID],
    *,
    target_file_size_bytes: int = TARGET_FILE_SIZE_BYTES,
    ordered: Ordered | None = None,
) -> list[WrittenFile]:
    """Files of rows that the table already has. The last two columns of `rows` are their lineage (`_row_id`,
    `_last_updated_sequence_number`), and are written too.

    `ordered`: keep the rows' order. `None`: they are sorted in the table's sort order.

    Raises the errors of `rewritten_rows`.
    """
    return _files_of(rewritten_rows(rows, definition), definition, fresh_ids, target_file_size_bytes, ordered)


def rewritten_rows(rows: pa.Table, definition: TableDefinition) -> pa.Table:
    """Rows that the table already has, in the current schema, with their lineage in the last two columns.

    Raises:
        Invalid: `rows-invalid`, the table has a user column with a name of the lineage.
    """
    for name in LINEAGE:
        if any(field.name == name for field in definition.schema.fields):
            raise Invalid(
                "rows-invalid",
                f"the table's own column {name!r} has the name of the column in which rewritten rows keep their "
                "row id: rename it, then rewrite the files",
            )
    checked = _projected(rows.drop_columns([*LINEAGE]), definition)
    for name in LINEAGE:
        field = metadata_field(name, definition)
        assert field is not None, "one of the metadata columns"
        checked = checked.append_column(arrow_field_of(field), rows.column(name))
    return checked


def write_changed_files(
    rows: pa.Table | Sequence[pa.RecordBatch],
    definition: TableDefinition,
    fresh_ids: Iterable[uuid.UUID],
    *,
    target_file_size_bytes: int = TARGET_FILE_SIZE_BYTES,
) -> list[WrittenFile]:
    """Files of new and updated rows. An updated row keeps the id in its column `_row_id`, which is null in a new row.

    Raises the errors of `write_files`.
    """
    return _files_of(changed_rows(rows, definition), definition, fresh_ids, target_file_size_bytes)


def changed_rows(rows: pa.Table | Sequence[pa.RecordBatch], definition: TableDefinition) -> pa.Table:
    """New and updated rows in the current schema. They have their lineage only if one of them has a `_row_id`.

    Raises the errors of `checked_rows`.
    """
    given = rows if isinstance(rows, pa.Table) else pa.Table.from_batches(rows)
    if ROW_ID not in given.column_names or not may_state_lineage(definition):
        return checked_rows(given, definition)
    if given.column(ROW_ID).null_count == len(given):
        return checked_rows(given.drop_columns([ROW_ID]), definition)
    given = given.append_column(LAST_UPDATED, pa.nulls(len(given), pa.int64()))
    return rewritten_rows(given, definition)


def _files_of(
    rows: pa.Table,
    definition: TableDefinition,
    fresh_ids: Iterable[uuid.UUID],
    target_bytes: int,
    given: Ordered | None = None,
) -> list[WrittenFile]:
    paths = column_paths(definition.schema)
    spec = definition.spec_by_id(definition.default_spec_id)
    describe = FileDescriber(definition, paths)
    ids = iter(fresh_ids)
    written: list[WrittenFile] = []
    with _text_checked(rows):
        for part in split_by_partition(rows, definition, spec, paths):
            ordered, sort_order_id = (
                (part.rows, given.sort_order_id) if given is not None else _in_order(part, definition, paths)
            )
            for file in _parquet_files(ordered, describe, part.values, target_bytes):
                written.append(file.closed(next(ids), sort_order_id))
    return written


@contextlib.contextmanager
def _text_checked(rows: pa.Table) -> Iterator[None]:
    """Raise an error of the block about bytes that are not UTF-8 as `Invalid` (`rows-invalid`), naming the column."""
    try:
        yield
    except UnicodeDecodeError as error:
        check_texts(rows)
        raise Invalid("rows-invalid", f"rows: a text is not UTF-8: {error}; correct it") from error


def check_texts(rows: pa.Table, name: str = "rows", first_row: int = 0) -> None:
    """Check that all texts are UTF-8, at every depth, because other readers refuse a file with one that is not.

    `name`, `first_row`: of the rows, in errors.

    Raises:
        Invalid: `rows-invalid`, naming the column.
    """
    for label, column in zip(rows.column_names, rows.columns, strict=True):
        row = first_row
        for chunk in column.chunks:
            try:
                chunk.validate(full=True)
            except pa.ArrowInvalid as fault:
                if "UTF8" in str(fault):  # Arrow's own casts break other rules, without harm
                    raise _not_utf8(f"{name}: column {label}", chunk, row, str(fault)) from fault
            row += len(chunk)


def _not_utf8(name: str, texts: pa.Array, first_row: int, fault: str) -> Invalid:
    found = re.search(r"string index (\d+)", fault)
    is_text = pa.types.is_string(texts.type)
    where = f"row {first_row + int(found[1])} (the first is 0)" if found and is_text else "a row"
    return Invalid(
        "rows-invalid", f"{name}: {where} has bytes that are not UTF-8; correct them, or give a binary column"
    )


def checked_rows(table: pa.Table | pa.RecordBatch | Iterable[pa.RecordBatch], definition: TableDefinition) -> pa.Table:
    """The rows of `table` in the current schema: its columns, types and order.

    Raises:
        Invalid: `rows-invalid`, naming the column.
    """
    rows = _projected(table, definition)
    check_texts(rows)
    return rows


def _projected(table: pa.Table | pa.RecordBatch | Iterable[pa.RecordBatch], definition: TableDefinition) -> pa.Table:
    schema = definition.schema
    given = _batches_of(table)
    checked: pa.Schema | None = None
    for batch in given:
        if batch.schema is not checked and batch.schema != checked:
            check_names(batch.schema.names, definition)
        checked = batch.schema
    projection = RowProjection(find_by_name, write_default, "rows-invalid", "rows", accepts=may_cast)
    checked_batches, first_row = [], 0
    for batch in given:
        checked_batches.append(replace(projection, first_row=first_row).columns(batch, schema.fields))
        first_row += batch.num_rows
    return pa.Table.from_batches(checked_batches, arrow_schema_of(schema))


def check_names(names: Sequence[str], definition: TableDefinition) -> None:
    """Check that the table has every named column, and that no name occurs twice. Raises `Invalid` (`rows-invalid`)."""
    known = [field.name for field in definition.schema.fields]
    for name in names:
        if name not in known:
            alike = [column for column in known if column.casefold() == name.casefold()]
            has = f"{alike[0]!r}, and names are case-sensitive" if alike else ", ".join(known[:40])
            add = "drop it, or add it to the table (table.alter, or merge_schema=True in append and overwrite)"
            step = "rename it" if alike else add
            raise Invalid("rows-invalid", f"rows: there is no column {name!r}; the table has {has}: {step}")
        if names.count(name) > 1:
            raise Invalid("rows-invalid", f"rows: column {name!r} is given more than once")


def _batches_of(table: pa.Table | pa.RecordBatch | Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if isinstance(table, pa.Table):
        found: list[pa.RecordBatch] = table.to_batches()
        return found or [
            pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in table.schema.types], table.column_names)
        ]
    return [table] if isinstance(table, pa.RecordBatch) else list(table)


def _in_order(
    part: PartitionPart, definition: TableDefinition, paths: dict[int, ColumnPath]
) -> tuple[pa.Table, int | None]:
    order = definition.default_sort_order
    ordered = None if order is None else sorted_rows(part.rows, order, paths)
    return (part.rows, None) if order is None or ordered is None else (ordered, order.order_id)


class _OpenFile:
    """A data file that is written row group by row group."""

    def __init__(
        self, schema: pa.Schema, dictionaries: list[str], describe: FileDescriber, values: dict[int, Bound | None]
    ) -> None:
        self._describe, self._values = describe, values
        self._tallies: dict[int, ColumnTally] = {}
        self._row_count = 0
        self._sink = io.BytesIO()  # hands its bytes over without a copy
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            compression="zstd",
            use_dictionary=dictionaries,
            write_page_checksum=True,
            store_schema=False,
        )

    @property
    def size(self) -> int:
        """The number of bytes until now."""
        return self._sink.tell()

    def add(self, group: pa.Table) -> None:
        """Write a row group."""
        self._writer.write_table(group, row_group_size=group.num_rows)
        for tracked_id, tally in self._describe.tallies(group, self._values).items():
            known = self._tallies.get(tracked_id)
            self._tallies[tracked_id] = tally if known is None else known + tally
        self._row_count += group.num_rows

    def closed(self, file_id: uuid.UUID, sort_order_id: int | None) -> WrittenFile:
        """The complete file."""
        self._writer.close()
        body = self._sink.getvalue()
        location = f"data/{partition_folder(self._describe.definition, self._values)}{file_id}.parquet"
        statistics = self._describe.statistics(self._tallies, self._row_count, self._values)
        offsets = split_offsets_of(pq.read_metadata(pa.BufferReader(body)))
        described = self._describe.described(location, self._row_count, len(body), statistics, sort_order_id, offsets)
        return WrittenFile(described, body)


def _parquet_files(
    rows: pa.Table, describe: FileDescriber, values: dict[int, Bound | None], target_bytes: int
) -> Iterator[_OpenFile]:
    group_bytes = min(_ROW_GROUP_BYTES, max(target_bytes, 1))
    per_row = max(1, rows.nbytes // rows.num_rows)
    group_rows = min(_ROW_GROUP_ROWS_MAX, max(_ROW_GROUP_ROWS_MIN, group_bytes // per_row))
    dictionaries = dictionary_columns(rows)
    file: _OpenFile | None = None
    for start in range(0, rows.num_rows, group_rows):
        file = file or _OpenFile(rows.schema, dictionaries, describe, values)
        file.add(rows.slice(start, group_rows))
        if file.size >= target_bytes:
            yield file
            file = None
    if file is not None:
        yield file


class FileStream:
    """Files of rows that arrive in pieces, with a limit on the memory of rows and files together.

    Rows of all partitions wait together. If they exceed their limit, the partitions with the most of them are written
    as row groups. If open files exceed `target_bytes` together, the largest is closed. A file in the table's sort
    order, with only a few rows, or beside too many open files, is closed at once.

    Waiting rows are not split, because a row in its own Arrow table takes 800 bytes a column.
    """

    def __init__(self, definition: TableDefinition, fresh_ids: Iterable[uuid.UUID], target_bytes: int) -> None:
        self._definition = definition
        self._paths = column_paths(definition.schema)
        self._spec = definition.spec_by_id(definition.default_spec_id)
        self._describe = FileDescriber(definition, self._paths)
        self._is_sorted = definition.default_sort_order is not None
        self._ids = iter(fresh_ids)
        self._target_bytes = target_bytes
        self._group_bytes = min(_ROW_GROUP_BYTES, target_bytes)
        waiting_max = _WAITING_SORTED_BYTES_MAX if self._is_sorted else _WAITING_BYTES_MAX
        is_one_group = not self._is_sorted and not self._spec.expr_ids
        self._rows_max = min(waiting_max, target_bytes if is_one_group else 2 * target_bytes)
        self._waiting: dict[tuple[str, ...], list[pa.Table]] = {}
        self._files: dict[tuple[str, ...], _OpenFile] = {}

    @property
    def buffered_bytes(self) -> int:
        """The bytes of all rows and open files."""
        return self._waiting_bytes() + sum(file.size for file in self._files.values())

    def _waiting_bytes(self) -> int:
        return sum(rows.nbytes for pieces in self._waiting.values() for rows in pieces)

    def add(self, rows: pa.Table) -> list[WrittenFile]:
        """Take a piece of checked rows, and return the files that are complete.

        Raises:
            Invalid: `rows-invalid`, naming the column; `definition-invalid`.
        """
        if rows.num_rows:
            self._waiting.setdefault(tuple(rows.column_names), []).append(rows)
        done: list[WrittenFile] = []
        while (size := self._waiting_bytes()) >= self._rows_max:
            done += self._settled(_KEPT_SHARE * self._rows_max / size)
        while sum(file.size for file in self._files.values()) > self._target_bytes:
            largest = max(self._files, key=lambda key: self._files[key].size)
            done.append(self._files.pop(largest).closed(next(self._ids), None))
        return done

    def finish(self) -> list[WrittenFile]:
        """The files of all rows that are not in a complete file yet."""
        done = self._settled(0)
        done += [file.closed(next(self._ids), None) for file in self._files.values()]
        self._files.clear()
        return done

    def _settled(self, kept_share: float) -> list[WrittenFile]:
        """Write the waiting rows, except about `kept_share` of them, in the smallest partitions.

        Returns the files that are complete.
        """
        done: list[WrittenFile] = []
        for names, pieces in list(self._waiting.items()):
            rows = pa.concat_tables(pieces)
            with _text_checked(rows):
                parts = list(rows_by_partition(rows, self._definition, self._spec, self._paths))
            parts.sort(key=lambda part: len(part.numbers))
            if self._is_sorted or len(parts) > 1:
                rows = rows.combine_chunks()  # otherwise each copy of some rows would combine them
            pieces.clear()
            ends = np.cumsum([len(part.numbers) for part in parts])
            kept = min(int(np.searchsorted(ends, kept_share * rows.num_rows, "right")), len(parts) - 1)
            if len(parts) > 1:
                order, start = np.concatenate([part.numbers for part in parts]), int(ends[kept - 1]) if kept else 0
                pieces += [rows.take(pa.array(np.sort(order[:start])))] if kept else []
                rows = rows.take(pa.array(order[start:]))
            if not pieces:
                del self._waiting[names]
            whole, at, end = [rows], 0, rows.num_rows
            del rows  # the last partition is sorted without the other copy of all rows
            for part in parts[kept:]:
                start, at = at, at + len(part.numbers)
                done += self._written((whole.pop() if at == end else whole[0]).slice(start, at - start), part.values)
        pa.default_memory_pool().release_unused()
        return done

    def _written(self, rows: pa.Table, values: dict[int, Bound | None]) -> list[WrittenFile]:
        """Write rows of a partition, and return the files that are complete."""
        size, names, sort_order_id = rows.nbytes, rows.column_names, None
        key = (*map(repr, values.values()), *names[len(self._definition.schema.fields) :])
        file, done = self._files.pop(key, None), list[WrittenFile]()
        if self._is_sorted:
            with _text_checked(rows):  # until then, this block keeps the rows in their old order
                rows, sort_order_id = _in_order(PartitionPart(rows, values), self._definition, self._paths)
        with _text_checked(rows):
            for group in _even_groups(rows, self._group_bytes):
                file = file or _OpenFile(rows.schema, dictionary_columns(group), self._describe, values)
                file.add(group)
                if file.size >= self._target_bytes:
                    done.append(file.closed(next(self._ids), sort_order_id))
                    file = None
        if file is not None:
            is_small = size < min(_COLUMN_BYTES_MIN * len(names), self._group_bytes // 16)
            if self._is_sorted or is_small or len(self._files) >= _OPEN_FILES_MAX:
                done.append(file.closed(next(self._ids), sort_order_id))
            else:
                self._files[key] = file
        return done


def _even_groups(rows: pa.Table, group_bytes: int) -> Iterator[pa.Table]:
    """Yield the rows in groups of about the same number of rows, and of about `group_bytes`."""
    count = max(1, round(rows.nbytes / group_bytes), -(-rows.num_rows // _ROW_GROUP_ROWS_MAX))
    group_rows = max(_ROW_GROUP_ROWS_MIN, -(-rows.num_rows // count))
    for start in range(0, rows.num_rows, group_rows):
        yield rows.slice(start, group_rows)


def split_offsets_of(metadata: pq.FileMetaData) -> tuple[int, ...]:
    """The byte offsets where the row groups of a Parquet file begin."""
    found: list[int] = []
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        if group.num_columns:
            column = group.column(0)
            offsets = [column.data_page_offset, column.dictionary_page_offset]
            found += sorted(offset for offset in offsets if offset)[:1]  # none: a row group without rows
    return tuple(found)


class FileDescriber:
    """Descriptions of files of one table, with statistics encoded as in its entries."""

    def __init__(self, definition: TableDefinition, paths: dict[int, ColumnPath]) -> None:
        self.definition = definition
        self._paths = paths
        self._derived = derived_columns(definition, paths)
        self._codec = EntryCodec.of_definition(definition).statistics

    def tallies(self, rows: pa.Table, values: Collection[int]) -> dict[int, ColumnTally]:
        """Tallies (counts and bounds) of every tracked column of `rows`, and of the expressions that are not keys of
        `values`. `values` has one value for each partition field.
        """
        found = {field_id: ColumnTally.of(path.of(rows), path.type) for field_id, path in self._paths.items()}
        return found | {
            derived.expr_id: ColumnTally.of(derived.of(rows), derived.type)
            for derived in self._derived
            if derived.expr_id not in values
        }

    @staticmethod
    def statistics(
        tallies: Mapping[int, ColumnTally], row_count: int, values: Mapping[int, Bound | None]
    ) -> dict[int, FieldStatistics]:
        """Statistics of every tally over a file's rows, and of its partition fields."""
        found = {tracked_id: tally.statistics() for tracked_id, tally in tallies.items()}
        for member, value in values.items():
            found[member] = partition_statistics(value, found.get(member), row_count)
        return found

    def described(
        self,
        location: str,
        row_count: int,
        size_in_bytes: int,
        statistics: ContentStats,
        sort_order_id: int | None,
        split_offsets: Sequence[int],
    ) -> DataFile:
        """The description of a file under the definition's default spec."""
        return DataFile(
            location=location,
            partition_spec_id=self.definition.default_spec_id,
            record_count=row_count,
            file_size_in_bytes=size_in_bytes,
            content_stats=self._codec.encode(statistics),
            stats_schema=self._codec.fingerprint,
            sort_order_id=sort_order_id,
            split_offsets=tuple(split_offsets) or None,
        )
