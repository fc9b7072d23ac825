"""/healthz, /readyz and /metrics of one coordinator.

Owns: the routes, and the server's life inside a running event loop. Does not own: what they report.
Invariants: read-only; port 0 lets the system pick; signals are left to whoever runs the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Final

import uvicorn
from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from rootline.coordinator.app import CoordinatorService

_GRACE_S: Final = 5  # then a client that does not read its answer no longer holds the process


def http_app(service: CoordinatorService) -> FastAPI:
    """The routes over `service`."""
    app = FastAPI(title="Rootline coordinator", docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/healthz")
    async def healthz() -> PlainTextResponse:
        """The event loop turns."""
        return PlainTextResponse("ok\n")

    @app.get("/readyz")
    async def readyz() -> JSONResponse:
        """Whether the service does its work; 503 and the reason when not."""
        readiness = service.readiness()
        tables = {table: {"state": phase.value, "why": why} for table, (phase, why) in service.tables().items()}
        body = {"ready": readiness.ready, "reason": readiness.reason, "tables": tables}
        return JSONResponse(body, status_code=200 if readiness.ready else 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        """The registry in Prometheus' text format."""
        await service.measure()
        return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return app


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def serve(service: CoordinatorService, host: str, port: int) -> AsyncIterator[str]:
    """Serve until the block ends; yields the URL that it listens on. Raises `OSError` when the port is taken."""
    listener = socket.create_server((host, port))
    url = f"http://{host}:{listener.getsockname()[1]}"
    config = uvicorn.Config(
        http_app(service), log_level="warning", lifespan="off", access_log=False, timeout_graceful_shutdown=_GRACE_S
    )
    server = _Server(config)
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        yield url
    finally:
        server.should_exit = True
        await serving
        listener.close()
