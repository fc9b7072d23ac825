"""No row that satisfies a filter in Spark is lost by its translation."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyspark.sql import datasource as spark

from rootline.client.given_schema import iceberg_schema
from rootline.spark.batch_reader import translated
from rootline.tree.filter.conditions import rows_matching
from rootline.tree.filter.filters import bind_filter

NAN = float("nan")
WHEN = dt.datetime(2013, 1, 2, 3, 4, 5, 6)
COLUMNS: dict[str, pa.Array] = {
    "whole": pa.array([1, 2, None, 4, 5], pa.int32()),
    "real": pa.array([1.0, NAN, None, 4.0, -0.0], pa.float64()),
    "text": pa.array(["a", "ab", None, "b", ""], pa.string()),
    "money": pa.array([Decimal("1.00"), Decimal("2.50"), None, Decimal("4.00"), Decimal("-1.00")], pa.decimal128(9, 2)),
    "day": pa.array([dt.date(2013, 1, at) if at != 3 else None for at in range(1, 6)], pa.date32()),
    "local": pa.array([WHEN + dt.timedelta(days=at) if at != 2 else None for at in range(5)], pa.timestamp("us")),
    "moment": pa.array(
        [WHEN + dt.timedelta(days=at) if at != 2 else None for at in range(5)], pa.timestamp("us", "UTC")
    ),
    "flag": pa.array([True, False, None, True, False], pa.bool_()),
    "blob": pa.array([b"a", b"b", None, b"", b"a"], pa.binary()),
    "with.dot": pa.array([1, 2, None, 4, 5], pa.int32()),
}
NULL_AT = 2
SCHEMA: Schema = iceberg_schema(pa.schema([(name, array.type) for name, array in COLUMNS.items()]))
EQUAL, LESS, LESS_OR_EQUAL = spark.EqualTo, spark.LessThan, spark.LessThanOrEqual
GREATER, GREATER_OR_EQUAL = spark.GreaterThan, spark.GreaterThanOrEqual


def kept(condition: spark.Filter) -> list[int] | None:
    """The rows that the translation keeps; `None` when there is none."""
    expression = translated([condition], SCHEMA)
    if expression is None:
        return None
    bound = bind_filter(expression, SCHEMA)
    names = {field.field_id: field.name for field in SCHEMA.fields}
    mask = rows_matching(bound.condition, lambda field_id: COLUMNS[names[field_id]], 5)
    return [at for at, is_kept in enumerate(mask.to_pylist()) if is_kept]


def column(name: str) -> tuple[str, ...]:
    return (name,)


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        (EQUAL(column("whole"), 2), [1]),
        (LESS(column("whole"), 4), [0, 1]),
        (GREATER_OR_EQUAL(column("whole"), 4), [3, 4]),
        (EQUAL(column("text"), "ab"), [1]),
        (spark.StringStartsWith(column("text"), "a"), [0, 1]),
        (EQUAL(column("money"), Decimal("2.5")), [1]),
        (LESS_OR_EQUAL(column("day"), dt.date(2013, 1, 2)), [0, 1]),
        (EQUAL(column("local"), WHEN), [0]),
        (EQUAL(column("moment"), WHEN.replace(tzinfo=dt.UTC)), [0]),
        (GREATER(column("moment"), WHEN.replace(tzinfo=dt.timezone(dt.timedelta(hours=-30 / 60)))), [1, 3, 4]),
        (EQUAL(column("flag"), True), [0, 3]),
        (EQUAL(column("blob"), b"a"), [0, 4]),
        (spark.In(column("whole"), (1, 5)), [0, 4]),
        (spark.IsNull(column("text")), [NULL_AT]),
        (spark.IsNotNull(column("text")), [0, 1, 3, 4]),
        (spark.EqualNullSafe(column("whole"), 2), [1]),
        (spark.EqualNullSafe(column("whole"), None), [NULL_AT]),
    ],
)
def test_a_translation_keeps_the_rows_that_spark_keeps_and_no_others(condition: spark.Filter, rows: list[int]) -> None:
    assert kept(condition) == rows


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        (EQUAL(column("whole"), 2), [0, 3, 4]),
        (LESS(column("whole"), 4), [3, 4]),
        (spark.In(column("whole"), (1, 5)), [1, 3]),
        (spark.StringStartsWith(column("text"), "a"), [3, 4]),
        (spark.IsNull(column("text")), [0, 1, 3, 4]),
        (spark.IsNotNull(column("text")), [NULL_AT]),
        (spark.EqualNullSafe(column("whole"), 2), [0, NULL_AT, 3, 4]),
        (spark.EqualNullSafe(column("whole"), None), [0, 1, 3, 4]),
    ],
)
def test_a_negation_drops_nulls_only_where_sql_does(condition: spark.Filter, rows: list[int]) -> None:
    assert kept(spark.Not(condition)) == rows


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        (GREATER(column("real"), 1.0), [1, 3]),
        (GREATER_OR_EQUAL(column("real"), 4.0), [1, 3]),
        (LESS(column("real"), 4.0), [0, 4]),
        (spark.Not(LESS(column("real"), 4.0)), [1, 3]),
        (spark.Not(LESS_OR_EQUAL(column("real"), 1.0)), [1, 3]),
        (spark.Not(GREATER(column("real"), 1.0)), [0, 4]),
        (spark.Not(EQUAL(column("real"), 4.0)), [0, 1, 4]),
        (spark.Not(spark.In(column("real"), (1.0, 4.0))), [1, 4]),
        (EQUAL(column("real"), 0.0), [4]),
    ],
)
def test_nan_is_greater_than_every_number_as_it_is_to_spark(condition: spark.Filter, rows: list[int]) -> None:
    assert kept(condition) == rows


@pytest.mark.parametrize(
    "condition",
    [
        EQUAL(column("real"), NAN),
        spark.In(column("real"), (1.0, NAN)),
        spark.In(column("whole"), (1, None)),
        spark.In(column("whole"), ()),
        spark.StringEndsWith(column("text"), "b"),
        spark.StringContains(column("text"), "b"),
        EQUAL(column("with.dot"), 1),
        EQUAL(column("nowhere"), 1),
        EQUAL(column("whole"), "many"),
        EQUAL(column("whole"), object()),
        spark.Not(spark.Not(EQUAL(column("whole"), 1))),
    ],
)
def test_what_has_no_translation_is_left_to_spark(condition: spark.Filter) -> None:
    assert kept(condition) is None


def test_filters_are_translated_together_without_those_that_cannot_be() -> None:
    filters: list[Any] = [spark.IsNotNull(column("whole")), EQUAL(column("nowhere"), 1), LESS(column("whole"), 3)]
    expression = translated(filters, SCHEMA)
    assert expression is not None
    assert "nowhere" not in str(expression)
    assert translated(filters[1:2], SCHEMA) is None
