"""Several requests at the same time, but not all."""

from __future__ import annotations

import asyncio

import pytest

from rootline.schemas.errors import Unavailable
from rootline.storage.stored_objects import gather_bounded


async def test_results_come_in_the_items_order_whichever_is_done_first() -> None:
    first = asyncio.Event()

    async def work(item: int) -> int:
        if item == 0:
            await first.wait()
        elif item == 1:
            first.set()
        return item * 10

    assert await gather_bounded(range(4), work, 2) == [0, 10, 20, 30]


async def test_no_more_than_so_many_are_under_way() -> None:
    running: list[int] = []
    most = 0

    async def work(item: int) -> None:
        nonlocal most
        running.append(item)
        most = max(most, len(running))
        await asyncio.sleep(0)
        running.remove(item)

    await gather_bounded(range(20), work, 3)
    assert most == 3


async def test_the_first_error_is_raised_as_it_is_and_ends_the_others() -> None:
    ended: list[int] = []

    async def work(item: int) -> None:
        if item == 1:
            raise Unavailable("store-unavailable", "the store is gone")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(item)

    with pytest.raises(Unavailable, match="the store is gone"):
        await gather_bounded([0, 1, 2], work, 3)
    assert sorted(ended) == [0, 2]  # in whichever order the group cancels them


async def test_no_items_are_no_results() -> None:
    async def work(item: int) -> int:
        return item

    assert await gather_bounded([], work, 3) == []
