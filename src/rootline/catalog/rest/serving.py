"""Serving an application inside a running event loop, until a block ends.

Owns: the listener and the server's life; the application of a catalog that is served alone. Does not own: routes under
`/v1` (`routes`), signals: the process handles them.
Invariants: port 0 lets the system pick; a client that does not read its answer delays the end of the process by
seconds only.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Iterator
from typing import Final

import uvicorn
from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from rootline.catalog.rest.routes import ServedCatalog, catalog_app
from rootline.schemas.errors import RootlineError

_GRACE_S: Final = 5
READS: Final = ["GET", "HEAD"]
"""A HEAD is a GET whose body is not sent: load balancers ask so."""


def alone_app(served: ServedCatalog) -> FastAPI:
    """/healthz, /readyz, /metrics and the catalog under /v1; only the catalog needs the token."""
    catalog = served.catalog
    app = FastAPI(title="Rootline catalog", docs_url=None, redoc_url=None, openapi_url=None)

    @app.api_route("/healthz", methods=READS)
    async def healthz() -> PlainTextResponse:
        """Answer: the event loop runs."""
        return PlainTextResponse("ok\n")

    @app.api_route("/readyz", methods=READS)
    async def readyz() -> JSONResponse:
        """Whether the store answers; if not, 503 and the reason."""
        try:
            await served.carry(catalog.reach())
        except RootlineError as error:
            return JSONResponse({"ready": False, "reason": str(error)}, status_code=503)
        return JSONResponse({"ready": True, "reason": ""})

    @app.api_route("/metrics", methods=READS)
    async def metrics() -> Response:
        """The registry in Prometheus' text format."""
        catalog.metrics.measure(int(time.time() * 1000))
        return Response(generate_latest(catalog.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    app.mount("/v1", catalog_app(served))
    return app


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def serve_app(app: FastAPI, host: str, port: int) -> AsyncIterator[str]:
    """Serve until the block ends; yields the URL that it listens on. Raises `OSError` when the port is taken."""
    listener = socket.create_server((host, port))
    url = f"http://{host}:{listener.getsockname()[1]}"
    config = uvicorn.Config(
        app, log_level="warning", lifespan="off", access_log=False, timeout_graceful_shutdown=_GRACE_S
    )
    server = _Server(config)
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        yield url
    finally:
        server.should_exit = True
        await serving
        listener.close()
