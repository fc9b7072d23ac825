"""Exact statistics over some rows, of columns and of expressions (the table's derived columns, such as `month(ts)`).

Owns: gathering them from Arrow data in pieces, the truncation of long bounds, the values of a definition's expressions.
Does not own: partition values (`partition_split`), the functions of expressions (`transform_values`), encoding
(`statistics_codec`).
Invariants: bounds contain every value that is neither null nor NaN. `tight_bounds` is set only if they are the exact
minimum and maximum. NaN is never a bound. A lower bound of zero is -0.0, an upper bound of zero is +0.0. An expression
has no statistics if this release does not know its function, or if its column was dropped.

Source: format page, "Root manifest" (`content_stats`), docs/decisions/0028.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import PrimitiveType, StructType

from rootline.schemas.bytes.leaf_schema import arrow_type_of_bound
from rootline.schemas.bytes.transform_values import expression_column
from rootline.schemas.content_entry import Bound, FieldStatistics
from rootline.schemas.field_ids import MAX_TRACKED_ID
from rootline.schemas.table_definition import Expression, Function, TableDefinition
from rootline.storage.rows.arrow_types import storage_of

BOUND_LENGTH: Final = 16
_GREATEST_CODE_POINT: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)


@dataclass(frozen=True, slots=True)
class ColumnPath:
    """The path of a primitive column in the rows: the index of the top-level column, then the index of the struct's
    member at each depth.
    """

    field_id: int
    type: PrimitiveType
    indices: tuple[int, ...]

    def of(self, rows: pa.Table) -> pa.ChunkedArray:
        """The column's values. A member of a null struct is null."""
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


@dataclass(frozen=True, slots=True)
class ColumnTally:
    """Counts and bounds of some values of a column. The sum of two tallies describes both sets of values.

    `lower` and `upper` are the exact extremes, neither null nor NaN. `nans` is `None` for a type without NaN.
    `bytes_sum` and `bytes_max` cover non-null values of types with varying sizes.
    """

    values: int
    nulls: int
    nans: int | None
    lower: Any
    upper: Any
    bytes_sum: int | None
    bytes_max: int | None

    @staticmethod
    def of(column: pa.ChunkedArray, field_type: PrimitiveType) -> ColumnTally:
        """The tally of a column of this type (its storage type, no extension)."""
        is_float = pa.types.is_floating(column.type)
        nans = (pc.sum(pc.is_nan(column)).as_py() or 0) if is_float else None
        lower = upper = None
        if column.null_count < len(column) and arrow_type_of_bound(field_type) is not None:
            extremes = pc.min_max(column)
            lower, upper = _physical(extremes["min"]), _physical(extremes["max"])
        if is_float:
            lower, upper = _without_nan(lower, -0.0), _without_nan(upper, 0.0)
        return ColumnTally(len(column), column.null_count, nans, lower, upper, *_sizes(column))

    def __add__(self, other: ColumnTally) -> ColumnTally:
        return ColumnTally(
            self.values + other.values,
            self.nulls + other.nulls,
            _both(sum, self.nans, other.nans),
            _both(min, self.lower, other.lower),
            _both(max, self.upper, other.upper),
            _both(sum, self.bytes_sum, other.bytes_sum),
            _both(max, self.bytes_max, other.bytes_max),
        )

    def statistics(self) -> FieldStatistics:
        """The statistics as stored in an entry. Long bounds are truncated."""
        low, high = _truncated_lower(self.lower), _truncated_upper(self.upper)
        sized = self.values - self.nulls
        return FieldStatistics(
            lower_bound=low,
            upper_bound=high,
            tight_bounds=None if self.lower is None else (low == self.lower and high == self.upper),
            value_count=self.values,
            null_value_count=self.nulls,
            nan_value_count=self.nans,
            avg_value_size_in_bytes=None if self.bytes_sum is None else self.bytes_sum // sized,
            max_value_size_in_bytes=self.bytes_max,
        )


def _both(fold: Callable[[tuple[Any, Any]], Any], one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    return fold((one, other))


def partition_statistics(value: Bound | None, known: FieldStatistics | None, rows: int) -> FieldStatistics:
    """Statistics of a partition field, which has one value for all `rows` of a file.

    `known`: the statistics of the column that the field copies, or `None` if its transform is not the identity.
    """
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
    """The sum and the maximum of the values' sizes in bytes, for types whose values differ in size."""
    arrow = column.type
    if not (pa.types.is_string(arrow) or pa.types.is_binary(arrow)) or column.null_count == len(column):
        return None, None
    lengths = pc.binary_length(column)
    return pc.sum(lengths).as_py(), pc.max(lengths).as_py()


def _truncated_lower(bound: Any) -> Any:
    return bound[:BOUND_LENGTH] if isinstance(bound, str | bytes) else bound


def _truncated_upper(bound: Any) -> Any:
    """The bound, truncated and rounded up, or `None` if no short value is greater than the bound."""
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


@dataclass(frozen=True, slots=True)
class DerivedColumn:
    """An expression, its source columns, and the type of its values."""

    expression: Expression
    sources: tuple[ColumnPath, ...]
    type: PrimitiveType

    @property
    def expr_id(self) -> int:
        """The expression's id."""
        return self.expression.expr_id

    def of(self, rows: pa.Table) -> pa.ChunkedArray:
        """The expression's physical values."""
        types, columns = [source.type for source in self.sources], [source.of(rows) for source in self.sources]
        made = expression_column(self.expression.transform, self.expression.parsed, types, columns)
        return pa.chunked_array([made])


def derived_columns(definition: TableDefinition, paths: dict[int, ColumnPath]) -> tuple[DerivedColumn, ...]:
    """The expressions of `definition` whose values can be computed from the columns in `paths`."""
    found: list[DerivedColumn] = []
    for expression in definition.expressions:
        result = definition.result_type(expression)
        is_known = definition.function_of(expression) is not Function.UNKNOWN
        if is_known and result is not None and all(source_id in paths for source_id in expression.source_ids):
            sources = tuple(paths[source_id] for source_id in expression.source_ids)
            found.append(DerivedColumn(expression, sources, result))
    return tuple(found)
