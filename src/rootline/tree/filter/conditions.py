"""Bound conditions: tests on field ids, joined by AND and OR.

Owns: their form. Does not own: how text or expressions become conditions (`filters`), what they say about files
(`prune`) or rows (`column_predicates`).
Invariants: values are physical (see `rootline.schemas.content_entry`), exact, and of one type
in one test. No NOT is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from rootline.schemas.content_entry import Bound


class Operator(Enum):
    """What a test asks of one column."""

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
"""What is true of the rows for which a test is false; a null satisfies neither, as in SQL."""


@dataclass(frozen=True, slots=True)
class Predicate:
    r"""One column against its values: none for null and NaN tests, one for comparisons, some for IN (ascending).

    A pattern of LIKE has `\` before each `%`, `_` and `\` that stands for itself.
    """

    __test__ = False  # not a test case, whatever pytest thinks of the name

    field_id: int
    operator: Operator
    values: tuple[Bound, ...] = ()


@dataclass(frozen=True, slots=True)
class ColumnPair:
    """One column compared with another of the same row."""

    left_id: int
    operator: Operator
    right_id: int


@dataclass(frozen=True, slots=True)
class AllOf:
    """AND; without parts it is true."""

    parts: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class AnyOf:
    """OR; without parts it is false."""

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
    """Those tests that compare a column with values."""
    return (test for test in tests_of(condition) if isinstance(test, Predicate))


def all_of(parts: tuple[Condition, ...]) -> Condition:
    """AND of `parts`, flattened."""
    flat = [inner for part in parts for inner in (part.parts if isinstance(part, AllOf) else (part,))]
    if NEVER in flat:
        return NEVER
    return flat[0] if len(flat) == 1 else AllOf(tuple(flat))


def any_of(parts: tuple[Condition, ...]) -> Condition:
    """OR of `parts`, flattened."""
    flat = [inner for part in parts for inner in (part.parts if isinstance(part, AnyOf) else (part,))]
    if ALWAYS in flat:
        return ALWAYS
    return flat[0] if len(flat) == 1 else AnyOf(tuple(flat))
