"""A default is kept as it was given, or refused: nothing is cut, rounded or dropped in silence."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, StructType

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


@pytest.mark.parametrize(
    ("of_type", "given"), [({"x": "int"}, {"x": 1}), ({"x": "int"}, {}), (NUMBERS, [1]), (SIZES, {"a": 1})]
)
def test_a_struct_list_or_map_gets_no_default_because_other_engines_could_not_read_the_table(
    tmp_path: Path, of_type: Any, given: Any
) -> None:
    with connect(tmp_path / "lake") as lake:
        table = lake.create_table("demo.t", {"id": "int", "there": of_type})
        for step in (
            lambda change: change.add_column("c", of_type, default=given),
            lambda change: change.update_column("there", default=given),
        ):
            with pytest.raises(Invalid, match="other engines cannot read") as raised, table.alter() as change:
                step(change)
            assert raised.value.code == "definition-invalid"
        with table.alter() as change:
            change.add_column("place", {"city": "string"}).add_column("place.street", "string", default="none")


def test_a_table_that_is_replaced_gets_no_such_default_either(tmp_path: Path) -> None:
    place = StructType(NestedField(5, "city", StringType()))
    given = Schema(NestedField(8, "id", LongType(), required=True), NestedField(3, "place", place, write_default={}))
    with connect(tmp_path / "lake") as lake:
        lake.create_table("demo.t", {"id": "int"})
        with pytest.raises(Invalid, match="other engines cannot read"):
            lake.replace_table("demo.t", given)


@pytest.mark.parametrize(
    ("of_type", "given"), [("decimal(38, 0)", "9" * 38), ("decimal(38,10)", f"{'1' * 28}.0123456789")]
)
def test_a_decimal_default_may_have_all_of_its_38_digits(tmp_path: Path, of_type: str, given: str) -> None:
    with connect(tmp_path / "lake") as lake:
        table = lake.create_table("demo.t", {"id": "int"})
        table.append([{"id": 1}])
        with table.alter() as change:
            change.add_column("c", of_type, default=given)
        assert table.scan().to_arrow().to_pylist() == [{"id": 1, "c": Decimal(given)}]
