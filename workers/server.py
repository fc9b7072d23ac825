"""The HTTP server of one worker: /healthz, /readyz, /metrics.

Owns: the worker's routes. Does not own: the reports (`app`), the server's life (`rootline.catalog.rest.serving`).
Invariants: read-only. Port 0 lets the system pick a port. Signal handlers are left to the process.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from rootline.catalog.rest.serving import own_routes, serve_app
from rootline.workers.app import WorkerService


def http_app(service: WorkerService) -> Starlette:
    """The routes over `service`."""

    async def readyz(_: Request) -> JSONResponse:
        """200 if the worker finds its tables and tasks, else 503, with the reason and the failing tables."""
        readiness = service.readiness()
        return JSONResponse(readiness.to_json(), status_code=200 if readiness.ready else 503)

    async def metrics(_: Request) -> Response:
        """The registry in Prometheus' text format."""
        await service.measure()
        return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return Starlette(routes=own_routes(readyz, metrics))


@contextlib.asynccontextmanager
async def serve(service: WorkerService, host: str, port: int) -> AsyncIterator[str]:
    """Serve until the block ends. Yields the URL that it listens on. Raises `OSError` when the port is taken."""
    async with serve_app(http_app(service), host, port) as url:
        yield url
