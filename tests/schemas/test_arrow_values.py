"""Arrow values that are made from bytes are equal to pyarrow's own."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from rootline.schemas.arrow_values import array_from, numpy_from, scalar_from, values_from

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
TYPED: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int32(), INT32),
    (pa.int64(), INT64),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.string(), TEXT),
    (pa.binary(), st.binary()),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.date32(), st.integers(-700_000, 2_900_000)),
    (pa.time64("us"), st.integers(0, 86_399_999_999)),
    (pa.timestamp("us"), INT64),
    (pa.timestamp("ns", "UTC"), INT64),
    (pa.decimal128(9, 2), st.decimals("-9999999.99", "9999999.99", places=2)),
    (pa.decimal128(38, 0), st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal)),
]
KINDS = pytest.mark.parametrize(("kind", "values"), TYPED, ids=[str(kind) for kind, _ in TYPED])


@KINDS
@given(data=st.data())
def test_a_scalar_is_as_pyarrow_makes_it(
    kind: pa.DataType, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    value = data.draw(st.none() | values)
    made = scalar_from(value, kind)
    assert (made.type, made) == (kind, pa.scalar(value, kind))


@KINDS
@given(data=st.data())
def test_an_array_of_values_is_as_pyarrow_makes_it(
    kind: pa.DataType, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    some = data.draw(st.lists(values))
    made = values_from(some, kind)
    made.validate(full=True)
    assert (made.type, made) == (kind, pa.array(some, kind))


@pytest.mark.parametrize("dtype", [np.bool_, np.int32, np.int64, np.float32, np.float64])
@given(numbers=st.lists(st.integers(0, 100)), start=st.integers(0, 20), step=st.sampled_from([1, 2, -1]))
def test_numbers_and_booleans_come_back_from_an_array(dtype: Any, numbers: list[int], start: int, step: int) -> None:
    values = (np.array(numbers, np.int64) % 3).astype(dtype)[::step]
    made = array_from(values)
    made.validate(full=True)
    assert made.to_pylist() == values.tolist()
    assert numpy_from(made.slice(start)).tolist() == values[start:].tolist()
    assert numpy_from(made.slice(start)).dtype == dtype


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (2**31, pa.int32()),
        (2**63, pa.int64()),
        ("x", pa.int64()),
        (b"four", pa.binary(3)),
        (Decimal("1.555"), pa.decimal128(9, 2)),
        (Decimal("100.00"), pa.decimal128(4, 2)),
        (Decimal("NaN"), pa.decimal128(4, 2)),
    ],
)
def test_a_value_that_does_not_fit_is_refused_as_pyarrow_refuses_it(value: Any, kind: pa.DataType) -> None:
    for make in (lambda: scalar_from(value, kind), lambda: values_from([value], kind)):
        with pytest.raises((pa.ArrowException, OverflowError, TypeError)):
            make()


def test_rare_values_are_left_to_pyarrow() -> None:
    assert scalar_from(date(2013, 1, 1), pa.date32()).as_py() == date(2013, 1, 1)
    assert scalar_from(Decimal("1.5"), pa.decimal256(50, 2)).as_py() == Decimal("1.50")
    assert numpy_from(pa.array([1, None])).tolist()[0] == 1.0
    assert numpy_from(pa.array([1, 2], pa.int16())).tolist() == [1, 2]
