"""Filters from end to end: scans, and changes whose filter the coordinator reads too."""

from __future__ import annotations

import pytest
from pyiceberg.expressions import And, EqualTo, GreaterThan

from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.schemas.errors import Invalid

ROWS = [
    {"id": number, "dep delay": float(number % 7) if number % 5 else None, "order": number % 7, "Carrier": "UA"}
    for number in range(60)
]
LATER = [row["id"] for row in ROWS if row["dep delay"] is not None and row["dep delay"] > row["order"] - 1]


@pytest.fixture
def table(lake: Lake) -> TableHandle:
    """A table whose columns have names that need quotes."""
    made = lake.create_table(
        "demo.quoted",
        {"id": "long", "dep delay": "double", "order": "int", "Carrier": "string"},
        partition_by=["order"],
    )
    made.append(ROWS)
    return made


def ids(table: TableHandle, where: str) -> list[int]:
    return sorted(table.scan(where).to_arrow().column("id").to_pylist())


def test_columns_of_one_row_are_compared(table: TableHandle) -> None:
    assert ids(table, '"dep delay" = "order"') == [row["id"] for row in ROWS if row["dep delay"] == row["order"]]
    assert ids(table, 'not "dep delay" >= "order"') == []
    assert ids(table, '"order" < id and "order" = 3') == [row["id"] for row in ROWS if 3 == row["order"] < row["id"]]
    assert table.scan('"dep delay" = "order"').count() == 48
    assert table.scan('"dep delay" = "order" and "order" = 3').plan()[0].residual is not None


def test_expressions_of_pyiceberg_are_scanned_with(table: TableHandle) -> None:
    wanted = And(EqualTo("order", 3), GreaterThan("id", 30))  # type: ignore[call-arg]
    assert sorted(table.scan(wanted).to_arrow().column("id").to_pylist()) == ids(table, '"order" = 3 and id > 30')


def test_rows_are_deleted_and_replaced_by_such_filters(table: TableHandle) -> None:
    table.delete_where('"dep delay" = "order" and id < 30')
    left = [row["id"] for row in ROWS if row["dep delay"] is None or row["id"] >= 30]
    assert ids(table, "true") == left
    listed = ", ".join(map(str, range(30, 20_030, 2)))
    table.overwrite([{"id": -1}], where=f"id in ({listed})")
    assert ids(table, "true") == sorted([-1, *(number for number in left if number < 30 or number % 2)])
    assert list(table.check()) == []


def test_like_takes_one_character_for_an_underscore_in_scans_deletes_and_overwrites(lake: Lake) -> None:
    table = lake.create_table("demo.codes", {"code": "string"})
    codes = ["a_1", "ab1", "ab", "a_", "xab1", None]
    table.append([{"code": code} for code in codes])
    found = table.scan("code like 'a__'").to_arrow().column("code").to_pylist()
    assert sorted(found) == ["a_1", "ab1"]
    assert table.scan("code like '%b_'").count() == 2
    table.overwrite([{"code": "new"}], where=r"code like 'a\__'")
    table.delete_where("code like 'a_'")
    left = table.scan().to_arrow().column("code").to_pylist()
    assert sorted(map(str, left)) == ["None", "ab1", "new", "xab1"]
    assert list(table.check()) == []


def test_what_cannot_be_read_is_refused_before_anything_is_written(table: TableHandle) -> None:
    for where in ('"dep delay" + 1 > 3', "dep delay > 3", "carrier = 'UA'", 'id = "Carrier"'):
        for change in (table.delete_where, lambda where: table.overwrite([{"id": 1}], where=where)):
            with pytest.raises(Invalid) as caught:
                change(where)
            assert caught.value.code == "filter-invalid"
    assert table.head().version == 1
