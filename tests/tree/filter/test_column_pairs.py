"""One column against another: values of any numbers, nulls and NaN, and what statistics say of it."""

from __future__ import annotations

import operator
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from rootline.client.create_drop import build_definition
from rootline.client.given_schema import given_schema
from rootline.schemas.content_entry import FieldStatistics
from rootline.storage.rows.arrow_types import arrow_type_of
from rootline.tree.filter.conditions import rows_matching
from rootline.tree.filter.filters import bind_filter
from rootline.tree.filter.pruning import PruningFilter, may_match, must_match, text_of
from tests.support.examples import examples

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
EDGES = [0, 1, -1, 2**24 + 1, 2**31 - 1, -(2**31)]
LONG_EDGES = [*EDGES, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, 2**63 - 512, -(2**63), -(2**63) + 1]
FLOATS = [0.0, -0.0, 0.5, -0.5, 2.0**24, 2.0**31, 2.0**53, 2.0**53 + 2, -(2.0**53), 2.0**62]
FLOATS += [2.0**63, -(2.0**63), 1e300, float("inf"), float("-inf"), float("nan")]
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int": st.one_of(st.integers(-(2**31), 2**31 - 1), st.sampled_from(EDGES)),
    "long": st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from(LONG_EDGES)),
    "float": st.one_of(st.floats(width=32), st.sampled_from(FLOATS[:7])),
    "double": st.one_of(st.floats(), st.sampled_from(FLOATS), st.sampled_from(LONG_EDGES).map(float)),
    "decimal(38, 0)": st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal),
    "decimal(38, 38)": st.integers(-(10**38) + 1, 10**38 - 1).map(lambda value: Decimal(f"{value}e-38")),
    "decimal(9, 2)": st.integers(-(10**4), 10**4).map(lambda value: Decimal(value) / 100),
    "string": st.text(max_size=2),
    "binary": st.binary(max_size=2),
    "date": st.dates(),
    "timestamp": st.datetimes(),
    "boolean": st.booleans(),
    "uuid": st.uuids(),
    "fixed[2]": st.binary(min_size=2, max_size=2),
}
WHOLE, FLOATING, DECIMALS = ["int", "long"], ["float", "double"], ["decimal(38, 0)", "decimal(9, 2)", "decimal(38, 38)"]
PAIRS = [(one, other) for one in [*WHOLE, *FLOATING] for other in [*WHOLE, *FLOATING]]
PAIRS += [(one, other) for one in [*WHOLE, *DECIMALS] for other in DECIMALS] + [(one, "int") for one in DECIMALS]
PAIRS += [(kind, kind) for kind in ("string", "binary", "date", "timestamp", "boolean", "uuid", "fixed[2]")]


@pytest.mark.parametrize(("left", "right"), PAIRS)
@settings(deadline=None, max_examples=examples(60))
@given(data=st.data())
def test_rows_are_compared_by_value(left: str, right: str, data: st.DataObject) -> None:
    schema = given_schema({"a": left, "b": right})
    sign = data.draw(st.sampled_from(sorted(OPERATORS)))
    one, other = st.none() | VALUES[left], st.none() | VALUES[right]
    rows: list[tuple[Any, Any]] = data.draw(st.lists(st.tuples(one, other), min_size=1, max_size=5))
    rows += [(first, first) for first, _ in rows if left == right]
    condition = bind_filter(f"a {sign} b", schema).condition
    arrays = {1: _array([row[0] for row in rows], schema, 1), 2: _array([row[1] for row in rows], schema, 2)}
    found = rows_matching(condition, arrays.__getitem__, len(rows)).to_pylist()
    assert found == [None not in row and OPERATORS[sign](*map(_ordered, row)) for row in rows]


def _ordered(value: Any) -> Any:
    return value.bytes if isinstance(value, uuid.UUID) else value


def _array(values: list[Any], schema: Schema, field_id: int) -> pa.Array:
    return pa.array(values, arrow_type_of(schema.find_type(field_id)))


DEFINITION = build_definition(given_schema({"a": "int", "b": "int", "c c": "int"}), table_uuid=uuid.UUID(int=1))
VALUED, NULLS = FieldStatistics(1, 9, True, 10, 0), FieldStatistics(None, None, True, 10, 10)


def test_a_file_is_left_out_only_if_one_of_the_columns_is_always_null() -> None:
    for where in ("a < b", "not (a = b)", "a < b and a > 0", "a < b or a > 100"):
        pruning = PruningFilter.of(where, DEFINITION)
        assert may_match(pruning, {1: VALUED, 2: VALUED}, 10, 0)
        assert may_match(pruning, {}, 10, 0)
        assert not may_match(pruning, {1: NULLS, 2: VALUED}, 10, 0) or where.endswith("100")
        assert not must_match(pruning, {1: VALUED, 2: VALUED}, 10, 0)


def test_it_is_written_as_it_was_read() -> None:
    schema = DEFINITION.schema
    text = 'a < "c c" and (a != b or "c c" is null)'
    assert text_of(bind_filter(text, schema).condition, schema) == text
    assert NestedField(3, "c c", schema.find_type(3)).name in text
