"""Columns of a DataFrame are columns of the table by name, as Spark compares names, or are refused with their types."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType
from pyiceberg.types import StructType as IcebergStruct
from pyspark.sql import types as spark

from rootline.schemas.errors import Invalid
from rootline.spark.spark_types import as_table_names, check_types, resolved

POINT = IcebergStruct(NestedField(10, "lat", LongType()), NestedField(11, "lon", LongType()))
TABLE = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "at", POINT),
    NestedField(3, "all", ListType(20, POINT)),
    NestedField(4, "by", MapType(30, StringType(), 31, POINT)),
)


class Vector(spark.UserDefinedType):
    @classmethod
    def sqlType(cls) -> spark.DataType:  # noqa: N802 -- Spark's name
        return spark.StructType([spark.StructField("values", spark.ArrayType(spark.DoubleType()))])


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (spark.VariantType(), "column x is of type VARIANT, which no table stores: write to_json"),
        (spark.GeometryType(4326), "column x is of type GEOMETRY(4326), which no table stores: write st_asbinary"),
        (spark.GeographyType(4326), "column x is of type GEOGRAPHY(4326)"),
        (spark.DayTimeIntervalType(), "column x is of type INTERVAL DAY TO SECOND, which no table stores: cast it"),
        (spark.YearMonthIntervalType(), "column x is of type INTERVAL YEAR TO MONTH"),
        (spark.CalendarIntervalType(), "column x is of type INTERVAL,"),
        (Vector(), "column x is of type UDT, which no table stores: cast it to a type that tables have"),
        (spark.StructType([spark.StructField("m", spark.VariantType())]), "column x.m is of type VARIANT"),
        (spark.ArrayType(spark.VariantType()), "column x.element is of type VARIANT"),
        (spark.MapType(spark.StringType(), spark.ArrayType(spark.VariantType())), "column x.value.element is of type"),
    ],
)
def test_a_type_that_no_table_stores_is_refused_at_any_depth(kind: spark.DataType, said: str) -> None:
    with pytest.raises(Invalid) as refused:
        check_types(spark.StructType([spark.StructField("x", kind)]), "demo.t")
    assert refused.value.code == "rows-invalid"
    assert said in refused.value.message


def test_names_are_the_tables_at_every_depth_and_no_value_moves() -> None:
    points = pa.array([{"LAT": 1, "Lon": 2}, None, {"LAT": None, "Lon": 4}])
    pairs = [[("a", {"Lat": 1, "LON": 2})], None, [("b", None)]]
    kind = pa.map_(pa.string(), pa.struct([("Lat", pa.int64()), ("LON", pa.int64())]))
    given = pa.record_batch(
        {
            "ID": [1, 2, 3],
            "At": points,
            "ALL": pa.array([[{"LON": 7}], None, []]),
            "By": pa.array(pairs, kind),
            "New": ["x", "y", "z"],
        }
    )
    for batch in (given, given.slice(1)):
        named = as_table_names(batch, TABLE, is_case_sensitive=False)
        lower = [
            {
                "id": row["ID"],
                "at": row["At"] and {"lat": row["At"]["LAT"], "lon": row["At"]["Lon"]},
                "all": row["ALL"] and [{"lon": value["LON"]} for value in row["ALL"]],
                "by": row["By"] and [(key, value and {"lat": 1, "lon": 2}) for key, value in row["By"]],
                "New": row["New"],
            }
            for row in batch.to_pylist()
        ]
        assert [{**row, "all": row["all"] or None} for row in named.to_pylist()] == [
            {**row, "all": row["all"] or None} for row in lower
        ]
        named.validate(full=True)
    assert as_table_names(given, TABLE, is_case_sensitive=True) is given


def test_an_exact_name_comes_first_and_two_columns_are_never_one() -> None:
    assert resolved(["ID", "id"], ["id", "ID"], is_case_sensitive=False) == ["ID", "id"]
    assert resolved(["ID", "new"], ["id"], is_case_sensitive=False) == ["id", "new"]
    assert resolved(["ID", "id"], ["id"], is_case_sensitive=True) == ["ID", "id"]
    for names in (["ID", "id"], ["id", "ID"], ["new", "NEW"]):
        with pytest.raises(Invalid, match=r"are one column unless spark\.sql\.caseSensitive is true"):
            resolved(names, ["id"], is_case_sensitive=False)
    with pytest.raises(Invalid, match="column Id of the rows may be ID and id of the table"):
        resolved(["Id"], ["id", "ID"], is_case_sensitive=False)
