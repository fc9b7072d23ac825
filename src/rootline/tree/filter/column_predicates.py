"""Evaluation of a bound filter on Arrow columns.

Owns: evaluation of tests and conditions on arrays. Does not own: reading the arrays.
Invariants: Logic is three-valued as in SQL, with null for "unknown". NaN satisfies IS NAN, `!=` and NOT IN only.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from rootline.schemas.content_entry import Bound
from rootline.tree.filter.column_pairs import compared
from rootline.tree.filter.conditions import AllOf, ColumnPair, Condition, Operator, Predicate

ArrayOf = Callable[[int], pa.Array]
"""The column of a field id."""

COMPARISONS: Final[dict[Operator, Callable[[pa.Array, pa.Scalar], pa.Array]]] = {
    Operator.EQ: pc.equal,
    Operator.NE: pc.not_equal,
    Operator.LT: pc.less,
    Operator.LE: pc.less_equal,
    Operator.GT: pc.greater,
    Operator.GE: pc.greater_equal,
}


def rows_matching(condition: Condition, array_of: ArrayOf, length: int) -> pa.Array:
    """The mask of the rows that satisfy `condition`: `length` booleans, none of them null."""
    return pc.fill_null(_evaluated(condition, array_of, length), False)


def _evaluated(condition: Condition, array_of: ArrayOf, length: int) -> pa.Array:
    if isinstance(condition, Predicate):
        return satisfied(condition, array_of(condition.field_id))
    if isinstance(condition, ColumnPair):
        left, right = _plain(array_of(condition.left_id)), _plain(array_of(condition.right_id))
        return compared(left, condition.operator, right)
    is_all = isinstance(condition, AllOf)
    if not condition.parts:
        return pa.repeat(pa.scalar(is_all), length)
    combine = pc.and_kleene if is_all else pc.or_kleene
    return reduce(combine, (_evaluated(part, array_of, length) for part in condition.parts))


def satisfied(predicate: Predicate, column: pa.Array) -> pa.Array:
    """The result of `predicate` for each value of `column`, null where the value is null.

    The null tests (`IS_NULL`, `NOT_NULL`) give true or false for every value.
    """
    array = _plain(column)
    operator = predicate.operator
    if operator is Operator.IS_NULL:
        return array.is_null()
    if operator is Operator.NOT_NULL:
        return array.is_valid()
    if operator is Operator.IS_NAN:
        return pc.is_nan(array)
    if operator is Operator.NOT_NAN:
        return pc.invert(pc.is_nan(array))
    if operator is Operator.STARTS_WITH:
        return pc.starts_with(array, pattern=str(predicate.values[0]))
    if operator is Operator.NOT_STARTS_WITH:
        return pc.invert(pc.starts_with(array, pattern=str(predicate.values[0])))
    if operator is Operator.LIKE:
        return pc.match_like(array, pattern=str(predicate.values[0]))
    if operator is Operator.NOT_LIKE:
        return pc.invert(pc.match_like(array, pattern=str(predicate.values[0])))
    if operator is Operator.IN or operator is Operator.NOT_IN:
        values = values_of(predicate.values, array.type)
        if pa.types.is_floating(array.type) and 0.0 in predicate.values:  # is_in distinguishes 0.0 from -0.0
            values = pa.concat_arrays([values, pa.array([0.0, -0.0], array.type)])
        is_listed = pc.if_else(array.is_valid(), pc.is_in(array, value_set=values), pa.scalar(None, pa.bool_()))
        return is_listed if operator is Operator.IN else pc.invert(is_listed)
    return COMPARISONS[operator](array, scalar_of(predicate.values[0], array.type))


def _plain(array: pa.Array) -> pa.Array:
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def values_of(values: tuple[Bound, ...], arrow_type: pa.DataType) -> pa.Array:
    """The physical `values` as an array of `arrow_type`, into which each of them must fit."""
    if pa.types.is_date32(arrow_type):
        return pa.array(values, pa.int32()).cast(arrow_type)
    if pa.types.is_temporal(arrow_type):
        return pa.array(values, pa.int64()).cast(arrow_type)
    return pa.array(values, arrow_type)


def scalar_of(value: Bound, arrow_type: pa.DataType) -> pa.Scalar:
    """A physical value (days, microseconds, …) as a scalar that compares exactly with a column of `arrow_type`.

    The scalar has a wider type if the value is out of range for `arrow_type`. That happens for leaves written before
    the column's type was promoted.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if pa.types.is_date32(arrow_type):
            return pa.scalar(value, pa.int32()).cast(arrow_type)
        if pa.types.is_temporal(arrow_type):
            return pa.scalar(value, pa.int64()).cast(arrow_type)
        return pa.scalar(value, arrow_type if -(2**31) <= value < 2**31 else pa.int64())
    if isinstance(value, float) and pa.types.is_float32(arrow_type):
        narrow = pa.scalar(value, arrow_type)
        return narrow if narrow.as_py() == value else pa.scalar(value, pa.float64())
    if isinstance(value, Decimal):
        try:
            return pa.scalar(value, arrow_type)
        except pa.ArrowInvalid:
            return pa.scalar(value)
    return pa.scalar(value, arrow_type)
