"""Every type has its Spark counterpart, and no value changes on the way."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest
from pyiceberg import types as iceberg
from pyiceberg.schema import Schema
from pyspark.sql import types as spark

from rootline.schemas.errors import Invalid
from rootline.spark.spark_types import (
    arrow_schema_for_spark,
    batch_for_spark,
    batch_from_spark,
    check_columns,
    spark_schema_of,
)
from rootline.storage.rows.arrow_types import arrow_schema_of


def schema_of(*types: iceberg.IcebergType, required: bool = False) -> Schema:
    """A table's schema with columns c0, c1, …"""
    return Schema(*(iceberg.NestedField(at + 1, f"c{at}", one, required=required) for at, one in enumerate(types)))


def test_timestamps_with_and_without_zone_stay_apart() -> None:
    schema = spark_schema_of(schema_of(iceberg.TimestampType(), iceberg.TimestamptzType()))
    assert [field.dataType for field in schema] == [spark.TimestampNTZType(), spark.TimestampType()]


def test_required_columns_are_never_null_to_spark_at_any_depth() -> None:
    inner = iceberg.StructType(iceberg.NestedField(10, "x", iceberg.LongType(), required=True))
    elements = iceberg.ListType(11, iceberg.StringType(), element_required=True)
    schema = spark_schema_of(schema_of(inner, elements, required=True))
    assert not schema["c0"].nullable
    assert isinstance(schema["c0"].dataType, spark.StructType)
    assert not schema["c0"].dataType["x"].nullable
    assert schema["c1"].dataType == spark.ArrayType(spark.StringType(), False)


def test_uuids_are_texts_to_spark_and_come_back_as_uuids() -> None:
    table = schema_of(iceberg.UUIDType())
    ids = [uuid.uuid4(), None]
    array = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([ids[0].bytes if ids[0] else None, None], pa.binary(16)))
    batch = pa.RecordBatch.from_arrays([array], schema=arrow_schema_of(table))
    shown = batch_for_spark(batch, arrow_schema_for_spark(spark_schema_of(table)))
    assert shown.column(0).to_pylist() == [str(ids[0]), None]
    back = batch_from_spark(shown, table)
    assert back.column(0).equals(array.storage)


def test_a_text_that_is_no_uuid_is_refused_naming_the_column() -> None:
    with pytest.raises(Invalid, match="column c0 is a uuid, and 'x' is not a UUID"):
        batch_from_spark(pa.record_batch({"c0": ["x"]}), schema_of(iceberg.UUIDType()))


def test_nanoseconds_that_spark_cannot_hold_are_refused_naming_the_column() -> None:
    table = schema_of(iceberg.TimestampNanoType())
    target = arrow_schema_for_spark(spark_schema_of(table))
    exact = pa.record_batch({"c0": pa.array([1_000, None], pa.timestamp("ns"))})
    assert batch_for_spark(exact, target).column(0).cast(pa.int64()).to_pylist() == [1, None]
    with pytest.raises(Invalid, match="column c0"):
        batch_for_spark(pa.record_batch({"c0": pa.array([1_001], pa.timestamp("ns"))}), target)


WHOLE = spark.StructType(
    [
        spark.StructField("a", spark.IntegerType()),
        spark.StructField("b", spark.DecimalType(9, 2)),
        spark.StructField("c", spark.StructType([spark.StructField("x", spark.LongType(), False)]), False),
        spark.StructField("d", spark.ArrayType(spark.FloatType(), False)),
        spark.StructField("e", spark.MapType(spark.StringType(), spark.LongType(), False)),
    ]
)


@pytest.mark.spark
@pytest.mark.usefixtures("spark")  # to read the words of SQL
@pytest.mark.parametrize(
    "given",
    ["a int", "a bigint", "b decimal(12, 2)", "e map<string, bigint>, d array<double>", "c struct<x: bigint>"],
)
def test_a_given_schema_may_pick_reorder_and_widen_columns(given: str) -> None:
    check_columns(spark.StructType.fromDDL(given), WHOLE, "demo.t")


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        ("z int", "column-unknown", "there is no column 'z'. It has a, b, c, d, e"),
        ("a string", "setting-invalid", "column a is of type int, not string"),
        ("a smallint", "setting-invalid", "column a is of type int, not smallint"),
        ("b decimal(12, 3)", "setting-invalid", "column b"),
        ("c struct<y: bigint>", "setting-invalid", "column c"),
        ("a int not null", "setting-invalid", "column a can be null"),
        ("e map<string, string>", "setting-invalid", "column e"),
        ("d array<string>", "setting-invalid", "column d"),
    ],
)
def test_a_given_schema_that_cannot_be_read_is_refused_naming_the_column(given: str, code: str, said: str) -> None:
    with pytest.raises(Invalid) as refused:
        check_columns(spark.StructType.fromDDL(given), WHOLE, "demo.t")
    assert refused.value.code == code
    assert said in refused.value.message
