"""Work that goes on between calls: one task for each name, whose failures are raised later.

Owns: starting and stopping tasks, and raising their failures. Does not own: what they do.
Invariants: at most one task of a name; no failure is lost; nothing is started after `close`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class BackgroundTasks:
    """For one event loop. `changed` is called when a task ends."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopped: set[asyncio.Task[None]] = set()
        self._closed = False

    def go_on(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start `work`, unless a task of this name is running."""
        if name in self._tasks or self._closed:
            return
        task = self._tasks[name] = asyncio.get_running_loop().create_task(work(), name=f"rootline {name}")
        task.add_done_callback(lambda _: self._changed())

    def raise_failure(self) -> None:
        """Forget the tasks that ended; raise the failure of one of them."""
        for name, task in list(self._tasks.items()):
            if task.done():
                del self._tasks[name]
                if not task.cancelled() and (failure := task.exception()) is not None:
                    raise failure

    def stop(self, name: str) -> None:
        """End the task of this name soon, and ignore its outcome."""
        task = self._tasks.pop(name, None)
        if task is not None:
            self._end(task)

    async def close(self) -> None:
        """Stop all of them and wait."""
        self._closed = True
        for name in list(self._tasks):
            self.stop(name)
        if self._stopped:
            await asyncio.wait(self._stopped)

    def _end(self, task: asyncio.Task[None]) -> None:
        task.add_done_callback(_look_at)
        if task.cancel():
            self._stopped.add(task)
            task.add_done_callback(self._stopped.discard)


def _look_at(task: asyncio.Task[None]) -> None:
    """Asyncio complains about failures that were not looked at."""
    if not task.cancelled():
        task.exception()
