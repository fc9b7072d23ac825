"""The range of a column's values in one file, derived from statistics, and the tests that it decides.

Owns: the meaning of absent, null and NaN in statistics (format page, "Absent and null"), tests on one range, and the
tables of flags and bounds that decide each kind of test, for one file and for the columns of a leaf.
Does not own: conditions of several tests (`pruning`), the vectorized form over a leaf's columns
(`rootline.tree.scan.leaf_pruning`). Each form implements tests of prefixes and value lists itself.
Invariants:
* A `may_test` is False only if no row can satisfy the test. A `must_test` is True only if every row does.
* Both forms agree (checked by `tests/tree/filter/test_prune.py`).
* Every flag and bound in the tables is a member of `ValueRange`. A test that is in no table tests prefixes or a value
  list.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import ge, gt, le, lt
from typing import Any, Final

from rootline.schemas.content_entry import FieldStatistics
from rootline.tree.filter.conditions import Operator, Predicate


@dataclass(frozen=True, slots=True)
class Flags:
    """A rule on the flags of a range: the flag `is_set` is true (if it is given), and no flag in `not_set` is."""

    is_set: str | None = None
    not_set: tuple[str, ...] = ()


_NEVER: Final = Flags("is_without_values", ("is_without_values",))

MAY_FLAGS: Final[Mapping[Operator, Flags]] = {
    Operator.IS_NULL: Flags("may_have_null"),
    Operator.NOT_NULL: Flags(not_set=("is_all_null",)),
    Operator.IS_NAN: Flags("may_have_nan", ("is_all_null",)),
    Operator.NOT_NAN: Flags(not_set=("is_without_values",)),
    Operator.LIKE: Flags(not_set=("is_without_values",)),
    Operator.NOT_LIKE: Flags(not_set=("is_without_values",)),
}
"""The rule for "a row may satisfy the test", for tests that do not use bounds.

A filter with a LIKE pattern has a separate test of the pattern's prefix, which uses bounds.
"""
MUST_FLAGS: Final[Mapping[Operator, Flags]] = {
    Operator.IS_NULL: Flags("is_all_null"),
    Operator.NOT_NULL: Flags(not_set=("may_have_null",)),
    Operator.IS_NAN: Flags("is_all_nan", ("may_have_null",)),
    Operator.NOT_NAN: Flags(not_set=("may_have_null", "may_have_nan")),
    Operator.LIKE: _NEVER,
    Operator.NOT_LIKE: _NEVER,
}
"""The rule for "every row satisfies the test", for tests that do not use bounds."""

MAY_COMPARE: Final = Flags(not_set=("is_without_values",))
"""The further condition for "a row may satisfy the comparison", next to the bounds."""
MAY_DIFFER: Final = MAY_FLAGS[Operator.IS_NAN]
"""A sufficient condition for "a row may satisfy `!=` or NOT IN", since NaN differs from every value."""
MUST_COMPARE: Final = MUST_FLAGS[Operator.NOT_NAN]
"""The further condition for "every row satisfies the comparison", next to the bounds."""

MAY_BOUND: Final[Mapping[Operator, str]] = {
    Operator.LT: "lower",
    Operator.LE: "lower",
    Operator.GT: "upper",
    Operator.GE: "upper",
}
"""The bound to compare for "some value satisfies the test". An unknown bound counts as true."""
MUST_BOUND: Final[Mapping[Operator, str]] = {
    Operator.LT: "upper",
    Operator.LE: "upper",
    Operator.GT: "lower",
    Operator.GE: "lower",
}
"""The bound to compare for "every value satisfies the test". An unknown bound counts as false."""
DIFFERING: Final = frozenset({Operator.NE, Operator.NOT_IN})
EQUALLING: Final = frozenset({Operator.EQ, Operator.IN})


@dataclass(frozen=True, slots=True)
class ValueRange:
    """The range of a column's values in one file.

    The bounds (inclusive) cover every value that is neither null nor NaN, and `None` is an unknown bound. A `may_*`
    flag is true if unknown, an `is_*` flag is false if unknown.
    """

    lower: Any
    upper: Any
    may_have_null: bool
    may_have_nan: bool
    is_all_null: bool
    is_all_nan: bool
    is_without_values: bool  # nulls and NaN only


ALL_NULL: Final = ValueRange(None, None, True, False, True, False, True)
ALL_NAN: Final = ValueRange(None, None, False, True, False, True, True)


def range_of(stats: FieldStatistics, row_count: int | None, *, is_partition_value: bool, is_float: bool) -> ValueRange:
    """The range that `stats` prove. `row_count`, if known, replaces an absent value count."""
    lower, upper = stats.lower_bound, stats.upper_bound
    if is_partition_value:
        if lower is None and upper is None:
            return ALL_NULL
        if lower is not None:
            if lower != lower:  # NaN
                return ALL_NAN
            return ValueRange(lower, lower if upper is None else upper, False, False, False, False, False)
    if is_float:  # NaN bounds by other writers prove nothing
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


Test = Callable[[ValueRange], bool]
_COMPARISONS: Final[dict[Operator, Callable[[Any, Any], bool]]] = {
    Operator.LT: lt,
    Operator.LE: le,
    Operator.GT: gt,
    Operator.GE: ge,
}


def may_test(predicate: Predicate) -> Test:
    """Compile the test "a row may satisfy `predicate`"."""
    flags = MAY_FLAGS.get(predicate.operator)
    if flags is not None:
        return _flag_test(flags)
    compared, has_values = _may_compare(predicate.operator, predicate.values), _flag_test(MAY_COMPARE)
    if predicate.operator in DIFFERING:
        may_differ = _flag_test(MAY_DIFFER)
        return lambda known: may_differ(known) or (has_values(known) and compared(known))
    return lambda known: has_values(known) and compared(known)


def must_test(predicate: Predicate) -> Test:
    """Compile the test "every row satisfies `predicate`"."""
    flags = MUST_FLAGS.get(predicate.operator)
    if flags is not None:
        return _flag_test(flags)
    compared, has_only_values = _must_compare(predicate.operator, predicate.values), _flag_test(MUST_COMPARE)
    return lambda known: has_only_values(known) and compared(known)


def _flag_test(flags: Flags) -> Test:
    is_set, not_set = flags.is_set, flags.not_set
    if is_set is None and len(not_set) == 1:
        (name,) = not_set
        return lambda known: not getattr(known, name)
    return lambda known: (
        (is_set is None or getattr(known, is_set)) and not any(getattr(known, name) for name in not_set)
    )


def _bound_test(operator: Operator, bound: str, value: Any, *, unknown: bool) -> Test:
    compare = _COMPARISONS[operator]

    def test(known: ValueRange) -> bool:
        found = getattr(known, bound)
        return unknown if found is None else compare(found, value)

    return test


def _may_compare(operator: Operator, values: tuple[Any, ...]) -> Test:
    bound = MAY_BOUND.get(operator)
    if bound is not None:
        return _bound_test(operator, bound, values[0], unknown=True)
    if operator in EQUALLING:
        return lambda known: has_one_of(values, known.lower, known.upper)
    if operator in DIFFERING:
        listed = frozenset(values)
        return lambda known: known.lower is None or known.lower != known.upper or known.lower not in listed
    prefix, size = values[0], len(values[0])
    if operator is Operator.STARTS_WITH:
        return lambda known: (
            (known.lower is None or known.lower[:size] <= prefix)
            and (known.upper is None or known.upper[:size] >= prefix)
        )
    return lambda known: not _starts(known, prefix)


def _must_compare(operator: Operator, values: tuple[Any, ...]) -> Test:
    bound = MUST_BOUND.get(operator)
    if bound is not None:
        return _bound_test(operator, bound, values[0], unknown=False)
    if operator in EQUALLING:
        listed = frozenset(values)
        return lambda known: known.lower is not None and known.lower == known.upper and known.lower in listed
    if operator in DIFFERING:
        return lambda known: not has_one_of(values, known.lower, known.upper)
    prefix, size = values[0], len(values[0])
    if operator is Operator.STARTS_WITH:
        return lambda known: _starts(known, prefix)
    return lambda known: (
        (known.lower is not None and known.lower[:size] > prefix)
        or (known.upper is not None and known.upper[:size] < prefix)
    )


def has_one_of(values: Sequence[Any], lower: Any, upper: Any) -> bool:
    """Whether one of the ascending `values` lies within the bounds (inclusive). `None` is an unknown bound."""
    first = 0 if lower is None else bisect_left(values, lower)
    return first < len(values) and (upper is None or values[first] <= upper)


def _starts(known: ValueRange, prefix: str) -> bool:
    """Whether both bounds, and hence every value, start with `prefix`. False if a bound is unknown."""
    lower, upper = known.lower, known.upper
    return lower is not None and upper is not None and lower.startswith(prefix) and upper.startswith(prefix)
