"""Definitions to export: a table with every transform, evolved, and with what engines cannot read."""

from __future__ import annotations

import uuid
from typing import Any

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
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from rootline.schemas.table_definition import Expression, PartitionSpec, SortField, SortOrder, TableDefinition

COLUMNS = (
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "carrier", StringType()),
    NestedField(3, "at", TimestamptzType()),
    NestedField(4, "amount", DecimalType(9, 2)),
    NestedField(5, "place", StructType(NestedField(6, "code", StringType()), NestedField(7, "height", FloatType()))),
    NestedField(8, "day", DateType()),
    NestedField(9, "key", UUIDType()),
    NestedField(10, "tag", FixedType(3)),
    NestedField(11, "raw", BinaryType()),
    NestedField(12, "flag", BooleanType()),
    NestedField(13, "count", IntegerType()),
    NestedField(14, "ratio", DoubleType()),
    NestedField(15, "time", TimeType()),
    NestedField(16, "local", TimestampType()),
)
SCHEMA = Schema(*COLUMNS, schema_id=0, identifier_field_ids=[1])
EXPRESSIONS = (
    Expression(101, (3,), "day", "at_day"),
    Expression(102, (1,), "bucket[16]", "id"),
    Expression(103, (2,), "truncate[3]", "carrier_start"),
    Expression(104, (16,), "hour", "local_hour"),
    Expression(105, (8,), "month", "day_month"),
    Expression(106, (3,), "year", "at_year"),
    Expression(107, (4,), "truncate[100]", "amount_floor"),
    Expression(108, (1, 2), "bucket[8]", "of_both"),
    Expression(109, (2,), "lower", "carrier_lower"),
    Expression(110, (2,), "soundex", "carrier_sound"),
    Expression(111, (9,), "bucket[4]", "key_bucket"),
    Expression(112, (2,), "void", "carrier"),
)
SPECS = (
    PartitionSpec(0),
    PartitionSpec(1, (2, 101, 102)),
    PartitionSpec(2, (101, 108, 6, 103)),
    PartitionSpec(3, (4, 8, 9, 10, 11, 12, 13, 14)),
    PartitionSpec(4, (104, 105, 106, 107, 111, 112, 7, 3, 15, 16)),
)


def definition(**changes: Any) -> TableDefinition:
    """A table with `SCHEMA` and all of `SPECS`; `changes` replace members."""
    members: dict[str, Any] = {
        "table_uuid": uuid.UUID(int=606),
        "schemas": (SCHEMA,),
        "current_schema_id": 0,
        "expressions": EXPRESSIONS,
        "partition_specs": SPECS,
        "default_spec_id": 1,
        "sort_orders": (SortOrder(0), SortOrder(1, (SortField(1), SortField(2, "lower"), SortField(8)))),
        "default_sort_order_id": 1,
        "last_column_id": 112,
        "properties": {"owner": "ops", "schema.name-mapping.default": '[{"field-id":1,"names":["id","key"]}]'},
    }
    return TableDefinition(**members | changes)


def nanosecond_schema() -> Schema:
    return Schema(*COLUMNS, NestedField(17, "exact", TimestampNanoType()), schema_id=0)


def schema_with_defaults(*, initial: int | None) -> Schema:
    added = NestedField(17, "added", IntegerType(), initial_default=initial, write_default=7)
    return Schema(*COLUMNS, added, schema_id=0)
