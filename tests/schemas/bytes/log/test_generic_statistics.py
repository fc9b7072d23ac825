"""Statistics that any client can write: Iceberg's binary and JSON single values."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from rootline.schemas.bytes.root.statistics_codec import StatisticsCodec
from rootline.schemas.bytes.single_values import from_generic, to_generic
from rootline.schemas.content_entry import FieldStatistics
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import GenericStatistics
from rootline.schemas.table_definition import TrackedField
from tests.schemas.entry_values import TRACKED, content_stats

BY_ID = {field.tracked_id: field for field in TRACKED}


def one(field_type: PrimitiveType, **members: Any) -> FieldStatistics:
    tracked = {1: TrackedField(1, "c", field_type)}
    return from_generic([GenericStatistics(field_id=1, **members)], tracked)[1]


@given(content_stats())
def test_binary_bounds_come_back_as_the_same_physical_values(statistics: dict[int, FieldStatistics]) -> None:
    assert from_generic(to_generic(statistics, BY_ID), BY_ID) == statistics


@given(content_stats())
def test_what_comes_out_can_be_encoded(statistics: dict[int, FieldStatistics]) -> None:
    codec = StatisticsCodec(TRACKED)
    assert codec.encode(from_generic(to_generic(statistics, BY_ID), BY_ID)) == codec.encode(statistics)


@pytest.mark.parametrize(
    ("field_type", "value", "physical"),
    [
        (BooleanType(), True, True),
        (IntegerType(), 5, 5),
        (LongType(), 2**40, 2**40),
        (FloatType(), 0.1, struct.unpack("<f", struct.pack("<f", 0.1))[0]),
        (DoubleType(), 0.1, 0.1),
        (DoubleType(), 3, 3.0),
        (DecimalType(9, 2), "14.20", Decimal("14.20")),
        (DecimalType(9, 2), 14, Decimal(14)),
        (DateType(), "2017-11-16", 17486),
        (DateType(), 17486, 17486),
        (TimeType(), "22:31:08.123456", 81_068_123_456),
        (TimestampType(), "2017-11-16T22:31:08.123456", 1_510_871_468_123_456),
        (TimestamptzType(), "2017-11-16T22:31:08.123456+00:00", 1_510_871_468_123_456),
        (TimestampNanoType(), "2017-11-16T22:31:08.123456789", 1_510_871_468_123_456_789),
        (StringType(), "iceberg", "iceberg"),
        (UUIDType(), "f79c3e09-677c-4bbd-a479-3f349cb785e7", bytes.fromhex("f79c3e09677c4bbda4793f349cb785e7")),
        (FixedType(3), "000102", b"\x00\x01\x02"),
        (BinaryType(), "00010203", b"\x00\x01\x02\x03"),
    ],
    ids=str,
)
def test_json_bounds_become_physical_values(field_type: PrimitiveType, value: Any, physical: Any) -> None:
    field = one(field_type, lower_value=value, upper_value=value)
    assert (field.lower_bound, field.upper_bound) == (physical, physical)
    assert type(field.lower_bound) is type(physical)


def test_a_promoted_column_reads_bounds_that_were_written_narrow() -> None:
    assert one(LongType(), lower_bound=struct.pack("<i", -3)).lower_bound == -3
    assert one(DoubleType(), lower_bound=struct.pack("<f", 0.5)).lower_bound == 0.5


@pytest.mark.parametrize(
    ("field_type", "members"),
    [
        (IntegerType(), {"lower_value": "5"}),
        (IntegerType(), {"lower_value": 2**31}),
        (IntegerType(), {"lower_value": True}),
        (IntegerType(), {"lower_bound": b"\x01"}),
        (IntegerType(), {"lower_bound": bytes(4), "lower_value": 0}),
        (BooleanType(), {"lower_value": 1}),
        (StringType(), {"upper_value": 5}),
        (StringType(), {"upper_bound": b"\xff"}),
        (DoubleType(), {"upper_value": 2**60 + 1}),
        (DoubleType(), {"upper_value": "x"}),
        (FloatType(), {"upper_value": 1e300}),
        (DecimalType(9, 2), {"upper_value": 1.5}),
        (DecimalType(9, 2), {"upper_value": "1.005"}),
        (DecimalType(9, 2), {"upper_value": "x"}),
        (DecimalType(9, 2), {"upper_value": "1E999999"}),
        (DecimalType(9, 2), {"upper_bound": b"\x7f" * 40}),
        (DateType(), {"upper_value": "yesterday"}),
        (TimestampType(), {"upper_value": "2017-11-16T22:31:08+00:00"}),
        (UUIDType(), {"upper_value": "x"}),
        (UUIDType(), {"upper_bound": b"x"}),
        (FixedType(3), {"upper_value": "00"}),
        (BinaryType(), {"upper_value": "xyz"}),
        (UnknownType(), {"upper_value": 1}),
    ],
    ids=str,
)
def test_a_bound_that_is_not_of_the_columns_type_is_invalid(field_type: PrimitiveType, members: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match="statistics of id 1 ") as caught:
        one(field_type, **members)
    assert caught.value.code == "statistics-invalid"


def test_statistics_of_an_unknown_column_are_invalid() -> None:
    with pytest.raises(Invalid, match="id 9: the table has no such column"):
        from_generic([GenericStatistics(field_id=9)], {})
    with pytest.raises(Invalid, match="id 9: the table has no such column"):
        to_generic({9: FieldStatistics()}, {})


def test_counts_are_handed_on() -> None:
    field = one(
        LongType(),
        tight_bounds=True,
        value_count=5,
        null_value_count=1,
        nan_value_count=0,
        avg_value_size_in_bytes=8,
        max_value_size_in_bytes=9,
    )
    assert field == FieldStatistics(None, None, True, 5, 1, 0, 8, 9)
