"""What the text of a filter may be, and how the wrong place is shown."""

from __future__ import annotations

import datetime

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from pyiceberg.expressions import EqualTo
from pyiceberg.expressions.parser import parse
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
)

from rootline.schemas.errors import Invalid
from rootline.tree.filter.conditions import ALWAYS, NEVER, AllOf, AnyOf, ColumnPair, Operator, Predicate
from rootline.tree.filter.filters import bind_filter

NAMES = ["i", "a b", "in", "order", "Case", 'say "hi"', "true", "not", "null", "x.y", "größe"]
SCHEMA = Schema(
    *(NestedField(at, name, IntegerType()) for at, name in enumerate(NAMES, start=1)),
    NestedField(20, "s", StringType()),
    NestedField(21, "st", StructType(NestedField(22, "a b", IntegerType()), NestedField(23, "from", StringType()))),
    NestedField(24, "b", BooleanType()),
    NestedField(25, "dt", DateType()),
    NestedField(26, "d", DecimalType(9, 2)),
    NestedField(27, "l", LongType()),
    NestedField(28, "li", ListType(29, IntegerType())),
)


def bound(text: str) -> object:
    return bind_filter(text, SCHEMA).condition


@pytest.mark.parametrize(
    ("text", "field_id"),
    [
        ('"a b" = 1', 2),
        ("in = 1", 3),
        ('"in" = 1', 3),
        ("order = 1", 4),
        ("Case = 1", 5),
        ('"Case" = 1', 5),
        ('"say ""hi""" = 1', 6),
        ('"true" = 1', 7),
        ('"not" = 1', 8),
        ('"null" = 1', 9),
        ('"x.y" = 1', 10),
        ("x.y = 1", 10),
        ("größe = 1", 11),
        ('st."a b" = 1', 22),
        ('"st"."a b" = 1', 22),
        ('1 = "a b"', 2),
    ],
)
def test_a_column_of_any_name_can_be_asked_for(text: str, field_id: int) -> None:
    assert bound(text) == Predicate(field_id, Operator.EQ, (1,))


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("in in (1, 1, 2)", Predicate(3, Operator.IN, (1, 2))),
        ("in Not In (1, 2)", Predicate(3, Operator.NOT_IN, (1, 2))),
        ("i in (1, 1.5)", Predicate(1, Operator.EQ, (1,))),
        ("st.from LIKE 'a%'", Predicate(23, Operator.STARTS_WITH, ("a",))),
        ("s not like 'a'", Predicate(20, Operator.NE, ("a",))),
        ("s like 'a%%'", Predicate(20, Operator.STARTS_WITH, ("a",))),
        (r"s like '10\%\_\\\x%'", Predicate(20, Operator.STARTS_WITH, (r"10%_\\x",))),
        ("s like '%a'", Predicate(20, Operator.LIKE, ("%a",))),
        (r"s like 'a\%\_b'", Predicate(20, Operator.EQ, ("a%_b",))),
        (
            r"s like 'a\__%'",
            AllOf((Predicate(20, Operator.STARTS_WITH, ("a_",)), Predicate(20, Operator.LIKE, (r"a\__%",)))),
        ),
        (
            "s not like 'a_'",
            AnyOf((Predicate(20, Operator.NOT_STARTS_WITH, ("a",)), Predicate(20, Operator.NOT_LIKE, ("a_",)))),
        ),
        ("s = 'it''s'", Predicate(20, Operator.EQ, ("it's",))),
        ("s = 'two\nlines'", Predicate(20, Operator.EQ, ("two\nlines",))),
        ("s = 'C:\\'", Predicate(20, Operator.EQ, ("C:\\",))),
        ("s in ('+', '<=', 'a and b')", Predicate(20, Operator.IN, ("+", "<=", "a and b"))),
        ("i between -1 and 2.5", AllOf((Predicate(1, Operator.GE, (-1,)), Predicate(1, Operator.LE, (2,))))),
        ("i not between 1 and 2", AnyOf((Predicate(1, Operator.LT, (1,)), Predicate(1, Operator.GT, (2,))))),
        ("i=1or i=2", AnyOf((Predicate(1, Operator.EQ, (1,)), Predicate(1, Operator.EQ, (2,))))),
        ("i in (1, 2.0, 2.5, -3e0)", Predicate(1, Operator.IN, (-3, 1, 2))),
        ("l < 1e3", Predicate(27, Operator.LT, (1000,))),
        ("i <> +1", Predicate(1, Operator.NE, (1,))),
        ("b = TRUE", Predicate(24, Operator.EQ, (True,))),
        ("false = b", Predicate(24, Operator.EQ, (False,))),
        ("not not true", ALWAYS),
        ("not (true and i = 1 and false)", ALWAYS),
        ("true and false", NEVER),
        ("not i is null and i is not null", AllOf((Predicate(1, Operator.NOT_NULL),) * 2)),
    ],
)
def test_words_signs_and_literals_mean_what_they_mean_in_sql(text: str, condition: object) -> None:
    assert bound(text) == condition


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("i + 1 > 60", r"'\+' is arithmetic, .* at character 3: i \+ <-- here 1 > 60"),
        ("60 < i*2", r"'\*' is arithmetic, .* at character 7: 60 < i\* <-- here 2"),
        ("i = 1 and l -1 = 3", r"'-' is arithmetic, .* at character 13: i = 1 and l - <-- here 1 = 3"),
        ("i = - l", "'-' is arithmetic"),
        ("(i / 2) = 1", "'/' is arithmetic, .* at character 4"),
        ("s || 'x' = 'y'", r"'\|\|' is arithmetic"),
        ("lower(s) = 'ua'", "lower is called, and filters have no functions; .* at character 6"),
        ("i = ", "a column or a literal is expected; at character 5: i =  <-- here"),
        ("", "a column or a literal is expected; at character 1"),
        ("i", "a comparison such as = is expected after a column; at character 2: i <-- here"),
        ("1", "a comparison such as = is expected after a literal"),
        ("i = 1 2", "the filter should end here; at character 7: i = 1 2 <-- here"),
        ("i = 1)", "the filter should end here; at character 6"),
        ("(i = 1", "a parenthesis is not closed"),
        ("i = 'abc", "a quote is opened here and never closed; at character 5"),
        ('"a b = 1', "a quote is opened here and never closed; at character 1"),
        ('"" = 1', "a column's name is expected"),
        ("i in 1", "a list of values in parentheses is expected after IN; at character 6"),
        ("i in ()", "a column or a literal is expected; at character 7"),
        ("s in (a, b)", "a list of IN contains literals only; write strings in single quotes; at character 7"),
        ("i in (1 2)", "a comma or a closing parenthesis"),
        ("i is 5", "NULL or NAN is expected after IS"),
        ("i not is null", "a comparison such as = is expected"),
        ("s like i", "a string in single quotes is expected after LIKE"),
        ("i between 1 or 2", "AND is expected between the two bounds"),
        ("1 = 2", "two literals are compared"),
        ("i = " + "9" * 5000, "the number is too long: at most 400 digits are read; at character 5"),
        ("i < -1e" + "9" * 5000, "the number is too long: at most 400 digits are read"),
        ("i = 1x", "the filter should end here; at character 6"),
        ("i = null", r"write IS NULL|column null"),
        ("x = nan", "no column 'x'; .* at character 1: x <-- here = nan"),
        ("i = NaN", "no value equals NAN: write IS NAN"),
        ("i = 1 and CAR = 2", "no column 'CAR'; the table has .* at character 11: i = 1 and CAR <-- here = 2"),
        ("case = 1", "no column 'case', but 'Case': names are case-sensitive"),
        ("ST.from = 'x'", "no column 'ST.from', but 'st.from'"),
        ("li.element = 1", "lies inside a list"),
        ("s.x = 1", "no column 's.x'"),
        ("not " * 500 + "i = 1", "nested too deeply"),
        ("(" * 65 + "i = 1" + ")" * 65, "nests 65 parentheses"),
        ("i = 1; drop table x", "the filter should end here; at character 6"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_shown_where_it_is(text: str, reason: str) -> None:
    with pytest.raises(Invalid, match=reason) as caught:
        bind_filter(text, Schema(*(field for field in SCHEMA.fields if field.name != "null")))
    assert caught.value.code == "filter-invalid"
    assert len(caught.value.message) < 500


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("dt > 5", r"column dt is a date, and 5 is a number: write a string, as in '2024-01-31'"),
        ("dt in (20240101)", "and 20240101 is a number"),
        ("s > 5", "column s is a string, and 5 is not: write it in single quotes, '5'"),
        ('s = "abc"', r"there is no column 'abc'; .*write a string in single quotes"),
    ],
)
def test_a_literal_of_another_kind_is_refused_with_the_way_to_write_it(text: str, reason: str) -> None:
    """A number for a date would count days, and match nothing of what its writer means."""
    with pytest.raises(Invalid, match=reason) as caught:
        bind_filter(text, SCHEMA)
    assert caught.value.code == "filter-invalid"
    assert "Literal" not in caught.value.message


def test_a_place_far_into_the_text_is_shown_with_its_neighbours_only() -> None:
    with pytest.raises(Invalid, match=r"at character 9008: ….*i +\+ <-- here 1 = 2 or .*…; write") as caught:
        bound("i = 1 or " * 1000 + "  i    + 1 = 2" + " or i = 1" * 1000)
    assert len(caught.value.message) < 400


def test_a_name_of_any_length_is_refused_in_a_short_message() -> None:
    with pytest.raises(Invalid, match="there is no column 'aaa") as caught:
        bound("a" * 1_000_000 + " = 1")
    assert len(caught.value.message) < 2_000


def test_parentheses_inside_texts_do_not_nest() -> None:
    assert bound("s = '" + "(" * 100 + "'") == Predicate(20, Operator.EQ, ("(" * 100,))


def test_a_list_may_have_any_number_of_values() -> None:
    numbers = ", ".join(str(value * 7919 % 100_003) for value in range(10_000))
    condition = bound(f"i in ({numbers}) and not s in ({', '.join(repr(str(value)) for value in range(10_000))})")
    assert isinstance(condition, AllOf)
    numbers_in, texts = condition.parts
    assert isinstance(numbers_in, Predicate)
    assert isinstance(texts, Predicate)
    assert numbers_in.values == tuple(sorted(numbers_in.values))
    assert (len(numbers_in.values), len(texts.values)) == (10_000, 10_000)


def test_many_tests_need_no_deep_stack() -> None:
    condition = bound(" or ".join(f"i = {value}" for value in range(9_999)))
    assert isinstance(condition, AnyOf)
    assert len(condition.parts) == 9_999


@pytest.mark.parametrize("operator", ["=", "!=", "<", "<=", ">", ">="])
def test_a_column_may_be_compared_with_another(operator: str) -> None:
    assert bound(f'i {operator} st."a b"') == ColumnPair(1, Operator(operator), 22)
    negated = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}[operator]
    assert bound(f"not (i {operator} l)") == ColumnPair(1, Operator(negated), 27)
    assert bind_filter(f"i {operator} l", SCHEMA).field_ids == {1, 27}


@pytest.mark.parametrize("text", ["i = s", "b < i", "dt = s", "st = st", "i = li", "d between s and 5"])
def test_columns_of_different_kinds_are_not_compared(text: str) -> None:
    with pytest.raises(Invalid, match="can be compared"):
        bound(text)


WORDS = st.sampled_from(["i", "l", "Case", "order", "d"])
NUMBERS = st.one_of(st.integers(-5, 5).map(str), st.sampled_from(["1.5", "-2.25", "0.0"]))
TESTS = st.one_of(
    st.builds("{} {} {}".format, WORDS, st.sampled_from(["=", "==", "!=", "<>", "<", "<=", ">", ">="]), NUMBERS),
    st.builds("{} {} {}".format, NUMBERS, st.sampled_from(["=", "<", "<=", ">", ">="]), WORDS),
    st.builds(
        "{} {} ({}, {})".format, WORDS, st.sampled_from(["in", "NOT IN"]), st.integers(-5, 5), st.integers(-5, 5)
    ),
    st.builds("{} between {} AND {}".format, WORDS, NUMBERS, NUMBERS),
    st.builds("{} IS {}".format, WORDS, st.sampled_from(["null", "NOT NULL"])),
    st.builds(
        "s {} '{}'".format, st.sampled_from(["like", "not like", "=", "<"]), st.sampled_from(["a%", "b", "it''s", ""])
    ),
    st.builds("dt {} '2013-01-{:02}'".format, st.sampled_from(["=", "<"]), st.integers(1, 31)),
    st.sampled_from(["b = true", "False = b", "st.from = 'x'"]),
)
FILTERS = st.recursive(
    TESTS,
    lambda parts: st.one_of(
        st.builds("({}) {} ({})".format, parts, st.sampled_from(["and", "OR"]), parts),
        st.builds("{} {} {}".format, parts, st.sampled_from(["and", "OR"]), parts),
        st.builds("not {}".format, parts),
    ),
    max_leaves=6,
)


@settings(deadline=None)
@given(FILTERS)
def test_what_pyiceberg_reads_means_the_same_here(text: str) -> None:
    assert bind_filter(text, SCHEMA).condition == bind_filter(parse(text), SCHEMA).condition


def test_an_expression_may_hold_a_date_or_a_moment_as_python_has_it() -> None:
    day, moment = datetime.date(2024, 1, 31), datetime.datetime(2024, 1, 31, 12, 30)
    bind_filter(EqualTo("dt", day), SCHEMA)
    with_moment = Schema(NestedField(1, "ts", TimestampType()))
    bind_filter(EqualTo("ts", moment), with_moment)
    with pytest.raises(Invalid, match="is a number: write a string, as in '2024-01-31'"):
        bind_filter(EqualTo("ts", 1_704_067_200_000_000), with_moment)
