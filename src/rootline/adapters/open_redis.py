"""Opens what the processes of one lake share over Redis, if a Redis is named.

Owns: which uses share a connection. Does not own: the uses (`rootline.adapters.redis`).
Invariants: nothing is connected to yet; the library is imported only when a URL is set; a lake without a log on Kafka
has one host, which shares nothing, and never asks.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rootline.adapters.memory.task_queue import MemoryTaskQueue
from rootline.adapters.open import check_warehouse, is_kafka, store_settings
from rootline.adapters.redis.metrics import RedisMetrics
from rootline.adapters.redis.queue_or_own import QueueOrOwn
from rootline.adapters.redis.settings import RedisSettings
from rootline.adapters.system_environment import SystemEnvironment
from rootline.ports.head_hints import HeadHints
from rootline.ports.task_queue import DeadTasks, TaskQueue
from rootline.schemas.distribution import install_command
from rootline.schemas.errors import Invalid

if TYPE_CHECKING:
    from rootline.adapters.redis.calls import RedisCalls
    from rootline.adapters.redis.head_hints import RedisHeadHints
    from rootline.adapters.redis.lake_keys import LakeKeys

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
        from rootline.adapters.redis.task_queue import RedisTaskQueue

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
        from rootline.adapters.redis.calls import RedisCalls
        from rootline.adapters.redis.head_hints import RedisHeadHints
        from rootline.adapters.redis.lake_keys import LakeKeys
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
    from rootline.adapters.redis.task_queue import RedisTaskQueue

    try:
        yield RedisTaskQueue(shared.calls, shared.keys, tasks_max=tasks_max)
    finally:
        await shared.close()
