"""Exact statistics of the columns of some rows.

Owns: gathering them from Arrow data, truncation of long bounds. Does not own: partition values of expressions
(`partition_split`), encoding (`statistics_codec`).
Invariants: bounds contain every value that is neither null nor NaN; `tight_bounds` only if they are the exact minimum
and maximum; NaN is no bound; -0.0 is the lower and +0.0 the upper zero.

Source: format page, "Root manifest" (`content_stats`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import PrimitiveType, StructType

from rootline.schemas.bytes.leaf.leaf_schema import arrow_type_of_bound
from rootline.schemas.field_ids import MAX_TRACKED_ID
from rootline.schemas.statistics import Bound, FieldStatistics
from rootline.storage.rows.arrow_types import storage_of

BOUND_LENGTH: Final = 16
_GREATEST_CODE_POINT: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)


@dataclass(frozen=True, slots=True)
class ColumnPath:
    """Where a primitive column is in the rows: the index of its column, then of the member at each depth."""

    field_id: int
    type: PrimitiveType
    indices: tuple[int, ...]

    def of(self, rows: pa.Table) -> pa.ChunkedArray:
        """The column's values; a member of a null struct is null."""
        column = rows.column(self.indices[0])
        if len(self.indices) > 1:
            column = pc.struct_field(column, list(self.indices[1:]))
        if isinstance(column.type, pa.BaseExtensionType):
            return pa.chunked_array([storage_of(chunk) for chunk in column.chunks], column.type.storage_type)
        return column


def column_paths(schema: Schema) -> dict[int, ColumnPath]:
    """Field id → path of every primitive column that is reachable through structs only."""
    return {path.field_id: path for path in _paths(schema.as_struct(), ())}


def _paths(struct: StructType, above: tuple[int, ...]) -> Iterator[ColumnPath]:
    for index, field in enumerate(struct.fields):
        if isinstance(field.field_type, StructType):
            yield from _paths(field.field_type, (*above, index))
        elif isinstance(field.field_type, PrimitiveType) and field.field_id <= MAX_TRACKED_ID:
            yield ColumnPath(field.field_id, field.field_type, (*above, index))


def statistics_of(column: pa.ChunkedArray, field_type: PrimitiveType) -> FieldStatistics:
    """Statistics of one column (its storage type, no extension)."""
    arrow = column.type
    is_float = pa.types.is_floating(arrow)
    nans = (pc.sum(pc.is_nan(column)).as_py() or 0) if is_float else None
    average, greatest = _sizes(column)
    lower = upper = None
    if column.null_count < len(column) and arrow_type_of_bound(field_type) is not None:
        extremes = pc.min_max(column)
        lower, upper = _physical(extremes["min"]), _physical(extremes["max"])
    if is_float:
        lower, upper = _without_nan(lower, -0.0), _without_nan(upper, 0.0)
    low, high = _truncated_lower(lower), _truncated_upper(upper)
    return FieldStatistics(
        lower_bound=low,
        upper_bound=high,
        tight_bounds=None if lower is None else (low == lower and high == upper),
        value_count=len(column),
        null_value_count=column.null_count,
        nan_value_count=nans,
        avg_value_size_in_bytes=average,
        max_value_size_in_bytes=greatest,
    )


def partition_statistics(value: Bound | None, known: FieldStatistics | None, rows: int) -> FieldStatistics:
    """Statistics of a spec's member, whose value is the same in all `rows`; `known`: of the column, by identity."""
    counts = known if known is not None else FieldStatistics(None, None, None, rows, rows if value is None else 0)
    return FieldStatistics(
        value,
        value,
        None if value is None else True,
        counts.value_count,
        counts.null_value_count,
        counts.nan_value_count,
        counts.avg_value_size_in_bytes,
        counts.max_value_size_in_bytes,
    )


def _physical(scalar: pa.Scalar) -> Any:
    if pa.types.is_temporal(scalar.type):
        return scalar.value
    return scalar.as_py()


def _without_nan(bound: float | None, zero: float) -> float | None:
    if bound is None or bound != bound:
        return None
    return zero if bound == 0 else bound


def _sizes(column: pa.ChunkedArray) -> tuple[int | None, int | None]:
    """Average and maximum bytes of a value, for types whose values differ in size."""
    arrow = column.type
    if not (pa.types.is_string(arrow) or pa.types.is_binary(arrow)):
        return None, None
    values = len(column) - column.null_count
    if not values:
        return None, None
    lengths = pc.binary_length(column)
    return pc.sum(lengths).as_py() // values, pc.max(lengths).as_py()


def _truncated_lower(bound: Any) -> Any:
    return bound[:BOUND_LENGTH] if isinstance(bound, str | bytes) else bound


def _truncated_upper(bound: Any) -> Any:
    """`None` when nothing short is greater than the bound."""
    if not isinstance(bound, str | bytes) or len(bound) <= BOUND_LENGTH:
        return bound
    return _next_text(bound[:BOUND_LENGTH]) if isinstance(bound, str) else _next_bytes(bound[:BOUND_LENGTH])


def _next_text(text: str) -> str | None:
    for end in range(len(text), 0, -1):
        point = ord(text[end - 1]) + 1
        if point in _SURROGATES:
            point = _SURROGATES.stop
        if point <= _GREATEST_CODE_POINT:
            return text[: end - 1] + chr(point)
    return None


def _next_bytes(data: bytes) -> bytes | None:
    for end in range(len(data), 0, -1):
        if data[end - 1] < 255:
            return data[: end - 1] + bytes([data[end - 1] + 1])
    return None
