"""A lake's open store and log, and the lock of the process that hosts its coordinator.

Owns: which parts a service needs, and closing them. Does not own: which adapter a URL names (`rootline.adapters.open`).
Invariants: everything is opened on the loop that uses it; the lock is released before the log is closed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from prometheus_client import CollectorRegistry

from rootline.adapters.kafka.control_records import SKIPPED
from rootline.adapters.open import (
    WriterLog,
    is_kafka,
    local_folder,
    open_coordinator_log,
    open_embedded_feed,
    open_lock,
    open_log,
    open_log_keeps,
    open_remover,
    open_store,
    open_writer_log,
)
from rootline.adapters.open_redis import SharedRedis, open_redis
from rootline.adapters.posix_files import LakeLock
from rootline.adapters.system_environment import SystemEnvironment
from rootline.coordinator.settings import CoordinatorSettings, coordinator_settings
from rootline.hosting.log_on_demand import LogOnDemand
from rootline.ports.intent_feed import CoordinatorLog
from rootline.ports.intent_log import AskLogKeeps
from rootline.ports.object_remover import ObjectRemover
from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import Invalid
from rootline.storage.warehouse import FindLake, lake_of


@dataclass(frozen=True, slots=True)
class LakeParts:
    """A lake's open store and log, and the lock of its coordinator's host if the log is in a folder.

    `coordinator_log` opens the log for one coordinator, which closes it.
    """

    store: ObjectStore
    log: WriterLog
    coordinator_log: Callable[[], CoordinatorLog]
    lock: LakeLock | None
    remover: ObjectRemover | None = None
    """For the worker, and no one else."""
    keeps: AskLogKeeps | None = None
    shared: SharedRedis | None = None
    """What the processes of a lake on Kafka tell each other, if a Redis is named."""
    find_lake: FindLake | None = None
    """Which lake this is, where its log could be another's."""

    @property
    def worker_log(self) -> WriterLog | LogOnDemand:
        """The log for a worker, whose intents are for this lake as a writer's are."""
        return self.log if self.find_lake is None else LogOnDemand(lambda: self.log, self.find_lake)

    def show_metrics(self, registry: CollectorRegistry) -> None:
        """Show the metrics of a log on Kafka and of its Redis, if the lake has them, in `registry`, once."""
        if self.lock is None:
            registry.register(SKIPPED)
        if self.shared is not None:
            self.shared.metrics.show_in(registry)

    async def close(self) -> None:
        """Close the store and the log, and give the lock back."""
        async with contextlib.AsyncExitStack() as closing:
            closing.push_async_callback(self.store.close)
            if self.shared is not None:
                closing.push_async_callback(self.shared.close)
            if self.remover is not None:
                closing.push_async_callback(self.remover.close)
            closing.push_async_callback(self.close_log)

    async def close_log(self) -> None:
        """Close the log alone, and give the lock back."""
        if self.lock is not None:
            self.lock.release()
        await self.log.close()


async def open_parts(warehouse: str, log: str | None) -> LakeParts:
    """Open what a service needs; call it on the loop that will use it."""
    store = open_store(warehouse)
    try:
        if is_kafka(log):
            remover = open_remover(warehouse, store)
            return LakeParts(
                store,
                open_writer_log(log, warehouse),
                partial(open_coordinator_log, log),
                None,
                remover,
                open_log_keeps(log),
                open_redis(warehouse, log),
                lake_finder(store, warehouse, log),
            )
        return embedded_parts(store, warehouse, log)
    except BaseException:
        await store.close()
        raise


def embedded_parts(store: ObjectStore, warehouse: str, log: str | None) -> LakeParts:
    """The parts of a lake whose log is embedded, with a `store` that is open already."""
    lock, embedded = open_lock(warehouse, log), open_log(log, warehouse)
    feed, remover = partial(open_embedded_feed, embedded, log, warehouse), open_remover(warehouse, store)
    found = lake_finder(store, warehouse, log)
    return LakeParts(store, embedded, feed, lock, remover, open_log_keeps(log), find_lake=found)


def lake_finder(store: ObjectStore, warehouse: str, log: str | None) -> FindLake | None:
    """The function that identifies this lake, or `None` where the log is in the warehouse and can be no other's."""
    if log is None or "memory:" in (log[:7], warehouse[:7]):
        return None
    return partial(lake_of, store, warehouse, SystemEnvironment().fresh_id)


def check_principals(settings: CoordinatorSettings, log: str | None) -> None:
    """Raises `Invalid` (`setting-invalid`): records of an embedded log have no signatures."""
    if settings.principals_file is not None and not is_kafka(log):
        raise Invalid(
            "setting-invalid",
            "ROOTLINE_COORDINATOR__PRINCIPALS_FILE is for a log on Kafka: of an embedded log, the rights to its folder "
            "say who may write; unset it, or name a kafka:// log",
        )


def embedded_settings(warehouse: str, settings: CoordinatorSettings | None = None) -> CoordinatorSettings:
    """`settings` for a coordinator of this lake; a local folder is checked by its file system, without a probe."""
    chosen = settings or coordinator_settings()
    if local_folder(warehouse) is None and not warehouse.startswith("memory:"):
        return chosen
    return chosen.model_copy(update={"probe_rounds": 0})
