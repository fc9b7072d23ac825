"""Rows of one data file in the table's schema.

Owns: projection to the schema, deleted rows, the residual filter, the position of metadata columns among the others.
Does not own: fetching (`stored_rows`), file formats (`data_file_formats`), the choice of deleted rows (`row_deletes`).
A *residual* filter is the part of a scan's filter that its partition does not answer for all rows of a file. *Lineage*
is Iceberg's row id and last updated sequence number.
Invariants: a position is a row number of the file, regardless of row groups and filters. A deleted row is returned only
if the scan reads `_deleted`, and is marked there. Columns that identify deleted rows are read even if the scan, or the
current schema, lacks them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType
from pyroaring import BitMap64

from rootline.schemas import field_ids
from rootline.schemas.arrow_values import array_from, numpy_from
from rootline.schemas.content_entry import ContentEntry
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.rows.arrow_types import arrow_field_of, rows_without_columns
from rootline.storage.rows.data_file_formats import OpenFile, open_data_file, rows_of_run, stored_names
from rootline.storage.rows.metadata_columns import (
    LINEAGE,
    LINEAGE_IDS,
    METADATA_COLUMNS,
    METADATA_IDS,
    FileColumns,
    constants_of,
    may_state_lineage,
    metadata_field,
)
from rootline.storage.rows.parquet_file import (
    BATCH_ROWS,
    COLLECTED,
    PAGE_ROWS,
    STREAMED,
    Flags,
    ParquetRows,
    Run,
    group_check,
    runs_of,
)
from rootline.storage.rows.row_deletes import EqualityKeys, RowDeletes, innermost, key_field
from rootline.storage.rows.row_projection import RowProjection, finder_for, initial_default
from rootline.tree.filter.conditions import rows_matching
from rootline.tree.filter.filters import BoundFilter
from rootline.tree.filter.pruning import PruningFilter

_AHEAD_BYTES: Final = 16 * 1024 * 1024
"""The columns of a filter that are decoded before the others."""
_GATHERED_BYTES_MAX: Final = 64 * 1024 * 1024


@dataclass(frozen=True)
class RowsWanted:
    """The columns that a scan returns from each file, in order. Columns that only its filter reads are not included."""

    definition: TableDefinition
    fields: tuple[NestedField, ...]

    @staticmethod
    def of(definition: TableDefinition, columns: Sequence[str] | None = None) -> RowsWanted:
        """The columns of these names, of the table and of the metadata columns. `None`: every column of the table.

        Raises:
            Invalid: `column-unknown`.
        """
        own = {field.name: field for field in definition.schema.fields}
        found: dict[str, NestedField] = {}
        for name in own if columns is None else columns:
            field = own.get(name) or metadata_field(name, definition)
            if field is None:
                known = ", ".join([*list(own)[:40], *METADATA_COLUMNS])
                raise Invalid("column-unknown", f"there is no column {name!r}; the table has {known}")
            found[name] = field
        return RowsWanted(definition, tuple(found.values()))

    @staticmethod
    def to_rewrite(definition: TableDefinition) -> RowsWanted:
        """Every column of the table, and the lineage of each row."""
        return RowsWanted.of(definition, [*(field.name for field in definition.schema.fields), *LINEAGE])

    @staticmethod
    def to_keep(definition: TableDefinition) -> RowsWanted:
        """Every column of the table, and the lineage of each row unless the table has columns of these names."""
        return RowsWanted.to_rewrite(definition) if may_state_lineage(definition) else RowsWanted.of(definition)

    @property
    def schema(self) -> Schema:
        """The schema under which rows are read."""
        return self.definition.schema

    @cached_property
    def own_fields(self) -> tuple[NestedField, ...]:
        """The returned columns that are the table's own."""
        return tuple(field for field in self.fields if field.field_id not in METADATA_IDS)

    @cached_property
    def lineage_fields(self) -> tuple[NestedField, ...]:
        """The returned lineage columns, which a file may contain itself."""
        return tuple(field for field in self.fields if field.field_id in LINEAGE_IDS)

    @cached_property
    def reads_files(self) -> bool:
        """Whether files are read for the returned columns. Entries state the other metadata columns."""
        return bool(self.own_fields or self.lineage_fields)

    @cached_property
    def shows_deleted(self) -> bool:
        """Whether deleted rows are returned too."""
        return any(field.field_id == field_ids.DELETED_COLUMN for field in self.fields)

    def fields_with(self, residual: BoundFilter | None) -> tuple[NestedField, ...]:
        """The table's own columns to return, then those that only `residual` reads."""
        if residual is None:
            return self.own_fields
        wanted = residual.field_ids
        extra = (field for field in self.schema.fields if field not in self.own_fields and wanted & _ids_in(field))
        return (*self.own_fields, *extra)


def read_rows(
    body: bytes | pa.Buffer,
    entry: ContentEntry,
    wanted: RowsWanted,
    deletes: RowDeletes,
    residual: BoundFilter | None,
) -> Iterator[pa.RecordBatch]:
    """Yield batches of the live, matching rows of `entry`, whose bytes are `body`, in the file's order.

    Raises:
        Corrupt: `data-file-corrupt` or `vector-corrupt`.
        Invalid: `file-unreadable`.
    """
    reading = FileReading.of(open_data_file(body, entry), entry, wanted, deletes, residual)
    for run in reading.runs:
        yield from reading.rows(run)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows with two flags: deleted, and to be returned. `None`: no row is deleted, all rows are returned.

    `start`: the row number of the first of them in the file. `is_filtered`: `columns` have the chosen rows only.
    """

    columns: pa.RecordBatch
    start: int
    deleted_flags: Flags | None
    chosen: Flags | None
    is_filtered: bool = False

    @property
    def needed_rows(self) -> int:
        """The number of rows up to the last one that is to be returned."""
        at = np.arange(self.columns.num_rows) if self.chosen is None else np.flatnonzero(self.chosen)
        return int(at[-1]) + 1 if len(at) else 0

    def slice(self, start: int, rows: int) -> _Rows:
        """Some of the rows, with their flags."""
        deleted, chosen = (
            None if flags is None else flags[start : start + rows] for flags in (self.deleted_flags, self.chosen)
        )
        return _Rows(self.columns.slice(start, rows), self.start + start, deleted, chosen)


class _Following:
    """Batches that are decoded only up to the last needed row."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches, self._skipped = batches, 0
        self._left: pa.RecordBatch | None = None

    def skip(self, rows: int) -> None:
        """Do without the next rows."""
        self._skipped += rows

    def next(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the next rows, in batches of their size in memory."""
        for _ in self._parts(self._skipped):
            pass
        self._skipped = 0
        yield from self._parts(rows)

    def _parts(self, rows: int) -> Iterator[pa.RecordBatch]:
        while rows:
            batch = next(self._batches) if self._left is None else self._left
            part = batch.slice(0, rows)
            self._left = batch.slice(rows) if rows < batch.num_rows else None
            rows -= part.num_rows
            yield part


@dataclass(frozen=True)
class FileReading:
    """Reads one open file: the stored columns `names`, in the ranges of rows (`runs`) that can match the filter.

    `every` lists three kinds of columns in this order: the returned columns and the columns of the filter (the first
    `own_count`), the lineage columns, and from `keys_at` on the columns that equality deletes (`keys`) compare.
    """

    file: OpenFile
    entry: ContentEntry
    wanted: RowsWanted
    residual: BoundFilter | None
    marked: Flags | None
    keys: tuple[tuple[EqualityKeys, int], ...]
    every: tuple[NestedField, ...]
    own_count: int
    keys_at: int
    projection: RowProjection
    names: tuple[str, ...]
    runs: tuple[Run, ...]
    handed_rows_max: int

    @staticmethod
    def of(
        file: OpenFile,
        entry: ContentEntry,
        wanted: RowsWanted,
        deletes: RowDeletes,
        residual: BoundFilter | None,
        pruning: PruningFilter | None = None,
        handed_rows_max: int = BATCH_ROWS,
    ) -> FileReading:
        """Prepare to read `file`. `pruning`, made of `residual`, skips row groups by their statistics.

        Raises:
            Corrupt: `data-file-corrupt` or `vector-corrupt`.
        """
        marked = _marked_rows(deletes.positions, file.row_count, entry.location)
        fields = wanted.fields_with(residual)
        keys = [(key, [key_field(wanted.definition, field_id) for field_id in key.ids]) for key in deletes.keys]
        before_keys = (*fields, *wanted.lineage_fields)
        every = (*before_keys, *(field for _, of_key in keys for field in of_key))
        find = finder_for(file.schema, wanted.definition.properties)
        constants = constants_of(entry, wanted.definition)
        place_of = find(list(file.schema))
        rows_min = max((len(key) for key in deletes.keys), default=0)
        return FileReading(
            file,
            entry,
            wanted,
            residual,
            marked,
            tuple((key, len(of_key)) for key, of_key in keys),
            every,
            len(fields),
            len(before_keys),
            RowProjection(find, initial_default, "file-unreadable", entry.location, constants),
            tuple(stored_names(file, every, place_of)),
            _runs(file, entry, residual, pruning, place_of, rows_min),
            handed_rows_max,
        )

    def rows(self, run: Run) -> Iterator[pa.RecordBatch]:
        """Yield batches of the live, matching rows of `run`, in the file's order. Raises the errors of `read_rows`."""
        size = self.handed_rows_max
        for rows in self._filter_first(run) if self.filter_names else self._every_column(run):
            found = self._returned(rows)
            if found is not None:
                yield from (found.slice(offset, size) for offset in range(0, found.num_rows, size))

    def _every_column(self, run: Run) -> Iterator[_Rows]:
        is_kept = self.handed_rows_max > BATCH_ROWS and self.residual is None and not self.deletes_rows
        batches = rows_of_run(self.file, self.entry, run, self.names, COLLECTED if is_kept else STREAMED)
        start = run.start
        for batch in _gathered(batches, max((len(key) for key, _ in self.keys), default=0)):
            rows = self._projected(batch, self.every, self._schema)
            yield self._with_choice(rows, self.every[: self.own_count], start)
            start += batch.num_rows

    def _filter_first(self, run: Run) -> Iterator[_Rows]:
        """Decode the other columns only up to the last row that the filter selects, and only pages with such rows."""
        testing = self._tested(run)
        ahead, is_all = _up_to(_AHEAD_BYTES, testing)
        chosen = [flags for _, tested in ahead if (flags := tested.chosen) is not None]
        file = self._with_pages_of(run, np.concatenate(chosen)) if is_all and chosen else self.file
        rest = _Following(rows_of_run(file, self.entry, run, self.other_names))
        for batch, tested in chain(ahead, testing):
            at, needed = 0, tested.needed_rows
            for others in rest.next(needed) if needed else ():
                part = tested.slice(at, others.num_rows)
                if part.needed_rows:
                    yield self._completed(batch.slice(at, others.num_rows), others, part)
                at += others.num_rows
            rest.skip(batch.num_rows - at)

    def _with_pages_of(self, run: Run, chosen: Flags) -> OpenFile:
        """The file, or one of which only pages with chosen rows are decoded, if these are at most half of the pages."""
        if _is_dense(chosen) or not chosen.any() or not isinstance(self.file, ParquetRows):
            return self.file
        return self.file.with_rows(run.groups, self.other_names, chosen) or self.file

    def _completed(self, of_filter: pa.RecordBatch, others: pa.RecordBatch, tested: _Rows) -> _Rows:
        """The chosen rows, which alone have their own values in all columns."""
        stored = pa.schema([*of_filter.schema, *others.schema])
        whole = pa.RecordBatch.from_arrays([*of_filter.columns, *others.columns], schema=stored)
        if tested.chosen is not None:
            whole = whole.filter(array_from(tested.chosen))
        return replace(tested, columns=self._projected(whole, self.every, self._schema), is_filtered=True)

    def has_rows(self, run: Run) -> bool:
        """Whether `run` has rows to return. Decodes only `filter_names`, up to the first match."""
        return any(tested.needed_rows for _, tested in self._tested(run))

    def _tested(self, run: Run) -> Iterator[tuple[pa.RecordBatch, _Rows]]:
        """Yield the stored columns of the filter, and its answer."""
        start = run.start
        for batch in rows_of_run(self.file, self.entry, run, self.filter_names):
            columns = self._projected(batch, self._filter_fields, self._filter_schema)
            yield batch, self._with_choice(columns, self._filter_fields, start)
            start += batch.num_rows

    @property
    def deletes_rows(self) -> bool:
        """Whether rows of the file may be deleted."""
        return self.marked is not None or bool(self.keys)

    @cached_property
    def _schema(self) -> pa.Schema:
        return pa.schema([arrow_field_of(field) for field in self.every])

    @cached_property
    def _filter_schema(self) -> pa.Schema:
        return pa.schema([arrow_field_of(field) for field in self._filter_fields])

    @cached_property
    def _filter_fields(self) -> tuple[NestedField, ...]:
        """The columns that the filter reads."""
        ids = frozenset[int]() if self.residual is None else self.residual.field_ids
        return tuple(field for field in self.every[: self.own_count] if ids & _ids_in(field))

    @cached_property
    def filter_names(self) -> tuple[str, ...]:
        """The stored columns to decode before `other_names`. Empty: all are decoded together."""
        if self.keys or not isinstance(self.file, ParquetRows):
            return ()
        names = stored_names(self.file, self._filter_fields, self.projection.find(list(self.file.schema)))
        return tuple(names) if len(names) < len(self.names) else ()

    @cached_property
    def other_names(self) -> tuple[str, ...]:
        """The stored columns that the filter does not read."""
        return tuple(name for name in self.names if name not in self.filter_names)

    def _projected(self, batch: pa.RecordBatch, fields: tuple[NestedField, ...], schema: pa.Schema) -> pa.RecordBatch:
        """Convert a stored batch to `fields`, in `schema`. Does nothing if the file has them all in these types."""
        stored = batch.schema
        place_of = self.projection.find(list(stored))
        places = [at for field in fields if (at := place_of(field)) is not None]
        if len(places) != len(schema) or not places:
            return self.projection.columns(batch, fields)
        if not all(
            stored.field(at).equals(field, check_metadata=True) for at, field in zip(places, schema, strict=True)
        ):
            return self.projection.columns(batch, fields)
        return pa.RecordBatch.from_arrays([batch.column(at) for at in places], schema=schema)

    def _with_choice(self, rows: pa.RecordBatch, fields: Sequence[NestedField], start: int) -> _Rows:
        """Apply deletes and the filter. `fields`: the first columns of `rows`, which include the filter's."""
        deleted_flags = self._deleted_flags(rows, start)
        chosen = None if deleted_flags is None or self.wanted.shows_deleted else ~deleted_flags
        if self.residual is not None:
            flags: Flags = numpy_from(rows_matching(self.residual.condition, column_of(rows, fields), len(rows)))
            chosen = flags if chosen is None else chosen & flags
        return _Rows(rows, start, deleted_flags, chosen)

    def _returned(self, found: _Rows) -> pa.RecordBatch | None:
        """The rows to return, `None` if there are none."""
        rows, chosen = found.columns, None if found.is_filtered else found.chosen
        count = rows.num_rows if chosen is None else int(np.count_nonzero(chosen))
        if not self.wanted.fields:
            return rows_without_columns(count) if count else None
        if not count:
            return None
        kept = None if chosen is None or count == rows.num_rows else array_from(chosen)
        own, lineage = (
            rows.select(places) if kept is None or not places else rows.select(places).filter(kept)
            for places in (list(range(len(self.wanted.own_fields))), list(range(self.own_count, self.keys_at)))
        )
        if len(self.wanted.own_fields) == len(self.wanted.fields):
            return own
        return self._with_metadata(found, own, lineage)

    def _deleted_flags(self, rows: pa.RecordBatch, start: int) -> Flags | None:
        """Flags of the deleted rows, or `None` if none is deleted."""
        if not self.deletes_rows:
            return None
        deleted_flags = np.zeros(len(rows), dtype=np.bool_)
        if self.marked is not None:
            deleted_flags |= self.marked[start : start + len(rows)]
        at = self.keys_at
        for key, count in self.keys:
            deleted_flags |= key.contains([innermost(rows.column(at + index)) for index in range(count)])
            at += count
        return deleted_flags if deleted_flags.any() else None

    def _with_metadata(self, rows: _Rows, own: pa.RecordBatch, stored_lineage: pa.RecordBatch) -> pa.RecordBatch:
        about = FileColumns(self.entry, self.wanted.definition)
        at = np.arange(len(rows.columns)) if rows.chosen is None else np.flatnonzero(rows.chosen)
        deleted = np.zeros(len(at), dtype=np.bool_) if rows.deleted_flags is None else rows.deleted_flags[at]
        positions = at.astype(np.int64) + rows.start
        columns, lineage = iter(own.columns), iter(stored_lineage.columns)
        found: list[pa.Array] = []
        for field in self.wanted.fields:
            if field.field_id in LINEAGE_IDS:
                found.append(about.lineage(field, positions, next(lineage)))
            elif field.field_id in METADATA_IDS:
                found.append(about.column(field, positions, deleted))
            else:
                found.append(next(columns))
        return pa.RecordBatch.from_arrays(found, schema=output_schema(self.wanted))


def _runs(
    file: OpenFile,
    entry: ContentEntry,
    residual: BoundFilter | None,
    pruning: PruningFilter | None,
    place_of: Callable[[NestedField], int | None],
    rows_min: int,
) -> tuple[Run, ...]:
    if not isinstance(file, ParquetRows):
        return (Run(0, file.row_count),) if file.row_count else ()
    may_match = None
    # if the file is one row group, its entry has the same statistics as the footer
    adds_statistics = (
        len(file.group_rows) > 1 or residual is None or not residual.field_ids <= entry.content_stats.keys()
    )
    if residual is not None and pruning is not None and adds_statistics:
        may_match = group_check(file, residual, pruning, place_of)
    return tuple(runs_of(file, rows_min=max(rows_min, BATCH_ROWS), may_match=may_match))


def _up_to(
    bytes_max: int, tested: Iterator[tuple[pa.RecordBatch, _Rows]]
) -> tuple[list[tuple[pa.RecordBatch, _Rows]], bool]:
    """Take so many bytes, or a few pages if most of them have matching rows. Returns whether these are all rows."""
    found, chosen, size = [], np.zeros(0, np.bool_), 0
    for batch, rows in tested:
        found.append((batch, rows))
        size += batch.nbytes
        if size > bytes_max:
            return found, False
        if rows.chosen is not None and len(chosen) <= 2 * PAGE_ROWS:
            chosen = np.concatenate([chosen, rows.chosen])
            if len(chosen) > 2 * PAGE_ROWS and _is_dense(chosen):
                return found, False
    return found, True


def _is_dense(chosen: Flags) -> bool:
    """Whether more than half of the pages of these rows have chosen rows, or there are few pages."""
    pages = np.logical_or.reduceat(chosen, np.arange(0, len(chosen), PAGE_ROWS))
    return len(pages) <= 2 or int(np.count_nonzero(pages)) > len(pages) // 2


def output_schema(wanted: RowsWanted) -> pa.Schema:
    """The schema of a scan's batches."""
    return pa.schema([arrow_field_of(column) for column in wanted.fields])


def _gathered(batches: Iterator[pa.RecordBatch], rows_min: int) -> Iterator[pa.RecordBatch]:
    """Join small batches. Yields the same rows in batches of at least `rows_min` rows or 64 MiB, except for the last
    batch.
    """
    pending: list[pa.RecordBatch] = []
    for batch in batches:
        pending.append(batch)
        if sum(map(len, pending)) >= rows_min or sum(one.nbytes for one in pending) >= _GATHERED_BYTES_MAX:
            yield _joined(pending)
            pending = []
    if pending:
        yield _joined(pending)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    if not batches[0].num_columns:
        return rows_without_columns(sum(len(batch) for batch in batches))
    return pa.concat_batches(batches)


def _marked_rows(deleted: BitMap64 | None, rows: int, name: str) -> Flags | None:
    if not deleted:
        return None
    if deleted.max() >= rows:
        raise Corrupt("vector-corrupt", f"{name}: its vector deletes row {deleted.max()}, but the file has {rows} rows")
    marked = np.zeros(rows, dtype=np.bool_)
    marked[np.asarray(deleted.to_array(), dtype=np.int64)] = True
    return marked


def _ids_in(field: NestedField) -> set[int]:
    found = {field.field_id}
    if isinstance(field.field_type, StructType):
        for inner in field.field_type.fields:
            found |= _ids_in(inner)
    return found


def column_of(batch: pa.RecordBatch, fields: Sequence[NestedField]) -> Callable[[int], pa.Array]:
    """A function that returns the column of a field id in `batch`, also inside structs. `fields`: its columns."""

    def column(field_id: int) -> pa.Array:
        for at, field in enumerate(fields):
            if field_id in _ids_in(field):
                return _within(batch.column(at), field, field_id)
        raise KeyError(field_id)

    return column


def _within(array: pa.Array, field: NestedField, field_id: int) -> pa.Array:
    if field.field_id == field_id:
        return array
    if not isinstance(field.field_type, StructType):
        raise KeyError(field_id)
    for at, inner in enumerate(field.field_type.fields):
        if field_id in _ids_in(inner):
            return _within(pc.struct_field(array, at), inner, field_id)
    raise KeyError(field_id)
