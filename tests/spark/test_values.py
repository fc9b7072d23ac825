"""Values of every type that Spark has come back as they were written, whatever time zone a session shows them in."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from rootline.client.lake import Lake

pytestmark = pytest.mark.spark
ZONES = ("UTC", "America/New_York", "Asia/Kolkata")
SCHEMA = pa.schema(
    [
        ("flag", pa.bool_()),
        ("tiny", pa.int32()),
        ("whole", pa.int32()),
        ("big", pa.int64()),
        ("single", pa.float32()),
        ("real", pa.float64()),
        ("money", pa.decimal128(38, 10)),
        ("text", pa.string()),
        ("blob", pa.binary()),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("plane", pa.struct([("seats", pa.int32()), ("tags", pa.list_(pa.string()))])),
        ("stops", pa.list_(pa.struct([("at", pa.timestamp("us", "UTC")), ("gate", pa.string())]))),
        ("codes", pa.map_(pa.string(), pa.list_(pa.int64()))),
    ]
)
DDL = (
    "flag boolean, tiny tinyint, whole int, big bigint, single float, real double, money decimal(38, 10), text string, "
    "blob binary, day date, moment timestamp, local timestamp_ntz, plane struct<seats: int, tags: array<string>>, "
    "stops array<struct<at: timestamp, gate: string>>, codes map<string, array<bigint>>"
)
MOMENT = dt.datetime(2013, 3, 10, 7, 30, 0, 1, tzinfo=dt.UTC)  # 02:30 in New York on the day that had no 02:30
ROWS: list[dict[str, Any]] = [
    {
        "flag": True,
        "tiny": -128,
        "whole": -(2**31),
        "big": 2**63 - 1,
        "single": 0.5,
        "real": -0.1,
        "money": Decimal("12345678901234567890.0123456789"),
        "text": "Zürich ✈ 🛫",
        "blob": b"\x00\xff",
        "day": dt.date(1582, 10, 4),
        "moment": MOMENT,
        "local": dt.datetime(2013, 3, 10, 2, 30, 0, 999_999),
        "plane": {"seats": 180, "tags": ["a", None, ""]},
        "stops": [{"at": MOMENT, "gate": None}, None],
        "codes": [("UA", [1, None]), ("AA", None)],
    },
    dict.fromkeys(SCHEMA.names),
    {
        **dict.fromkeys(SCHEMA.names),
        "real": float("inf"),
        "text": "",
        "blob": b"",
        "day": dt.date(9999, 12, 31),
        "moment": dt.datetime(1900, 1, 1, tzinfo=dt.UTC),
        "local": dt.datetime(1, 1, 1),
        "plane": {"seats": None, "tags": None},
        "stops": [],
        "codes": [],
    },
]


def written(spark: SparkSession) -> DataFrame:
    """The rows as Spark has them, made without the session's time zone."""
    return spark.createDataFrame(pa.Table.from_pylist(ROWS, SCHEMA), spark.createDataFrame([], DDL).schema)


@pytest.mark.parametrize("zone", ZONES)
def test_every_value_comes_back_as_it_was_written(
    spark: SparkSession, lake: Lake, load: Callable[..., DataFrame], save: Callable[..., None], zone: str
) -> None:
    table = lake.create_table("demo.values", SCHEMA)
    spark.conf.set("spark.sql.session.timeZone", zone)
    save(written(spark), table="demo.values")
    rows = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: str(row["text"]))
    assert rows == sorted(ROWS, key=lambda row: str(row["text"]))
    for reading_zone in ZONES:
        spark.conf.set("spark.sql.session.timeZone", reading_zone)
        frame = load("demo.values")
        assert dict(frame.dtypes) == {**dict(spark.createDataFrame([], DDL).dtypes), "tiny": "int"}
        back = frame.toArrow().select(SCHEMA.names).cast(SCHEMA)
        assert sorted(back.to_pylist(), key=lambda row: str(row["text"])) == rows
        shown = frame.where("flag").selectExpr("unix_micros(moment)", "cast(local as string)").collect()
        assert [tuple(row) for row in shown] == [(1_362_900_600_000_001, "2013-03-10 02:30:00.999999")]
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")


def test_filters_on_every_type_that_has_an_order_find_their_row(
    spark: SparkSession, lake: Lake, load: Callable[..., DataFrame], save: Callable[..., None]
) -> None:
    lake.create_table("demo.values", SCHEMA)
    save(written(spark), table="demo.values")
    for where in (
        "flag = true",
        "whole = -2147483648",
        "big > 9223372036854775806",
        "single = 0.5f",
        "real = -0.1",
        "money = 12345678901234567890.0123456789",
        "text = 'Zürich ✈ 🛫'",
        "blob = X'00FF'",
        "day < date'1600-01-01'",
        "moment = timestamp'2013-03-10T07:30:00.000001Z'",
        "moment > timestamp'2013-03-10 03:30:00'",  # in New York, where the session is
        "local = timestamp_ntz'2013-03-10 02:30:00.999999'",
        "plane.seats > 100",
        "size(stops) = 2",
    ):
        assert load("demo.values").where(where).count() == 1, where


def test_times_of_day_and_uuids_come_back_as_they_were_written(
    lake: Lake, load: Callable[..., DataFrame], save: Callable[..., None]
) -> None:
    schema = pa.schema([("at", pa.time64("us")), ("flight", pa.uuid()), ("code", pa.binary(2))])
    table = lake.create_table("demo.odd", schema)
    row = {"at": dt.time(23, 59, 59, 999_999), "flight": b"0123456789abcdef", "code": b"UA"}
    table.append(pa.Table.from_pylist([row, dict.fromkeys(schema.names)], schema))
    frame = load("demo.odd")
    assert dict(frame.dtypes) == {"at": "time(6)", "flight": "string", "code": "binary"}
    assert frame.where("flight is not null").collect()[0].flight == "30313233-3435-3637-3839-616263646566"
    save(frame, table="demo.odd")
    rows = table.scan().to_arrow().to_pylist()
    assert len(rows) == 4
    assert rows.count(rows[0]) == 2
