"""Tables of pruning rules: the flags and the bound of a value range that decide each kind of test.

Owns: the rules that are the same for one file and for the columns of a leaf.
Does not own: the two evaluators (`value_range` for one file, `rootline.tree.scan.leaf_pruning` for a leaf), and tests
of prefixes and value lists, which each evaluator implements itself.
Invariants: Every flag and bound is a member of `ValueRange`. Tests that are in none of these tables test prefixes or
value lists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rootline.tree.filter.conditions import Operator


@dataclass(frozen=True, slots=True)
class Flags:
    """A rule on flags of a range: `is_set` is set (unless `None`), and none of `not_set` is."""

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
