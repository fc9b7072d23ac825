"""Rows of one data file, as the table's schema has them.

Owns: projection to the schema, deleted rows, the residual filter, the metadata columns' place among the others. Does
not own: fetching (`scan_executor`), file formats (`data_file_formats`), which rows are deleted (`row_deletes`).
Invariants: a position is a row number of the file, whatever row groups or filters there are; a deleted row is handed
out only where `_deleted` is asked for, and then says so; columns by which rows are deleted are read whether or not the
scan, or the current schema, has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType
from pyroaring import BitMap64

from rootline.schemas import field_ids
from rootline.schemas.content_entry import ContentEntry
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.rows.arrow_types import arrow_field_of, rows_without_columns
from rootline.storage.rows.data_file_formats import BATCH_ROWS, all_rows, open_data_file
from rootline.storage.rows.equality_keys import innermost, key_field
from rootline.storage.rows.field_matching import finder_for
from rootline.storage.rows.metadata_columns import (
    LINEAGE_IDS,
    METADATA_COLUMNS,
    METADATA_IDS,
    FileColumns,
    metadata_field,
)
from rootline.storage.rows.partition_constants import constants_of
from rootline.storage.rows.row_deletes import RowDeletes
from rootline.storage.rows.row_projection import RowProjection, initial_default
from rootline.tree.filter.column_predicates import rows_matching
from rootline.tree.filter.filters import BoundFilter

_Flags = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class RowsWanted:
    """What a scan wants of every file: the columns to hand out, in order; the filter's columns are read beside them."""

    definition: TableDefinition
    fields: tuple[NestedField, ...]

    @staticmethod
    def of(definition: TableDefinition, columns: Sequence[str] | None = None) -> RowsWanted:
        """The columns named, of the table's own and of the metadata columns; every own column for `None`.

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

    @property
    def schema(self) -> Schema:
        """The schema that rows are read under."""
        return self.definition.schema

    @cached_property
    def own_fields(self) -> tuple[NestedField, ...]:
        """The columns to hand out that are the table's own."""
        return tuple(field for field in self.fields if field.field_id not in METADATA_IDS)

    @cached_property
    def lineage_fields(self) -> tuple[NestedField, ...]:
        """The columns of rows' lineage to hand out, which a file may hold itself."""
        return tuple(field for field in self.fields if field.field_id in LINEAGE_IDS)

    @cached_property
    def shows_deleted(self) -> bool:
        """Whether deleted rows are handed out too."""
        return any(field.field_id == field_ids.DELETED_COLUMN for field in self.fields)

    def fields_with(self, residual: BoundFilter | None) -> tuple[NestedField, ...]:
        """The table's own columns to hand out, then those that only `residual` reads."""
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
    """Batches of the live, matching rows of `entry`, whose bytes are `body`, in the file's order.

    Raises:
        Corrupt: `data-file-corrupt` or `vector-corrupt`.
        Invalid: `file-unreadable`.

    """
    file = open_data_file(body, entry)
    marked = _marked_rows(deletes.positions, file.row_count, entry.location)
    fields = wanted.fields_with(residual)
    keys = [(key, [key_field(wanted.definition, field_id) for field_id in key.ids]) for key in deletes.keys]
    before_keys = (*fields, *wanted.lineage_fields)
    every = (*before_keys, *(field for _, of_key in keys for field in of_key))
    find = finder_for(file.schema, wanted.definition.properties)
    constants = constants_of(entry, wanted.definition)
    projection = RowProjection(find, initial_default, "file-unreadable", entry.location, constants)
    at_once = max((len(key) for key in deletes.keys), default=0)
    start = 0
    for batch in _gathered(all_rows(file, entry, every, find(list(file.schema))), at_once):
        end = start + batch.num_rows
        projected = projection.columns(batch, every)
        gone = np.zeros(batch.num_rows, dtype=np.bool_) if marked is None else marked[start:end].copy()
        at = len(before_keys)
        for key, of_key in keys:
            columns = [innermost(projected.column(at + index)) for index in range(len(of_key))]
            gone |= key.holds(columns)
            at += len(of_key)
        chosen = _chosen(gone, wanted, residual, projected, fields)
        if chosen.any():
            lineage = projected.columns[len(fields) : len(before_keys)]
            found = _handed_out(projected, lineage, entry, wanted, start, chosen, gone)
            yield from (found.slice(offset, BATCH_ROWS) for offset in range(0, found.num_rows, BATCH_ROWS))
        start = end


def _chosen(
    gone: _Flags,
    wanted: RowsWanted,
    residual: BoundFilter | None,
    projected: pa.RecordBatch,
    fields: Sequence[NestedField],
) -> _Flags:
    chosen = np.ones(len(gone), dtype=np.bool_) if wanted.shows_deleted else ~gone
    if residual is not None:
        matching = rows_matching(residual.condition, column_of(projected, fields), projected.num_rows)
        chosen &= matching.to_numpy(zero_copy_only=False)
    return chosen


def _handed_out(
    projected: pa.RecordBatch,
    lineage: Sequence[pa.Array],
    entry: ContentEntry,
    wanted: RowsWanted,
    start: int,
    chosen: _Flags,
    gone: _Flags,
) -> pa.RecordBatch:
    count = int(chosen.sum())
    if not wanted.fields:
        return rows_without_columns(count)
    own = projected.select(list(range(len(wanted.own_fields))))
    if count < projected.num_rows and own.num_columns:
        own = own.filter(pa.array(chosen))
    if len(wanted.own_fields) == len(wanted.fields):
        return own
    about = FileColumns(entry, wanted.definition)
    positions = np.flatnonzero(chosen).astype(np.int64) + start
    columns, stored = iter(own.columns), (column.filter(pa.array(chosen)) for column in lineage)
    found: list[pa.Array] = []
    for field in wanted.fields:
        if field.field_id in LINEAGE_IDS:
            found.append(about.lineage(field, positions, next(stored)))
        elif field.field_id in METADATA_IDS:
            found.append(about.column(field, positions, gone[chosen]))
        else:
            found.append(next(columns))
    return pa.RecordBatch.from_arrays(found, schema=output_schema(wanted))


def output_schema(wanted: RowsWanted) -> pa.Schema:
    """The schema of a scan's batches."""
    return pa.schema([arrow_field_of(column) for column in wanted.fields])


def _gathered(batches: Iterator[pa.RecordBatch], rows_min: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of at least `rows_min`, except the last one."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(one.num_rows for one in held) >= rows_min:
            yield _joined(held)
            held = []
    if held:
        yield _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    if not batches[0].num_columns:
        return rows_without_columns(sum(len(batch) for batch in batches))
    return pa.concat_batches(batches)


def _marked_rows(deleted: BitMap64 | None, rows: int, name: str) -> _Flags | None:
    if not deleted:
        return None
    if deleted.max() >= rows:
        raise Corrupt("vector-corrupt", f"{name}: its vector deletes row {deleted.max()}, the file has {rows} rows")
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
    """Field id → its column of `batch`, whose columns are `fields`; inside structs too."""

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
