"""Serving an application inside a running event loop, until a block ends.

Owns: the listener and the server's life, who is answered; the application of a catalog that is served alone. Does not
own: routes under `/v1` (`routes`), connections (`connections`), signals: the process handles them.
Invariants: health and metrics are open, everything else needs a token where there is one; without one, a request at a
loopback address is answered only if it names this machine; port 0 lets the system pick; a client that does not read its
answer delays the end of the process by seconds only.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import structlog
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
from rootline.catalog.rest.http_settings import BearerTokens, HttpSettings, http_settings
from rootline.catalog.rest.routes import READS, Handler, ServedCatalog, catalog_app
from rootline.schemas.errors import RootlineError

_GRACE_S: Final = 5
OPEN_PATHS: Final = frozenset({"/healthz", "/readyz", "/metrics"})
AUTHORIZED: Final = "rootline.authorized"
"""In a request's scope: it came with a token that this server asks for."""


def read_route(path: str, answer: Handler) -> Route:
    """A route that changes nothing."""
    return Route(path, answer, methods=READS)


def own_routes(readyz: Handler, metrics: Handler) -> list[BaseRoute]:
    """Those that every service has, and that need no token: `OPEN_PATHS`."""
    return [read_route("/healthz", _healthz), read_route("/readyz", readyz), read_route("/metrics", metrics)]


async def _healthz(_: Request) -> PlainTextResponse:
    """The event loop turns."""
    return PlainTextResponse("ok\n")


def alone_app(served: ServedCatalog) -> Starlette:
    """/healthz, /readyz, /metrics and the catalog under /v1; only the catalog needs the token."""
    catalog = served.catalog

    async def readyz(_: Request) -> JSONResponse:
        """Whether the store answers; if not, 503 and the reason."""
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
    """`app`, behind a token for all but the open paths; the catalog asks for itself, in its own form."""
    is_open = OPEN_PATHS | also_open

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        needs_token = tokens.are_needed and path not in is_open and not path.startswith("/v1/")
        if needs_token and not tokens.allow(Headers(scope=scope).get("Authorization", "")):
            said = "this path needs a bearer token: send one that ROOTLINE_HTTP__TOKEN or its file sets here"
            refused = JSONResponse({"error": said}, 401, {"WWW-Authenticate": "Bearer"})
            await refused(scope, receive, send)
            return
        if not tokens.are_needed and not path.startswith("/v1/") and is_foreign(scope):
            await JSONResponse({"error": FOREIGN}, 403)(scope, receive, send)
            return
        await app({**scope, AUTHORIZED: True} if needs_token else scope, receive, send)

    return answer


class _Server(uvicorn.Server):
    """The library's server, which neither accepts connections nor handles signals."""

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

    `settings`: those in force if not given. `also_open`: paths that need no token, beside those of health and metrics.
    `limits`: of connections. Without them, as many as this process's descriptors allow.

    Raises:
        OSError: the port is taken. Invalid: `setting-invalid`, of a token's or a certificate's file.

    """
    chosen = settings or http_settings()
    tokens, context = chosen.tokens(), chosen.tls()
    if context is None and not is_loopback(host):
        structlog.get_logger().warning(
            "HTTP beyond this machine without TLS: what is sent, tokens too, can be read on the way; set "
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
    config.ssl = context  # uvicorn would read the files again, and ask for a password
    server = _Server(config, listener, limits or connection_limits())
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        yield url
    finally:
        server.should_exit = True
        await serving
        listener.close()
