"""Merges and updates on an embedded lake: clauses, values, expressions, refusals."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from rootline import Invalid
from rootline.client.lake import Lake
from rootline.client.session import RowCounts
from rootline.client.table_handle import TableHandle

TYPES = {"id": "long not null", "city": "string", "stock": "int", "at": {"x": "double"}}


@pytest.fixture
def stocks(lake: Lake) -> TableHandle:
    """Rows 1 to 4, two in each city."""
    table = lake.create_table("demo.stocks", TYPES, partition_by=["city"])
    table.append(
        [{"id": id_, "city": "ab"[id_ % 2], "stock": id_ * 10, "at": {"x": float(id_)}} for id_ in (1, 2, 3, 4)]
    )
    return table


def stock_by_id(table: TableHandle) -> dict[int, object]:
    return {row["id"]: row["stock"] for row in table.scan().to_arrow().to_pylist()}


def test_an_update_sets_values_and_expressions_over_the_current_row(stocks: TableHandle) -> None:
    commit = stocks.update_where(
        "city = 'b'", {"stock": pc.field("stock") + 1, "city": "c", "at": {"x": 0.5}}, summary={"why": "test"}
    )
    assert commit.rows == RowCounts(inserted=0, updated=2, deleted=0)
    assert stock_by_id(stocks) == {1: 11, 2: 20, 3: 31, 4: 40}
    assert stocks.scan("city = 'c'").count() == 2
    assert stocks.scan("at.x = 0.5").count() == 2
    assert stocks.head().snapshot.summary["why"] == "test"
    assert list(stocks.check(data_files="all")) == []


def test_an_expression_may_read_members_of_structs(stocks: TableHandle) -> None:
    stocks.update_where("id = 3", {"stock": pc.field("at", "x") * 100})
    assert stock_by_id(stocks)[3] == 300


def test_an_update_without_a_match_publishes_nothing(stocks: TableHandle) -> None:
    newest = stocks.head().version
    commit = stocks.update_where("id > 100", {"stock": 0})
    assert (commit.version, commit.is_new, commit.rows) == (newest, False, RowCounts(0, 0, 0))


def test_every_row_is_updated_by_the_filter_true(stocks: TableHandle) -> None:
    assert stocks.update_where("true", {"stock": None}).rows.updated == 4
    assert set(stock_by_id(stocks).values()) == {None}


def test_updated_rows_keep_their_row_ids(stocks: TableHandle) -> None:
    before = {row["id"]: row["_row_id"] for row in stocks.scan(columns=["id", "_row_id"]).to_arrow().to_pylist()}
    stocks.update_where("stock > 15", {"stock": 0})
    after = {row["id"]: row["_row_id"] for row in stocks.scan(columns=["id", "_row_id"]).to_arrow().to_pylist()}
    assert before == after


@pytest.mark.parametrize(
    ("values", "code", "message"),
    [
        ({"stocks": 1}, "column-unknown", "no column 'stocks'"),
        ({"stock": "many"}, "rows-invalid", "column stock"),
        ({"stock": "stock + 1"}, "rows-invalid", "for an expression use pyarrow.compute"),
        ({"stock": 2**40}, "rows-invalid", "column stock"),
        ({"stock": pc.field("nothing")}, "rows-invalid", "column stock.*cannot be computed"),
        ({"stock": pc.field("city") + 1}, "rows-invalid", "column stock.*cannot be computed"),
        ({"id": None}, "rows-invalid", "column id is required"),
        ({}, "setting-invalid", "set is no column"),
        ("stock = 1", "setting-invalid", "give a dict"),
        ({3: 1}, "setting-invalid", "not a column name"),
    ],
)
def test_values_that_do_not_fit_are_refused(stocks: TableHandle, values: object, code: str, message: str) -> None:
    with pytest.raises(Invalid, match=message) as refused:
        stocks.update_where("id = 1", values)  # type: ignore[arg-type]
    assert refused.value.code == code
    assert stock_by_id(stocks) == {1: 10, 2: 20, 3: 30, 4: 40}


def test_a_merge_updates_deletes_or_keeps_rows_that_match(stocks: TableHandle) -> None:
    source = {"id": [1, 9], "stock": [5, 6]}
    assert stocks.merge(source, on=["id"], when_matched=None).rows == RowCounts(inserted=1, updated=0, deleted=0)
    assert stock_by_id(stocks) == {1: 10, 2: 20, 3: 30, 4: 40, 9: 6}
    assert stocks.merge(source, on=["id"], when_not_matched=None).rows == RowCounts(inserted=0, updated=2, deleted=0)
    assert stock_by_id(stocks) == {1: 5, 2: 20, 3: 30, 4: 40, 9: 6}
    gone = stocks.merge({"id": [1, 2, 100]}, on=["id"], when_matched="delete", when_not_matched=None)
    assert gone.rows == RowCounts(inserted=0, updated=0, deleted=2)
    assert stock_by_id(stocks) == {3: 30, 4: 40, 9: 6}
    both = stocks.merge({"id": [3, 7], "stock": [0, 70]}, on=["id"], when_matched="delete")
    assert both.rows == RowCounts(inserted=1, updated=0, deleted=1)
    assert stock_by_id(stocks) == {4: 40, 7: 70, 9: 6}
    assert list(stocks.check(data_files="all")) == []


def test_values_of_a_merge_name_both_sides(stocks: TableHandle) -> None:
    arrived = pa.table({"id": [2, 8], "amount": [3, 4], "town": ["z", "y"]})
    commit = stocks.merge(
        arrived,
        on=["id"],
        when_matched={"stock": pc.field("target", "stock") + pc.field("source", "amount")},
        when_not_matched={"id": pc.field("source", "id"), "stock": pc.field("source", "amount"), "city": "new"},
    )
    assert (commit.rows.updated, commit.rows.inserted) == (1, 1)
    assert stock_by_id(stocks) == {1: 10, 2: 23, 3: 30, 4: 40, 8: 4}
    assert stocks.scan("city = 'new'").count() == 1


def test_two_source_rows_for_one_row_are_refused_but_not_if_nothing_matches_them(stocks: TableHandle) -> None:
    twice = {"id": [1, 1, 50, 50], "stock": [1, 2, 3, 4]}
    for clause in ("update", "delete", {"stock": 1}):
        with pytest.raises(Invalid, match=r"demo\.stocks: .*key id=1") as refused:
            stocks.merge(twice, on=["id"], when_matched=clause)
        assert refused.value.code == "merge-ambiguous"
    assert stocks.merge(twice, on=["id"], when_matched=None).rows.inserted == 2
    assert stocks.scan("id = 50").count() == 2


def test_a_merge_that_has_nothing_to_do_publishes_nothing(stocks: TableHandle) -> None:
    newest = stocks.head().version
    for commit in (
        stocks.merge([], on=["id"]),
        stocks.merge({"id": [1]}, on=["id"], when_matched=None),
        stocks.merge({"id": [77]}, on=["id"], when_not_matched=None),
    ):
        assert (commit.version, commit.is_new) == (newest, False)


def test_clauses_that_do_not_exist_are_refused(stocks: TableHandle) -> None:
    for clauses, message in (
        ({"when_matched": None, "when_not_matched": None}, "changes nothing"),
        ({"when_matched": "insert"}, "write update or delete"),
        ({"when_not_matched": "update"}, "write insert"),
        ({"when_matched": {}}, "when_matched is no column"),
        ({"when_matched": 5}, "when_matched is 5"),
    ):
        with pytest.raises(Invalid, match=message) as refused:
            stocks.merge({"id": [1]}, on=["id"], **clauses)
        assert refused.value.code == "setting-invalid"


def test_new_rows_get_the_defaults_of_columns_without_a_value(lake: Lake) -> None:
    table = lake.create_table("demo.defaults", {"id": "long"})
    with table.alter() as change:
        change.add_column("state", "string", default="new").add_column("n", "int", default=7)
    table.merge({"id": [1]}, on=["id"], when_not_matched={"id": pc.field("source", "id"), "n": 1})
    table.upsert([{"id": 2}], on=["id"])
    assert table.scan().to_arrow().to_pylist() == [
        {"id": 1, "state": "new", "n": 1},
        {"id": 2, "state": "new", "n": 7},
    ] or sorted(row["n"] for row in table.scan().to_arrow().to_pylist()) == [1, 7]
