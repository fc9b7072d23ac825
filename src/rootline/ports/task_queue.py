"""The queue between the loop that notices changed tables and the loops that maintain them.

Owns: the port, the task that it carries, tasks that no worker ended. Does not own: when a task is due
(`rootline.workers.head_watcher`), the kinds of maintenance (`rootline.workers.kinds`).
Invariants: bounded. At most one task of a kind for a table is queued or running at a time, as far as the queue knows:
a shared one may forget, and then work is done twice. Losing a task loses work, never data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final, Protocol

from rootline.schemas.identifiers import TableName, Version

OFFERED_AGAIN_S: Final = 600.0
"""A shared queue can lose a task that one worker offered, and another one took: so a quiet table is offered again."""


class TaskKind(StrEnum):
    """What of a table to look at. The kinds of maintenance for each are rows of `rootline.workers.kinds`."""

    ROOT = "root"  # its own rows
    LEAVES = "leaves"  # and their manifest vectors
    ROWS = "rows"  # how its data files and deletes hold them
    HISTORY = "history"  # what is no longer needed


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
    DONE = "done"  # a worker has looked at this version a short time ago
    GIVEN_UP = "given_up"  # too many workers took it and never ended it


class Ending(Enum):
    """How a task ended."""

    DONE = "done"
    FAILED = "failed"  # the one who noticed it offers it again
    CUT_OFF = "cut_off"  # this worker stops: another may take it


class TaskQueue(Protocol):
    """Every method raises `Unavailable` when the queue cannot be reached."""

    @property
    def is_shared(self) -> bool:
        """Whether other processes take from it too."""
        ...

    async def offer(self, task: Task) -> Offer:
        """Queue `task`, unless one of its kind and table is there or the queue is full; never waits for room."""
        ...

    async def take(self, *, wait_s: float) -> Task | None:
        """The oldest task; waits up to `wait_s` seconds for one. It stays in hand until `finish`."""
        ...

    async def finish(self, task: Task, ending: Ending = Ending.DONE) -> None:
        """Let go of a task in hand; from now on the same task can be offered again. Never raises `Unavailable`."""
        ...

    async def renew(self) -> float:
        """Say that the tasks in hand are still worked on; the seconds until it should be said again."""
        ...

    async def waiting(self) -> Mapping[TaskKind, int]:
        """How many tasks of each kind wait to be taken."""
        ...

    async def close(self) -> None:
        """Give back connections; tasks that no one took may be lost."""
        ...


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
