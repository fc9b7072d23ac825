"""A lake's open store and log, and the reason for a missing verdict.

Owns: the parts that each service needs, closing them, the lock of the process that hosts the coordinator, the cheap
checks for coordinators in other processes. Does not own: the adapter of a URL (`rootline.adapters.open`), a log that
is opened at its first use (`on_demand`), a host's knowledge of its coordinator (`embedded_host`), the error of a
missing verdict (`rootline.client.producer`).
Invariants: Everything is opened on the loop that uses it. The lock is released before the log is closed. Explaining a
missing verdict never raises, and ends within a few seconds. URLs are shown unchanged, because they never contain a
password.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry

from rootline.adapters.kafka.control_records import SKIPPED
from rootline.adapters.log_state import PauseQuestion
from rootline.adapters.object_key_rules import check_file_prefixes
from rootline.adapters.open import (
    WriterLog,
    is_kafka,
    local_folder,
    log_name,
    open_coordinator_log,
    open_embedded_feed,
    open_lock,
    open_log,
    open_log_keeps,
    open_remover,
    open_store,
    open_topics,
    open_writer_log,
)
from rootline.adapters.open_redis import SharedRedis, open_redis
from rootline.adapters.posix_files import LakeLock, is_stopped
from rootline.coordinator.settings import CoordinatorSettings, coordinator_settings
from rootline.hosting.on_demand import LogOnDemand, lake_finder
from rootline.ports.intent_feed import ALL_TABLES, CoordinatorLog
from rootline.ports.intent_log import AskLogKeeps, IntentLog
from rootline.ports.object_remover import ObjectRemover
from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import Invalid, RootlineError
from rootline.schemas.identifiers import TableName
from rootline.storage.warehouse import FindLake


@dataclass(frozen=True, slots=True)
class LakeParts:
    """A lake's open store and log. For a log in a folder, also the lock of the process that hosts the coordinator.

    `coordinator_log` opens the log for one coordinator, which closes it.
    """

    store: ObjectStore
    log: WriterLog
    coordinator_log: Callable[[], CoordinatorLog]
    lock: LakeLock | None
    remover: ObjectRemover | None = None
    """Only for the worker."""
    keeps: AskLogKeeps | None = None
    shared: SharedRedis | None = None
    """The Redis that the processes of a lake on Kafka share, if one is configured."""
    find_lake: FindLake | None = None
    """Identifies this lake, for a log that may serve another one."""

    @property
    def worker_log(self) -> WriterLog | LogOnDemand:
        """The log for a worker, which names this lake in its intents as a writer does."""
        return self.log if self.find_lake is None else LogOnDemand(lambda: self.log, self.find_lake)

    def show_metrics(self, registry: CollectorRegistry) -> None:
        """Register the metrics of a log on Kafka and of its Redis, if the lake has them. Call it once."""
        if self.lock is None:
            registry.register(SKIPPED)
        if self.shared is not None:
            self.shared.calls.metrics.show_in(registry)

    async def close(self) -> None:
        """Close the store and the log, and release the lock."""
        async with contextlib.AsyncExitStack() as closing:
            closing.push_async_callback(self.store.close)
            if self.shared is not None:
                closing.push_async_callback(self.shared.close)
            if self.remover is not None:
                closing.push_async_callback(self.remover.close)
            closing.push_async_callback(self.close_log)

    async def close_log(self) -> None:
        """Close only the log, and release the lock."""
        if self.lock is not None:
            self.lock.release()
        await self.log.close()


async def open_parts(warehouse: str, log: str | None) -> LakeParts:
    """Open the store and the log that a service needs. Call it on the loop that will use them."""
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
        return embedded_parts(store, warehouse, log, open_log(log, warehouse), open_lock(warehouse, log))
    except BaseException:
        await store.close()
        raise


def embedded_parts(
    store: ObjectStore, warehouse: str, log: str | None, embedded: IntentLog, lock: LakeLock | None
) -> LakeParts:
    """The parts of a lake with an embedded log, which is open as `embedded`. `store` is open already."""
    feed, remover = partial(open_embedded_feed, embedded, log, warehouse), open_remover(warehouse, store)
    found = lake_finder(store, warehouse, log)
    return LakeParts(store, embedded, feed, lock, remover, open_log_keeps(log), find_lake=found)


def check_principals(settings: CoordinatorSettings, log: str | None) -> None:
    """Raise `Invalid` (`setting-invalid`) if a policy file of keys is set for an embedded log: it has no signatures."""
    if settings.principals_file is not None and not is_kafka(log):
        raise Invalid(
            "setting-invalid",
            "ROOTLINE_COORDINATOR__PRINCIPALS_FILE is set, but the log is embedded: the rights to its folder decide "
            "who may write. Unset it, or name a kafka:// log",
        )


def embedded_settings(warehouse: str, settings: CoordinatorSettings | None = None) -> CoordinatorSettings:
    """The settings for a coordinator of this lake. They disable the store probe for a local folder or memory.

    Raises:
        Invalid: `setting-invalid`, a prefix for data files contains files of the warehouse.
    """
    chosen = settings or coordinator_settings()
    folder, is_memory = local_folder(warehouse), warehouse.startswith("memory:")
    if chosen.file_prefixes and not is_memory:
        check_file_prefixes(chosen.file_prefixes, warehouse if folder is None else str(folder.resolve()))
    if folder is None and not is_memory:
        return chosen
    return chosen.model_copy(update={"probe_rounds": 0})


_PATIENCE_S: Final = 3.0


def how_to_start(warehouse: str, log: str | None) -> str:
    """The command that starts a coordinator of this lake."""
    words = ["rootline", "up", "--warehouse", warehouse, *([] if log is None else ["--log", log])]
    return f"start one: {shlex.join(words)}"


async def seen_from_outside(warehouse: str, log: str | None, table: TableName) -> str:
    """A sentence about the table's pause, or else about coordinators in other processes, for an error about a missing
    verdict.
    """
    async with contextlib.aclosing(PauseQuestion(warehouse, log, table)) as question:
        pause = await question.pause()
    if pause is not None:
        what = "--all" if pause.table == ALL_TABLES else table
        return f"log {log_name(log, warehouse)}: {pause.reason}; to continue: rootline resume {what}"
    try:
        if not is_kafka(log):
            return f"log {log_name(log, warehouse)}: {seen_at_lock(open_lock(warehouse, log), warehouse, log)}"
        members = await asyncio.to_thread(open_topics(log).group_members, timeout_s=_PATIENCE_S)
    except RootlineError as error:
        return f"log {log or warehouse}: cannot check whether a coordinator runs: {error.message}"
    where = f"log {log_name(log, warehouse)}"
    if not members:
        return f"{where}: its consumer group is empty, so no coordinator runs: {how_to_start(warehouse, log)}"
    return f"{where}: its consumer group has {members} member(s), so a coordinator runs: see its log lines and /readyz"


def seen_at_lock(lock: LakeLock | None, warehouse: str, log: str | None) -> str:
    """A sentence about the process that has the lock of an embedded lake, or the command that starts one."""
    if lock is None:
        return f"the log is in memory, and this process hosts no coordinator: {_connect_instead(warehouse, log)}"
    if lock.is_held():
        pid = lock.holder_pid()
        if pid is not None and is_stopped(pid):
            return f"process {pid} hosts the coordinator, but is stopped: `kill -CONT {pid}` continues it"
        return f"process {pid} hosts the coordinator: see its log lines"
    return f"no process hosts a coordinator: {how_to_start(warehouse, log)}, or {_connect_instead(warehouse, log)}"


def _connect_instead(warehouse: str, log: str | None) -> str:
    what = str(local_folder(warehouse) or warehouse)
    return f"open the lake with rootline.connect({what!r}{'' if log is None else f', log={log!r}'}) to host it"
