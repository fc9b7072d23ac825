"""Filters through `lower` and through buckets of several columns, held against the rows themselves."""

from __future__ import annotations

import uuid

import hypothesis.strategies as st
from hypothesis import given, settings
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, NestedField, StringType

from rootline.schemas.bytes.transform_values import expression_value
from rootline.schemas.content_entry import FieldStatistics
from rootline.schemas.table_definition import Expression, PartitionSpec, SortOrder, TableDefinition
from rootline.tree.filter.projections import COMBINATIONS_MAX
from rootline.tree.filter.pruning import PruningFilter, may_match, must_match
from tests.support.examples import examples

A, B, TEXT, BUCKET, LOWER = 1, 2, 3, 4, 5
DEFINITION = TableDefinition(
    table_uuid=uuid.UUID(int=1),
    schemas=(
        Schema(
            NestedField(A, "a", IntegerType()),
            NestedField(B, "b", IntegerType()),
            NestedField(TEXT, "text", StringType()),
        ),
    ),
    current_schema_id=0,
    expressions=(Expression(BUCKET, (A, B), "bucket[5]", "a_b_bucket"), Expression(LOWER, (TEXT,), "lower", "lower")),
    partition_specs=(PartitionSpec(0, (BUCKET,)),),
    default_spec_id=0,
    sort_orders=(SortOrder(0),),
    default_sort_order_id=0,
    last_column_id=5,
    properties={},
)
TEXTS = st.sampled_from(["a", "A", "aB", "AB", "b", "Ä", "ä", "İ"])
NUMBERS = st.integers(0, 4)
ROWS = st.tuples(st.none() | NUMBERS, st.none() | NUMBERS, st.none() | TEXTS)
FILTERS = st.recursive(
    st.one_of(
        st.builds("{} {} {}".format, st.sampled_from("ab"), st.sampled_from(["=", "!=", "<", ">="]), NUMBERS),
        st.builds("text {} '{}'".format, st.sampled_from(["=", "!=", "<", ">="]), TEXTS),
        st.builds("{} in ({}, 9)".format, st.sampled_from(["a", "b", "not a"]), NUMBERS),
        st.builds("{} {}".format, st.sampled_from(["a", "b", "text"]), st.sampled_from(["is null", "is not null"])),
    ),
    lambda parts: st.builds("({}) {} ({})".format, parts, st.sampled_from(["and", "or"]), parts),
    max_leaves=4,
)


def statistics_of(row: tuple[int | None, int | None, str | None]) -> dict[int, FieldStatistics]:
    """Statistics of a file of one row, of its expressions only."""
    expression = DEFINITION.expressions_by_id[BUCKET]
    types = [kind for kind in DEFINITION.source_types(expression) if kind is not None]
    bucket = expression_value(expression.transform, expression.parsed, types, row[:2])
    lower = None if row[2] is None else row[2].lower()
    return {
        BUCKET: FieldStatistics(bucket, bucket, True, 1, int(bucket is None)),
        LOWER: FieldStatistics(lower, lower, True, 1, int(lower is None)),
    }


def exact_of(row: tuple[int | None, int | None, str | None]) -> dict[int, FieldStatistics]:
    """Statistics of the same file, of its columns."""
    return {
        column: FieldStatistics(value, value, True, 1, int(value is None))
        for column, value in zip((A, B, TEXT), row, strict=True)
    }


@settings(deadline=None, max_examples=examples(400))
@given(FILTERS, ROWS)
def test_no_row_that_matches_is_pruned_and_none_counts_that_does_not(
    where: str, row: tuple[int | None, int | None, str | None]
) -> None:
    pruning = PruningFilter.of(where, DEFINITION)
    really = must_match(pruning, exact_of(row), 1, None)
    assert really == may_match(pruning, exact_of(row), 1, None)  # one row: its statistics say everything
    if really:
        assert may_match(pruning, statistics_of(row), 1, 0)
    if must_match(pruning, statistics_of(row), 1, 0):
        assert really


def test_too_many_combinations_leave_the_bucket_open() -> None:
    few, many = "(1, 2, 3)", f"({', '.join(map(str, range(COMBINATIONS_MAX + 1)))})"
    files = [{BUCKET: FieldStatistics(bucket)} for bucket in range(5)]
    for where, all_kept in ((f"a = 1 and b in {few}", False), (f"a = 1 and b in {many}", True)):
        pruning = PruningFilter.of(where, DEFINITION)
        assert all(may_match(pruning, stats, 1, 0) for stats in files) is all_kept
