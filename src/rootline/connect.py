"""From a URL to a lake, embedded or on services.

Owns: the choice of adapters for a lake, and hosting the coordinator of an embedded one. Does not own: what lakes do
(`rootline.client`), what coordinators do (`rootline.coordinator`).
Invariants: of all processes that have an embedded lake open, one hosts its coordinator, and when it ends another takes
over; closing drains the coordinator before it gives the lock back; a process that only reads opens no log.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import structlog

from rootline.adapters.engine_access import engine_storage as engine_storage
from rootline.adapters.engine_access import warehouse_url as warehouse_url
from rootline.adapters.local.lake_lock import LakeLock
from rootline.adapters.open import (
    WriterLog,
    local_folder,
    open_coordinator_log,
    open_embedded_feed,
    open_lock,
    open_log,
    open_store,
    open_writer_log,
)
from rootline.adapters.open import is_kafka as is_kafka
from rootline.adapters.open import open_archive as open_archive
from rootline.adapters.open import open_stored_log as open_stored_log
from rootline.adapters.open import open_topics as open_topics
from rootline.adapters.open import store_settings as store_settings
from rootline.adapters.system_environment import SystemEnvironment
from rootline.client.lake import Lake
from rootline.client.session.session import Session
from rootline.coordinator.app import CoordinatorService
from rootline.coordinator.settings import CoordinatorSettings
from rootline.ports.intent_feed import CoordinatorLog
from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import Invalid, RootlineError, Unavailable
from rootline.schemas.identifiers import TableName
from rootline.schemas.log_position import LogPosition
from rootline.schemas.verdict import Verdict
from rootline.storage.metadata.read_cache import CACHE_BYTES_MAX, ReadCache

CoordinatorPlace = Literal["auto", "elsewhere"]
"""`auto`: hosted here if the lake is embedded and no other process hosts it; `elsewhere`: never here."""

_RESTART_DELAY_S: Final = 0.5
_RESTART_DELAY_S_MAX: Final = 10.0


def connect(
    url: str | Path | None = None,
    *,
    log: str | None = None,
    coordinator: CoordinatorPlace = "auto",
    settings: CoordinatorSettings | None = None,
    cache_bytes: int = CACHE_BYTES_MAX,
) -> Lake:
    """Open a lake. Nothing is read or started before you use it.

    Args:
        url: the warehouse: a path, `file:///dir`, `s3://bucket/prefix`; the default is `ROOTLINE_WAREHOUSE`.
        log: the intent log; the default is `ROOTLINE_LOG`, or else the log embedded in the warehouse's folder.
        coordinator: whether this process may host the coordinator of an embedded lake.
        settings: of a coordinator hosted here.
        cache_bytes: how much immutable metadata is kept for later plans; 0 keeps none.

    Returns:
        The lake; close it, or use it in a `with` statement.

    Raises:
        Invalid: `setting-invalid`, no warehouse is named, or a URL has an unknown form.
        Unavailable: with `coordinator="elsewhere"`, the folder does not exist.

    """
    warehouse = str(url) if url is not None else os.environ.get("ROOTLINE_WAREHOUSE", "")
    if not warehouse:
        raise Invalid("setting-invalid", "no warehouse is named: pass a path or a URL, or set ROOTLINE_WAREHOUSE")
    if coordinator not in ("auto", "elsewhere"):
        raise Invalid("setting-invalid", f"coordinator {coordinator!r}: write 'auto' or 'elsewhere'")
    folder = local_folder(warehouse)
    if folder is not None:
        warehouse = str(folder)  # absolute, so that a forked or pickled lake is the same one in any folder
        if coordinator == "elsewhere" and not folder.is_dir():
            raise Unavailable("store-unavailable", f"{folder}: there is no such folder: check the warehouse's URL")
    if cache_bytes < 0:
        raise Invalid("setting-invalid", f"cache_bytes is {cache_bytes}: give 0 or more; 0 keeps nothing")
    _keep_logs_quiet()
    named_log = log or os.environ.get("ROOTLINE_LOG") or None
    return Lake(EmbeddableLake(warehouse, named_log, coordinator, settings, cache_bytes))


@dataclass(frozen=True, slots=True)
class LakeParts:
    """A lake's open store and log, and the lock of its coordinator's host if the lake has a folder.

    `coordinator_log` opens the log for one coordinator, which closes it.
    """

    store: ObjectStore
    log: WriterLog
    coordinator_log: Callable[[], CoordinatorLog]
    lock: LakeLock | None

    async def close(self) -> None:
        """Close the store and the log, and give the lock back."""
        if self.lock is not None:
            self.lock.release()
        async with contextlib.AsyncExitStack() as closing:
            closing.push_async_callback(self.store.close)
            closing.push_async_callback(self.log.close)


def lake_folder(url: str) -> Path | None:
    """The folder that a warehouse's URL names; `None` if it is not a folder of this machine."""
    return local_folder(url)


def open_warehouse(url: str) -> ObjectStore:
    """The object store alone; call it on the loop that will use it."""
    return open_store(url)


async def open_parts(warehouse: str, log: str | None) -> LakeParts:
    """Open what a service needs; call it on the loop that will use it."""
    store = open_store(warehouse)
    try:
        if is_kafka(log):
            return LakeParts(store, open_writer_log(log, warehouse), partial(open_coordinator_log, log), None)
        embedded = open_log(log, warehouse)
        lock = open_lock(warehouse) if log is None else None
        return LakeParts(store, embedded, partial(open_embedded_feed, embedded, log, warehouse), lock)
    except BaseException:
        await store.close()
        raise


def embedded_settings(warehouse: str, settings: CoordinatorSettings | None = None) -> CoordinatorSettings:
    """`settings` for a coordinator of this lake; a local folder is checked by its file system, without a probe."""
    chosen = settings or CoordinatorSettings()
    if warehouse.startswith("s3:"):
        return chosen
    return chosen.model_copy(update={"probe_rounds": 0})


@dataclass(frozen=True, slots=True)
class EmbeddableLake:
    """The address of a lake, which any process can open."""

    warehouse: str
    log: str | None
    coordinator: CoordinatorPlace
    settings: CoordinatorSettings | None
    cache_bytes: int = CACHE_BYTES_MAX

    @property
    def name(self) -> str:
        """Its name in messages."""
        return self.warehouse

    async def open(self) -> Session:
        """Open it in this process, and host its coordinator if that is needed here."""
        if self.coordinator == "elsewhere" or self.log is not None:
            return await self._open_guest()
        parts = await open_parts(self.warehouse, self.log)
        host = CoordinatorHost(parts, embedded_settings(self.warehouse, self.settings))
        host.start()

        async def close() -> None:
            await host.stop()
            await parts.close()

        cache, base_url = ReadCache(self.cache_bytes), warehouse_url(self.warehouse)
        return Session(parts.store, parts.log, SystemEnvironment(), close, host.trouble, cache, base_url)

    async def _open_guest(self) -> Session:
        store = open_store(self.warehouse)
        log = LogOnDemand(self.log, self.warehouse)

        async def close() -> None:
            await log.close()
            await store.close()

        cache, base_url = ReadCache(self.cache_bytes), warehouse_url(self.warehouse)
        return Session(store, log, SystemEnvironment(), close, lambda _: None, cache, base_url)


class CoordinatorHost:
    """Hosts the coordinator once this process gets the lake's lock; starts it again after a failure."""

    def __init__(self, parts: LakeParts, settings: CoordinatorSettings) -> None:
        self._parts = parts
        self._settings = settings
        self._service: CoordinatorService | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._trouble: str | None = None
        self._logger = structlog.get_logger("rootline.connect")

    def start(self) -> None:
        """Start on the running loop."""
        self._task = asyncio.get_running_loop().create_task(self._host(), name="rootline coordinator host")

    def trouble(self, table: TableName) -> str | None:
        """Why intents of `table` are not decided here, if this process knows."""
        if self._service is not None:
            _, why = self._service.tables().get(table, (None, ""))
            return f"the table is quarantined: {why}" if why else None
        return None if self._trouble is None else f"the coordinator here stopped: {self._trouble}"

    async def stop(self) -> None:
        """Drain the coordinator, or stop waiting for the lock; returns when this process hosts no coordinator."""
        self._stopping = True
        if self._task is None:
            return
        if self._service is not None:
            self._service.request_stop()
        else:
            self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _host(self) -> None:
        delay_s = _RESTART_DELAY_S
        while not self._stopping:
            if self._parts.lock is not None:
                await self._parts.lock.acquire()
            try:
                self._service = CoordinatorService(
                    store=self._parts.store, log=self._parts.coordinator_log(), settings=self._settings
                )
                self._trouble = None
                await self._service.run()
                return
            except Exception as error:  # after any error the next attempt starts from what is stored
                self._trouble = str(error) if isinstance(error, RootlineError) else repr(error)
                self._logger.exception("coordinator failed", action="coordinator-failed", exc_info=error)
            finally:
                self._service = None
                if self._parts.lock is not None:
                    self._parts.lock.release()
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, _RESTART_DELAY_S_MAX)


class LogOnDemand:
    """A log that the first record or wait opens, so that readers need none."""

    def __init__(self, url: str | None, warehouse: str) -> None:
        self._url = url
        self._warehouse = warehouse
        self._log: WriterLog | None = None

    async def publish(self, key: bytes, value: bytes) -> LogPosition:
        """As the log's own."""
        return await self._opened().publish(key, value)

    async def publish_many(self, records: Sequence[tuple[bytes, bytes]]) -> list[LogPosition]:
        """As the log's own."""
        return await self._opened().publish_many(records)

    async def wait_verdict(self, position: LogPosition, *, timeout_s: float) -> Verdict | None:
        """As the log's own."""
        return await self._opened().wait_verdict(position, timeout_s=timeout_s)

    async def close(self) -> None:
        """Close the log if it was opened."""
        if self._log is not None:
            await self._log.close()

    def _opened(self) -> WriterLog:
        if self._log is None:
            self._log = open_writer_log(self._url, self._warehouse)
        return self._log


def _keep_logs_quiet() -> None:
    """Send our log lines to `logging`, as a library should, unless the program has configured structlog."""
    if structlog.is_configured():
        return
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.add_log_level,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["event", "action"]),
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )


class _CallableModule(types.ModuleType):
    """`rootline.connect` is this module once it was imported, and the function before: both can be called."""

    def __call__(self, *args: Any, **options: Any) -> Lake:
        return connect(*args, **options)


sys.modules[__name__].__class__ = _CallableModule
