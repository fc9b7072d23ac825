"""The host of an embedded lake: its coordinator and its worker, in the process that has the lake open.

Owns: when they start, their restart after a failure, the order of their end. Does not own: their work
(`rootline.coordinator`, `rootline.workers`), the choice of the process that hosts (the lake's lock).
Invariants: of all processes that may host, one does, and when it ends another takes over. The worker stops before the
coordinator that decides its intents. Closing waits for the coordinator's commits in flight, never for maintenance. A
failing worker does not stop the coordinator.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

import structlog

from rootline.adapters.open import WriterLog, log_name
from rootline.coordinator.app import CoordinatorService
from rootline.coordinator.runtime.table.table_states import LASTING, TableState
from rootline.coordinator.settings import CoordinatorSettings
from rootline.hosting.lake_parts import LakeParts, check_principals, embedded_parts, embedded_settings
from rootline.ports.object_store import ObjectStore
from rootline.ports.retry_policy import RetryPolicy
from rootline.schemas.errors import RootlineError
from rootline.schemas.identifiers import TableName

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from rootline.workers.app import WorkerService

_RESTART: Final = RetryPolicy(delay_s_min=0.5, delay_s_max=10.0)
WORKER_DELAY_S: Final = 1.0
"""How long a coordinator runs before its worker starts: a short program then loads and does no maintenance."""

_MODEST: Final[dict[str, float]] = {
    "jobs_at_once": 1,
    "leaf_cache_bytes_max": 33_554_432,
    "stop_timeout_s": 0.1,
}
"""Of a worker in a process that has other things to do, unless the environment says otherwise."""


class EmbeddedHost:
    """Opens an embedded log, and from then on hosts the lake's services whenever this process gets the lake's lock."""

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
        self._logger = structlog.get_logger("rootline.connect")

    def open_log(self) -> WriterLog:
        """Open the log on the running loop, and begin to host.

        Raises:
            Invalid, Unavailable, Corrupt: the log cannot be opened; nothing is hosted then.

        """
        parts = embedded_parts(self._store, self._warehouse, self._log_url)
        self._hosting = asyncio.get_running_loop().create_task(self._host(parts), name="rootline host")
        return parts.log

    def trouble(self, table: TableName) -> str | None:
        """Why intents of `table` are not decided here, if this process hosts the coordinator or tried to."""
        if self._service is None:
            return None if self._trouble is None else f"{self._place}: the coordinator here stopped: {self._trouble}"
        own = next((own for own in self._service.own_tables() if own.name == table), None)
        if own is not None and own.state in LASTING - {TableState.DAMAGED}:  # which commits go on in spite of
            return f"{self._place}: the table is {own.state.value}: {own.why}"
        readiness = self._service.readiness()
        known = self._service.delay_of(table) or ("" if readiness.ready else readiness.reason) or "it is still at work"
        return f"{self._place}: the coordinator is hosted here: {known}"

    @property
    def _place(self) -> str:
        return f"log {log_name(self._log_url, self._warehouse)}"

    async def stop(self) -> None:
        """Stop the worker, drain the coordinator, or stop waiting for the lock; returns when nothing is hosted."""
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
            except Exception as error:  # after any error the next attempt starts from what is stored
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
            self._worker = await asyncio.to_thread(
                _modest_worker, parts, registry
            )  # loading its modules takes a moment
            await self._worker.run()
        except Exception as error:  # the coordinator goes on without it
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


def _modest_worker(parts: LakeParts, registry: CollectorRegistry) -> WorkerService:
    from rootline.client.data_file_writer import write_rewritten_files
    from rootline.workers.app import WorkerService
    from rootline.workers.settings import worker_settings

    settings = worker_settings()
    unsaid = {name: value for name, value in _MODEST.items() if name not in settings.model_fields_set}
    chosen = settings.model_copy(update=unsaid)
    return WorkerService(
        store=parts.store,
        log=parts.log,
        settings=chosen,
        registry=registry,
        remover=parts.remover,
        keeps=parts.keeps,
        write_rows=write_rewritten_files,
    )
