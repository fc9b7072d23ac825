"""The queue between whoever notices that a table needs maintenance and whoever carries it out.

Owns: the port and the task that it carries. Does not own: when a task is due (`rootline.workers.head_watcher`), what
it does (`rootline.workers.jobs`).
Invariants: bounded; at most one task of a kind for a table is queued or in hand at a time; losing a task loses work,
never data, because the log and the roots decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Protocol

from rootline.schemas.identifiers import TableName, Version


class TaskKind(StrEnum):
    """What the worker shall look at."""

    FLUSH = "flush"
    COMPACT = "compact"


@dataclass(frozen=True, slots=True)
class Task:
    """One look at one table; `noticed_version` is the head that was seen when it was offered."""

    kind: TaskKind
    table: TableName
    noticed_version: Version


class Offer(Enum):
    """What became of an offered task."""

    QUEUED = "queued"
    ALREADY_THERE = "already_there"  # one of this kind and table is queued or in hand
    FULL = "full"  # offer it again later


class TaskQueue(Protocol):
    """Every method raises `Unavailable` when the queue cannot be reached."""

    async def offer(self, task: Task) -> Offer:
        """Queue `task` unless its like is there or the queue is full; never waits for room."""
        ...

    async def take(self, *, wait_s: float) -> Task | None:
        """The oldest task, waiting up to `wait_s` seconds for one; it stays in hand until `finish`."""
        ...

    async def finish(self, task: Task) -> None:
        """Let go of a task in hand, whatever came of it; the next offer of its like is taken."""
        ...

    async def close(self) -> None:
        """Give back connections; tasks that nobody took may be lost."""
        ...
