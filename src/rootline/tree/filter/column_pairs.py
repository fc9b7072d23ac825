"""Comparisons of two columns of the same row.

Owns: the pairs of types that can be compared, and the comparison of their arrays.
Does not own: comparisons with literals (`filter_values`, `column_predicates`).
Invariants: Numbers of different types are compared by value, without rounding. A null on either side gives null.
NaN is unequal to every value, and neither less nor greater than any.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
)

from rootline.schemas.errors import Invalid
from rootline.tree.filter.conditions import ColumnPair, Operator

_WHOLE: Final = (IntegerType, LongType)
_FLOATING: Final = (FloatType, DoubleType)
_TOO_LARGE: Final = 2.0**63
_COMPARE: Final[dict[Operator, Callable[[Any, Any], Any]]] = {
    Operator.EQ: pc.equal,
    Operator.NE: pc.not_equal,
    Operator.LT: pc.less,
    Operator.LE: pc.less_equal,
    Operator.GT: pc.greater,
    Operator.GE: pc.greater_equal,
}


def column_pair(left: NestedField, operator: Operator, right: NestedField) -> ColumnPair:
    """The test `left operator right`.

    Raises:
        Invalid: `filter-invalid`, columns of these two types cannot be compared.
    """
    if not _are_comparable(left.field_type, right.field_type):
        raise Invalid(
            "filter-invalid",
            f"column {left.name} is a {left.field_type} and column {right.name} is a {right.field_type}; only "
            "columns of one type, or numbers, can be compared",
        )
    return ColumnPair(left.field_id, operator, right.field_id)


def _are_comparable(left: IcebergType, right: IcebergType) -> bool:
    if not isinstance(left, PrimitiveType) or not isinstance(right, PrimitiveType):
        return False
    for others in (_FLOATING, (DecimalType,)):
        if isinstance(left, (*_WHOLE, *others)) and isinstance(right, (*_WHOLE, *others)):
            return True
    return left == right


def compared(left: pa.Array, operator: Operator, right: pa.Array) -> pa.Array:
    """The result of `operator` for each row, null where one of the two values is null."""
    if pa.types.is_decimal(left.type) or pa.types.is_decimal(right.type):
        scale = max(getattr(left.type, "scale", 0), getattr(right.type, "scale", 0))
        both = pa.decimal256(76, scale)
        return _COMPARE[operator](left.cast(both), right.cast(both))
    if pa.types.is_integer(left.type) and pa.types.is_floating(right.type):
        return _of_order(_order(left, right), operator, left, right)
    if pa.types.is_floating(left.type) and pa.types.is_integer(right.type):
        return _of_order(-_order(right, left), operator, left, right)
    return _COMPARE[operator](left, right)


def _order(whole: pa.Array, floating: pa.Array) -> np.ndarray[Any, np.dtype[np.float64]]:
    """-1, 0 or 1 for less, equal or greater, and NaN where the float is NaN. Rows with a null contain any value."""
    exact = whole.fill_null(0).to_numpy(zero_copy_only=False)
    other = floating.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
    order: np.ndarray[Any, np.dtype[np.float64]] = np.sign(exact.astype(np.float64) - other)
    is_tie = (exact.astype(np.float64) == other) & (other < _TOO_LARGE)  # conversion may have rounded the integer
    order[is_tie] = _sign(exact[is_tie], other[is_tie].astype(np.int64))
    order[other == _TOO_LARGE] = -1
    return order


def _sign(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return (left > right).astype(np.float64) - (left < right)


def _of_order(order: np.ndarray[Any, Any], operator: Operator, left: pa.Array, right: pa.Array) -> pa.Array:
    found = _COMPARE[operator](pa.array(order), 0.0)
    return pc.if_else(pc.and_(left.is_valid(), right.is_valid()), found, pa.scalar(None, pa.bool_()))
