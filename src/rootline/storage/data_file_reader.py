"""Rows of one Parquet data file, as the table's schema has them.

Owns: decoding, projection to the schema, deleted positions, the residual filter. Does not own: fetching
(`scan_executor`).
Invariants: a position is a row number of the file, whatever row groups or filters there are; deleted rows go before
the filter is asked; what is not plain Parquet is refused, never misread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType
from pyroaring import BitMap64

from rootline.schemas.content_entry import ContentEntry, FileFormat
from rootline.schemas.errors import Corrupt, Invalid
from rootline.storage.field_matching import finder_for
from rootline.storage.row_projection import RowProjection
from rootline.tree.column_tests import rows_matching
from rootline.tree.filters import BoundFilter

BATCH_ROWS: Final = 65_536
_ENCRYPTED_MAGIC: Final = b"PARE"


@dataclass(frozen=True)
class RowsWanted:
    """What a scan wants of every file: the columns to hand out, in order; the filter's columns are read beside them."""

    schema: Schema
    columns: tuple[str, ...]
    properties: Mapping[str, str]

    @staticmethod
    def of(schema: Schema, columns: Sequence[str] | None, properties: Mapping[str, str]) -> RowsWanted:
        """Every column for `None`.

        Raises:
            Invalid: `column-unknown`.

        """
        known = [field.name for field in schema.fields]
        wanted = known if columns is None else list(columns)
        for name in wanted:
            if name not in known:
                raise Invalid("column-unknown", f"there is no column {name!r}; the table has {', '.join(known[:40])}")
        return RowsWanted(schema, tuple(dict.fromkeys(wanted)), properties)

    @cached_property
    def fields(self) -> tuple[NestedField, ...]:
        """The columns to hand out."""
        by_name = {field.name: field for field in self.schema.fields}
        return tuple(by_name[name] for name in self.columns)

    def fields_with(self, residual: BoundFilter | None) -> tuple[NestedField, ...]:
        """The columns to hand out, then those that only `residual` reads."""
        if residual is None:
            return self.fields
        wanted = residual.field_ids
        extra = (field for field in self.schema.fields if field not in self.fields and wanted & _ids_in(field))
        return (*self.fields, *extra)


def read_rows(
    body: bytes | pa.Buffer,
    entry: ContentEntry,
    wanted: RowsWanted,
    deleted: BitMap64 | None,
    residual: BoundFilter | None,
) -> Iterator[pa.RecordBatch]:
    """Batches of the live, matching rows of `entry`, whose bytes are `body`, in the file's order.

    Raises:
        Corrupt: `data-file-corrupt` or `vector-corrupt`.
        Invalid: `file-unreadable`.

    """
    refuse_unreadable(entry)
    parquet = open_parquet(body, entry.location)
    rows = parquet.metadata.num_rows
    if rows != entry.record_count:
        raise Corrupt("data-file-corrupt", f"{entry.location}: holds {rows} rows, its entry says {entry.record_count}")
    keep = _kept_rows(deleted, rows, entry.location)
    fields = wanted.fields_with(residual)
    stored = parquet.schema_arrow
    find = finder_for(stored, wanted.properties)
    projection = RowProjection(find, _initial_default, "file-unreadable", entry.location)
    place_of = find(list(stored))
    columns = [stored.field(at).name for field in fields if (at := place_of(field)) is not None]
    start = 0
    for batch in _batches(parquet, columns, entry.location):
        end = start + batch.num_rows
        projected = projection.columns(batch, fields)
        if keep is not None:
            projected = projected.filter(pa.array(keep[start:end]))
        if residual is not None and projected.num_rows:
            projected = projected.filter(
                rows_matching(residual.condition, _column_of(projected, fields), projected.num_rows)
            )
        start = end
        if projected.num_rows:
            yield projected.select(list(range(len(wanted.fields))))
    if start != rows:  # the footer's sum agrees with the entry, its row groups do not
        raise Corrupt("data-file-corrupt", f"{entry.location}: {start} rows can be read, its entry says {rows}")


def refuse_unreadable(entry: ContentEntry) -> None:
    """Raises `Invalid` (`file-unreadable`) for files that are not plain Parquet by their entry."""
    if entry.file_format is not FileFormat.PARQUET:
        raise Invalid("file-unreadable", f"{entry.location}: data files of format {entry.file_format} are not read")
    if entry.key_metadata is not None:
        raise Invalid("file-unreadable", f"{entry.location}: encrypted files are not read")


def open_parquet(body: bytes | pa.Buffer, name: str) -> pq.ParquetFile:
    """The Parquet file in `body`. Raises `Invalid` (`file-unreadable`) when it is none, or is encrypted."""
    if bytes(memoryview(body)[-4:]) == _ENCRYPTED_MAGIC:
        raise Invalid("file-unreadable", f"{name}: encrypted files are not read")
    try:
        return pq.ParquetFile(pa.BufferReader(body), page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise Invalid("file-unreadable", f"{name}: is not a Parquet file: {error}") from error


def _batches(parquet: pq.ParquetFile, columns: list[str], name: str) -> Iterator[pa.RecordBatch]:
    if not columns:  # only defaults and nulls are asked for: the number of rows is all that the file decides
        left = parquet.metadata.num_rows
        while left > 0:
            size = min(left, BATCH_ROWS)
            yield pa.RecordBatch.from_struct_array(pa.array([{}] * size, pa.struct([])))
            left -= size
        return
    try:
        yield from parquet.iter_batches(batch_size=BATCH_ROWS, columns=columns)
    except (pa.ArrowException, OSError) as error:
        raise Corrupt("data-file-corrupt", f"{name}: cannot be decoded: {error}") from error


def _kept_rows(deleted: BitMap64 | None, rows: int, name: str) -> np.ndarray[Any, np.dtype[np.bool_]] | None:
    if not deleted:
        return None
    if deleted.max() >= rows:
        raise Corrupt("vector-corrupt", f"{name}: its vector deletes row {deleted.max()}, the file has {rows} rows")
    keep = np.ones(rows, dtype=np.bool_)
    keep[np.asarray(deleted.to_array(), dtype=np.int64)] = False
    return keep


def _initial_default(field: NestedField) -> Any:
    return field.initial_default


def _ids_in(field: NestedField) -> set[int]:
    found = {field.field_id}
    if isinstance(field.field_type, StructType):
        for inner in field.field_type.fields:
            found |= _ids_in(inner)
    return found


def _column_of(batch: pa.RecordBatch, fields: Sequence[NestedField]) -> Callable[[int], pa.Array]:
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
