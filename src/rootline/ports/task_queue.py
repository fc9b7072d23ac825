"""The queue between noticing that a table needs maintenance and doing it.

Owns: the port and the task that it carries. Does not own: when a task is due (`rootline.workers.head_watcher`), what
it does (`rootline.workers.jobs`).
Invariants: bounded; at most one task of a kind for a table is queued or in hand at a time; a lost task is
lost work and never lost data, because the log and the roots decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Protocol

from rootline.schemas.identifiers import TableName, Version


class TaskKind(StrEnum):
    """Which kind of maintenance the worker looks for."""

    FLUSH = "flush"
    COMPACT = "compact"


@dataclass(frozen=True, slots=True)
class Task:
    """A table to look at; `noticed_version` is its head when the task was offered."""

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
        """Queue `task` unless one of its kind and table is there or the queue is full; never waits for room."""
        ...

    async def take(self, *, wait_s: float) -> Task | None:
        """The oldest task, waiting up to `wait_s` seconds for one; it stays in hand until `finish`."""
        ...

    async def finish(self, task: Task) -> None:
        """The task in hand is over, done or failed; the next offer of its kind and table is accepted."""
        ...

    async def close(self) -> None:
        """Give back connections; tasks that were not taken may be lost."""
        ...
