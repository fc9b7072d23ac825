"""What statistics say about one column's values in one file, and which tests follow from that.

Owns: the meaning of absent, null and NaN in statistics (format page, "Absent and null"). Does not own: conditions of
several tests (`prune`).
Invariants: `may_satisfy` is False only if no row can satisfy the test; `must_satisfy` is True only if every row does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from rootline.schemas.statistics import FieldStatistics
from rootline.tree.filter.filters import Operator, Predicate


@dataclass(frozen=True, slots=True)
class ValueRange:
    """Bounds contain every value that is neither null nor NaN; `None` is unknown. `may_*` True when unknown."""

    lower: Any
    upper: Any
    may_hold_null: bool
    may_hold_nan: bool
    is_all_null: bool
    is_all_nan: bool
    is_without_values: bool  # nulls and NaN only


ALL_NULL: Final = ValueRange(None, None, True, False, True, False, True)
ALL_NAN: Final = ValueRange(None, None, False, True, False, True, True)


def range_of(stats: FieldStatistics, row_count: int | None, *, is_partition_value: bool, is_float: bool) -> ValueRange:
    """What `stats` say; `row_count` stands in for a value count that is absent (`None`: unknown too)."""
    lower, upper = stats.lower_bound, stats.upper_bound
    if is_partition_value:
        if lower is None and upper is None:
            return ALL_NULL
        if lower is not None:
            if lower != lower:  # NaN
                return ALL_NAN
            return ValueRange(lower, lower if upper is None else upper, False, False, False, False, False)
    if is_float:  # NaN bounds of other writers say nothing
        lower = None if lower != lower else lower
        upper = None if upper != upper else upper
    values = row_count if stats.value_count is None else stats.value_count
    nulls, nans = stats.null_value_count, stats.nan_value_count if is_float else 0
    is_all_null = values is not None and nulls == values
    is_all_nan = values is not None and nans == values and values > 0
    is_hollow = values is not None and nulls is not None and nans is not None and nulls + nans == values
    return ValueRange(
        lower,
        upper,
        nulls is None or nulls > 0,
        nans is None or nans > 0,
        is_all_null,
        is_all_nan,
        is_hollow or is_all_null or is_all_nan,
    )


_May = Callable[[ValueRange, tuple[Any, ...]], bool]


def _may_in(known: ValueRange, values: tuple[Any, ...]) -> bool:
    lower, upper = known.lower, known.upper
    return any((lower is None or lower <= value) and (upper is None or value <= upper) for value in values)


def _may_differ(known: ValueRange, values: tuple[Any, ...]) -> bool:
    return known.may_hold_nan or known.lower is None or known.lower != known.upper or known.lower not in values


def _may_start(known: ValueRange, values: tuple[Any, ...]) -> bool:
    prefix, size = values[0], len(values[0])
    return (known.lower is None or known.lower[:size] <= prefix) and (
        known.upper is None or known.upper[:size] >= prefix
    )


def _may_start_otherwise(known: ValueRange, values: tuple[Any, ...]) -> bool:
    if known.lower is None or known.upper is None:
        return True
    return not (known.lower.startswith(values[0]) and known.upper.startswith(values[0]))


_MAY: Final[dict[Operator, _May]] = {
    Operator.EQ: _may_in,
    Operator.IN: _may_in,
    Operator.NE: _may_differ,
    Operator.NOT_IN: _may_differ,
    Operator.LT: lambda known, values: known.lower is None or known.lower < values[0],
    Operator.LE: lambda known, values: known.lower is None or known.lower <= values[0],
    Operator.GT: lambda known, values: known.upper is None or known.upper > values[0],
    Operator.GE: lambda known, values: known.upper is None or known.upper >= values[0],
    Operator.STARTS_WITH: _may_start,
    Operator.NOT_STARTS_WITH: _may_start_otherwise,
}


def may_satisfy(predicate: Predicate, known: ValueRange) -> bool:
    """Whether a row may satisfy `predicate`."""
    operator = predicate.operator
    if operator is Operator.IS_NULL:
        return known.may_hold_null
    if known.is_all_null:
        return False
    if operator is Operator.NOT_NULL:
        return True
    if operator is Operator.IS_NAN:
        return known.may_hold_nan
    if operator is Operator.NOT_NAN:
        return not known.is_without_values
    if known.is_without_values:  # NaN differs from every value and satisfies no other test
        return operator in (Operator.NE, Operator.NOT_IN) and known.may_hold_nan
    return _MAY[operator](known, predicate.values)


def must_satisfy(predicate: Predicate, known: ValueRange) -> bool:
    """Whether every row satisfies `predicate`."""
    operator = predicate.operator
    if operator is Operator.IS_NULL:
        return known.is_all_null
    if known.may_hold_null:
        return False
    if operator is Operator.NOT_NULL:
        return True
    if operator is Operator.IS_NAN:
        return known.is_all_nan
    if known.may_hold_nan:
        return False
    if operator is Operator.NOT_NAN:
        return True
    if known.lower is None and known.upper is None:
        return False
    return _must(operator, known.lower, known.upper, predicate.values)


def _must(operator: Operator, lower: Any, upper: Any, values: tuple[Any, ...]) -> bool:
    first = values[0]
    if operator is Operator.LT:
        return upper is not None and upper < first
    if operator is Operator.LE:
        return upper is not None and upper <= first
    if operator is Operator.GT:
        return lower is not None and lower > first
    if operator is Operator.GE:
        return lower is not None and lower >= first
    if operator in (Operator.EQ, Operator.IN):
        return lower is not None and lower == upper and lower in values
    if operator in (Operator.NE, Operator.NOT_IN):
        return all((lower is not None and lower > value) or (upper is not None and upper < value) for value in values)
    if operator is Operator.STARTS_WITH:
        return lower is not None and upper is not None and lower.startswith(first) and upper.startswith(first)
    size = len(first)
    return (lower is not None and lower[:size] > first) or (upper is not None and upper[:size] < first)
