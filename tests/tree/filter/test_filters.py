"""Filters: from text to tests on field ids."""

from __future__ import annotations

from decimal import Decimal

import pytest
from pyiceberg.expressions import AlwaysTrue, EqualTo, Not
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from rootline.schemas.errors import Invalid
from rootline.tree.filter.filters import ALWAYS, NEVER, AllOf, AnyOf, Operator, Predicate, bind_filter

SCHEMA = Schema(
    NestedField(1, "i", IntegerType()),
    NestedField(2, "l", LongType(), required=True),
    NestedField(3, "f", FloatType()),
    NestedField(4, "d", DecimalType(9, 2)),
    NestedField(5, "s", StringType()),
    NestedField(6, "t", TimestampType()),
    NestedField(7, "tz", TimestamptzType()),
    NestedField(8, "dt", DateType()),
    NestedField(9, "u", UUIDType()),
    NestedField(10, "b", BooleanType()),
    NestedField(11, "st", StructType(NestedField(12, "x", IntegerType(), required=True))),
    NestedField(13, "li", ListType(14, IntegerType())),
    NestedField(15, "ns", TimestampNanoType()),
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i = 1", Predicate(1, Operator.EQ, (1,))),
        ("1 < i", Predicate(1, Operator.GT, (1,))),
        ("f = 0.1", Predicate(3, Operator.EQ, (0.10000000149011612,))),
        ("d = 10.5", Predicate(4, Operator.EQ, (Decimal("10.50"),))),
        ("dt = '2013-01-01'", Predicate(8, Operator.EQ, (15706,))),
        ("t >= '2013-01-01'", Predicate(6, Operator.GE, (1356998400000000,))),
        ("t >= '2013-01-01 10:00:00'", Predicate(6, Operator.GE, (1357034400000000,))),
        ("tz < '2013-01-01T00:00:00Z'", Predicate(7, Operator.LT, (1356998400000000,))),
        ("ns < '2013-01-01'", Predicate(15, Operator.LT, (1356998400000000000,))),
        ("i in (3, 1, 2)", Predicate(1, Operator.IN, (1, 2, 3))),
        ("s like 'ab%'", Predicate(5, Operator.STARTS_WITH, ("ab",))),
        ("b = true", Predicate(10, Operator.EQ, (True,))),
        ("st.x is null", Predicate(12, Operator.IS_NULL)),
        ("st is not null", Predicate(11, Operator.NOT_NULL)),
        ("true", ALWAYS),
        ("false", NEVER),
        ("i = 1 and (s = 'a' and b = true)", AllOf((Predicate(1, Operator.EQ, (1,)), Predicate(5, Operator.EQ, ("a",)),
                                                     Predicate(10, Operator.EQ, (True,))))),
    ],
)  # fmt: skip
def test_text_becomes_tests_on_field_ids(text: str, expected: object) -> None:
    assert bind_filter(text, SCHEMA).condition == expected


def test_negation_is_carried_down_to_the_tests() -> None:
    bound = bind_filter("not (i = 1 or s like 'ab%')", SCHEMA)
    assert bound.condition == AllOf((Predicate(1, Operator.NE, (1,)), Predicate(5, Operator.NOT_STARTS_WITH, ("ab",))))
    assert bind_filter("not (i = 1 and l = 2)", SCHEMA).condition == AnyOf(
        (Predicate(1, Operator.NE, (1,)), Predicate(2, Operator.NE, (2,)))
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i > 60.5", Predicate(1, Operator.GE, (61,))),
        ("i <= 60.5", Predicate(1, Operator.LE, (60,))),
        ("i = 1.5", NEVER),
        ("i != 1.5", Predicate(1, Operator.NOT_NULL)),
        ("i < 3000000000", Predicate(1, Operator.NOT_NULL)),
        ("i > 3000000000", NEVER),
        ("i < -3000000000", NEVER),
        ("i >= -3000000000", Predicate(1, Operator.NOT_NULL)),
        ("d <= 10.555", Predicate(4, Operator.LE, (Decimal("10.55"),))),
        ("d > 10.555", Predicate(4, Operator.GE, (Decimal("10.56"),))),
        ("d < 99999999999", Predicate(4, Operator.NOT_NULL)),
    ],
)
def test_a_literal_that_the_type_cannot_hold_is_never_rounded(text: str, expected: object) -> None:
    assert bind_filter(text, SCHEMA).condition == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("i >", "cannot be read"),
        ("x = 1", "no column 'x'"),
        ("i = 'abc'", "column i is a int"),
        ("s > 5", "column s is a string"),
        ("i is nan", "no NaN"),
        ("li.element = 3", "inside a list"),
        ("li = 3", "only IS NULL"),
        ("t = 'yesterday'", "column t is a timestamp"),
        ("i like 'a%'", "LIKE works on strings"),
        ("(" * 100 + "i = 1" + ")" * 100, "nests 100"),
        ("i = 1 or " * 20_000 + "i = 1", "more than 10000 tests"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(Invalid, match=reason) as caught:
        bind_filter(text, SCHEMA)
    assert caught.value.code == "filter-invalid"


def test_expressions_of_pyiceberg_are_taken_too() -> None:
    assert bind_filter(Not(EqualTo("i", 1)), SCHEMA).condition == Predicate(1, Operator.NE, (1,))
    assert bind_filter(AlwaysTrue(), SCHEMA).is_always_true
    assert bind_filter(None, SCHEMA).is_always_true


def test_a_filter_knows_the_columns_that_it_reads() -> None:
    assert bind_filter("i = 1 or (s = 'a' and st.x = 3)", SCHEMA).field_ids == {1, 5, 12}
