"""/healthz, /readyz, /metrics of one coordinator, its console, and the catalog for other engines beside them.

Owns: the coordinator's routes. Does not own: what they report, the console's (`console`), the catalog
(`rootline.catalog.rest.routes`), the server's life (`rootline.catalog.rest.serving`).
Invariants: read-only; port 0 lets the system pick; signals are left to the process's owner.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount

from rootline.catalog.rest.routes import ServedCatalog, catalog_app
from rootline.catalog.rest.serving import own_routes, serve_app
from rootline.coordinator.app import CoordinatorService
from rootline.coordinator.http.console import Console, console_routes, open_paths, sample_lag
from rootline.coordinator.http.lake_view import LakeView
from rootline.schemas.identifiers import TableName


class Beside(Protocol):
    """A worker in the same process, whose metrics are in the coordinator's registry."""

    def readiness(self) -> BesideReadiness:
        """Whether it works, and what is wrong."""
        ...

    async def measure(self) -> None:
        """Bring the gauges up to date."""
        ...


class BesideReadiness(Protocol):
    """What /readyz and the console show of it."""

    @property
    def reason(self) -> str:
        """Why it does not work; empty: it does."""
        ...

    @property
    def failing(self) -> Mapping[TableName, str]:
        """Tables that it fails at, and why."""
        ...

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        ...


def http_app(
    service: CoordinatorService,
    catalog: ServedCatalog | None = None,
    beside: Beside | None = None,
    lake: LakeView | None = None,
    *,
    console: bool = True,
) -> Starlette:
    """The routes over `service`, what is `beside` it, and the Iceberg REST catalog under /v1 if there is one.

    `lake`: what the console shows of tables that this coordinator has not in memory.
    """

    async def readyz(_: Request) -> JSONResponse:
        """Whether the service does its work; 503 and the reason when not."""
        readiness = service.readiness()
        tables = {
            table.name: {"state": table.state.value, "phase": table.phase, "why": table.why}
            for table in service.own_tables()
        }
        body = {"ready": readiness.ready, "reason": readiness.reason, "tables": tables}
        if beside is not None:
            body["worker"] = beside.readiness().to_json()
        return JSONResponse(body, status_code=200 if readiness.ready else 503)

    async def metrics(_: Request) -> Response:
        """The registry in Prometheus' text format."""
        await service.measure()
        if beside is not None:
            await beside.measure()
        if catalog is not None:
            catalog.catalog.metrics.measure(int(time.time() * 1000), service.heads())
        # on a thread: with many tables it takes long enough to be felt by commits
        body = await asyncio.to_thread(generate_latest, service.metrics.registry)
        return Response(body, media_type=CONTENT_TYPE_LATEST)

    routes = own_routes(readyz, metrics)
    if console:
        routes += console_routes(Console(service, lake, lambda: _why_not(beside)))
    if catalog is not None:
        routes.append(Mount("/v1", catalog_app(catalog)))
    return Starlette(routes=routes)


@contextlib.asynccontextmanager
async def serve(
    service: CoordinatorService,
    host: str,
    port: int,
    *,
    catalog: ServedCatalog | None = None,
    beside: Beside | None = None,
    lake: LakeView | None = None,
    console: bool = True,
) -> AsyncIterator[str]:
    """Serve until the block ends; yields the URL that it listens on. Raises `OSError` when the port is taken."""
    app = http_app(service, catalog, beside, lake, console=console)
    async with serve_app(app, host, port, also_open=open_paths() if console else frozenset()) as url:
        sampling = asyncio.ensure_future(sample_lag(service)) if console else None
        try:
            yield url
        finally:
            if sampling is not None:
                sampling.cancel()
                await asyncio.gather(sampling, return_exceptions=True)


def _why_not(beside: Beside | None) -> str:
    if beside is None:
        return ""
    readiness = beside.readiness()
    if readiness.reason or not readiness.failing:
        return readiness.reason
    table, why = next(iter(sorted(readiness.failing.items())))
    more = len(readiness.failing) - 1
    return f"it fails at {table}" + (f" and {more:,} more tables" if more else "") + f": {why}"
