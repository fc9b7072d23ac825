"""/healthz, /readyz, /metrics of one coordinator, and the catalog for other engines beside them.

Owns: the coordinator's routes. Does not own: what they report, the catalog (`rootline.catalog.rest.routes`), the
server's life (`rootline.catalog.rest.serving`).
Invariants: read-only; port 0 lets the system pick; signals are left to the process's owner.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any, Protocol

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from rootline.catalog.rest.routes import ServedCatalog, catalog_app
from rootline.catalog.rest.serving import READS, serve_app
from rootline.coordinator.app import CoordinatorService


class Beside(Protocol):
    """A worker in the same process, whose metrics are in the coordinator's registry."""

    def readiness(self) -> BesideReadiness:
        """Whether it works, and what is wrong."""
        ...

    async def measure(self) -> None:
        """Bring the gauges up to date."""
        ...


class BesideReadiness(Protocol):
    """What /readyz shows of it."""

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        ...


def http_app(
    service: CoordinatorService, catalog: ServedCatalog | None = None, beside: Beside | None = None
) -> FastAPI:
    """The routes over `service`, what is `beside` it, and the Iceberg REST catalog under /v1 if there is one."""
    app = FastAPI(title="Rootline coordinator", docs_url=None, redoc_url=None, openapi_url=None)

    @app.api_route("/healthz", methods=READS)
    async def healthz() -> PlainTextResponse:
        """The event loop turns."""
        return PlainTextResponse("ok\n")

    @app.api_route("/readyz", methods=READS)
    async def readyz() -> JSONResponse:
        """Whether the service does its work; 503 and the reason when not."""
        readiness = service.readiness()
        tables = {
            table: {"state": phase.value, "why": service.trouble_of(table)}
            for table, (phase, _) in service.tables().items()
        }
        body = {"ready": readiness.ready, "reason": readiness.reason, "tables": tables}
        if beside is not None:
            body["worker"] = beside.readiness().to_json()
        return JSONResponse(body, status_code=200 if readiness.ready else 503)

    @app.api_route("/metrics", methods=READS)
    async def metrics() -> Response:
        """The registry in Prometheus' text format."""
        await service.measure()
        if beside is not None:
            await beside.measure()
        if catalog is not None:
            catalog.catalog.metrics.measure(int(time.time() * 1000), service.heads())
        return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    if catalog is not None:
        app.mount("/v1", catalog_app(catalog))
    return app


@contextlib.asynccontextmanager
async def serve(
    service: CoordinatorService,
    host: str,
    port: int,
    *,
    catalog: ServedCatalog | None = None,
    beside: Beside | None = None,
) -> AsyncIterator[str]:
    """Serve until the block ends; yields the URL that it listens on. Raises `OSError` when the port is taken."""
    async with serve_app(http_app(service, catalog, beside), host, port) as url:
        yield url
