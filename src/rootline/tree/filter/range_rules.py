"""What follows from a range of values, as data: which flags decide a test, and which bound a comparison is made with.

Owns: the rules that one file's range and the ranges of a leaf's columns share. Does not own: the two evaluators
(`value_range` over one range, `rootline.tree.scan.leaf_pruning` over columns), prefixes and lists of values, which each
of them compares in its own way.
Invariants: values only; a flag or bound is a member of `ValueRange`; tests that are in none of these tables are
prefixes and lists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rootline.tree.filter.conditions import Operator


@dataclass(frozen=True, slots=True)
class Flags:
    """True where `held`, if one is named, is set and none of `not_held` is."""

    held: str | None = None
    not_held: tuple[str, ...] = ()


_NEVER: Final = Flags("is_without_values", ("is_without_values",))

MAY_FLAGS: Final[Mapping[Operator, Flags]] = {
    Operator.IS_NULL: Flags("may_hold_null"),
    Operator.NOT_NULL: Flags(not_held=("is_all_null",)),
    Operator.IS_NAN: Flags("may_hold_nan", ("is_all_null",)),
    Operator.NOT_NAN: Flags(not_held=("is_without_values",)),
    Operator.LIKE: Flags(not_held=("is_without_values",)),
    Operator.NOT_LIKE: Flags(not_held=("is_without_values",)),
}
"""Whether a row may satisfy a test that bounds say nothing about: a filter tests a pattern's prefix beside it."""
MUST_FLAGS: Final[Mapping[Operator, Flags]] = {
    Operator.IS_NULL: Flags("is_all_null"),
    Operator.NOT_NULL: Flags(not_held=("may_hold_null",)),
    Operator.IS_NAN: Flags("is_all_nan", ("may_hold_null",)),
    Operator.NOT_NAN: Flags(not_held=("may_hold_null", "may_hold_nan")),
    Operator.LIKE: _NEVER,
    Operator.NOT_LIKE: _NEVER,
}
"""Whether every row satisfies it."""

MAY_COMPARE: Final = Flags(not_held=("is_without_values",))
"""What must hold besides, for a row that may satisfy a comparison."""
MAY_DIFFER: Final = MAY_FLAGS[Operator.IS_NAN]
"""What is enough for a row that may satisfy `!=` or NOT IN: NaN differs from every value."""
MUST_COMPARE: Final = MUST_FLAGS[Operator.NOT_NAN]
"""What must hold besides, for every row to satisfy a comparison."""

MAY_BOUND: Final[Mapping[Operator, str]] = {
    Operator.LT: "lower",
    Operator.LE: "lower",
    Operator.GT: "upper",
    Operator.GE: "upper",
}
"""The bound whose comparison says whether some value satisfies it; True where the bound is unknown."""
MUST_BOUND: Final[Mapping[Operator, str]] = {
    Operator.LT: "upper",
    Operator.LE: "upper",
    Operator.GT: "lower",
    Operator.GE: "lower",
}
"""The bound whose comparison says whether every value satisfies it; False where the bound is unknown."""
DIFFERING: Final = frozenset({Operator.NE, Operator.NOT_IN})
EQUALLING: Final = frozenset({Operator.EQ, Operator.IN})
