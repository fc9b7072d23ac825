"""Opens the parts that the processes of one lake share through Redis, if one is configured.

Owns: which uses share a connection, the choice between the shared task queue and the worker's own queue. Does not own:
the uses (`redis_calls`, `redis_task_queue`).
Invariants: Opening does not connect. The library is imported only when a URL is set. A lake without a log on Kafka has
one host, which shares nothing and does not use Redis. A task queue is never `Unavailable` because of Redis: without it,
every worker notices and maintains all tables. A task ends in the queue that it was taken from.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from rootline.adapters.memory import MemoryTaskQueue
from rootline.adapters.open import check_warehouse, is_kafka, store_settings
from rootline.adapters.redis_metrics import RedisMetrics
from rootline.adapters.settings import RedisSettings
from rootline.adapters.system_environment import SystemEnvironment
from rootline.library_log import library_logger
from rootline.ports.task_queue import DeadTasks, Ending, Offer, Task, TaskKind, TaskQueue
from rootline.schemas.distribution import install_command
from rootline.schemas.errors import Invalid, Unavailable

if TYPE_CHECKING:
    from rootline.adapters.redis_calls import LakeKeys, RedisCalls, RedisHeadHints

_log = library_logger("rootline.redis")
_OWN_WAIT_S: Final = 1.0
"""Seconds after which the shared queue is retried."""


class QueueOrOwn(TaskQueue):
    """A task queue that uses `shared`, and `own` while `shared` cannot be reached."""

    is_shared: bool = True

    def __init__(self, shared: TaskQueue, own: TaskQueue) -> None:
        self._shared, self._own = shared, own
        self._from_own: list[Task] = []
        self._is_alone = False

    @override
    async def offer(self, task: Task) -> Offer:
        try:
            offer = await self._shared.offer(task)
        except Unavailable as error:
            self._alone(error)
            return await self._own.offer(task)
        self._together()
        return offer

    @override
    async def take(self, *, wait_s: float) -> Task | None:
        """Take a task of `own`, or of `shared` if `own` is empty."""
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

    @override
    async def finish(self, task: Task, ending: Ending = Ending.DONE) -> None:
        """End `task` in the queue that it was taken from."""
        for number, own in enumerate(self._from_own):
            if own is task:
                del self._from_own[number]
                await self._own.finish(task, ending)
                return
        await self._shared.finish(task, ending)

    @override
    async def renew(self) -> float:
        """Renew the leases of tasks of `shared`. Tasks of `own` have no leases."""
        return await self._shared.renew()

    @override
    async def waiting(self) -> Mapping[TaskKind, int]:
        """The number of queued tasks of each kind in both queues."""
        counts = Counter(await self._own.waiting())
        with contextlib.suppress(Unavailable):  # then only the own queue is counted
            counts.update(await self._shared.waiting())
        return counts

    @override
    async def close(self) -> None:
        await self._own.close()
        await self._shared.close()

    def _alone(self, error: Unavailable) -> None:
        if not self._is_alone:
            _log.warning(
                "the shared task queue cannot be reached",
                action="queue-alone",
                reason=error.message,
            )
        self._is_alone = True

    def _together(self) -> None:
        if self._is_alone:
            _log.info("using the shared task queue again", action="queue-shared")
        self._is_alone = False


_OPERATOR_MS: Final = 5_000.0


@dataclass(frozen=True, slots=True)
class SharedRedis:
    """The Redis that a process shares with the other processes of one lake."""

    calls: RedisCalls
    keys: LakeKeys
    hints: RedisHeadHints

    def queue(self, tasks_max: int) -> TaskQueue:
        """The workers' shared queue, with the worker's own queue while it cannot be reached."""
        from rootline.adapters.redis_task_queue import RedisTaskQueue

        shared = RedisTaskQueue(self.calls, self.keys, tasks_max=tasks_max)
        return QueueOrOwn(shared, MemoryTaskQueue(tasks_max=tasks_max))

    async def close(self) -> None:
        """Discard hints that were not sent, and close the connections."""
        await self.hints.close()
        await self.calls.close()


def open_redis(warehouse: str, log: str | None, settings: RedisSettings | None = None) -> SharedRedis | None:
    """The Redis that the settings name, or `None` if they name none, or the log is embedded.

    Raises `Invalid` (`setting-invalid`).
    """
    settings = settings or store_settings().redis
    if settings.url is None or not is_kafka(log):
        return None
    try:
        from rootline.adapters.redis_calls import LakeKeys, RedisCalls, RedisHeadHints
    except ModuleNotFoundError as error:
        raise Invalid(
            "setting-invalid",
            f"ROOTLINE_REDIS__URL needs {error.name}, which is not installed: {install_command('redis')}",
        ) from error
    calls = RedisCalls(settings, SystemEnvironment(), RedisMetrics())
    keys = LakeKeys.of(settings.prefix, check_warehouse(warehouse))
    return SharedRedis(calls, keys, RedisHeadHints(calls, keys))


@contextlib.asynccontextmanager
async def open_dead_tasks(warehouse: str, log: str | None, tasks_max: int) -> AsyncIterator[DeadTasks]:
    """Open the dead tasks for an operator, with a longer deadline than a worker has. `tasks_max`: the queue's size.

    Raises:
        Invalid: `setting-invalid`, the lake has no shared queue.
    """
    settings = store_settings().redis
    patient = settings.model_copy(update={"timeout_ms": max(settings.timeout_ms, _OPERATOR_MS)})
    shared = open_redis(warehouse, log, patient)
    if shared is None:
        raise Invalid(
            "setting-invalid",
            "there is no shared task queue, because no Redis is named or the log is embedded, so no task can be dead. "
            "To share a queue, set ROOTLINE_REDIS__URL (docs/operations.md)",
        )
    from rootline.adapters.redis_task_queue import RedisTaskQueue

    try:
        yield RedisTaskQueue(shared.calls, shared.keys, tasks_max=tasks_max)
    finally:
        await shared.close()
