"""The proof from the bytes: never of anything that the decoder and the rules would refuse, and of all that is usual."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
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
    NestedField,
    PrimitiveType,
    StringType,
    TimestamptzType,
    UnknownType,
    UUIDType,
)

from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.bytes.root.statistics_codec import StatisticsCodec
from rootline.schemas.bytes.root.statistics_proof import ASKED_IN_VAIN, COLUMNS_MAX, StatisticsProof
from rootline.schemas.content_entry import ContentStats, FieldStatistics
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import DataFile
from rootline.schemas.table_definition import PartitionSpec, SortOrder, TableDefinition, TrackedField
from rootline.tree.proof.file_proof import examined_statistics, statistics_of
from tests.schemas.entry_values import bounds, nan_bytes
from tests.support.examples import examples

TYPES: tuple[PrimitiveType, ...] = (
    LongType(),
    IntegerType(),
    StringType(),
    DoubleType(),
    BooleanType(),
    BinaryType(),
    FloatType(),
    DecimalType(9, 2),
    DecimalType(20, 5),
    DateType(),
    TimestamptzType(),
    UUIDType(),
    FixedType(3),
    UnknownType(),
)
SPECS = (PartitionSpec(0), PartitionSpec(1, (1,)), PartitionSpec(2, (3, 4)))
DEFINITION = TableDefinition(
    table_uuid=uuid.UUID(int=7),
    schemas=(
        Schema(
            *(NestedField(at, f"c{at}", field_type, required=False) for at, field_type in enumerate(TYPES, start=1)),
            schema_id=0,
        ),
    ),
    current_schema_id=0,
    expressions=(),
    partition_specs=SPECS,
    default_spec_id=0,
    sort_orders=(SortOrder(0),),
    default_sort_order_id=0,
    last_column_id=len(TYPES),
    properties={},
)
CODEC = EntryCodec.of_definition(DEFINITION)
CODEC.statistics.proof.prepare()
ROWS = 1_000


def codec_of(field_type: PrimitiveType, **options: Any) -> StatisticsCodec:
    codec = StatisticsCodec([TrackedField(1, "c", field_type)], **options)
    codec.proof.prepare()
    return codec


LONG = codec_of(LongType())


def file_of(encoded: bytes, *, rows: int = ROWS, spec: int = 0) -> DataFile:
    return DataFile(
        location="data/a.parquet",
        record_count=rows,
        file_size_in_bytes=1,
        partition_spec_id=spec,
        content_stats=encoded,
        stats_schema=CODEC.statistics.fingerprint,
    )


def outcome(judge: Any, file: DataFile) -> tuple[str, str] | ContentStats:
    try:
        statistics: ContentStats = judge(file, DEFINITION, CODEC)
    except Invalid as error:
        return error.code, error.message
    return statistics


def check_alike(encoded: bytes, rows: int, spec: int) -> None:
    """The short way and the long way come to the same, word for word; what is kept reads back."""
    file = file_of(encoded, rows=rows, spec=spec)
    short, long = outcome(statistics_of, file), outcome(examined_statistics, file)
    assert repr(short) == repr(long)
    if not isinstance(short, tuple):
        assert repr(dict(short)) == repr(dict(long))  # type: ignore[arg-type]
    if CODEC.statistics.proof.proves(encoded, rows, SPECS[spec].expr_ids):
        assert not isinstance(long, tuple)


@st.composite
def plain_statistics(draw: st.DrawFn, rows: int) -> dict[int, FieldStatistics]:
    """Statistics as writers send them, mostly sound: bounds in order, counts that fit."""
    found: dict[int, FieldStatistics] = {}
    for at, field_type in enumerate(TYPES, start=1):
        if draw(st.integers(0, 5)) == 0:
            continue
        lower = upper = tight = None
        if not isinstance(field_type, UnknownType) and draw(st.integers(0, 7)):
            lower, upper = draw(st.tuples(bounds(field_type), bounds(field_type)))
            if draw(st.integers(0, 9)):
                lower, upper = sorted((lower, upper))
            upper = lower if draw(st.integers(0, 3)) == 0 else upper
            tight = draw(st.none() | st.booleans())
        size = draw(st.none() | st.integers(0, 2**31 - 1) | st.integers(0, 200))
        found[at] = FieldStatistics(
            lower,
            upper,
            tight,
            draw(st.sampled_from((rows, rows, rows, None, max(0, rows - 1), rows + 1))),
            draw(st.none() | st.integers(0, rows + 1)),
            draw(st.sampled_from((None, 0, 0, 1, rows))),
            size,
            draw(st.sampled_from((size, size, None, 3))),
        )
    return found


ROW_COUNTS = st.sampled_from((0, 1, 63, 64, 127, 8_191, 8_192, 10**6, 2**62)) | st.integers(0, 2**63 - 1)
SLOW = settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.slow
@SLOW
@given(st.data(), ROW_COUNTS, st.integers(0, 2))
def test_the_short_way_and_the_long_way_come_to_the_same(data: st.DataObject, rows: int, spec: int) -> None:
    statistics = data.draw(plain_statistics(rows))
    try:
        encoded = CODEC.statistics.encode(statistics)
    except Invalid:  # a count above 2^63 - 1
        return
    check_alike(encoded, rows, spec)


@pytest.mark.slow
@SLOW
@given(st.data(), st.integers(0, 2))
def test_so_they_do_with_bytes_that_were_changed(data: st.DataObject, spec: int) -> None:
    encoded = bytearray(CODEC.statistics.encode(data.draw(plain_statistics(ROWS))))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(encoded) - 1))
        match data.draw(st.integers(0, 2)):
            case 0:
                encoded[at] = data.draw(st.sampled_from((0, 1, 2, 3, 0x7F, 0x80, 0xFF)) | st.integers(0, 255))
            case 1:
                del encoded[at : at + data.draw(st.integers(0, 3))]
            case _:
                encoded[at:at] = data.draw(st.binary(max_size=3))
        if not encoded:
            break
    check_alike(bytes(encoded), ROWS, spec)


@given(st.binary(max_size=120))
@example(b"")
@example(b"\x00" * len(TYPES))
@example(b"\x02" + b"\xff" * 60)
def test_so_they_do_with_any_bytes(encoded: bytes) -> None:
    check_alike(encoded, ROWS, 0)


def proven(field_type: PrimitiveType, field: FieldStatistics, *, rows: int = ROWS, ids: Sequence[int] = ()) -> bool:
    codec = codec_of(field_type)
    return codec.proof.proves(codec.encode({1: field}), rows, ids)


@pytest.mark.parametrize(
    ("field_type", "lower", "upper"),
    [
        (LongType(), 0, 0),
        (LongType(), 5, 2**63 - 1),
        (LongType(), -(2**63), 2**63 - 1),
        (LongType(), -300, -2),
        (LongType(), -1, 0),
        (IntegerType(), -(2**31), 2**31 - 1),
        (IntegerType(), 1, 2**31 - 1),
        (DateType(), 19_000, 19_001),
        (TimestamptzType(), 1_700_000_000_000_000, 1_700_000_000_000_001),
        (BooleanType(), False, True),
        (FloatType(), -0.5, 0.5),
        (DoubleType(), float("-inf"), float("inf")),
        (DoubleType(), -0.0, 0.0),
        (StringType(), "", "z"),
        (StringType(), "b", "ba"),
        (StringType(), "aaa", "b"),
        (StringType(), "ä" * 16, "\U0010ffff"),
        (BinaryType(), b"\x00", b"\xff\xff"),
        (DecimalType(9, 2), Decimal("-9999999.99"), Decimal("9999999.99")),
        (UUIDType(), bytes(16), bytes(15) + b"\x01"),
        (FixedType(3), b"abc", b"abd"),
    ],
)
def test_bounds_in_order_are_proven_whatever_their_type(field_type: PrimitiveType, lower: Any, upper: Any) -> None:
    for tight in (None, False, True):
        assert proven(field_type, FieldStatistics(lower, upper, tight, ROWS, 0, 0, None, None))
    if lower != upper:
        assert not proven(field_type, FieldStatistics(upper, lower, True, ROWS, 0, 0, None, None))


def test_nulls_in_every_place_are_proven() -> None:
    for field_type in TYPES:
        assert proven(field_type, FieldStatistics())
        assert proven(field_type, FieldStatistics(value_count=ROWS, null_value_count=ROWS, nan_value_count=0))
    assert CODEC.statistics.proof.proves(CODEC.statistics.encode({}), ROWS, ())


@pytest.mark.parametrize(
    ("field", "rows", "expected"),
    [
        (FieldStatistics(value_count=10, null_value_count=10), 10, True),
        (FieldStatistics(value_count=10, null_value_count=11), 10, False),
        (FieldStatistics(value_count=11), 10, False),
        (FieldStatistics(value_count=100, null_value_count=63, nan_value_count=37), 100, True),
        (FieldStatistics(value_count=100, null_value_count=63, nan_value_count=38), 100, False),
        (FieldStatistics(value_count=10**6, null_value_count=10**6), 10**6, True),
        (FieldStatistics(value_count=10**6, null_value_count=10**6 + 1), 10**6, False),
        (FieldStatistics(avg_value_size_in_bytes=8, max_value_size_in_bytes=8), 10, True),
        (FieldStatistics(avg_value_size_in_bytes=9, max_value_size_in_bytes=8), 10, False),
        (FieldStatistics(max_value_size_in_bytes=2**31 - 1, avg_value_size_in_bytes=2**31 - 1), 10, True),
    ],
)
def test_counts_and_sizes_are_compared(field: FieldStatistics, rows: int, expected: bool) -> None:
    assert proven(DoubleType(), field, rows=rows) is expected


def test_sizes_of_texts_may_differ_the_right_way_round() -> None:
    assert proven(StringType(), FieldStatistics(avg_value_size_in_bytes=12, max_value_size_in_bytes=300))
    assert not proven(StringType(), FieldStatistics(avg_value_size_in_bytes=300, max_value_size_in_bytes=12))


@pytest.mark.parametrize(("field_type", "layout"), [(FloatType(), "<f"), (DoubleType(), "<d")])
def test_nan_is_proven_nowhere(field_type: PrimitiveType, layout: str) -> None:
    codec = codec_of(field_type, nan_bounds=[1])
    both_nan = b"\x02\x02" + nan_bytes(layout) + b"\x02" + nan_bytes(layout) + b"\x00" * 6
    assert not codec.proof.proves(both_nan, ROWS, ())


def test_a_partition_value_is_proven_when_both_bounds_are_it() -> None:
    assert proven(LongType(), FieldStatistics(7, 7), ids=[1])
    assert proven(StringType(), FieldStatistics("", ""), ids=[1])
    assert not proven(LongType(), FieldStatistics(7, 8), ids=[1])
    assert not proven(LongType(), FieldStatistics(), ids=[1])
    assert not proven(LongType(), FieldStatistics(7, 7), ids=[2])
    assert not LONG.proof.proves(LONG.encode({}), ROWS, [1])


def test_a_string_that_is_not_utf_8_is_not_proven() -> None:
    codec = codec_of(StringType())
    assert codec.proof.proves(b"\x02\x02\x04ab\x02\x04ab" + b"\x00" * 6, ROWS, ())
    for violations in (b"\x04\xc3\x28", b"\x02\xff", b"\x04\xed\xa0"):
        assert not codec.proof.proves(b"\x02\x02" + violations + b"\x02\x04zz" + b"\x00" * 6, ROWS, ())
    split = b"\x02\x02\x02\xc3\x02\x02\xa4" + b"\x00" * 6  # the halves of one character
    assert not codec.proof.proves(split, ROWS, ())


def test_numbers_that_are_longer_than_they_need_to_be_are_left_to_the_decoder() -> None:
    padded = b"\x02\x02\x80\x00\x02\x02" + b"\x00" * 6
    assert LONG.decode(padded)[0] == {1: FieldStatistics(0, 1)}
    assert not LONG.proof.proves(padded, ROWS, ())


def test_a_very_wide_table_is_left_to_the_decoder() -> None:
    wide = StatisticsProof([TrackedField(at, f"c{at}", LongType()) for at in range(COLUMNS_MAX + 1)])
    wide.prepare()
    assert not wide.proves(b"\x00" * (COLUMNS_MAX + 1), ROWS, ())


def test_the_pattern_is_compiled_when_enough_files_have_come() -> None:
    codec = StatisticsCodec([TrackedField(1, "c", LongType())])
    encoded = codec.encode({1: FieldStatistics(1, 2)})
    answers = [codec.proof.proves(encoded, ROWS, ()) for _ in range(ASKED_IN_VAIN + 1)]
    assert answers == [False] * ASKED_IN_VAIN + [True]
