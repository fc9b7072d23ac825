"""The queue that workers share while they can reach it, and else the worker's own.

Owns: which of the two a task goes through. Does not own: either of them.
Invariants: never `Unavailable` because of the shared queue: without it every worker notices and does everything, as
workers that share nothing do; a task ends in the queue that it was taken from.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping
from typing import Final

import structlog

from rootline.ports.task_queue import Ending, Offer, Task, TaskKind, TaskQueue
from rootline.schemas.errors import Unavailable

_log = structlog.get_logger("rootline.redis")
_OWN_WAIT_S: Final = 1.0
"""Then the shared queue is asked again."""


class QueueOrOwn:
    """`shared` first, `own` while it cannot be reached."""

    is_shared: bool = True

    def __init__(self, shared: TaskQueue, own: TaskQueue) -> None:
        self._shared, self._own = shared, own
        self._from_own: list[Task] = []
        self._is_alone = False

    async def offer(self, task: Task) -> Offer:
        """Queue `task` where it can be queued."""
        try:
            offer = await self._shared.offer(task)
        except Unavailable as error:
            self._alone(error)
            return await self._own.offer(task)
        self._together()
        return offer

    async def take(self, *, wait_s: float) -> Task | None:
        """What is in the own queue first."""
        task = await self._own.take(wait_s=0)
        if task is None:
            try:
                task = await self._shared.take(wait_s=wait_s)
            except Unavailable as error:
                self._alone(error)
                task = await self._own.take(wait_s=min(wait_s, _OWN_WAIT_S))
            else:
                self._together()
                return task
        if task is not None:
            self._from_own.append(task)
        return task

    async def finish(self, task: Task, ending: Ending = Ending.DONE) -> None:
        """Let go of `task` where it was taken from."""
        for number, own in enumerate(self._from_own):
            if own is task:
                del self._from_own[number]
                await self._own.finish(task, ending)
                return
        await self._shared.finish(task, ending)

    async def renew(self) -> float:
        """As the shared queue; what is in the own one needs no lease."""
        return await self._shared.renew()

    async def waiting(self) -> Mapping[TaskKind, int]:
        """Of both."""
        counts = Counter(await self._own.waiting())
        with contextlib.suppress(Unavailable):  # what waits there is not known
            counts.update(await self._shared.waiting())
        return counts

    async def close(self) -> None:
        """Close both."""
        await self._own.close()
        await self._shared.close()

    def _alone(self, error: Unavailable) -> None:
        if not self._is_alone:
            _log.warning("the shared queue cannot be used", action="queue-alone", reason=error.message)
        self._is_alone = True

    def _together(self) -> None:
        if self._is_alone:
            _log.info("the shared queue is used again", action="queue-shared")
        self._is_alone = False
