"""A default is kept as it was given, or refused: nothing is cut, rounded or dropped in silence."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, LongType, NestedField, StringType, StructType

from rootline import Invalid, connect

NOON = dt.datetime(2020, 1, 1, 12)
WITH_ZONE = NOON.replace(tzinfo=dt.UTC)
NUMBERS = pa.list_(pa.int32())
SIZES = pa.map_(pa.string(), pa.int32())


@pytest.mark.parametrize(
    ("of_type", "given"),
    [
        ("int", 2**31),
        ("int", "99999999999"),
        ("long", 2**70),
        ("long", True),
        ("int", 1.5),
        ("float", 1e39),
        ("double", float("inf")),
        ("double", float("nan")),
        ("double", "inf"),
        ("double", 2**70 + 1),
        ("decimal(5, 2)", Decimal("1.255")),
        ("decimal(5, 2)", Decimal("NaN")),
        ("decimal(5, 2)", 100_000),
        ("date", 5),
        ("date", NOON),
        ("timestamp", WITH_ZONE),
        ("timestamptz", NOON),
        ("timestamp_ns", NOON),
        ("string", 5),
        ({"x": "int"}, {"y": 1}),
        ({"x": "int"}, {"x": 1.5}),
        ({"x": "int"}, [1]),
        ({"x": "timestamp_ns"}, {"x": NOON}),
        (NUMBERS, {"a": 1}),
        (NUMBERS, ["x"]),
        (SIZES, [1, 2]),
        (SIZES, [("a", 1), ("a", 2)]),
    ],
)
def test_a_default_that_would_change_is_refused(tmp_path: Path, of_type: Any, given: Any) -> None:
    with connect(tmp_path / "lake") as lake:
        table = lake.create_table("demo.t", {"id": "int"})
        with pytest.raises(Invalid, match="column 'c") as raised, table.alter() as change:
            change.add_column("c", of_type, default=given)
        assert raised.value.code == "evolution-illegal"
        with pytest.raises(Invalid), table.alter() as change:
            change.add_column("c", of_type).update_column("c", default=given)


def test_rows_keep_a_default_when_their_column_becomes_wider(tmp_path: Path) -> None:
    with connect(tmp_path / "lake") as lake:
        table = lake.create_table("demo.t", {"id": "int"})
        table.append([{"id": 1}])
        with table.alter() as change:
            change.add_column("ratio", "float", default=0.1)
            change.add_column("price", "decimal(5, 2)", default=Decimal("1.5"))
            change.add_column("count", "decimal(5, 2)", default=7)
            change.add_column("day", "date", default="2024-01-02")
        [before] = table.scan().to_arrow().to_pylist()
        with table.alter() as change:
            change.update_column("ratio", "double").update_column("price", "decimal(9, 2)", default=3)
        [after] = table.scan().to_arrow().to_pylist()
        assert after == before
        assert after["price"] == Decimal("1.5")
        assert after["day"] == dt.date(2024, 1, 2)


def test_structs_lists_and_maps_have_defaults_in_rows_of_before_and_in_those_that_lack_them(tmp_path: Path) -> None:
    with connect(tmp_path / "lake") as lake:
        table = lake.create_table("demo.t", {"id": "int"})
        table.append([{"id": 1}])
        with table.alter() as change:
            change.add_column("place", {"city": "string", "day": "date"}, default={"day": "2024-01-02"}, required=True)
            change.add_column("numbers", NUMBERS, default=[1, None])
            change.add_column("sizes", SIZES, default={"a": 1})
        table.append([{"id": 2}])
        with table.alter() as change:
            change.add_column("place.street", "string", default="none")
            change.update_column("place", default={"city": "here"}).update_column("numbers", default=[])
        table.append([{"id": 3}])
        with table.alter() as change:
            change.drop_column("place.day").rename_column("place.city", "town")
        table.append([{"id": 4}])
        rest = {"numbers": [1, None], "sizes": [("a", 1)]}
        old, new = {"town": None, "street": "none"}, {"town": "here", "street": "none"}
        assert sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"]) == [
            {"id": 1, "place": old, **rest},
            {"id": 2, "place": old, **rest},
            {"id": 3, "place": new, **rest, "numbers": []},
            {"id": 4, "place": new, **rest, "numbers": []},
        ]
        assert table.scan("place.town = 'here'").count() == 2


def test_a_table_that_is_replaced_keeps_the_defaults_of_what_it_is_given(tmp_path: Path) -> None:
    place = StructType(NestedField(5, "city", StringType()), NestedField(9, "day", DateType()))
    given = Schema(
        NestedField(8, "id", LongType(), required=True),
        NestedField(3, "place", place, initial_default={"5": "x"}, write_default={"9": "2024-01-02", "5": "y"}),
    )
    with connect(tmp_path / "lake") as lake:
        lake.create_table("demo.t", {"id": "int", "more": "string"})
        lake.replace_table("demo.t", given)
        table = lake.table("demo.t")
        table.append([{"id": 1}])
        [row] = table.scan().to_arrow().to_pylist()
        assert row["place"] == {"city": "y", "day": dt.date(2024, 1, 2)}
