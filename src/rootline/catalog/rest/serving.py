"""Serving an application inside a running event loop, until a block ends.

Owns: the listener and the server's lifetime, authorization, and the application of a catalog that is served alone. Does
not own: routes under `/v1` (`routes`), connections (`connections`), signals, which the process handles.
Invariants: health and metrics are open, and everything else needs a token if one is set. Without a token, a request at
a loopback address is served only if it names this machine. With port 0, the system chooses a port. A client that does
not read its response delays the end of the process by a few seconds at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from rootline.catalog.rest.connections import (
    FOREIGN,
    Acceptor,
    Connection,
    ConnectionLimits,
    connection_limits,
    is_foreign,
    is_loopback,
)
from rootline.catalog.rest.http_settings import HttpSettings, http_settings
from rootline.catalog.rest.principals import BearerTokens
from rootline.catalog.rest.routes import READS, Handler, ServedCatalog, catalog_app
from rootline.library_log import library_logger
from rootline.schemas.errors import RootlineError

_GRACE_S: Final = 5
OPEN_PATHS: Final = frozenset({"/healthz", "/readyz", "/metrics"})
AUTHORIZED: Final = "rootline.authorized"
"""A key in a request's scope: the request had a token of this server."""


def read_route(path: str, answer: Handler) -> Route:
    """A read-only HTTP route."""
    return Route(path, answer, methods=READS)


def own_routes(readyz: Handler, metrics: Handler) -> list[BaseRoute]:
    """The routes of every service that need no token: `OPEN_PATHS`."""
    return [read_route("/healthz", _healthz), read_route("/readyz", readyz), read_route("/metrics", metrics)]


async def _healthz(_: Request) -> PlainTextResponse:
    """Respond, which shows that the event loop runs."""
    return PlainTextResponse("ok\n")


def alone_app(served: ServedCatalog) -> Starlette:
    """/healthz, /readyz, /metrics and the catalog under /v1. Only the catalog needs the token."""
    catalog = served.catalog

    async def readyz(_: Request) -> JSONResponse:
        """Respond with 200 if the store responds, otherwise with 503 and the reason."""
        try:
            await served.carry(catalog.reach())
        except RootlineError as error:
            return JSONResponse({"ready": False, "reason": str(error)}, status_code=503)
        return JSONResponse({"ready": True, "reason": ""})

    async def metrics(_: Request) -> Response:
        """The registry in Prometheus' text format."""
        catalog.metrics.measure(int(time.time() * 1000))
        return Response(generate_latest(catalog.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return Starlette(routes=[*own_routes(readyz, metrics), Mount("/v1", catalog_app(served))])


def _guarded(app: ASGIApp, tokens: BearerTokens, also_open: frozenset[str]) -> ASGIApp:
    """`app` behind a token for all but the open paths. The catalog checks its token itself, with errors in its own
    form.
    """
    is_open = OPEN_PATHS | also_open

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        needs_token = tokens.are_needed and path not in is_open and not path.startswith("/v1/")
        if needs_token and not tokens.allow(Headers(scope=scope).get("Authorization", "")):
            reason = "this path needs a bearer token: send one that ROOTLINE_HTTP__TOKEN or its file sets here"
            refused = JSONResponse({"error": reason}, 401, {"WWW-Authenticate": "Bearer"})
            await refused(scope, receive, send)
            return
        if not tokens.are_needed and not path.startswith("/v1/") and is_foreign(scope):
            await JSONResponse({"error": FOREIGN}, 403)(scope, receive, send)
            return
        await app({**scope, AUTHORIZED: True} if needs_token else scope, receive, send)

    return answer


class _Server(uvicorn.Server):
    """The library's server, which here neither accepts connections nor handles signals."""

    def __init__(self, config: uvicorn.Config, listener: socket.socket, limits: ConnectionLimits) -> None:
        super().__init__(config)
        self._listener = listener
        self._limits = limits

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()

        def make() -> Connection:
            return Connection(self.config, self.server_state, self.lifespan.state)

        self.servers: list[Any] = [Acceptor(self._listener, self._limits, make, self.config.ssl)]
        self.started = True


@contextlib.asynccontextmanager
async def serve_app(
    app: ASGIApp,
    host: str,
    port: int,
    settings: HttpSettings | None = None,
    also_open: frozenset[str] = frozenset(),
    limits: ConnectionLimits | None = None,
) -> AsyncIterator[str]:
    """Serve until the block ends, and yield the URL that the server listens on.

    `settings`: by default the current ones. `also_open`: further paths that need no token. `limits`: of connections, by
    default computed from this process's maximum of descriptors.

    Raises:
        OSError: the port is in use. Invalid: `setting-invalid`, in a token's or a certificate's file.
    """
    chosen = settings or http_settings()
    tokens, context = chosen.tokens(), chosen.tls()
    if context is None and not is_loopback(host):
        library_logger("rootline.catalog").warning(
            "HTTP is open to other machines without TLS: anyone on the network can read requests and tokens; set "
            "ROOTLINE_HTTP__TLS_CERTIFICATE_FILE",
            action="http-plain",
            host=host,
        )
    listener = socket.create_server((host, port))
    url = f"{'http' if context is None else 'https'}://{host}:{listener.getsockname()[1]}"
    config = uvicorn.Config(
        _guarded(app, tokens, also_open),
        log_level="warning",
        lifespan="off",
        access_log=False,
        http=Connection,
        ws="none",
        timeout_graceful_shutdown=_GRACE_S,
    )
    config.load()
    config.ssl = context  # uvicorn would re-read the files and prompt for a password
    server = _Server(config, listener, limits or connection_limits())
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        yield url
    finally:
        server.should_exit = True
        await serving
        listener.close()
