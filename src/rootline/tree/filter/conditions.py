"""Bound conditions: tests on field ids, joined by AND and OR.

Owns: the structure of conditions.
Does not own: binding text or expressions (`filters`), evaluation on files (`prune`) or rows (`column_predicates`).
Invariants: Values are physical (see `rootline.schemas.content_entry`) and exact. All values of a test have one type.
There is no NOT: negation is pushed down into the tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from rootline.schemas.content_entry import Bound


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
