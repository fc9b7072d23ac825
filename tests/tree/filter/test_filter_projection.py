"""Projections of tests through transforms, held against the transforms themselves."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from pyiceberg.transforms import UnknownTransform, VoidTransform, parse_transform
from pyiceberg.types import (
    DateType,
    DecimalType,
    IntegerType,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
)

from rootline.schemas.bytes.leaf_schema import arrow_type_of_bound, column_of_physical
from rootline.schemas.bytes.transform_values import partition_value
from rootline.tree.filter.conditions import satisfied
from rootline.tree.filter.filters import Operator, Predicate
from rootline.tree.filter.projections import project_inclusive, project_strict

DAY = 86_400_000_000
TEXT = st.text("abc", max_size=5)
CASES: dict[str, tuple[PrimitiveType, tuple[str, ...], st.SearchStrategy[Any]]] = {
    "int": (IntegerType(), ("bucket[3]", "truncate[4]", "identity"), st.integers(-20, 20)),
    "string": (StringType(), ("bucket[3]", "truncate[2]", "identity"), TEXT),
    "decimal": (
        DecimalType(6, 2),
        ("bucket[3]", "truncate[50]"),
        st.integers(-300, 300).map(lambda unscaled: Decimal(unscaled).scaleb(-2)),
    ),
    "date": (DateType(), ("day", "month", "year", "bucket[3]"), st.integers(-800, 800)),
    "timestamp": (TimestampType(), ("hour", "day", "month", "year"), st.integers(-80, 80).map(lambda n: n * DAY // 3)),
    "timestamp_ns": (TimestampNanoType(), ("day", "month", "bucket[3]"), st.integers(-9, 9).map(lambda n: n * DAY * 9)),
}  # fmt: skip
COMPARISONS = (Operator.EQ, Operator.NE, Operator.LT, Operator.LE, Operator.GT, Operator.GE)


def holds(test: Predicate, value: Any, field_type: PrimitiveType) -> bool:
    kind = arrow_type_of_bound(field_type)
    return satisfied(test, column_of_physical([value], kind))[0].as_py() is True


@st.composite
def projections(draw: Callable[..., Any]) -> tuple[PrimitiveType, str, Predicate, Any]:
    field_type, transforms, values = CASES[draw(st.sampled_from(sorted(CASES)))]
    transform = draw(st.sampled_from(transforms))
    operators = [*COMPARISONS, Operator.IN, Operator.NOT_IN]
    if isinstance(field_type, StringType):
        operators += [Operator.STARTS_WITH, Operator.NOT_STARTS_WITH]
    operator = draw(st.sampled_from(operators))
    many = operator in (Operator.IN, Operator.NOT_IN)
    literals = draw(st.lists(values, min_size=1, max_size=3, unique=True)) if many else [draw(values)]
    return field_type, transform, Predicate(1, operator, tuple(sorted(literals))), draw(values)


@settings(deadline=None)
@given(projections())
def test_projections_are_sound_for_every_value(case: tuple[PrimitiveType, str, Predicate, Any]) -> None:
    field_type, text, test, value = case
    transform = parse_transform(text)
    result_type = transform.result_type(field_type)
    assert isinstance(result_type, PrimitiveType)
    result = partition_value(transform, field_type, value)
    matches = holds(test, value, field_type)
    inclusive = project_inclusive(test, transform, field_type, 2)
    if inclusive is not None and matches:
        assert holds(inclusive, result, result_type), "a matching row would be pruned"
    strict = project_strict(test, transform, field_type, 2)
    if strict is not None and holds(strict, result, result_type):
        assert matches, "a row would count as matching that does not"


@pytest.mark.parametrize(
    ("text", "field_type", "test", "expected"),
    [
        ("bucket[8]", StringType(), Predicate(1, Operator.LT, ("a",)), None),
        ("truncate[2]", StringType(), Predicate(1, Operator.NOT_STARTS_WITH, ("abc",)), None),
        ("truncate[2]", StringType(), Predicate(1, Operator.STARTS_WITH, ("abc",)), Predicate(2, Operator.EQ, ("ab",))),
        ("month", DateType(), Predicate(1, Operator.LT, (31,)), Predicate(2, Operator.LE, (0,))),
        ("day", DateType(), Predicate(1, Operator.IS_NULL), Predicate(2, Operator.IS_NULL)),
    ],
)
def test_a_projection_says_as_much_as_it_can(
    text: str, field_type: PrimitiveType, test: Predicate, expected: Predicate | None
) -> None:
    assert project_inclusive(test, parse_transform(text), field_type, 2) == expected


@pytest.mark.parametrize("transform", [VoidTransform(), UnknownTransform("zorder")])
def test_void_and_unknown_transforms_say_nothing(transform: Any) -> None:
    for test in (Predicate(1, Operator.EQ, (1,)), Predicate(1, Operator.IS_NULL)):
        assert project_inclusive(test, transform, IntegerType(), 2) is None
        assert project_strict(test, transform, IntegerType(), 2) is None


def test_timestamps_before_1970_fall_into_the_month_that_holds_them() -> None:
    before = int(dt.datetime(1969, 12, 31, tzinfo=dt.UTC).timestamp()) * 1_000_000
    projected = project_inclusive(Predicate(1, Operator.EQ, (before,)), parse_transform("month"), TimestampType(), 2)
    assert projected == Predicate(2, Operator.EQ, (-1,))
