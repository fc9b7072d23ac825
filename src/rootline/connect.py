"""`connect`: from a URL to a lake, embedded or on services.

Owns: the choice of adapters for a lake, and whether this process may host it. Does not own: the lake's methods
(`rootline.client`), hosting an embedded lake (`rootline.hosting`).
Invariants: A lake on Kafka is never hosted by this process. A process that only reads needs no log, and does not open
the log even if `log` names one.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import sys
import types
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from rootline.adapters.open import (
    WriterLog,
    check_log,
    check_warehouse,
    local_folder,
    log_name,
    open_lock,
    open_log,
    open_store,
    open_writer_log,
)
from rootline.adapters.open import confirmed_version as confirmed_version
from rootline.adapters.open import engine_storage as engine_storage
from rootline.adapters.open import is_kafka as is_kafka
from rootline.adapters.open import log_behind_root as log_behind_root
from rootline.adapters.open import open_archive as open_archive
from rootline.adapters.open import open_stored_log as open_stored_log
from rootline.adapters.open import open_topics as open_topics
from rootline.adapters.open import store_settings as store_settings
from rootline.adapters.open import warehouse_url as warehouse_url
from rootline.adapters.system_environment import RecordedSpan as RecordedSpan
from rootline.adapters.system_environment import SystemEnvironment
from rootline.adapters.system_environment import recording_spans as recording_spans
from rootline.client import checks
from rootline.client.lake import Lake
from rootline.client.session import Session
from rootline.hosting.on_demand import HostOnDemand, LogOnDemand, lake_finder
from rootline.ports.head_hints import NO_HINTS
from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import Invalid, RootlineError, Unavailable
from rootline.schemas.identifiers import TableName
from rootline.storage.metadata.read_cache import CACHE_BYTES_MAX, ReadCache

if TYPE_CHECKING:
    from rootline.adapters.log_state import LogState as LogState
    from rootline.adapters.log_state import PauseQuestion as PauseQuestion
    from rootline.adapters.log_state import known_pauses as known_pauses
    from rootline.adapters.log_state import lift_table as lift_table
    from rootline.adapters.log_state import look_at_log as look_at_log
    from rootline.adapters.log_state import pause_table as pause_table
    from rootline.adapters.log_state import resume_table as resume_table
    from rootline.adapters.log_state import stuck_tables as stuck_tables
    from rootline.adapters.open_redis import open_dead_tasks as open_dead_tasks
    from rootline.adapters.sqlite.intent_log import SqliteIntentLog
    from rootline.coordinator.settings import CoordinatorSettings
    from rootline.hosting.embedded_host import EmbeddedHost
    from rootline.hosting.lake_parts import open_parts as open_parts

_HOME: Final = {
    "LogState": "adapters.log_state",
    "PauseQuestion": "adapters.log_state",
    "known_pauses": "adapters.log_state",
    "lift_table": "adapters.log_state",
    "look_at_log": "adapters.log_state",
    "open_dead_tasks": "adapters.open_redis",
    "open_parts": "hosting.lake_parts",
    "pause_table": "adapters.log_state",
    "resume_table": "adapters.log_state",
    "stuck_tables": "adapters.log_state",
}
"""Names for operators and services, which are imported when they are used."""


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"rootline.{home}"), name)


_UNDECIDED_TURNS: Final = 100
_UNDECIDED_PAUSE_S: Final = 0.02
CoordinatorPlace = Literal["auto", "elsewhere"]
"""`auto`: this process hosts the coordinator and the worker if the log is embedded and no other process does. It begins
with its first record. If the log is in the warehouse's folder, it also begins a second after the first use, or at once
if the log has undecided records of an ended process.

`elsewhere`: this process never hosts them.
"""


def connect(
    url: str | Path | None = None,
    *,
    log: str | None = None,
    coordinator: CoordinatorPlace = "auto",
    settings: CoordinatorSettings | None = None,
    cache_bytes: int = CACHE_BYTES_MAX,
) -> Lake:
    """Open a lake. Nothing is read or started before the first use.

    Args:
        url: the warehouse: a path, `file:///dir`, `s3://bucket/prefix`. The default is `ROOTLINE_WAREHOUSE`.
        log: the intent log. The default is `ROOTLINE_LOG`, or else the log embedded in the warehouse's folder.
        coordinator: `auto`: this process may host the coordinator and the worker of a lake whose log is embedded (in
            the warehouse's folder, or `sqlite:///dir`). `elsewhere`: this process never hosts them.
        settings: the settings of a coordinator that this process hosts.
        cache_bytes: the most bytes of immutable metadata to cache for later plans. 0 disables the cache.

    Returns:
        The lake. Close it, or use it in a `with` statement.

    Raises:
        Invalid: `setting-invalid`, no warehouse is named, or a URL has an unknown form.
        Unavailable: with `coordinator="elsewhere"`, the folder does not exist.
    """
    warehouse = checks.place(url, "url") if url is not None else os.environ.get("ROOTLINE_WAREHOUSE", "")
    if not warehouse:
        raise Invalid("setting-invalid", "no warehouse is named: pass a path or a URL, or set ROOTLINE_WAREHOUSE")
    if coordinator not in ("auto", "elsewhere"):
        raise Invalid("setting-invalid", f"coordinator {coordinator!r}: write 'auto' or 'elsewhere'")
    # absolute, so that a forked or pickled lake is the same in any working directory
    warehouse = check_warehouse(warehouse)
    folder = local_folder(warehouse)
    if coordinator == "elsewhere" and folder is not None and not folder.is_dir():
        raise Unavailable("store-unavailable", f"{folder}: there is no such folder. Check the warehouse's URL")
    cached = checks.whole(cache_bytes, "cache_bytes", least=0)
    if settings is not None:
        from rootline.coordinator.settings import CoordinatorSettings

        checks.one_of(settings, CoordinatorSettings, "settings", "coordinator settings, or None")
    given_log = None if log is None else checks.place(log, "log")
    named_log = check_log(given_log or os.environ.get("ROOTLINE_LOG") or None, warehouse)
    return Lake(EmbeddableLake(warehouse, named_log, coordinator, settings, cached))


def lake_folder(url: str) -> Path | None:
    """The folder that a warehouse's URL names, or `None` if it is not a folder of this machine."""
    return local_folder(url)


async def accept_log(log: str | None, warehouse: str, stored: SqliteIntentLog) -> None:
    """Give the `stored` log of this URL a new identity. Raises `Unavailable` while a process hosts the lake."""
    lock = open_lock(warehouse, log)
    if lock is not None and not lock.try_acquire():
        raise Unavailable(
            "log-unavailable",
            f"{log_name(log, warehouse)}: process {lock.holder_pid()} hosts the coordinator. Close all programs that "
            "have the lake open, then accept the log",
        )
    try:
        await stored.accept_as_another()
    finally:
        if lock is not None:
            lock.release()


def open_warehouse(url: str) -> ObjectStore:
    """Open only the object store. Call it on the loop that will use it."""
    return open_store(url)


@dataclass(frozen=True, slots=True)
class EmbeddableLake:
    """The address of a lake, from which any process can open it."""

    warehouse: str
    log: str | None
    coordinator: CoordinatorPlace
    settings: CoordinatorSettings | None
    cache_bytes: int = CACHE_BYTES_MAX

    @property
    def name(self) -> str:
        """The lake's name in messages."""
        return self.warehouse

    async def open(self) -> Session:
        """Open the lake in this process, and host its services if this process is the host."""
        store = open_store(self.warehouse)
        find_lake = lake_finder(store, self.warehouse, self.log)
        host, shared = None, None
        if self.coordinator == "elsewhere" or is_kafka(self.log):
            log = LogOnDemand(self._open_writer_log, find_lake)
        else:
            log_here, lock = partial(open_log, self.log, self.warehouse), partial(open_lock, self.warehouse, self.log)
            host = HostOnDemand(log_here, partial(self._host, store), lock)
            log = LogOnDemand(host.open_log, find_lake)
            if self.log is None and local_folder(self.warehouse) is not None:
                await self._decide_old(log)
                host.host_later(log)
        if is_kafka(self.log):
            from rootline.adapters.open_redis import open_redis

            shared = open_redis(self.warehouse, self.log)

        async def close() -> None:
            async with contextlib.AsyncExitStack() as closing:
                if shared is not None:
                    closing.push_async_callback(shared.close)
                closing.push_async_callback(store.close)
                closing.push_async_callback(log.close)
                if host is not None:
                    closing.push_async_callback(host.stop)

        trouble = partial(self._seen, host)
        cache, base_url = ReadCache(self.cache_bytes), warehouse_url(self.warehouse)
        hints = NO_HINTS if shared is None else shared.hints
        return Session(store, log, SystemEnvironment(), close, trouble, cache, base_url, hints=hints)

    async def _decide_old(self, log: LogOnDemand) -> None:
        """Host at once if the log has undecided records of an ended process, and wait a while for their verdicts.

        Then also a short program reads what was published before it began.
        """
        lock = open_lock(self.warehouse, self.log)
        if lock is None or lock.is_held():
            return
        with contextlib.suppress(RootlineError):  # a reader needs no log
            for _ in range(_UNDECIDED_TURNS):
                if not self._has_undecided():
                    return
                log.opened()
                await asyncio.sleep(_UNDECIDED_PAUSE_S)

    def _has_undecided(self) -> bool:
        path = Path(log_name(self.log, self.warehouse))
        if not path.exists():
            return False
        from rootline.adapters.sqlite.undecided import undecided_in

        return bool(undecided_in(path))

    def _host(self, store: ObjectStore) -> EmbeddedHost:
        from rootline.hosting.embedded_host import EmbeddedHost

        return EmbeddedHost(store, self.warehouse, self.log, self.settings)

    def _open_writer_log(self) -> WriterLog:
        return open_writer_log(self.log, self.warehouse)

    async def _seen(self, host: HostOnDemand | None, table: TableName) -> str:
        known = None if host is None else host.trouble(table)
        if known:
            return known
        from rootline.hosting.lake_parts import seen_from_outside

        return await seen_from_outside(self.warehouse, self.log, table)


class _CallableModule(types.ModuleType):
    """A module that can be called as the function `connect`.

    `rootline.connect` is the function `connect` until this module is imported, and this module afterwards. Both can be
    called.
    """

    def __call__(self, *args: Any, **options: Any) -> Lake:
        return connect(*args, **options)


sys.modules[__name__].__class__ = _CallableModule
