"""Whole filters over the statistics of entries, expressions included, one by one and over a leaf at once."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, DoubleType, IntegerType, ListType, NestedField, StringType, StructType

from rootline.schemas.bytes.leaf_codec import LeafContent, decode_leaf, encode_leaf
from rootline.schemas.content_entry import (
    ContentEntry,
    ContentStats,
    ContentType,
    FieldStatistics,
    FileFormat,
    Status,
    VersionInfo,
)
from rootline.schemas.table_definition import Expression, PartitionSpec, TableDefinition
from rootline.tree.filter.conditions import rows_matching
from rootline.tree.filter.pruning import PruningFilter, entry_may_match, may_match, must_match
from rootline.tree.scan.leaf_pruning import prune_leaf
from tests.support.examples import examples

NUMBER, RATIO, TEXT, DAY, NESTED, TAGS, MONTH, BUCKET, VOID = 1, 2, 3, 4, 6, 7, 9, 10, 11
DEFINITION = TableDefinition(
    table_uuid=uuid.UUID(int=1),
    schemas=(
        Schema(
            NestedField(NUMBER, "number", IntegerType()),
            NestedField(RATIO, "ratio", DoubleType()),
            NestedField(TEXT, "text", StringType()),
            NestedField(DAY, "day", DateType()),
            NestedField(5, "pair", StructType(NestedField(NESTED, "left", IntegerType()))),
            NestedField(TAGS, "tags", ListType(8, StringType())),
        ),
    ),
    current_schema_id=0,
    expressions=(
        Expression(MONTH, (DAY,), "month", "day_month"),
        Expression(BUCKET, (NUMBER,), "bucket[4]", "number_bucket"),
        Expression(VOID, (TEXT,), "void", "text_void"),
        Expression(12, (TEXT,), "zorder", "text_zorder"),
    ),
    partition_specs=(PartitionSpec(0), PartitionSpec(1, (MONTH, BUCKET)), PartitionSpec(2, (TEXT,))),
    default_spec_id=0,
    sort_orders=(),
    default_sort_order_id=0,
    last_column_id=12,
    properties={},
)


def may(where: str, stats: ContentStats, spec_id: int | None = 0, rows: int | None = 10) -> bool:
    return may_match(PruningFilter.of(where, DEFINITION), stats, rows, spec_id)


def must(where: str, stats: ContentStats, spec_id: int | None = 0, rows: int | None = 10) -> bool:
    return must_match(PruningFilter.of(where, DEFINITION), stats, rows, spec_id)


def value(bound: Any) -> FieldStatistics:
    return FieldStatistics(lower_bound=bound, upper_bound=bound)


def test_a_month_partition_prunes_a_filter_on_days() -> None:
    january_1970 = {MONTH: value(0)}
    assert may("day = '1970-01-15'", january_1970, 1)
    assert not may("day = '1970-02-01'", january_1970, 1)
    assert not may("day >= '1970-02-01'", january_1970, 1)
    assert must("day < '1970-02-01'", january_1970, 1)
    assert not must("day < '1970-01-31'", january_1970, 1)
    assert must("day != '1970-02-03'", january_1970, 1)


def test_a_bucket_partition_prunes_equality_only() -> None:
    pruning = PruningFilter.of("number = 7", DEFINITION)
    kept = [bucket for bucket in range(4) if may_match(pruning, {BUCKET: value(bucket)}, 10, 1)]
    assert len(kept) == 1
    assert all(may("number > 7", {BUCKET: value(bucket)}, 1) for bucket in range(4))
    assert all(may("number != 7", {BUCKET: value(bucket)}, 1) for bucket in range(4))
    assert [bucket for bucket in range(4) if not must("number != 7", {BUCKET: value(bucket)}, 1)] == kept


def test_a_null_partition_value_matches_is_null_only() -> None:
    unknown_day = {MONTH: FieldStatistics()}
    assert may("day is null", unknown_day, 1)
    assert must("day is null", unknown_day, 1)
    assert not may("day is not null", unknown_day, 1)
    assert not may("day > '1970-01-01'", unknown_day, 1)


def test_null_bounds_in_a_leafs_aggregates_are_unknown() -> None:
    assert may("day > '1970-01-01'", {MONTH: FieldStatistics()}, None, None)
    assert not must("day is null", {MONTH: FieldStatistics()}, None, None)


def test_void_and_unknown_expressions_never_prune() -> None:
    stats = {VOID: FieldStatistics(), 12: value("x")}
    assert may("text = 'a'", stats, 1)
    assert may("text is not null", stats, 1)
    assert not must("text is null", stats, 1)


def test_absent_statistics_never_prune() -> None:
    for where in ("number = 1", "text is null", "ratio is nan", "pair.left > 3", "tags is null", "pair is not null"):
        assert may(where, {})
        assert not must(where, {})


def test_conditions_combine() -> None:
    stats = {NUMBER: FieldStatistics(1, 5, True, 10, 0), TEXT: FieldStatistics("a", "c", True, 10, 0)}
    assert not may("number > 5 and text = 'b'", stats)
    assert may("number > 5 or text = 'b'", stats)
    assert must("number < 6 and text < 'd'", stats)
    assert not must("number < 6 and text < 'c'", stats)
    assert must("number < 6 or text < 'c'", stats)


def test_an_empty_file_matches_nothing() -> None:
    assert not may("number = 1", {}, rows=0)
    assert not may("true", {}, rows=0)


def test_a_filter_names_columns_of_the_schema_that_it_is_given() -> None:
    older = Schema(NestedField(NUMBER, "amount", IntegerType()), schema_id=3)
    pruning = PruningFilter.of("amount = 7", DEFINITION, older)
    assert not may_match(pruning, {NUMBER: FieldStatistics(1, 5)}, 10, 0)


def entry(stats: ContentStats, spec_id: int, rows: int = 10) -> ContentEntry:
    info = VersionInfo(Status.EXISTING, 1, 1, 1)
    return ContentEntry(ContentType.DATA, "data/x", FileFormat.PARQUET, info, spec_id, rows, 100, content_stats=stats)


TEXTS = st.sampled_from(["", "a", "ab", "abc", "b", "ba"])
NUMBERS = st.integers(-3, 3)
RATIOS = st.sampled_from([-1.5, -0.0, 0.0, 2.5, float("nan")])
COUNTS = st.none() | st.integers(0, 3)


@st.composite
def column_statistics(draw: Callable[..., Any], values: st.SearchStrategy[Any], is_float: bool) -> FieldStatistics:
    return FieldStatistics(
        draw(st.none() | values),
        draw(st.none() | values),
        None,
        draw(st.none() | st.integers(1, 3)),
        draw(COUNTS),
        draw(COUNTS) if is_float else None,
    )


@st.composite
def entry_statistics(draw: Callable[..., Any]) -> dict[int, FieldStatistics]:
    found: dict[int, FieldStatistics] = {}
    for field_id, values in ((NUMBER, NUMBERS), (TEXT, TEXTS), (DAY, NUMBERS), (MONTH, NUMBERS), (BUCKET, NUMBERS)):
        if draw(st.booleans()):
            found[field_id] = draw(column_statistics(values, False))
    if draw(st.booleans()):
        found[RATIO] = draw(column_statistics(RATIOS, True))
    return found


LONG = [
    ("number", ", ".join(str(value) for value in range(-30, 33, 3))),
    ("ratio", ", ".join(str(value / 2) for value in range(-9, 21))),
    ("text", ", ".join(f"'{first}{second}'" for first in "abcde" for second in ["", "a", "b", "é", "z"])),
    ("day", ", ".join(f"'1970-01-{day:02}'" for day in range(1, 29))),
]
"""Lists of so many values that each entry is searched in them."""

PATTERNS = ["%", "_", "_b", "%b%"]
FILTERS = st.recursive(
    st.one_of(
        st.builds("number {} {}".format, st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), NUMBERS),
        st.builds("ratio {} {}".format, st.sampled_from(["=", "!=", "<", ">="]), st.sampled_from([-1.5, 0.0, 2.5])),
        st.builds("text {} '{}'".format, st.sampled_from(["=", "!=", "<", ">="]), TEXTS),
        st.builds("text {} '{}{}'".format, st.sampled_from(["like", "not like"]), TEXTS, st.sampled_from(PATTERNS)),
        st.builds("day {} '1970-0{}-15'".format, st.sampled_from(["=", "!=", "<", ">="]), st.integers(1, 3)),
        st.builds("{} in ({}, 9)".format, st.sampled_from(["number", "not number"]), NUMBERS),
        st.sampled_from([f"{column} {sign} ({listed})" for column, listed in LONG for sign in ("in", "not in")]),
        st.builds(
            "{} {}".format, st.sampled_from(["number", "text", "day", "ratio", "pair.left"]),
            st.sampled_from(["is null", "is not null"]),
        ),
        st.sampled_from(["ratio is nan", "ratio is not nan", "number not in (1, 2)"]),
    ),
    lambda parts: st.builds("({}) {} ({})".format, parts, st.sampled_from(["and", "or"]), parts),
    max_leaves=3,
)  # fmt: skip


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(200))
@given(FILTERS, st.lists(entry_statistics(), min_size=1, max_size=6), st.sampled_from([0, 1, 2]), st.integers(0, 3))
def test_a_mask_over_a_leaf_says_what_each_entry_says(
    where: str, statistics: list[dict[int, FieldStatistics]], spec_id: int, rows: int
) -> None:
    pruning = PruningFilter.of(where, DEFINITION)
    entries = [entry(stats, spec_id, rows) for stats in statistics]
    encoded = encode_leaf(entries, DEFINITION, leaf_uuid=uuid.UUID(int=5), content=LeafContent.DATA)
    masks = prune_leaf(pruning, decode_leaf(encoded.body, location=encoded.location), spec_id)
    assert masks.may.tolist() == [entry_may_match(pruning, one) for one in entries]
    assert masks.must.tolist() == [must_match(pruning, stats, rows, spec_id) for stats in statistics]


ALPHABET = st.text("ab%_\\\n\u00e9\U0001f600", max_size=5)


def _regex(pattern: str) -> str:
    """What a pattern of LIKE stands for, read one character after the other."""
    found, rest = "", iter(pattern)
    for character in rest:
        if character == "\\":
            escaped = next(rest, "")
            found += re.escape(escaped if escaped in ("%", "_", "\\") else character + escaped) if escaped else r"\\"
        else:
            found += {"%": ".*", "_": "."}.get(character, re.escape(character))
    return found


@settings(deadline=None)
@given(ALPHABET, st.lists(st.none() | ALPHABET, min_size=1, max_size=5))
@example("\\", ["\\", "\\\\"])  # a backslash at the end stands for itself
def test_like_matches_as_in_sql_and_prunes_no_row_that_matches(pattern: str, texts: list[str | None]) -> None:
    expected = [text is not None and re.fullmatch(_regex(pattern), text, re.DOTALL) is not None for text in texts]
    others = [text is not None and not found for text, found in zip(texts, expected, strict=True)]
    held = sorted((text for text in texts if text is not None), key=str.encode)
    stats = FieldStatistics(held[0] if held else None, held[-1] if held else None, None, len(texts), texts.count(None))
    for where, wanted in ((f"text like '{pattern}'", expected), (f"text not like '{pattern}'", others)):
        pruning = PruningFilter.of(where, DEFINITION)
        found = rows_matching(pruning.bound.condition, lambda _: pa.array(texts, pa.string()), len(texts))
        assert found.to_pylist() == wanted
        assert may_match(pruning, {TEXT: stats}, len(texts), 0) or not any(wanted)
        assert all(wanted) or not must_match(pruning, {TEXT: stats}, len(texts), 0)


def test_like_prunes_by_the_text_before_its_first_wildcard() -> None:
    between = {TEXT: FieldStatistics("b", "c", None, 10, 0)}
    assert not may("text like 'a_%'", between)
    assert may("text like 'b_%'", between)
    assert may("text not like 'b_%'", between)
    assert must("text not like 'a_%'", between)


@pytest.mark.parametrize("where", ["number in ({})", "number not in ({})"])
def test_long_value_lists_prune_as_short_ones_do(where: str) -> None:
    pruning = PruningFilter.of(where.format(", ".join(map(str, range(1000, 1300, 2)))), DEFINITION)
    bounds = [(1, 5), (1100, 1100), (1101, 1101), (1101, 1102), (1299, 2000), (None, 999), (None, 1000), (1298, None)]
    entries = [entry({NUMBER: FieldStatistics(low, high, True, 9, 0)}, 0) for low, high in bounds]
    encoded = encode_leaf(entries, DEFINITION, leaf_uuid=uuid.UUID(int=5), content=LeafContent.DATA)
    masks = prune_leaf(pruning, decode_leaf(encoded.body, location=encoded.location), 0)
    if "not" in where:
        assert masks.may.tolist() == [True, False, True, True, True, True, True, True]
        assert masks.must.tolist() == [True, False, True, False, True, True, False, False]
    else:
        assert masks.may.tolist() == [False, True, False, True, False, False, True, True]
        assert masks.must.tolist() == [False, True, False, False, False, False, False, False]
