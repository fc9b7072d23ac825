"""Tasks that no worker ended, for an operator: a port beside `TaskQueue`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rootline.ports.task_queue import Offer, Task, TaskKind
from rootline.schemas.identifiers import TableName


@dataclass(frozen=True, slots=True)
class DeadTask:
    """`attempts` workers took the task and never ended it, the last of them before `since_ms`."""

    task: Task
    attempts: int
    since_ms: int


class DeadTasks(Protocol):
    """Every method raises `Unavailable` when the queue cannot be reached."""

    async def listed(self) -> Sequence[DeadTask]:
        """All of them, the oldest first."""
        ...

    async def retry(self, dead: DeadTask) -> Offer:
        """Queue it again, with all its attempts before it."""
        ...

    async def drop(self, kind: TaskKind, table: TableName) -> bool:
        """Forget that it died: it is offered again when its table changes. Whether there was one."""
        ...
