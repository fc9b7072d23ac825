"""The log and the host of an open lake, which are opened at their first use.

Owns: the time at which they are opened, naming the lake to its log. Does not own: their work (`embedded_host`, the
adapters of a log).
Invariants: a program that only reads, and ends within a second, opens no log and imports no coordinator. A writer
imports a coordinator only once it has the lake's lock: the import takes longer than twenty appends. A lake in a folder
that stays open is hosted also if nothing is written, because its log may get intents of processes that host nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from typing_extensions import override

from rootline.adapters.system_environment import SystemEnvironment
from rootline.library_log import library_logger
from rootline.ports.intent_log import IntentLog, IntentSink, KnowsItsLake, NewRecord, VerdictSource
from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import RootlineError
from rootline.schemas.identifiers import LogPosition, TableName

if TYPE_CHECKING:
    from rootline.adapters.open import WriterLog
    from rootline.adapters.posix_files import LakeLock
    from rootline.schemas.bytes.record_headers import Lake
    from rootline.schemas.verdict import Verdict
    from rootline.storage.warehouse import FindLake

HOST_DELAY_S: Final = 1.0
"""Seconds after which a lake that was only read is hosted, so that a short program loads no coordinator."""


IMPORTING: Final = threading.Lock()
"""Locked while a thread imports a host or its worker, so that no other one forks. The child would wait for ever for a
module that a thread of its parent imports."""
os.register_at_fork(before=IMPORTING.acquire, after_in_parent=IMPORTING.release, after_in_child=IMPORTING.release)


class LogOnDemand(IntentSink, VerdictSource):
    """A log that `open_log` opens at the first use. If that fails, the next use tries again.

    `find_lake`: identifies this lake, for a log that may serve another one. It is called before the first record.
    """

    def __init__(self, open_log: Callable[[], WriterLog], find_lake: FindLake | None = None) -> None:
        self._open_log = open_log
        self._find_lake = find_lake
        self._introducing = asyncio.Lock()
        self._log: WriterLog | None = None

    @override
    async def publish_many(
        self, records: Sequence[NewRecord], *, oldest_file_ms: int | None = None
    ) -> list[LogPosition]:
        return await (await self._introduced()).publish_many(records, oldest_file_ms=oldest_file_ms)

    @override
    async def wait_verdict(self, position: LogPosition, *, timeout_s: float) -> Verdict | None:
        return await self.opened().wait_verdict(position, timeout_s=timeout_s)

    async def close(self) -> None:
        """Close the log if it was opened."""
        if self._log is not None:
            await self._log.close()

    @property
    def is_open(self) -> bool:
        """Whether a use has opened the log."""
        return self._log is not None

    async def _introduced(self) -> WriterLog:
        """The open log, which knows the lake that it serves. Raises `Invalid` (`lake-mismatch`)."""
        log = self.opened()
        if self._find_lake is not None:
            async with self._introducing:
                lake = None if self._find_lake is None else await self._find_lake()
                if lake is not None and isinstance(log, KnowsItsLake):
                    await log.introduce(lake)
                self._find_lake = None
        return log

    def opened(self) -> WriterLog:
        """The log, which the first call opens. Raises the errors of `open_log`."""
        if self._log is None:
            self._log = self._open_log()
        return self._log


class Host(Protocol):
    """A host of a lake's coordinator."""

    def host(self, log: IntentLog, lock: LakeLock | None) -> None:
        """Start to host the lake of this open log on the running loop, while this process has its lock, if any."""
        ...

    def trouble(self, table: TableName) -> str | None:
        """The state of the coordinator, for an error about a missing verdict."""
        ...

    async def stop(self) -> None:
        """Stop hosting."""
        ...


OpenLock = Callable[[], "LakeLock | None"]


class HostOnDemand:
    """The host of a lake with an embedded log.

    `make`: makes the host, and imports the coordinator. `open_lock`: opens the lock of the process that hosts the lake,
    if the lake has one.
    """

    def __init__(self, open_log: Callable[[], IntentLog], make: Callable[[], Host], open_lock: OpenLock) -> None:
        self._open_log, self._make, self._open_lock = open_log, make, open_lock
        self._lock: LakeLock | None = None
        self._host: Host | None = None
        self._waiting: list[asyncio.Task[None]] = []

    def open_log(self) -> IntentLog:
        """Open the log, and start to host: now, or once the process that hosts the lake ends.

        Raises the errors of the three functions.
        """
        self._lock = self._open_lock()
        if self._lock is not None and not self._lock.try_acquire():
            log = self._open_log()
            self._start(self._host_after_another(log), "rootline host next")
            return log
        try:
            host, log = self._imported(), self._open_log()
            host.host(log, self._lock)
        except BaseException:
            self._release()
            raise
        self._host = host
        return log

    async def _host_after_another(self, log: IntentLog) -> None:
        try:
            with contextlib.suppress(RootlineError):  # the host takes the lock too, and retries
                if self._lock is not None:
                    await self._lock.acquire()
            host = await asyncio.to_thread(self._imported)
            host.host(log, self._lock)
        except Exception as error:
            self._release()
            _warn(error)
        else:
            self._host = host

    def host_later(self, log: LogOnDemand) -> None:
        """Open `log` after `HOST_DELAY_S`, unless a record opens it earlier. A failure is logged."""
        self._start(self._open_later(log), "rootline host later")

    async def _open_later(self, log: LogOnDemand) -> None:
        await asyncio.sleep(HOST_DELAY_S)
        try:
            lock = self._open_lock()
            if not log.is_open and not (lock is not None and lock.is_held()):
                await asyncio.to_thread(self._imported)  # only for its imports, which take a while
            log.opened()
        except Exception as error:
            _warn(error)

    def _start(self, waiting: Coroutine[None, None, None], name: str) -> None:
        self._waiting.append(asyncio.get_running_loop().create_task(waiting, name=name))

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def _imported(self) -> Host:
        with IMPORTING:
            return self._make()

    def trouble(self, table: TableName) -> str | None:
        """As `Host.trouble`. `None` also before this process hosts."""
        return None if self._host is None else self._host.trouble(table)

    async def stop(self) -> None:
        """Stop the host if it was started."""
        for task in self._waiting:
            task.cancel()
        if self._waiting:
            await asyncio.wait(self._waiting)
        if self._host is None:
            self._release()
        else:
            await self._host.stop()


def _warn(error: Exception) -> None:
    library_logger().warning("lake not hosted", action="not-hosted", reason=str(error) or repr(error))


def lake_finder(store: ObjectStore, warehouse: str, log: str | None) -> FindLake | None:
    """The function that identifies this lake. `None`: its log is in the warehouse, so it serves no other lake."""
    if log is None or "memory:" in (log[:7], warehouse[:7]):
        return None

    async def find() -> Lake | None:
        from rootline.storage.warehouse import lake_of

        return await lake_of(store, warehouse, SystemEnvironment().fresh_id)

    return find
