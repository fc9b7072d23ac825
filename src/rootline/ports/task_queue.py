"""The queue between the loop that notices changed tables and the loops that maintain them.

Owns: the port, its tasks, and tasks that no worker finished. Does not own: when a task is due
(`rootline.workers.head_watcher`), the kinds of maintenance (`rootline.workers.kinds`).
Invariants: The queue is bounded. At most one task of a kind and table is queued or running at a time, as far as the
queue knows. A shared queue may forget tasks, and then work is done twice. Losing a task loses work, never data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final, Protocol

from rootline.schemas.identifiers import TableName, Version

OFFERED_AGAIN_S: Final = 600.0
"""Seconds after which an unchanged table is offered again, because a shared queue can lose a task that was taken."""


class TaskKind(StrEnum):
    """The part of a table to maintain. `rootline.workers.kinds` lists the kinds of maintenance for each."""

    ROOT = "root"  # the rows of the root itself
    LEAVES = "leaves"  # leaf manifests and their manifest vectors
    ROWS = "rows"  # data files and deletes
    HISTORY = "history"  # snapshots and files that are no longer needed


@dataclass(frozen=True, slots=True)
class Task:
    """One check of one table. `noticed_version`: the table's head when the task was offered."""

    kind: TaskKind
    table: TableName
    noticed_version: Version


class Offer(Enum):
    """The outcome of offering a task."""

    QUEUED = "queued"
    ALREADY_THERE = "already_there"  # a task of this kind and table is queued or running
    FULL = "full"  # offer it again later
    DONE = "done"  # a worker has checked this version a short time ago
    GIVEN_UP = "given_up"  # too many workers took it and never finished it


class Ending(Enum):
    """The outcome of a task."""

    DONE = "done"
    FAILED = "failed"  # the loop that noticed the table offers it again
    CUT_OFF = "cut_off"  # this worker stops, so another may take it


class TaskQueue(Protocol):
    """A queue of tasks. Every method raises `Unavailable` if the queue does not answer."""

    @property
    def is_shared(self) -> bool:
        """Whether other processes take tasks from it too."""
        ...

    async def offer(self, task: Task) -> Offer:
        """Queue `task`, unless one of its kind and table is queued or running, or the queue is full.

        Never waits for room.
        """
        ...

    async def take(self, *, wait_s: float) -> Task | None:
        """Take the oldest task, waiting up to `wait_s` seconds for one. It is running until `finish`."""
        ...

    async def finish(self, task: Task, ending: Ending = Ending.DONE) -> None:
        """End a running task. From now on the same task can be offered again. Never raises `Unavailable`."""
        ...

    async def renew(self) -> float:
        """Report that the running tasks are still being worked on. Returns the seconds until the next call is due."""
        ...

    async def waiting(self) -> Mapping[TaskKind, int]:
        """The number of queued tasks of each kind."""
        ...

    async def close(self) -> None:
        """Close the connections. Tasks that no worker took may be lost."""
        ...


@dataclass(frozen=True, slots=True)
class DeadTask:
    """A task that `attempts` workers took and never finished. The last of them took it before `since_ms`."""

    task: Task
    attempts: int
    since_ms: int


class DeadTasks(Protocol):
    """The dead tasks of a queue. Every method raises `Unavailable` if the queue does not answer."""

    async def listed(self) -> Sequence[DeadTask]:
        """All dead tasks, the oldest first."""
        ...

    async def retry(self, dead: DeadTask) -> Offer:
        """Return the task to the queue, with its full number of attempts."""
        ...

    async def drop(self, kind: TaskKind, table: TableName) -> bool:
        """Remove a dead task. Returns whether there was one. The next change of its table queues it."""
        ...
