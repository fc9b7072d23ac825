"""Statistics as bytes: equal to fastavro's, exact, and safe with bytes that someone else made."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    UnknownType,
    UUIDType,
)

from rootline.schemas.bytes.root.statistics_codec import LazyStats, StatisticsCodec
from rootline.schemas.content_entry import FieldStatistics
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.table_definition import TrackedField
from tests.schemas.entry_values import TRACKED, content_stats, nan_bytes

CODEC = StatisticsCodec(TRACKED)


def codec_of(field_type: PrimitiveType, **options: Any) -> StatisticsCodec:
    return StatisticsCodec([TrackedField(1, "c", field_type)], **options)


@given(content_stats())
def test_what_is_encoded_decodes_to_the_same_statistics(statistics: dict[int, FieldStatistics]) -> None:
    encoded = CODEC.encode(statistics)
    assert CODEC.decode(encoded) == (statistics, len(encoded))
    assert CODEC.skip(encoded) == len(encoded)


@given(content_stats(), st.binary(max_size=5), st.binary(max_size=5))
def test_decoding_starts_and_ends_in_the_middle_of_other_bytes(
    statistics: dict[int, FieldStatistics], before: bytes, after: bytes
) -> None:
    encoded = CODEC.encode(statistics)
    surrounded = memoryview(before + encoded + after)
    assert CODEC.decode(surrounded, len(before)) == (statistics, len(before) + len(encoded))
    assert CODEC.skip(bytes(surrounded), len(before)) == len(before) + len(encoded)


@given(content_stats(), st.data())
def test_bytes_that_were_changed_decode_or_are_invalid(
    statistics: dict[int, FieldStatistics], data: st.DataObject
) -> None:
    encoded = bytearray(CODEC.encode(statistics))
    position = data.draw(st.integers(0, len(encoded) - 1))
    encoded[position] = data.draw(st.integers(0, 255))
    check_hostile(bytes(encoded[: data.draw(st.integers(0, len(encoded)))]))


@given(st.binary(max_size=300))
@example(b"\x02" + b"\xff" * 300)
def test_any_bytes_decode_or_are_invalid(hostile: bytes) -> None:
    check_hostile(hostile)


def check_hostile(hostile: bytes) -> None:
    try:
        decoded, end = CODEC.decode(hostile)
    except Invalid:
        return
    assert end <= len(hostile)
    assert CODEC.skip(hostile) == end
    assert CODEC.decode(CODEC.encode(decoded))[0] == decoded


@pytest.mark.parametrize(
    ("field_type", "bound"),
    [
        (IntegerType(), 2**31),
        (IntegerType(), True),
        (IntegerType(), 1.0),
        (DateType(), -(2**31) - 1),
        (LongType(), 2**63),
        (LongType(), "1"),
        (FloatType(), 0.1),
        (FloatType(), 1e300),
        (FloatType(), 1),
        (DoubleType(), "x"),
        (DecimalType(5, 2), Decimal("1000")),
        (DecimalType(5, 2), Decimal("0.001")),
        (DecimalType(5, 2), Decimal("0.015")),
        (DecimalType(5, 2), Decimal("NaN")),
        (DecimalType(5, 2), Decimal("1E999999")),
        (DecimalType(5, 2), Decimal("1E-999999")),
        (DecimalType(5, 2), 1),
        (StringType(), b"x"),
        (StringType(), "\ud800"),
        (BinaryType(), "x"),
        (UUIDType(), bytes(15)),
        (FixedType(5), b"1234"),
        (UnknownType(), 1),
    ],
)
def test_a_bound_that_its_type_cannot_hold_exactly_is_refused(field_type: PrimitiveType, bound: Any) -> None:
    with pytest.raises(Invalid, match="statistics of id 1: ") as caught:
        codec_of(field_type).encode({1: FieldStatistics(lower_bound=bound)})
    assert caught.value.code == "statistics-invalid"


@pytest.mark.parametrize(
    "field",
    [
        FieldStatistics(value_count=-1),
        FieldStatistics(value_count=2**63),
        FieldStatistics(null_value_count=1.5),  # type: ignore[arg-type]
        FieldStatistics(max_value_size_in_bytes=2**31),
    ],
)
def test_a_count_that_is_negative_or_too_large_is_refused(field: FieldStatistics) -> None:
    with pytest.raises(Invalid, match="statistics of id 1: "):
        codec_of(LongType()).encode({1: field})


def test_statistics_of_a_column_that_is_not_tracked_are_refused() -> None:
    with pytest.raises(Invalid, match=r"ids \[2\]: the table has no such column"):
        codec_of(LongType()).encode({2: FieldStatistics(value_count=1)})


@pytest.mark.parametrize(("field_type", "layout"), [(FloatType(), "<f"), (DoubleType(), "<d")])
def test_nan_is_a_bound_only_where_it_may_be_a_partition_value(field_type: PrimitiveType, layout: str) -> None:
    field = FieldStatistics(lower_bound=float("nan"))
    encoded = b"\x02\x02" + nan_bytes(layout) + b"\x00" * 7
    with pytest.raises(Invalid, match="NaN cannot be a bound"):
        codec_of(field_type).encode({1: field})
    with pytest.raises(Invalid, match="NaN cannot be a bound"):
        codec_of(field_type).decode(encoded)
    codec = codec_of(field_type, nan_bounds=[1])
    assert codec.encode({1: field}) == encoded
    decoded, _ = codec.decode(encoded)
    assert repr(decoded[1]) == repr(field)


@pytest.mark.parametrize(
    ("encoded", "reason"),
    [
        (b"", "end"),
        (b"\x04", "branch 0x04"),
        (b"\x02\x02" + b"\x80" * 10 + b"\x00", "longer than 10 bytes"),
        (b"\x02\x02" + b"\xff" * 9 + b"\x7f", "64 bits"),
        (b"\x02\x00\x00\x02\x02", "not a boolean"),
        (b"\x02\x00\x00\x00\x02\x01\x00\x00\x00\x00", "negative"),
        (b"\x02\x00\x00\x00\x00\x00\x00\x00\x02\x80\x80\x80\x80\x10", "32 bits"),
    ],
)
def test_bytes_that_are_no_statistics_are_refused_with_the_reason(encoded: bytes, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        codec_of(LongType()).decode(encoded)


def test_a_string_length_beyond_the_bytes_asks_for_no_memory() -> None:
    with pytest.raises(Invalid, match="bytes are announced where"):
        codec_of(StringType()).decode(b"\x02\x02\xfe\xff\xff\xff\xff\xff\xff\xff\x7f")


def test_int_and_long_columns_share_their_bytes() -> None:
    statistics = {1: FieldStatistics(-5, 2**31 - 1, True, 10)}
    narrow, wide = codec_of(IntegerType()), codec_of(LongType())
    assert narrow.layout == wide.layout
    assert wide.decode(narrow.encode(statistics))[0] == statistics


def test_float_and_double_columns_do_not_share_their_bytes() -> None:
    assert codec_of(FloatType()).layout != codec_of(DoubleType()).layout


def test_the_fingerprint_tells_apart_types_of_the_same_bytes() -> None:
    fingerprints = {codec_of(field_type).fingerprint for field_type in (IntegerType(), LongType(), DateType())}
    assert len(fingerprints) == 3
    assert {len(fingerprint) for fingerprint in fingerprints} == {8}


def test_two_tracked_fields_of_one_id_are_refused() -> None:
    with pytest.raises(ValueError, match="share an id"):
        StatisticsCodec([TrackedField(1, "a", LongType()), TrackedField(1, "b", LongType())])


class TestLazyStatistics:
    STATISTICS = {1: FieldStatistics(True, True, True, 3), 2: FieldStatistics(-1, 4)}

    def lazy(self) -> LazyStats:
        return LazyStats(CODEC, CODEC.encode(self.STATISTICS), "root 3")

    def test_they_equal_the_mapping_that_they_hold(self) -> None:
        assert self.lazy() == self.STATISTICS
        assert self.lazy() == self.STATISTICS
        assert self.lazy() == self.lazy()
        assert self.lazy() != {1: FieldStatistics()}

    def test_they_read_as_a_mapping(self) -> None:
        lazy = self.lazy()
        assert (len(lazy), list(lazy), 2 in lazy, 3 in lazy, lazy.get(3)) == (2, [1, 2], True, False, None)
        assert lazy[2] == self.STATISTICS[2]

    def test_they_are_encoded_by_handing_on_their_bytes(self) -> None:
        lazy = self.lazy()
        assert CODEC.encode(lazy) is lazy.encoded

    def test_they_are_encoded_again_for_another_layout(self) -> None:
        wider = StatisticsCodec([*TRACKED, TrackedField(1000, "new", LongType())])
        assert wider.decode(wider.encode(self.lazy()))[0] == self.STATISTICS

    def test_broken_bytes_are_corrupt_and_name_the_object(self) -> None:
        lazy = LazyStats(CODEC, b"\x02\x02\x05", "root 3")
        with pytest.raises(Corrupt, match="root 3: statistics of id 1: ") as caught:
            len(lazy)
        assert caught.value.code == "root-corrupt"

    def test_bytes_after_the_record_are_corrupt(self) -> None:
        with pytest.raises(Corrupt, match="root 3: bytes follow"):
            len(LazyStats(CODEC, CODEC.encode({}) + b"\x00", "root 3"))

    def test_what_the_caller_decoded_is_not_decoded_again(self) -> None:
        assert LazyStats(CODEC, b"unread", "root 3", self.STATISTICS) == self.STATISTICS
