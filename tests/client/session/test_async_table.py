"""The asyncio twins of tables and scans."""

from __future__ import annotations

import asyncio
import inspect

import pyarrow.compute as pc
import pytest

from rootline import AsyncScan, AsyncTableHandle, Invalid, Scan, TableHandle
from rootline.client.lake import Lake


def test_a_coroutine_reads_and_changes_rows_as_a_thread_does(lake: Lake) -> None:
    table = lake.create_table("demo.t", {"id": "long", "n": "int"})

    async def story() -> None:
        twin = lake.async_table("demo.t")
        assert (await twin.append([{"id": 1, "n": 1}, {"id": 2, "n": 2}])).rows.inserted == 2
        assert (await twin.upsert([{"id": 2, "n": 5}, {"id": 3, "n": 6}], on=["id"])).rows.updated == 1
        assert (await twin.merge([{"id": 1}], on=["id"], when_matched="delete")).rows.deleted == 1
        await twin.update_where("id = 3", {"n": pc.field("n") + 1})
        assert not (await twin.delete_where("id = 100")).is_new
        assert (await twin.scan("id = 3").to_arrow()).to_pylist() == [{"id": 3, "n": 7}]
        assert (await twin.scan("id = 3").to_pandas())["n"].tolist() == [7]
        assert (await twin.scan("id = 3").to_polars()).rows() == [(3, 7)]
        assert await twin.scan(limit=1).count() == 1
        assert [len(batch) async for batch in twin.scan(columns=["id"]).to_batches()] != []
        assert await twin.schema() == await twin.scan().schema() == table.schema()
        assert (await twin.definition()).schema.column_names == ["id", "n"]
        await twin.overwrite([])
        assert await twin.scan().count() == 0

    asyncio.run(story())


def test_changes_of_many_coroutines_share_commits(lake: Lake) -> None:
    table = lake.create_table("demo.t", {"id": "long"})

    async def appends() -> None:
        twin = lake.async_table("demo.t")
        await asyncio.gather(*(twin.append([{"id": id_}]) for id_ in range(40)))

    asyncio.run(appends())
    assert table.scan().count() == 40
    assert table.head().version < 40


def test_errors_are_raised_where_the_call_is_awaited(lake: Lake) -> None:
    async def story() -> None:
        with pytest.raises(Invalid, match="absent") as refused:
            await lake.async_table("demo.absent").append([{"id": 1}])
        assert refused.value.code == "table-unknown"
        with pytest.raises(Invalid, match="seconds"):
            await lake.async_table("demo.absent").append([{"id": 1}], timeout_s=-1)

    asyncio.run(story())
    with pytest.raises(Invalid):
        lake.async_table("no namespace")


def test_a_reader_may_stop_early(lake: Lake) -> None:
    lake.create_table("demo.t", {"id": "long"}).append({"id": list(range(200_000))})

    async def story() -> int:
        batches = lake.async_table("demo.t").scan().to_batches()
        first = await anext(batches)
        await batches.aclose()
        return len(first)

    assert asyncio.run(story()) == 65_536


def test_twins_have_the_signatures_of_the_originals(lake: Lake) -> None:
    for twin, original in ((AsyncTableHandle, TableHandle), (AsyncScan, Scan)):
        for name, method in inspect.getmembers(twin, inspect.isfunction):
            if not name.startswith("_"):
                expected = list(inspect.signature(getattr(original, name)).parameters)
                assert list(inspect.signature(method).parameters) == expected
    assert repr(lake.async_table("demo.t")).startswith("<AsyncTableHandle demo.t of <Lake")
    assert "AsyncScan of demo.t" in repr(lake.async_table("demo.t").scan("id = 1"))
