"""A change of more files than its intent can describe lists their vectors in leaves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rootline.client import marked_files
from rootline.client.lake import Lake
from rootline.client.session import Session
from rootline.client.table_handle import TableHandle
from rootline.client.time_travel import read_head
from rootline.schemas.content_entry import ContentType

CITIES = ("a", "b", "c")


@pytest.fixture
def stocks(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> TableHandle:
    """Two rows in each of three files, in a table whose changes have room for one vector or removed file."""
    monkeypatch.setattr(marked_files, "NAMES_BYTES_MAX", 250)
    table = lake.create_table("demo.stocks", {"id": "long", "city": "string", "stock": "int"}, partition_by=["city"])
    table.append([{"id": at, "city": CITIES[at // 2], "stock": at * 10} for at in range(6)])
    return table


def stock_by_id(table: TableHandle) -> dict[int, int]:
    return {row["id"]: row["stock"] for row in table.scan().to_arrow().to_pylist()}


def leaves_of_vectors(lake: Lake, table: TableHandle) -> list[int]:
    """The number of entries of each leaf of deletes."""

    async def operation(session: Session) -> list[int]:
        root = await read_head(session.store, table.name)
        entries = [row.entry for row in root.rows]
        return [entry.record_count for entry in entries if entry.content_type is ContentType.DELETE_MANIFEST]

    return lake.holder.run(operation)


def test_the_vectors_of_many_files_are_in_a_leaf_and_a_later_change_replaces_them(
    lake: Lake, stocks: TableHandle
) -> None:
    stocks.update_where("id in (1, 3)", {"stock": 1})
    assert leaves_of_vectors(lake, stocks) == [2]
    stocks.delete_where("id in (2, 4)")
    assert leaves_of_vectors(lake, stocks) == [2, 2]
    assert stock_by_id(stocks) == {0: 0, 1: 1, 3: 1, 5: 50}
    assert stocks.scan("city = 'b'").count() == 1
    assert list(stocks.check(data_files="all")) == []


def test_the_vector_of_one_file_stays_in_the_intent(lake: Lake, stocks: TableHandle) -> None:
    stocks.delete_where("id = 1")
    assert leaves_of_vectors(lake, stocks) == []


def test_many_files_that_lose_all_rows_get_vectors(lake: Lake, stocks: TableHandle) -> None:
    assert stocks.delete_where("city in ('a', 'b', 'c') and id < 100").rows.deleted == 6
    assert leaves_of_vectors(lake, stocks) == [3]
    assert stock_by_id(stocks) == {}
    assert stocks.merge([{"id": 1, "city": "a", "stock": 5}], on=["id"]).rows.inserted == 1
    assert list(stocks.check(data_files="all")) == []


def test_a_change_whose_vectors_are_in_a_leaf_is_planned_again_after_another_delete(
    lake: Lake, stocks: TableHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = marked_files.write_vector_leaves
    others = ["id = 1"]

    async def late(session: Session, *more: Any) -> Any:
        if others:
            await asyncio.to_thread(stocks.delete_where, others.pop())
        return await store(session, *more)

    monkeypatch.setattr(marked_files, "write_vector_leaves", late)
    assert stocks.update_where("id in (0, 2, 4)", {"stock": 7}).rows.updated == 3
    assert stock_by_id(stocks) == {0: 7, 2: 7, 3: 30, 4: 7, 5: 50}
    assert list(stocks.check(data_files="all")) == []
