"""The task queue of one process.

Owns: a bounded queue in memory. Does not own: what tasks mean.
Invariants: those of `rootline.ports.task_queue`; used from one event loop only.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Mapping

from rootline.ports.task_queue import Ending, Offer, Task, TaskKind
from rootline.schemas.identifiers import TableName


class MemoryTaskQueue:
    """Holds up to `tasks_max` tasks that were not taken yet."""

    is_shared: bool = False

    def __init__(self, *, tasks_max: int = 1_024) -> None:
        self._waiting: asyncio.Queue[Task] = asyncio.Queue(maxsize=tasks_max)
        self._held: set[tuple[TaskKind, TableName]] = set()
        self._counts: Counter[TaskKind] = Counter()

    async def offer(self, task: Task) -> Offer:
        """Queue `task` unless one of its kind and table is there or the queue is full."""
        like = (task.kind, task.table)
        if like in self._held:
            return Offer.ALREADY_THERE
        try:
            self._waiting.put_nowait(task)
        except asyncio.QueueFull:
            return Offer.FULL
        self._held.add(like)
        self._counts[task.kind] += 1
        return Offer.QUEUED

    async def take(self, *, wait_s: float) -> Task | None:
        """The oldest task, or `None` when none came in `wait_s` seconds."""
        try:
            async with asyncio.timeout(wait_s):
                task = await self._waiting.get()
        except TimeoutError:
            return None
        self._counts[task.kind] -= 1
        return task

    async def finish(self, task: Task, ending: Ending = Ending.DONE) -> None:
        """Let go of `task`."""
        self._held.discard((task.kind, task.table))

    async def renew(self) -> float:
        """No one else could take what is in hand."""
        return math.inf

    async def waiting(self) -> Mapping[TaskKind, int]:
        """How many tasks of each kind were not taken yet."""
        return dict(self._counts)

    async def close(self) -> None:
        """Does nothing."""
