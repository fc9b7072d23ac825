"""Which types a stored file may have under a column, and which rows a writer may give."""

from __future__ import annotations

import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from rootline.client.create_drop import build_definition
from rootline.client.data_file_writer import checked_rows
from rootline.schemas.errors import Invalid
from rootline.storage.rows.row_projection import RowProjection, find_by_name, initial_default

WHEN = 1_700_000_000_000
SAME_OR_PROMOTED: list[tuple[pa.Array, IcebergType]] = [
    (pa.array([True]), BooleanType()),
    (pa.array([1], pa.int8()), IntegerType()),
    (pa.array([1], pa.uint16()), IntegerType()),
    (pa.array([1], pa.int32()), IntegerType()),
    (pa.array([1], pa.int32()), LongType()),
    (pa.array([1], pa.uint32()), LongType()),
    (pa.array([1], pa.int64()), LongType()),
    (pa.array([1.5], pa.float32()), FloatType()),
    (pa.array([1.5], pa.float32()), DoubleType()),
    (pa.array([1.5], pa.float64()), DoubleType()),
    (pa.array([Decimal("1.25")], pa.decimal128(5, 2)), DecimalType(5, 2)),
    (pa.array([Decimal("1.25")], pa.decimal128(5, 2)), DecimalType(9, 2)),
    (pa.array([1], pa.date32()), DateType()),
    (pa.array([1], pa.time64("us")), TimeType()),
    (pa.array([WHEN], pa.timestamp("ms")), TimestampType()),
    (pa.array([WHEN * 10**6], pa.timestamp("ns")), TimestampType()),
    (pa.array([WHEN], pa.timestamp("us", "UTC")), TimestamptzType()),
    (pa.array(["x"], pa.large_string()), StringType()),
    (pa.array([b"x"]), BinaryType()),
    (pa.array([b"ab"], pa.binary(2)), FixedType(2)),
    (pa.array([b"ab"]), FixedType(2)),
    (pa.array([uuid.UUID(int=7).bytes], pa.binary(16)), UUIDType()),
    (pa.array([None], pa.null()), LongType()),
]
FORBIDDEN: list[tuple[pa.Array, IcebergType]] = [
    (pa.array([1], pa.int64()), IntegerType()),
    (pa.array([1], pa.uint32()), IntegerType()),
    (pa.array([1], pa.uint64()), LongType()),
    (pa.array([1.5], pa.float64()), FloatType()),
    (pa.array([1.5], pa.float16()), FloatType()),
    (pa.array([1], pa.int32()), FloatType()),
    (pa.array([1], pa.int32()), DoubleType()),
    (pa.array([1], pa.int64()), DoubleType()),
    (pa.array([1], pa.int32()), DecimalType(9, 2)),
    (pa.array([Decimal("1.25")], pa.decimal128(9, 2)), DecimalType(5, 2)),
    (pa.array([Decimal("1.2")], pa.decimal128(5, 1)), DecimalType(5, 2)),
    (pa.array([Decimal("1.25")], pa.decimal128(5, 2)), DecimalType(9, 3)),
    (pa.array([1], pa.date32()), TimestampType()),
    (pa.array([WHEN], pa.timestamp("us")), TimestamptzType()),
    (pa.array([WHEN], pa.timestamp("us", "UTC")), TimestampType()),
    (pa.array([True]), IntegerType()),
    (pa.array(["1"]), LongType()),
    (pa.array([b"x"]), StringType()),
    (pa.array(["x"]), BinaryType()),
    (pa.array([b"ab"], pa.binary(2)), BinaryType()),
]


def _stored(array: pa.Array, of_type: IcebergType) -> pa.Array:
    projection = RowProjection(find_by_name, initial_default, "file-unreadable", "data/a.parquet")
    batch = pa.RecordBatch.from_arrays([array], names=["c"])
    return projection.columns(batch, [NestedField(1, "c", of_type, required=False)]).column(0)


@pytest.mark.parametrize(("array", "of_type"), SAME_OR_PROMOTED)
def test_a_stored_file_is_read_by_the_promotions_of_the_specification(array: pa.Array, of_type: IcebergType) -> None:
    assert len(_stored(array, of_type)) == 1


@pytest.mark.parametrize(("array", "of_type"), FORBIDDEN)
def test_a_stored_file_of_a_type_that_no_promotion_leads_from_is_refused(array: pa.Array, of_type: IcebergType) -> None:
    with pytest.raises(Invalid, match=r"data/a.parquet: column c .*promotion") as refused:
        _stored(array, of_type)
    assert refused.value.code == "file-unreadable"


@pytest.mark.parametrize(
    ("given", "of_type", "kept"),
    [
        (pa.array([1], pa.int64()), IntegerType(), 1),
        (pa.array([1], pa.uint64()), LongType(), 1),
        (pa.array([7], pa.int32()), DoubleType(), 7.0),
        (pa.array([7], pa.int32()), DecimalType(12, 2), Decimal(7)),
        (pa.array([Decimal("1.2")], pa.decimal128(5, 1)), DecimalType(5, 2), Decimal("1.20")),
    ],
)
def test_rows_of_a_writer_may_be_of_any_type_that_loses_no_value(
    given: pa.Array, of_type: IcebergType, kept: Any
) -> None:
    schema = Schema(NestedField(1, "c", of_type, required=False))
    rows = checked_rows(pa.table({"c": given}), build_definition(schema, table_uuid=uuid.UUID(int=1)))
    assert rows.column("c").to_pylist() == [kept]


def test_a_default_of_another_type_in_a_definition_of_earlier_days_is_refused_by_name() -> None:
    projection = RowProjection(find_by_name, initial_default, "file-unreadable", "data/a.parquet")
    batch = pa.RecordBatch.from_arrays([pa.array([1])], names=["other"])
    for of_type, default in ((IntegerType(), "x"), (DecimalType(4, 2), "12.345")):
        field = NestedField(1, "c", of_type, required=False, initial_default=default)
        with pytest.raises(Invalid, match=r"data/a.parquet: column c has the default .*, not a value of") as refused:
            projection.columns(batch, [field])
        assert refused.value.code == "file-unreadable"
