"""Several requests at the same time, but not all: what bounds memory and connections of a read of many objects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from rootline.storage.task_groups import plain_task_group

T = TypeVar("T")
R = TypeVar("R")


async def gather_bounded(items: Iterable[T], work: Callable[[T], Awaitable[R]], at_once: int) -> list[R]:
    """The results of `work` on each item, in the items' order; at most `at_once` are under way at a time.

    The first error cancels what is under way and is raised as it is, not in a group.
    """
    slots = asyncio.Semaphore(at_once)

    async def one(item: T) -> R:
        async with slots:
            return await work(item)

    async with plain_task_group() as group:
        tasks = [group.create_task(one(item)) for item in items]
    return [task.result() for task in tasks]
