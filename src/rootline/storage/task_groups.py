"""Task groups whose first failure comes out as it is, instead of in a group of exceptions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def plain_task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """An `asyncio.TaskGroup`: the first failure cancels the other tasks, and is raised without a group around it."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
