"""The host of an embedded lake: it runs the lake's coordinator and worker in the process that has the lake open.

Owns: the time of their start, their restart after a failure, the order in which they stop. Does not own: their work
(`rootline.coordinator`, `rootline.workers`), the choice of the process that hosts (the lake's lock).
Invariants: Of all processes that may host, one does. When it ends, another takes over. The worker stops before the
coordinator that decides its intents. Closing waits for the coordinator's commits in flight, never for maintenance. A
failing worker does not stop the coordinator.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from rootline.adapters.open import log_name
from rootline.adapters.posix_files import LakeLock
from rootline.coordinator.app import CoordinatorService
from rootline.coordinator.settings import CoordinatorSettings
from rootline.hosting.lake_parts import LakeParts, check_principals, embedded_parts, embedded_settings
from rootline.hosting.on_demand import IMPORTING
from rootline.library_log import library_logger
from rootline.ports.intent_log import IntentLog
from rootline.ports.object_store import ObjectStore
from rootline.ports.retry_policy import RetryPolicy
from rootline.schemas.errors import RootlineError
from rootline.schemas.identifiers import TableName

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from rootline.workers.app import WorkerService

_RESTART: Final = RetryPolicy(delay_s_min=0.5, delay_s_max=10.0)
WORKER_DELAY_S: Final = 1.0
"""Seconds that a coordinator runs before its worker starts, so that a short program loads no maintenance code."""

_SMALL: Final[dict[str, float]] = {
    "jobs_at_once": 1,
    "leaf_cache_bytes_max": 33_554_432,
    "stop_timeout_s": 0.1,
}
"""Defaults of a worker in a process that has other work. Settings in the environment override them."""


class EmbeddedHost:
    """Hosts the services of a lake with an embedded log while this process has the lake's lock."""

    def __init__(
        self, store: ObjectStore, warehouse: str, log: str | None, settings: CoordinatorSettings | None
    ) -> None:
        self._store, self._warehouse, self._log_url = store, warehouse, log
        self._settings = embedded_settings(warehouse, settings)
        check_principals(self._settings, log)
        self._service: CoordinatorService | None = None
        self._worker: WorkerService | None = None
        self._maintaining: asyncio.Task[None] | None = None
        self._hosting: asyncio.Task[None] | None = None
        self._stopping = False
        self._trouble: str | None = None
        self._logger = library_logger("rootline.connect")

    def host(self, log: IntentLog, lock: LakeLock | None) -> None:
        """Start to host, on the running loop. `log`: the lake's open log, which the caller closes."""
        parts = embedded_parts(self._store, self._warehouse, self._log_url, log, lock)
        self._hosting = asyncio.get_running_loop().create_task(self._host(parts), name="rootline host")

    def trouble(self, table: TableName) -> str | None:
        """The state of this process's coordinator for an error about a missing verdict on an intent of `table`.

        `None`: this process hosts no coordinator now, and has not failed to host one.
        """
        if self._service is None:
            return None if self._trouble is None else f"{self._place}: the coordinator here stopped: {self._trouble}"
        if obstacle := self._service.obstacle_of(table):
            return f"{self._place}: {obstacle}"
        readiness = self._service.readiness()
        known = self._service.delay_of(table) or ("" if readiness.ready else readiness.reason) or "it is running"
        return f"{self._place}: the coordinator is hosted here: {known}"

    @property
    def _place(self) -> str:
        return f"log {log_name(self._log_url, self._warehouse)}"

    async def stop(self) -> None:
        """Stop the worker, then drain the coordinator or stop waiting for the lock. Returns when nothing is hosted."""
        self._stopping = True
        if self._hosting is None:
            return
        await self._end_maintenance()
        if self._service is not None:
            self._service.request_stop()
        else:
            self._hosting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._hosting

    async def _host(self, parts: LakeParts) -> None:
        try:
            await self._host_when_locked(parts)
        finally:
            if parts.remover is not None:
                await parts.remover.close()

    async def _host_when_locked(self, parts: LakeParts) -> None:
        failures = 0
        while not self._stopping:
            try:
                if parts.lock is not None:
                    await parts.lock.acquire()
                await self._serve(parts)
                return
            except Exception as error:  # after any error, the next attempt starts from the stored state
                self._failed(error)
            finally:
                if parts.lock is not None:
                    parts.lock.release()
            failures += 1
            await asyncio.sleep(_RESTART.after_failure(failures, jitter=1.0))

    async def _serve(self, parts: LakeParts) -> None:
        self._service = CoordinatorService(
            store=parts.store, log=parts.coordinator_log(), settings=self._settings, find_lake=parts.find_lake
        )
        self._maintaining = asyncio.ensure_future(self._maintain(parts, self._service.metrics.registry))
        try:
            await self._service.run()
        finally:
            self._service = None
            await self._end_maintenance()

    async def _maintain(self, parts: LakeParts, registry: CollectorRegistry) -> None:
        try:
            await asyncio.sleep(WORKER_DELAY_S)
            self._worker = await asyncio.to_thread(_small_worker, parts, registry)  # importing its modules takes time
            await self._worker.run()
        except Exception as error:  # the coordinator continues without it
            self._logger.warning("maintenance failed", action="maintenance-failed", reason=str(error) or repr(error))
        finally:
            self._worker = None

    async def _end_maintenance(self) -> None:
        task, self._maintaining = self._maintaining, None
        if task is None:
            return
        if self._worker is not None:
            self._worker.request_stop()
        else:
            task.cancel()
        await asyncio.wait({task})

    def _failed(self, error: Exception) -> None:
        if isinstance(error, RootlineError):
            self._trouble = error.message
            self._logger.warning("coordinator failed", action="coordinator-failed", reason=error.message)
        else:
            self._trouble = repr(error)
            self._logger.exception("coordinator failed", action="coordinator-failed", exc_info=error)


def _small_worker(parts: LakeParts, registry: CollectorRegistry) -> WorkerService:
    with IMPORTING:
        from rootline.client.data_file_writer import write_rewritten_files
        from rootline.workers.app import WorkerService
        from rootline.workers.settings import worker_settings

    settings = worker_settings()
    unset = {name: value for name, value in _SMALL.items() if name not in settings.model_fields_set}
    chosen = settings.model_copy(update=unset)
    return WorkerService(
        store=parts.store,
        log=parts.log,
        settings=chosen,
        registry=registry,
        remover=parts.remover,
        keeps=parts.keeps,
        write_rows=write_rewritten_files,
    )
