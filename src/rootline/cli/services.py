"""Coordinator, worker and HTTP in this process, until a signal asks for a stop.

Owns: composing them, and their order at start and stop. Does not own: the services, the catalog beside the coordinator
(`catalog_service`), signals and log lines (`service_process`).
Invariants: the worker stops before the coordinator that decides its intents. The lake's lock is released last.
"""

from __future__ import annotations

import asyncio
import contextlib
from enum import Flag, auto

from rootline.catalog.rest.http_settings import catalog_settings
from rootline.cli.catalog_service import EMBEDDED, open_catalog, warn_if_open
from rootline.cli.lake_status import open_lake_poller
from rootline.cli.service_process import Announce, describe_process, port_refused, server_extra, signals, telemetry
from rootline.client.data_file_writer import write_rewritten_files
from rootline.coordinator.app import CoordinatorService, settle_memory
from rootline.coordinator.settings import CoordinatorSettings, coordinator_settings
from rootline.hosting.lake_parts import LakeParts, check_principals, embedded_settings, open_parts
from rootline.library_log import library_logger
from rootline.ports.head_hints import NO_HINTS
from rootline.schemas.distribution import install_command
from rootline.spark.compaction_handover import CompactionOnSpark
from rootline.workers.app import WorkerService
from rootline.workers.settings import worker_settings


class Role(Flag):
    """A service that a process runs."""

    COORDINATOR = auto()
    WORKER = auto()


async def run_services(
    warehouse: str, log: str | None, roles: Role, announce: Announce, *, http_port: int | None
) -> None:
    """Run the services of `roles` until a signal. `http_port`: 0 picks one, `None` takes the setting's.

    Raises:
        RootlineError: a service cannot start, or cannot continue.

    """
    _check_http(roles, http_port)
    if Role.COORDINATOR in roles:
        check_principals(coordinator_settings(), log)
    stop = asyncio.Event()
    name = "-".join(["rootline", *[role.name.lower() for role in roles if role.name]])
    with signals(stop), telemetry(name):
        parts = await open_parts(warehouse, log)
        try:
            if Role.COORDINATOR in roles and not await _locked(parts, stop, announce):
                return
            await _run(parts, warehouse, log, roles, stop, announce, http_port)
        finally:
            await parts.close()
    announce({"event": "stopped"}, "stopped")


async def _run(
    parts: LakeParts,
    warehouse: str,
    log: str | None,
    roles: Role,
    stop: asyncio.Event,
    announce: Announce,
    http_port: int | None,
) -> None:
    settings = embedded_settings(warehouse)
    coordinator = worker = None
    running: list[asyncio.Task[None]] = []
    async with contextlib.AsyncExitStack() as around:
        listens = None
        if Role.COORDINATOR in roles:
            hints = NO_HINTS if parts.shared is None else parts.shared.hints
            coordinator = CoordinatorService(
                store=parts.store,
                log=parts.coordinator_log(),
                settings=settings,
                hints=hints,
                find_lake=parts.find_lake,
            )
        if Role.WORKER in roles:
            registry = None if coordinator is None else coordinator.metrics.registry
            limits = worker_settings()
            worker = WorkerService(
                store=parts.store,
                log=parts.worker_log,
                settings=limits,
                queue=None if parts.shared is None else parts.shared.queue(limits.tasks_max),
                registry=registry,
                remover=parts.remover,
                keeps=parts.keeps,
                write_rows=write_rewritten_files,
                hand_over=CompactionOnSpark.of_settings(limits, warehouse, log),
            )
        for service in (coordinator, worker):
            if service is not None:
                parts.show_metrics(service.metrics.registry)
                break  # they share one registry
        if coordinator is not None:
            listens = await _serve_coordinator(around, warehouse, log, coordinator, worker, settings, http_port)
            running.append(asyncio.ensure_future(coordinator.run()))
        if worker is not None:
            if coordinator is None:
                listens = await _serve_worker(around, worker, http_port)
            running.append(asyncio.ensure_future(worker.run()))
        shown = coordinator or worker
        if shown is not None:
            describe_process(shown.metrics.registry)
        settle_memory()
        names = [role.name.lower() for role in roles if role.name]
        text = f"{' and '.join(names)} of {warehouse}" + (f" on {listens}" if listens else "")
        announce({"event": "listening", "warehouse": warehouse, "url": listens, "roles": names}, text)
        stopping = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait({stopping, *running}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            # the worker first: the coordinator then still decides what the worker has published
            if worker is not None:
                worker.request_stop()
                await asyncio.wait({running[-1]})
            if coordinator is not None:
                coordinator.request_stop()
            results = await asyncio.gather(*running, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


def _check_http(roles: Role, port: int | None) -> None:
    """Refuse a named port that cannot be served. Raises `Invalid` (`setting-invalid`)."""
    settings = coordinator_settings() if Role.COORDINATOR in roles else worker_settings()
    if port is None and "http_port" not in settings.model_fields_set:
        return
    with server_extra("HTTP on a port"):
        import rootline.catalog.rest.serving  # noqa: F401


async def _locked(parts: LakeParts, stop: asyncio.Event, announce: Announce) -> bool:
    if parts.lock is None or parts.lock.try_acquire():
        return True
    pid = parts.lock.holder_pid()
    announce({"event": "waiting", "holder": pid}, f"process {pid} hosts this lake's coordinator; waiting for it to end")
    acquiring = asyncio.ensure_future(parts.lock.acquire())
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({acquiring, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if acquiring.done():
        acquiring.result()
        return True
    acquiring.cancel()
    return False


async def _serve_worker(around: contextlib.AsyncExitStack, service: WorkerService, port: int | None) -> str | None:
    try:
        from rootline.workers.server import serve
    except ModuleNotFoundError as error:
        _warn_of_absent_http(error)
        return None
    host, port = service.settings.http_host, service.settings.http_port if port is None else port
    with port_refused("HTTP", host, port, "--http-port"):
        return await around.enter_async_context(serve(service, host, port))


def _warn_of_absent_http(error: ModuleNotFoundError) -> None:
    library_logger().warning(
        f"no HTTP, because a library of the extra `server` is not installed: {install_command('server')}",
        action="http-absent",
        missing=error.name,
    )


async def _serve_coordinator(
    around: contextlib.AsyncExitStack,
    warehouse: str,
    log: str | None,
    service: CoordinatorService,
    worker: WorkerService | None,
    settings: CoordinatorSettings,
    port: int | None,
) -> str | None:
    try:
        from rootline.coordinator.http.server import serve
    except ModuleNotFoundError as error:
        _warn_of_absent_http(error)
        return None
    port = settings.http_port if port is None else port
    catalog = lake = None
    is_shared = not warehouse.startswith("memory:")  # which no one else could read
    if settings.http_console and is_shared:
        lake = await around.enter_async_context(open_lake_poller(warehouse, log))
    if settings.http_catalog and is_shared:
        chosen = catalog_settings()
        catalog = await around.enter_async_context(
            open_catalog(
                warehouse,
                log or EMBEDDED,
                settings.http_host,
                chosen,
                service.metrics.registry,
                obstacle_of=service.obstacle_of,
            )
        )
        warn_if_open(settings.http_host, catalog)
    with port_refused("HTTP", settings.http_host, port, "--http-port"):
        served = serve(
            service,
            settings.http_host,
            port,
            catalog=catalog,
            beside=worker,
            lake=lake,
            console=settings.http_console,
        )
        return await around.enter_async_context(served)
