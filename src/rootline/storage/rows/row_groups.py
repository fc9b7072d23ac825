"""Which row groups of a Parquet file a scan reads, and which of them together.

Owns: row groups' statistics as those of entries, runs of row groups. Does not own: what statistics say about a filter
(`rootline.tree.filter.prune`), decoding (`parquet_file`).
Invariants: a row group is left out only if no row of it can match; a bound whose order in Parquet could be another
than the table's (decimals, bytes, uuids, other units) is unknown; all rows of the file are in row groups, or it
is corrupt.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow.parquet as pq
from pyiceberg.types import (
    DateType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)

from rootline.schemas.bytes.parquet_footer import ColumnChunk
from rootline.schemas.content_entry import Bound, FieldStatistics
from rootline.schemas.errors import Corrupt
from rootline.storage.rows.parquet_file import ParquetRows
from rootline.tree.filter.filters import BoundFilter
from rootline.tree.filter.prune import PruningFilter

BoundOf = Callable[[bytes], Bound]
_INTEGERS: Final = ("INT32", "INT64")
_MICROSECONDS: Final = (TimestampType, TimestamptzType)
_NANOSECONDS: Final = (TimestampNanoType, TimestamptzNanoType)


@dataclass(frozen=True, slots=True)
class Run:
    """Row groups one after the other: `rows` of them from row `start` of the file on."""

    start: int
    rows: int
    groups: tuple[int, ...] = ()


def runs_of(file: ParquetRows, *, rows_min: int = 1, may_match: Callable[[int], bool] | None = None) -> Iterator[Run]:
    """The row groups that `may_match`, in runs of at least `rows_min` rows where row groups are neighbours.

    Raises:
        Corrupt: `data-file-corrupt`, they do not have as many rows as the file says.

    """
    counts = file.group_rows
    if sum(counts) != file.row_count or min(counts, default=0) < 0:
        reason = f"{sum(counts)} rows can be read, its footer says {file.row_count}"
        raise Corrupt("data-file-corrupt", f"{file.name}: {reason}")
    start, held = 0, Run(0, 0)
    for number, rows in enumerate(counts):
        is_wanted = rows > 0 and (may_match is None or may_match(number))
        if is_wanted:
            held = Run(start if not held.groups else held.start, held.rows + rows, (*held.groups, number))
        if held.groups and (not is_wanted or held.rows >= rows_min):
            yield held
            held = Run(0, 0)
        start += rows
    if held.groups:
        yield held


def group_check(
    file: ParquetRows, residual: BoundFilter, pruning: PruningFilter, place_of: Callable[[NestedField], int | None]
) -> Callable[[int], bool]:
    """Whether rows of a row group may match `residual`, which `pruning` is made of.

    Only columns at the top level count; of columns that the file lacks nothing is known.
    """
    schema, counts, chunks = file.file.metadata.schema, file.group_rows, file.chunks
    leaves: dict[int, tuple[int, BoundOf | None]] = {}
    for field in pruning.definition.schema.fields:
        place = place_of(field) if field.field_id in residual.field_ids and field.field_type.is_primitive else None
        if place is not None and (at := _leaf_of(schema, file.schema.field(place).name)) is not None:
            leaves[field.field_id] = at, _bound_of(schema.column(at), field.field_type)

    def check(number: int) -> bool:
        stats = {
            field_id: _statistics(chunks[number][at], bound_of, counts[number])
            for field_id, (at, bound_of) in leaves.items()
        }
        return pruning.may(stats, None, ())

    return check


def _leaf_of(schema: pq.ParquetSchema, name: str) -> int | None:
    found = [at for at in range(len(schema)) if schema.column(at).path == name]
    return found[0] if len(found) == 1 else None  # a dot in a name can make two paths alike


def _statistics(chunk: ColumnChunk, bound_of: BoundOf | None, rows: int) -> FieldStatistics:
    nulls = chunk.null_count if chunk.null_count is not None and 0 <= chunk.null_count <= rows else None
    unbounded = FieldStatistics(value_count=rows, null_value_count=nulls)
    if bound_of is None or chunk.lower is None or chunk.upper is None:
        return unbounded
    try:
        lower, upper = bound_of(chunk.lower), bound_of(chunk.upper)
    except (struct.error, UnicodeDecodeError):
        return unbounded
    if not lower <= upper:  # type: ignore[operator]  # of NaN too
        return unbounded
    return FieldStatistics(lower, upper, value_count=rows, null_value_count=nulls)


def _bound_of(column: pq.ColumnSchema, kind: IcebergType) -> BoundOf | None:
    """Reads bounds as the table's physical values; `None` where they, or their order, could be others."""
    physical, logical = column.physical_type, json.loads(column.logical_type.to_json())
    name, unit, read = logical.get("Type"), logical.get("timeUnit"), _READ.get(physical)
    if isinstance(kind, IntegerType | LongType):
        is_alike = physical in _INTEGERS and (name == "None" or (name == "Int" and logical.get("isSigned") is True))
    elif isinstance(kind, FloatType | DoubleType):
        is_alike = physical in ("FLOAT", "DOUBLE") and name == "None"
    elif isinstance(kind, StringType):
        is_alike = physical == "BYTE_ARRAY" and name == "String"
    elif isinstance(kind, DateType):
        is_alike = physical == "INT32" and name == "Date"
    elif isinstance(kind, TimeType):
        is_alike = physical == "INT64" and name == "Time" and unit == "microseconds"
    elif isinstance(kind, _MICROSECONDS + _NANOSECONDS):
        wanted = "microseconds" if isinstance(kind, _MICROSECONDS) else "nanoseconds"
        is_alike = physical == "INT64" and name == "Timestamp" and unit == wanted
    else:
        is_alike = False
    return read if is_alike else None


def _number(layout: str) -> BoundOf:
    form = struct.Struct(layout)
    return lambda body: _only(form.unpack(body))


def _only(values: tuple[Any, ...]) -> int | float:
    found: int | float = values[0]
    return found


_READ: Final[dict[str, BoundOf]] = {
    "INT32": _number("<i"),
    "INT64": _number("<q"),
    "FLOAT": _number("<f"),
    "DOUBLE": _number("<d"),
    "BYTE_ARRAY": lambda body: body.decode(),
}
