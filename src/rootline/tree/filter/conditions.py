"""Bound conditions: tests on field ids, joined by AND and OR, and their evaluation on Arrow columns.

Owns: the structure of conditions, the pairs of column types that can be compared, and the evaluation on arrays.
Does not own: binding text or expressions (`filters`), the evaluation on statistics (`pruning`), reading the arrays.
Invariants:
* Values are physical (see `rootline.schemas.content_entry`) and exact. All values of a test have one type.
* There is no NOT: negation is pushed down into the tests.
* Logic is three-valued as in SQL, with null for "unknown". A null on either side of a comparison gives null.
* NaN satisfies IS NAN, `!=` and NOT IN only. Numbers of different types are compared by value, without rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from functools import reduce
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

from rootline.schemas.arrow_values import FALSE, array_from, numpy_from, scalar_from, values_from
from rootline.schemas.content_entry import Bound
from rootline.schemas.errors import Invalid


class Operator(Enum):
    """The operator of a test."""

    EQ = "="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    IN = "in"
    NOT_IN = "not in"
    STARTS_WITH = "starts with"
    NOT_STARTS_WITH = "not starts with"
    LIKE = "like"
    NOT_LIKE = "not like"
    IS_NULL = "is null"
    NOT_NULL = "is not null"
    IS_NAN = "is nan"
    NOT_NAN = "is not nan"


NEGATED: Final = {
    Operator.EQ: Operator.NE,
    Operator.LT: Operator.GE,
    Operator.LE: Operator.GT,
    Operator.IN: Operator.NOT_IN,
    Operator.STARTS_WITH: Operator.NOT_STARTS_WITH,
    Operator.LIKE: Operator.NOT_LIKE,
    Operator.IS_NULL: Operator.NOT_NULL,
    Operator.IS_NAN: Operator.NOT_NAN,
}
NEGATED.update({after: before for before, after in NEGATED.items()})
"""The operator of the negated test. As in SQL, a null satisfies neither of the two."""


@dataclass(frozen=True, slots=True)
class Predicate:
    r"""A test of one column against literal values.

    A null or NaN test has no values, a comparison has one, and IN has an ascending list.
    In a LIKE pattern, a literal `%`, `_` or `\` is escaped with `\`.
    """

    __test__ = False  # keeps pytest from collecting the class as a test case

    field_id: int
    operator: Operator
    values: tuple[Bound, ...] = ()


@dataclass(frozen=True, slots=True)
class ColumnPair:
    """A comparison of two columns of the same row."""

    left_id: int
    operator: Operator
    right_id: int


@dataclass(frozen=True, slots=True)
class AllOf:
    """The conjunction (AND) of its parts, true if there are none."""

    parts: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class AnyOf:
    """The disjunction (OR) of its parts, false if there are none."""

    parts: tuple[Condition, ...] = ()


Condition = Predicate | ColumnPair | AllOf | AnyOf
ALWAYS: Final = AllOf()
NEVER: Final = AnyOf()


def tests_of(condition: Condition) -> Iterator[Predicate | ColumnPair]:
    """Every test of a condition, from left to right."""
    if isinstance(condition, AllOf | AnyOf):
        for part in condition.parts:
            yield from tests_of(part)
    else:
        yield condition


def predicates_of(condition: Condition) -> Iterator[Predicate]:
    """The single-column tests of a condition, from left to right."""
    return (test for test in tests_of(condition) if isinstance(test, Predicate))


def all_of(parts: tuple[Condition, ...]) -> Condition:
    """The AND of `parts`, flattened and simplified."""
    flat = [inner for part in parts for inner in (part.parts if isinstance(part, AllOf) else (part,))]
    if NEVER in flat:
        return NEVER
    return flat[0] if len(flat) == 1 else AllOf(tuple(flat))


def any_of(parts: tuple[Condition, ...]) -> Condition:
    """The OR of `parts`, flattened and simplified."""
    flat = [inner for part in parts for inner in (part.parts if isinstance(part, AnyOf) else (part,))]
    if ALWAYS in flat:
        return ALWAYS
    return flat[0] if len(flat) == 1 else AnyOf(tuple(flat))


_WHOLE: Final = (IntegerType, LongType)
_FLOATING: Final = (FloatType, DoubleType)
_TOO_LARGE: Final = 2.0**63
_NOTHING: Final = scalar_from(0.0, pa.float64())
COMPARISONS: Final[dict[Operator, Callable[[Any, Any], Any]]] = {
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
        return COMPARISONS[operator](left.cast(both), right.cast(both))
    if pa.types.is_integer(left.type) and pa.types.is_floating(right.type):
        return _of_order(_order(left, right), operator, left, right)
    if pa.types.is_floating(left.type) and pa.types.is_integer(right.type):
        return _of_order(-_order(right, left), operator, left, right)
    return COMPARISONS[operator](left, right)


def _order(whole: pa.Array, floating: pa.Array) -> np.ndarray[Any, np.dtype[np.float64]]:
    """-1, 0 or 1 for less, equal or greater, and NaN where the float is NaN. Rows with a null contain any value."""
    exact = numpy_from(whole.fill_null(scalar_from(0, whole.type)))
    other = numpy_from(floating.cast(pa.float64()).fill_null(_NOTHING))
    order: np.ndarray[Any, np.dtype[np.float64]] = np.sign(exact.astype(np.float64) - other)
    is_tie = (exact.astype(np.float64) == other) & (other < _TOO_LARGE)  # conversion may have rounded the integer
    order[is_tie] = _sign(exact[is_tie], other[is_tie].astype(np.int64))
    order[other == _TOO_LARGE] = -1
    return order


def _sign(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return (left > right).astype(np.float64) - (left < right)


def _of_order(order: np.ndarray[Any, Any], operator: Operator, left: pa.Array, right: pa.Array) -> pa.Array:
    found = COMPARISONS[operator](array_from(order), _NOTHING)
    return pc.if_else(pc.and_(left.is_valid(), right.is_valid()), found, scalar_from(None, pa.bool_()))


ArrayOf = Callable[[int], pa.Array]
"""The column of a field id."""


def rows_matching(condition: Condition, array_of: ArrayOf, length: int) -> pa.Array:
    """The mask of the rows that satisfy `condition`: `length` booleans, none of them null."""
    return pc.fill_null(_evaluated(condition, array_of, length), FALSE)


def _evaluated(condition: Condition, array_of: ArrayOf, length: int) -> pa.Array:
    if isinstance(condition, Predicate):
        return satisfied(condition, array_of(condition.field_id))
    if isinstance(condition, ColumnPair):
        left, right = _plain(array_of(condition.left_id)), _plain(array_of(condition.right_id))
        return compared(left, condition.operator, right)
    is_all = isinstance(condition, AllOf)
    if not condition.parts:
        return pa.repeat(scalar_from(is_all, pa.bool_()), length)
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
        values = values_from(predicate.values, array.type)
        if pa.types.is_floating(array.type) and 0.0 in predicate.values:  # is_in distinguishes 0.0 from -0.0
            values = pa.concat_arrays([values, values_from([0.0, -0.0], array.type)])
        is_listed = pc.if_else(array.is_valid(), pc.is_in(array, value_set=values), scalar_from(None, pa.bool_()))
        return is_listed if operator is Operator.IN else pc.invert(is_listed)
    return COMPARISONS[operator](array, scalar_of(predicate.values[0], array.type))


def _plain(array: pa.Array) -> pa.Array:
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def scalar_of(value: Bound, arrow_type: pa.DataType) -> pa.Scalar:
    """A physical value (days, microseconds, …) as a scalar that compares exactly with a column of `arrow_type`.

    The scalar has a wider type if the value is out of range for `arrow_type`. That happens for leaves written before
    the column's type was promoted.
    """
    if isinstance(value, int) and pa.types.is_integer(arrow_type):
        return scalar_from(value, arrow_type if -(2**31) <= value < 2**31 else pa.int64())
    if isinstance(value, float) and pa.types.is_float32(arrow_type):
        narrow = scalar_from(value, arrow_type)
        return narrow if narrow.as_py() == value else scalar_from(value, pa.float64())
    if isinstance(value, Decimal):
        try:
            return scalar_from(value, arrow_type)
        except pa.ArrowInvalid:
            return pa.scalar(value)
    return scalar_from(value, arrow_type)
