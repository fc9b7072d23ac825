from __future__ import annotations

import datetime
import re
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.transforms import Transform, parse_transform
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
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from rootline.schemas.bytes.leaf_schema import arrow_type_of_bound, column_of_physical
from rootline.schemas.bytes.transform_values import partition_column, partition_value, physical_type_of
from rootline.schemas.errors import Invalid

DAY = 17_486  # 2017-11-16
MICROS = DAY * 86_400_000_000 + 81_068_000_000  # 22:31:08
TIMESTAMPS: list[PrimitiveType] = [TimestampType(), TimestamptzType()]
NANO_TIMESTAMPS: list[PrimitiveType] = [TimestampNanoType(), TimestamptzNanoType()]
HASHES: list[tuple[PrimitiveType, Any, int]] = [  # Iceberg specification, Appendix B
    (IntegerType(), 34, 2_017_239_379),
    (LongType(), 34, 2_017_239_379),
    (DecimalType(9, 2), Decimal("14.20"), -500_754_589),
    (DecimalType(9, 2), Decimal("14.2"), -500_754_589),
    (DateType(), DAY, -653_330_422),
    (TimeType(), 81_068_000_000, -662_762_989),
    *((kind, MICROS, -2_047_944_441) for kind in TIMESTAMPS),
    *((kind, MICROS + 1, -1_207_196_810) for kind in TIMESTAMPS),
    *((kind, (MICROS + 1) * 1000 + 1, -1_207_196_810) for kind in NANO_TIMESTAMPS),
    (StringType(), "iceberg", 1_210_000_089),
    (UUIDType(), UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes, 1_488_055_340),
    (FixedType(4), b"\x00\x01\x02\x03", -188_683_207),
    (BinaryType(), b"\x00\x01\x02\x03", -188_683_207),
]
VALUES: list[tuple[PrimitiveType, list[Any]]] = [
    (BooleanType(), [True, False]),
    (IntegerType(), [0, 1, -1, 34, 2**31 - 1, -(2**31) + 1000]),
    (LongType(), [0, 1, -1, 34, 2**62, -(2**62)]),
    (FloatType(), [0.5, -2.0]),
    (DoubleType(), [0.1, -2.0]),
    (DateType(), [0, 1, -1, DAY, -719_530, 2_932_897, 2**30]),
    (TimeType(), [0, 86_399_999_999]),
    *((kind, [0, -1, 1, MICROS, -MICROS, 2**62, -(2**62)]) for kind in TIMESTAMPS),
    *((kind, [0, -1, 1, MICROS * 1000 + 1, -MICROS * 1000, 2**62]) for kind in NANO_TIMESTAMPS),
    (StringType(), ["", "iceberg", "größe", "\U0001f980\U0001f980\U0001f980"]),
    (UUIDType(), [bytes(16), b"\xff" * 16]),
    (FixedType(4), [b"\x00\x01\x02\x03"]),
    (BinaryType(), [b"", b"\x00\x01\x02\x03"]),
    (DecimalType(9, 2), [Decimal("14.20"), Decimal("-0.01"), Decimal("1234567.89")]),
    (DecimalType(38, 0), [Decimal(10**37), Decimal(-(10**37)) - 1]),
]
TRANSFORMS = ["identity", "void", "bucket[16]", "truncate[3]", "year", "month", "day", "hour"]
FITS = {
    "bucket[16]": {kind for kind, _ in VALUES} - {BooleanType(), FloatType(), DoubleType()},
    "truncate[3]": {IntegerType(), LongType(), StringType(), BinaryType(), DecimalType(9, 2), DecimalType(38, 0)},
    "year": {DateType(), *TIMESTAMPS, *NANO_TIMESTAMPS},
    "hour": {*TIMESTAMPS, *NANO_TIMESTAMPS},
}


def fits(text: str, kind: PrimitiveType) -> bool:
    family = "year" if text in {"month", "day"} else text
    return kind in FITS.get(family, {kind})


def transform(text: str) -> Transform[Any, Any]:
    return parse_transform(text)


@pytest.mark.parametrize(("kind", "value", "expected"), HASHES, ids=str)
def test_buckets_follow_the_hashes_of_the_specification(kind: PrimitiveType, value: Any, expected: int) -> None:
    for buckets in (1, 16, 1_000_003):
        assert partition_value(transform(f"bucket[{buckets}]"), kind, value) == (expected & 0x7FFFFFFF) % buckets


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=str)
@pytest.mark.parametrize("text", TRANSFORMS)
def test_a_column_gives_what_its_values_give_and_a_wrong_type_is_refused(
    text: str, kind: PrimitiveType, values: list[Any]
) -> None:
    if not fits(text, kind):
        with pytest.raises(Invalid, match=re.escape(f"to a column of type {kind}")):
            partition_value(transform(text), kind, values[0])
        with pytest.raises(Invalid):
            partition_column(transform(text), kind, column_of_physical(values, arrow_type_of_bound(kind)))
        return
    with_nulls = [None, *values, None, values[0]]
    column = column_of_physical(with_nulls, arrow_type_of_bound(kind))
    made = [partition_value(transform(text), kind, value) for value in with_nulls]
    assert made[0] is None
    for given_column in (column, pa.chunked_array([column.slice(0, 2), column.slice(2)])):
        result = partition_column(transform(text), kind, given_column)
        assert result.to_pylist() == made
        assert result.type == physical_type_of(transform(text), kind)
    assert partition_column(transform(text), kind, column.slice(0, 0)).to_pylist() == []
    if text == "identity":
        assert made == with_nulls
    if text == "void":
        assert set(made) == {None}


@pytest.mark.parametrize(
    ("text", "kind", "value", "expected"),
    [
        ("year", DateType(), DAY, 47),
        ("month", DateType(), DAY, 574),
        ("day", DateType(), DAY, DAY),
        ("year", TimestampType(), MICROS, 47),
        ("month", TimestamptzType(), MICROS, 574),
        ("day", TimestampType(), MICROS, DAY),
        ("hour", TimestampType(), MICROS, DAY * 24 + 22),
        ("hour", TimestamptzNanoType(), MICROS * 1000 + 999, DAY * 24 + 22),
        ("year", TimestampNanoType(), -1, -1),
        ("month", TimestampType(), -1, -1),
        ("day", TimestampType(), -1, -1),
        ("hour", TimestampType(), -1, -1),
        ("year", DateType(), -719_528, -1970),
        ("truncate[10]", IntegerType(), -1, -10),
        ("truncate[10]", LongType(), 19, 10),
        ("truncate[50]", DecimalType(9, 2), Decimal("10.65"), Decimal("10.50")),
        ("truncate[50]", DecimalType(9, 2), Decimal("10.6"), Decimal("10.50")),
        ("truncate[50]", DecimalType(9, 2), Decimal("-0.01"), Decimal("-0.50")),
        ("truncate[3]", StringType(), "iceberg", "ice"),
        ("truncate[1]", StringType(), "\U0001f980x", "\U0001f980"),
        ("truncate[3]", BinaryType(), b"\x01\x02\x03\x04", b"\x01\x02\x03"),
    ],
)
def test_values_of_the_specification(text: str, kind: PrimitiveType, value: Any, expected: Any) -> None:
    assert partition_value(transform(text), kind, value) == expected


@given(st.dates())
def test_calendar_transforms_agree_with_the_calendar(date: datetime.date) -> None:
    days = (date - datetime.date(1970, 1, 1)).days
    assert partition_value(transform("year"), DateType(), days) == date.year - 1970
    assert partition_value(transform("month"), DateType(), days) == (date.year - 1970) * 12 + date.month - 1


@given(st.datetimes())
def test_time_transforms_agree_with_pyiceberg_where_it_has_an_answer(moment: datetime.datetime) -> None:
    micros = (moment - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)
    for text in ("year", "month", "day", "hour"):
        expected = transform(text).transform(TimestampType())(micros)
        assert partition_value(transform(text), TimestampType(), micros) == expected


def test_years_beyond_the_calendar_of_python_have_values() -> None:
    assert partition_value(transform("year"), DateType(), 2_932_897) == 8030  # 10000-01-01
    assert partition_value(transform("month"), DateType(), 2_932_897 + 146_097 * 10) == 8030 * 12 + 4_000 * 12
    assert partition_value(transform("year"), DateType(), -719_528 - 146_097 * 5) == -1970 - 2_000


def test_unknown_transforms_and_types_without_values_are_refused() -> None:
    for text, kind in (("zorder", IntegerType()), ("identity", UnknownType())):
        with pytest.raises(Invalid) as caught:
            partition_value(transform(text), kind, 1)
        assert caught.value.code == "definition-invalid"


def test_columns_of_wider_arrow_types_are_read_as_their_iceberg_type() -> None:
    text = pa.array(["iceberg", None], pa.large_string())
    assert partition_column(transform("truncate[2]"), StringType(), text).to_pylist() == ["ic", None]
    coarse = pa.array([MICROS // 1_000_000], pa.timestamp("s"))
    assert partition_column(transform("day"), TimestampType(), coarse).to_pylist() == [DAY]
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16)], pa.binary(16)))
    assert partition_column(transform("identity"), UUIDType(), uuids).to_pylist() == [bytes(16)]


@pytest.mark.parametrize(
    ("source_type", "least"),
    [(LongType(), -(2**63)), (IntegerType(), -(2**31)), (DecimalType(9, 2), Decimal("-9999999.99"))],
)
def test_a_value_so_low_that_it_cannot_be_truncated_is_refused_with_what_to_do(
    source_type: PrimitiveType, least: Any
) -> None:
    column = pa.array([least], arrow_type_of_bound(source_type))
    with pytest.raises(Invalid, match="remove such rows, or partition and sort by another transform") as caught:
        partition_column(parse_transform("truncate[10]"), source_type, column)
    assert caught.value.code == "rows-invalid"
