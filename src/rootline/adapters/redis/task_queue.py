"""The task queue of all workers of a lake: a Redis stream with a consumer group.

Owns: the calls, and which tasks this process has in hand. Does not own: the steps in Redis (`queue_scripts`), what
happens while Redis is away (`queue_or_own`).
Invariants: those of `rootline.ports.task_queue`; a task that is not ended is claimed by another worker once its own is
silent for `lease_s`; a call whose answer is lost leaves at worst a task that is done twice or later, never a table that
no one looks at again; a task that cannot be read is dropped and counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from rootline.adapters.redis.calls import RedisCalls
from rootline.adapters.redis.lake_keys import LakeKeys
from rootline.adapters.redis.queue_scripts import DEAD, FINISH, OFFER, RENEW, TAKE, WAITING
from rootline.ports.task_queue import OFFERED_AGAIN_S, DeadTask, Ending, Offer, Task, TaskKind
from rootline.schemas.errors import Invalid, Unavailable
from rootline.schemas.identifiers import TableName, Version, table_name
from rootline.schemas.object_keys import MAX_VERSION

_USE: Final = "queue"
_DONE_MS: Final = int(OFFERED_AGAIN_S * 900)
"""A little shorter than the time after which a quiet table is offered again."""
_ASKED_EVERY_S: Final = 0.25
_RENEWALS: Final = 3
_OUTCOMES: Final = ("claimed", "dead", "doubled", "unreadable")


class RedisTaskQueue:
    """Of one lake; up to `tasks_max` tasks of all workers are in it, those in hand too."""

    is_shared: bool = True

    def __init__(self, calls: RedisCalls, keys: LakeKeys, *, tasks_max: int) -> None:
        self._calls, self._tasks_max = calls, tasks_max
        self._keys = (keys.tasks, keys.queued, keys.leases, keys.done, keys.dead)
        self._token = calls.environment.fresh_id()
        self._lease_ms = int(calls.settings.lease_s * 1000)
        self._in_hand: dict[Task, str] = {}

    async def offer(self, task: Task) -> Offer:
        """Queue `task`, unless it is there, done, dead, or the queue is full."""
        limits = (self._tasks_max, self._lease_ms, _DONE_MS, int(self._calls.settings.dead_task_s * 1000))
        answer = await self._run(OFFER, *_told(task), *limits)
        try:
            return Offer(answer.decode() if isinstance(answer, bytes) else answer)
        except ValueError:
            raise _nonsense(answer) from None

    async def take(self, *, wait_s: float) -> Task | None:
        """The oldest task, or one whose worker fell silent; asks a few times a second until one comes."""
        now_s = self._calls.environment.monotonic_s
        end_s = now_s() + wait_s
        while True:
            task, has_dropped = await self._taken()
            rest_s = end_s - now_s()
            if task is not None or (rest_s <= 0 and not has_dropped):
                return task
            if not has_dropped:
                await asyncio.sleep(min(_ASKED_EVERY_S, rest_s))

    async def finish(self, task: Task, ending: Ending = Ending.DONE) -> None:
        """Let go of `task`; if Redis cannot be told, another worker looks again later."""
        entry = self._in_hand.pop(task, None)
        if entry is None:
            return
        try:
            await self._run(FINISH, self._token, entry, *_told(task), ending.value)
        except Unavailable:
            return

    async def renew(self) -> float:
        """Keep the leases of the tasks in hand."""
        for task, entry in list(self._in_hand.items()):
            if self._in_hand.get(task) == entry:  # it may have ended meanwhile
                await self._run(RENEW, self._token, self._lease_ms, entry, _like(task.kind, task.table))
        return self._lease_ms / 1000 / _RENEWALS

    async def waiting(self) -> Mapping[TaskKind, int]:
        """How many tasks of each kind no worker has in hand."""
        answer = await self._run(WAITING, self._lease_ms)
        if not isinstance(answer, list) or not answer:
            raise _nonsense(answer)
        self._calls.metrics.dead.set(answer[0])
        counts = {name.decode(errors="replace"): count for name, count in zip(answer[1::2], answer[2::2], strict=True)}
        return {kind: counts.get(kind.value, 0) for kind in TaskKind}

    async def close(self) -> None:
        """Its connections are those of `RedisCalls`."""

    async def listed(self) -> Sequence[DeadTask]:
        """The dead tasks, the oldest first."""
        answer = await self._run(DEAD)
        if not isinstance(answer, list):
            raise _nonsense(answer)
        found = []
        for like, value in zip(answer[::2], answer[1::2], strict=True):
            try:
                kind, _, table = like.decode().partition(" ")
                version, attempts, since_ms = value.decode().split(" ")
                found.append(DeadTask(_task(kind, table, version), int(attempts), int(since_ms)))
            except (ValueError, Invalid):
                continue  # no worker wrote it
        return sorted(found, key=lambda dead: (dead.since_ms, dead.task.table, dead.task.kind))

    async def retry(self, dead: DeadTask) -> Offer:
        """Queue it again."""
        await self.drop(dead.task.kind, dead.task.table)
        return await self.offer(dead.task)

    async def drop(self, kind: TaskKind, table: TableName) -> bool:
        """Forget that it died."""
        return await self._calls.send(_USE, "HDEL", self._keys[4], _like(kind, table)) == 1

    async def _taken(self) -> tuple[Task | None, bool]:
        """A task; and whether entries were dropped, so that there may be more to take at once."""
        answer = await self._run(TAKE, self._token, self._lease_ms, self._calls.settings.attempts_max)
        if not isinstance(answer, list) or len(answer) != 8:
            raise _nonsense(answer)
        for outcome, count in zip(_OUTCOMES, answer[4:], strict=True):
            self._calls.metrics.tasks.labels(outcome).inc(count)
        entry, kind, table, version = (part.decode(errors="replace") for part in answer[:4])
        if not entry:
            return None, any(answer[5:])
        try:
            task = _task(kind, table, version)
        except (ValueError, Invalid):
            self._calls.metrics.tasks.labels("unreadable").inc()
            await self._run(FINISH, self._token, entry, *answer[1:4], Ending.FAILED.value)
            return None, True
        self._in_hand[task] = entry
        return task, False

    async def _run(self, script: str, *arguments: str | int | bytes) -> object:
        return await self._calls.send(_USE, "EVAL", script, len(self._keys), *self._keys, *arguments)


def _told(task: Task) -> tuple[str, str, int]:
    return task.kind.value, task.table, task.noticed_version


def _like(kind: TaskKind, table: TableName) -> str:
    return f"{kind.value} {table}"


def _task(kind: str, table: str, version: str) -> Task:
    """Raises `ValueError` or `Invalid` unless a worker may have written it."""
    if not (version.isascii() and version.isdigit() and len(version) <= 19 and int(version) <= MAX_VERSION):
        raise ValueError(version)
    return Task(TaskKind(kind), table_name(table), Version(int(version)))


def _nonsense(answer: object) -> Unavailable:
    return Unavailable(
        "redis-unavailable", f"Redis answered {str(answer)[:100]!r} to a script of ours: is it Redis or Valkey?"
    )
