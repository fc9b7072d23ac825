"""Expressions over several columns, and in lower case: value by value and by the column."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.transforms import parse_transform
from pyiceberg.types import DateType, DecimalType, DoubleType, IntegerType, LongType, PrimitiveType, StringType

from rootline.schemas.bytes.leaf_schema import arrow_type_of_bound, column_of_physical
from rootline.schemas.bytes.transform_values import expression_column, expression_value
from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import Function, function_of, result_type_of

SOURCES: list[tuple[PrimitiveType, st.SearchStrategy[Any]]] = [
    (LongType(), st.integers(-(2**63), 2**63 - 1)),
    (StringType(), st.text(max_size=4)),
    (DecimalType(9, 2), st.integers(-(10**8), 10**8).map(lambda unscaled: Decimal(unscaled).scaleb(-2))),
    (DateType(), st.integers(-10_000, 10_000)),
]


def value(text: str, sources: list[PrimitiveType], values: list[Any]) -> Any:
    return expression_value(text, parse_transform(text), sources, values)


def column(text: str, sources: list[PrimitiveType], columns: list[pa.Array]) -> list[Any]:
    made: list[Any] = expression_column(text, parse_transform(text), sources, columns).to_pylist()
    return made


@settings(deadline=None)
@given(st.data(), st.integers(1, 2**31 - 1))
def test_a_column_of_buckets_is_what_its_rows_give(data: st.DataObject, buckets: int) -> None:
    chosen = data.draw(st.lists(st.sampled_from(SOURCES), min_size=2, max_size=3, unique_by=id))
    rows = data.draw(st.lists(st.tuples(*(st.none() | values for _, values in chosen)), max_size=6))
    types = [kind for kind, _ in chosen]
    text = f"bucket[{buckets}]"
    columns = [
        column_of_physical([row[index] for row in rows], arrow_type_of_bound(kind)) for index, kind in enumerate(types)
    ]
    expected = [value(text, types, list(row)) for row in rows]
    assert column(text, types, columns) == expected
    assert all(bucket is None or 0 <= bucket < buckets for bucket in expected)


def test_the_bucket_of_several_columns_is_the_hashes_of_the_specification_xored() -> None:
    of_34, of_iceberg = 2_017_239_379, 1_210_000_089  # Iceberg specification, Appendix B
    assert value("bucket[1000003]", [IntegerType(), StringType()], [34, "iceberg"]) == (of_34 ^ of_iceberg) % 1_000_003
    assert value("bucket[16]", [StringType(), LongType()], ["iceberg", 34]) == (of_34 ^ of_iceberg) % 16


@settings(deadline=None)
@given(st.lists(st.none() | st.text(max_size=4), max_size=6))
def test_a_column_in_lower_case_is_what_its_rows_give(texts: list[str | None]) -> None:
    expected = [None if text is None else text.lower() for text in texts]
    assert [value("lower", [StringType()], [text]) for text in texts] == expected
    assert column("lower", [StringType()], [pa.array(texts, pa.string())]) == expected


def test_one_column_goes_through_its_transform() -> None:
    assert value("truncate[2]", [StringType()], ["iceberg"]) == "ic"
    assert column("void", [LongType()], [pa.array([1, None])]) == [None, None]


@pytest.mark.parametrize(
    ("text", "sources"),
    [
        ("zorder", [LongType(), LongType()]),
        ("truncate[3]", [LongType(), LongType()]),
        ("bucket[3]", [LongType(), DoubleType()]),
        ("lower", [LongType()]),
        ("lower", [StringType(), StringType()]),
        ("day", [StringType()]),
    ],
)
def test_what_is_unknown_has_no_values_and_no_type(text: str, sources: list[PrimitiveType]) -> None:
    transform = parse_transform(text)
    assert function_of(text, transform, sources) is Function.UNKNOWN
    assert result_type_of(Function.UNKNOWN, transform, sources) is None
    with pytest.raises(Invalid, match="cannot be applied"):
        expression_value(text, transform, sources, [None] * len(sources))
    with pytest.raises(Invalid, match="cannot be applied"):
        expression_column(text, transform, sources, [pa.array([None])] * len(sources))


def test_an_expression_over_a_column_that_is_gone_is_unknown() -> None:
    assert function_of("bucket[3]", parse_transform("bucket[3]"), [LongType(), None]) is Function.UNKNOWN
