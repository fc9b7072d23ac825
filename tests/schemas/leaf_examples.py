"""A table with a column of every type, and entries for its leaves."""

from __future__ import annotations

import random
from decimal import Decimal
from uuid import UUID

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
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from rootline.schemas.content_entry import (
    Bound,
    ContentEntry,
    ContentType,
    DeletionVector,
    FieldStatistics,
    FileFormat,
    Status,
    VersionInfo,
)
from rootline.schemas.table_definition import Expression, PartitionSpec, SortOrder, TableDefinition

LEAF_UUID = UUID("0d3ee1b1-8ef1-4d3c-9d0b-0d6d3a3c5a11")
BOUNDS: list[tuple[PrimitiveType, Bound, Bound]] = [
    (BooleanType(), False, True),
    (IntegerType(), -(2**31), 2**31 - 1),
    (LongType(), -(2**63), 2**63 - 1),
    (FloatType(), -0.0, float("inf")),
    (DoubleType(), float("-inf"), 0.1),
    (DateType(), -719_530, 2**31 - 1),
    (TimeType(), 0, 86_399_999_999),
    (TimestampType(), -(2**62), 2**62),
    (TimestamptzType(), -1, 2**62),
    (TimestampNanoType(), -1, 2**62 + 1),
    (TimestamptzNanoType(), -(2**62) - 1, 1),
    (StringType(), "", "Größe \U0001f980"),
    (UUIDType(), bytes(16), b"\xff" * 16),
    (BinaryType(), b"", b"\x00\xff"),
    (FixedType(3), b"\x00\x01\x02", b"abc"),
    (DecimalType(9, 2), Decimal("-1234567.89"), Decimal("0.01")),
    (DecimalType(38, 10), Decimal("-9999999999999999999999999999.9999999999"), Decimal("1E-10")),
]
UNKNOWN_COLUMN = len(BOUNDS) + 1
EXPRESSION_ID = len(BOUNDS) + 4


def definition() -> TableDefinition:
    fields = [NestedField(index, f"c{index}", kind) for index, (kind, _, _) in enumerate(BOUNDS, 1)]
    fields.append(NestedField(UNKNOWN_COLUMN, "nothing", UnknownType()))
    inner = NestedField(UNKNOWN_COLUMN + 2, "inner", IntegerType())
    fields.append(NestedField(UNKNOWN_COLUMN + 1, "outer", StructType(inner)))
    return TableDefinition(
        table_uuid=UUID("7b7d0a4e-55a0-4e4f-93ad-5b2b3a2f0c6d"),
        schemas=(Schema(*fields, schema_id=0),),
        current_schema_id=0,
        expressions=(Expression(EXPRESSION_ID, (6,), "month", "c6_month", 1000),),
        partition_specs=(PartitionSpec(0), PartitionSpec(1, (EXPRESSION_ID, 12))),
        default_spec_id=1,
        sort_orders=(SortOrder(0),),
        default_sort_order_id=0,
        last_column_id=EXPRESSION_ID,
        properties={"owner": "tests"},
    )


def data_entry(number: int, *, status: Status = Status.EXISTING) -> ContentEntry:
    seeded = random.Random(number)
    statistics = {
        index: FieldStatistics(lower, upper, seeded.random() < 0.5, 100 + number, number % 3, None, 8, 9 + number)
        for index, (_, lower, upper) in enumerate(BOUNDS, 1)
        if seeded.random() < 0.9
    }
    statistics[UNKNOWN_COLUMN] = FieldStatistics(value_count=5, null_value_count=5)
    statistics[UNKNOWN_COLUMN + 2] = FieldStatistics(number, number)
    statistics[EXPRESSION_ID] = FieldStatistics(None, None) if number % 4 == 0 else FieldStatistics(number, number)
    return ContentEntry(
        content_type=ContentType.DATA,
        location=f"data/part-{number:05}.parquet",
        file_format=(FileFormat.PARQUET, FileFormat.ORC, FileFormat.AVRO)[number % 3],
        version_info=VersionInfo(status, 2**62 + number, number + 1, number + 2),
        partition_spec_id=1,
        record_count=100 + number,
        file_size_in_bytes=10_000 + number,
        sort_order_id=None if number % 2 else 0,
        key_metadata=None if number % 3 else b"\x00key",
        split_offsets=None if number % 5 else (4, 2**40 + number),
        first_row_id=None if number % 7 == 6 else number * 1000,
        content_stats=statistics,
    )


def vector_entry(number: int) -> ContentEntry:
    return ContentEntry(
        content_type=ContentType.POSITION_DELETE,
        location="data/vectors.puffin",
        file_format=FileFormat.PUFFIN,
        version_info=VersionInfo(Status.EXISTING, 7, 3, 3),
        partition_spec_id=1,
        record_count=2,
        file_size_in_bytes=999,
        deletion_vector=DeletionVector(offset=4 + 40 * number, size_in_bytes=40),
        referenced_file=f"data/part-{number:05}.parquet",
        content_stats={EXPRESSION_ID: FieldStatistics(number, number), 12: FieldStatistics("a", "a")},
    )


def equality_entry(number: int) -> ContentEntry:
    return ContentEntry(
        content_type=ContentType.EQUALITY_DELETE,
        location=f"data/equality-{number}.parquet",
        file_format=FileFormat.PARQUET,
        version_info=VersionInfo(Status.EXISTING, 7, 3, 3),
        partition_spec_id=1,
        record_count=2,
        file_size_in_bytes=999,
        equality_ids=(2, 12),
    )
