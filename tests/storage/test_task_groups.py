"""A task group whose first failure comes out as it is."""

from __future__ import annotations

import asyncio

import pytest

from rootline.schemas.errors import Corrupt
from rootline.storage.stored_objects import plain_task_group


async def test_the_first_failure_cancels_the_others_and_is_raised_without_a_group() -> None:
    ended: list[str] = []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    async def fail() -> None:
        raise Corrupt("object-missing", "a")

    async def both() -> None:
        async with plain_task_group() as group:
            group.create_task(wait())
            group.create_task(fail())

    with pytest.raises(Corrupt, match="a"):
        await both()
    assert ended == ["cancelled"]


async def test_a_block_ends_when_all_its_tasks_have() -> None:
    done: list[int] = []

    async def work(number: int) -> None:
        await asyncio.sleep(0)
        done.append(number)

    async with plain_task_group() as group:
        for number in range(3):
            group.create_task(work(number))
    assert done == [0, 1, 2]
