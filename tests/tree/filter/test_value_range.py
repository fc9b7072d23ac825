"""Absent, null and NaN in statistics: what one column's statistics say about a test."""

from __future__ import annotations

import math

import pytest

from rootline.schemas.content_entry import FieldStatistics as Stats
from rootline.tree.filter.filters import Operator, Predicate
from rootline.tree.filter.value_range import may_test, must_test, range_of

EQ5 = Predicate(1, Operator.EQ, (5,))
NE5 = Predicate(1, Operator.NE, (5,))
IS_NULL, NOT_NULL = Predicate(1, Operator.IS_NULL), Predicate(1, Operator.NOT_NULL)
IS_NAN, NOT_NAN = Predicate(1, Operator.IS_NAN), Predicate(1, Operator.NOT_NAN)


def verdict(
    test: Predicate, stats: Stats, *, rows: int | None = 10, is_partition_value: bool = False, is_float: bool = False
) -> tuple[bool, bool]:
    """(may, must)"""
    known = range_of(stats, rows, is_partition_value=is_partition_value, is_float=is_float)
    return may_test(test)(known), must_test(test)(known)


@pytest.mark.parametrize("test", [EQ5, NE5, IS_NULL, NOT_NULL])
def test_nothing_known_decides_nothing(test: Predicate) -> None:
    assert verdict(test, Stats()) == (True, False)


def test_null_bounds_of_a_partition_member_mean_that_the_value_is_null() -> None:
    for test, expected in [(EQ5, (False, False)), (NE5, (False, False)), (IS_NULL, (True, True))]:
        assert verdict(test, Stats(), is_partition_value=True) == expected
    assert verdict(NOT_NULL, Stats(), is_partition_value=True) == (False, False)


def test_a_null_upper_bound_of_a_partition_member_reads_as_the_lower() -> None:
    only_lower = Stats(lower_bound=5)
    assert verdict(EQ5, only_lower, is_partition_value=True) == (True, True)
    assert verdict(Predicate(1, Operator.GT, (5,)), only_lower, is_partition_value=True) == (False, False)
    assert verdict(IS_NULL, only_lower, is_partition_value=True) == (False, False)
    assert verdict(Predicate(1, Operator.GT, (5,)), only_lower) == (True, False)


def test_elsewhere_null_bounds_mean_all_null_only_if_the_counts_say_so() -> None:
    assert verdict(EQ5, Stats(value_count=10, null_value_count=10)) == (False, False)
    assert verdict(IS_NULL, Stats(value_count=10, null_value_count=10)) == (True, True)
    assert verdict(EQ5, Stats(null_value_count=10)) == (False, False)
    assert verdict(EQ5, Stats(null_value_count=10), rows=None) == (True, False)
    assert verdict(EQ5, Stats(value_count=10, null_value_count=9)) == (True, False)


def test_a_null_prevents_that_every_row_matches() -> None:
    tight = Stats(5, 5, True, 10, 1)
    assert verdict(EQ5, tight) == (True, False)
    assert verdict(EQ5, Stats(5, 5, True, 10, 0)) == (True, True)
    assert verdict(NE5, Stats(6, 9, True, 10, 0)) == (True, True)
    assert verdict(NE5, Stats(6, 9, True, 10, 1)) == (True, False)


def test_nan_is_outside_all_bounds() -> None:
    mixed = Stats(5.0, 5.0, True, 10, 0, 3)
    assert verdict(EQ5, mixed, is_float=True) == (True, False)
    assert verdict(NE5, mixed, is_float=True) == (True, False)
    assert verdict(IS_NAN, mixed, is_float=True) == (True, False)
    assert verdict(IS_NAN, Stats(5.0, 5.0, True, 10, 0, 0), is_float=True) == (False, False)
    assert verdict(NE5, Stats(5.0, 5.0, True, 10, 0, 0), is_float=True) == (False, False)


def test_a_file_of_nan_and_null_only_matches_no_comparison() -> None:
    hollow = Stats(None, None, None, 10, 4, 6)
    assert verdict(EQ5, hollow, is_float=True) == (False, False)
    assert verdict(NE5, hollow, is_float=True) == (True, False)
    assert verdict(NOT_NAN, hollow, is_float=True) == (False, False)
    assert verdict(IS_NAN, Stats(None, None, None, 10, 0, 10), is_float=True) == (True, True)


def test_nan_may_be_a_partition_value_but_is_no_bound_elsewhere() -> None:
    nan = Stats(math.nan, math.nan)
    assert verdict(IS_NAN, nan, is_partition_value=True, is_float=True) == (True, True)
    assert verdict(EQ5, nan, is_partition_value=True, is_float=True) == (False, False)
    assert verdict(EQ5, nan, is_float=True) == (True, False)


def test_zeros_of_both_signs_are_one_value() -> None:
    zeros = Stats(-0.0, 0.0, True, 3, 0, 0)
    assert verdict(Predicate(1, Operator.EQ, (0.0,)), zeros, is_float=True) == (True, True)
    assert verdict(Predicate(1, Operator.LT, (0.0,)), zeros, is_float=True) == (False, False)


def test_truncated_text_bounds_still_contain() -> None:
    wide = Stats("abcdefghijklmnop", "abcdefghijklmnoq", False, 10, 0)
    inside = "abcdefghijklmnop and more"
    assert verdict(Predicate(1, Operator.EQ, (inside,)), wide) == (True, False)
    assert verdict(Predicate(1, Operator.STARTS_WITH, ("abc",)), wide) == (True, True)
    assert verdict(Predicate(1, Operator.STARTS_WITH, ("abd",)), wide) == (False, False)
    assert verdict(Predicate(1, Operator.NOT_STARTS_WITH, ("abc",)), wide) == (False, False)
    assert verdict(Predicate(1, Operator.NOT_STARTS_WITH, ("b",)), wide) == (True, True)


def test_an_absent_upper_bound_leaves_the_range_open() -> None:
    open_above = Stats("m", None, False, 10, 0)
    assert verdict(Predicate(1, Operator.GT, ("z",)), open_above) == (True, False)
    assert verdict(Predicate(1, Operator.LT, ("b",)), open_above) == (False, False)
    assert verdict(Predicate(1, Operator.GE, ("m",)), open_above) == (True, True)
    assert verdict(Predicate(1, Operator.STARTS_WITH, ("a",)), open_above) == (False, False)
