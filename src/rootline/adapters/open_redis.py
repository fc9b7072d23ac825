"""Opens the parts that the processes of one lake share over Redis, if a Redis is named.

Owns: which uses share a connection, the choice between the shared task queue and the worker's own. Does not own: the
uses (`redis_calls`, `redis_task_queue`).
Invariants: nothing is connected to yet. The library is imported only when a URL is set. A lake without a log on Kafka
has one host, which shares nothing, and never asks. A task queue is never `Unavailable` because of Redis: without it
every worker notices and does everything. A task ends in the queue that it was taken from.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from rootline.adapters.memory import MemoryTaskQueue
from rootline.adapters.open import check_warehouse, is_kafka, store_settings
from rootline.adapters.redis_metrics import RedisMetrics
from rootline.adapters.settings import RedisSettings
from rootline.adapters.system_environment import SystemEnvironment
from rootline.ports.head_hints import HeadHints
from rootline.ports.task_queue import DeadTasks, Ending, Offer, Task, TaskKind, TaskQueue
from rootline.schemas.distribution import install_command
from rootline.schemas.errors import Invalid, Unavailable

if TYPE_CHECKING:
    from rootline.adapters.redis_calls import LakeKeys, RedisCalls, RedisHeadHints

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


_OPERATOR_MS: Final = 5_000.0


@dataclass(frozen=True, slots=True)
class SharedRedis:
    """The Redis of one process, for one lake."""

    calls: RedisCalls
    keys: LakeKeys
    kept_hints: RedisHeadHints

    @property
    def hints(self) -> HeadHints:
        """Hints at the newest versions."""
        return self.kept_hints

    @property
    def metrics(self) -> RedisMetrics:
        """What goes over it."""
        return self.calls.metrics

    def queue(self, tasks_max: int) -> TaskQueue:
        """The workers' queue, and the worker's own one for when it cannot be reached."""
        from rootline.adapters.redis_task_queue import RedisTaskQueue

        shared = RedisTaskQueue(self.calls, self.keys, tasks_max=tasks_max)
        return QueueOrOwn(shared, MemoryTaskQueue(tasks_max=tasks_max))

    async def close(self) -> None:
        """Forget hints that were not sent, and give back connections."""
        await self.kept_hints.close()
        await self.calls.close()


def open_redis(warehouse: str, log: str | None, settings: RedisSettings | None = None) -> SharedRedis | None:
    """What the settings name; `None`: nothing, or the log is embedded. Raises `Invalid` (`setting-invalid`)."""
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
    """The tasks that no worker ended; the queue takes `tasks_max`. An operator waits longer than a worker does.

    Raises:
        Invalid: `setting-invalid`, nothing is shared here.

    """
    settings = store_settings().redis
    patient = settings.model_copy(update={"timeout_ms": max(settings.timeout_ms, _OPERATOR_MS)})
    shared = open_redis(warehouse, log, patient)
    if shared is None:
        raise Invalid(
            "setting-invalid",
            "no Redis is named, or the log is embedded: every worker then has a queue of its own, in which nothing "
            "dies; set ROOTLINE_REDIS__URL (docs/operations.md) to share one",
        )
    from rootline.adapters.redis_task_queue import RedisTaskQueue

    try:
        yield RedisTaskQueue(shared.calls, shared.keys, tasks_max=tasks_max)
    finally:
        await shared.close()
