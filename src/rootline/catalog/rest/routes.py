"""The routes of the Iceberg REST catalog as an application to mount under `/v1`: those that read, and given ones.

Owns: paths, methods and statuses of reading routes, the check of each client's token, role and namespace, the log line
of a writing request. Does not own: bodies and errors (`responses`), their content (`catalog`), roles (`principals`),
routes that write (`rootline.rest`).
Invariants: no route of this module changes a table. Every error is in the protocol's error model. A client with a
wrong token learns nothing, not even the names of tables. A right is checked before anything is read, so a refusal shows
no one whether a name exists.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rootline.catalog.export_keys import FormatVersion
from rootline.catalog.rest.catalog import RestCatalog
from rootline.catalog.rest.connections import FOREIGN, is_foreign
from rootline.catalog.rest.principals import ANYONE, BearerTokens, Principal, Principals, Role
from rootline.catalog.rest.responses import (
    WAREHOUSES,
    Refusal,
    bad_request,
    config_body,
    identifiers_body,
    namespace_body,
    namespaces_body,
    refusal_of,
    snapshot_mode,
)
from rootline.library_log import library_logger
from rootline.schemas.identifiers import TableName
from rootline.schemas.parts.name import NameState

T = TypeVar("T")
Handler = Callable[[Request], Awaitable[Response]]
_log: Final = library_logger("rootline.catalog")
READS: Final = ["GET", "HEAD"]
"""A HEAD is a GET without a body. Load balancers use it."""
_JSON: Final = "application/json"
_WRITES: Final = ["POST", "PUT", "PATCH", "DELETE"]
_PATH_CHARS_MAX: Final = 200
_PRINCIPAL: Final = "principal"
"""A key in a request's scope: the client that sent it."""


class Carrier(Protocol):
    """A function that runs work on the event loop of the catalog, and returns its result to the caller's loop."""

    def __call__(self, work: Coroutine[Any, Any, T], /) -> Awaitable[T]:
        """Await the result of `work`."""
        ...


def in_place(work: Coroutine[Any, Any, T], /) -> Awaitable[T]:
    """Return `work` unchanged, to await it on the server's own event loop."""
    return work


@dataclass(frozen=True, slots=True)
class WriteRoute:
    """A route that changes something. `path` is below the prefix, `label` its name in metrics.

    `needs`: the role that a client must have in the namespace of the path, if it has one.
    """

    path: str
    label: str
    method: str
    handler: Handler
    needs: Role

    @property
    def endpoint(self) -> str:
        """The route in the form of the specification's list of endpoints."""
        return f"{self.method} /v1/{{prefix}}{self.path}"


@dataclass(frozen=True, slots=True)
class ServedCatalog:
    """A catalog, the token that clients need (`None`: every client is allowed), and the `Carrier` to its event loop.

    `tokens`: further accepted tokens, which are required if there are any. `writing`: routes that change something. A
    catalog without them only reads. `principals`: the only clients that are allowed, in place of all tokens.
    """

    catalog: RestCatalog
    token: str | None = None
    carry: Carrier = in_place
    tokens: tuple[BearerTokens, ...] = ()
    writing: tuple[WriteRoute, ...] = ()
    principals: Principals | None = None

    @property
    def needs_token(self) -> bool:
        """Whether a client needs a token. If not, every client is allowed."""
        return self.principals is not None or bool(self._all_tokens)

    @property
    def _all_tokens(self) -> tuple[BearerTokens, ...]:
        own = () if self.token is None else (BearerTokens((self.token,)),)
        return tuple(tokens for tokens in (*own, *self.tokens) if tokens.are_needed)

    def client_of(self, request: Request) -> Principal:
        """The client that sent a request. Raises `Refusal`: it has no valid token."""
        header = request.headers.get("Authorization", "")
        if self.principals is not None:
            found = self.principals.find(header)
        elif needed := self._all_tokens:
            found = ANYONE if sum(tokens.allow(header) for tokens in needed) else None
        elif is_foreign(request.scope):
            raise Refusal(403, "ForbiddenException", FOREIGN)
        else:
            found = ANYONE
        if found is None:
            raise Refusal(
                401,
                "NotAuthorizedException",
                "this catalog needs its bearer token; give the engine the token that ROOTLINE_CATALOG__TOKEN, or the "
                "file of ROOTLINE_CATALOG__PRINCIPALS_FILE, sets here",
            )
        return found


def principal_in(request: Request) -> Principal:
    """The client that sent a request to a route of the catalog."""
    found = request.scope[_PRINCIPAL]
    assert isinstance(found, Principal), "the guard of every route sets it"
    return found


def catalog_app(served: ServedCatalog) -> Starlette:
    """The application that serves these routes."""
    handlers = _Handlers(served.catalog, served.carry, [route.endpoint for route in served.writing])
    routes: list[Route] = []

    def add(path: str, route: str, methods: list[str], handler: Handler, needs: Role = Role.READ) -> None:
        routes.append(Route(path, _guarded(served, route, handler, needs), methods=methods))

    add("/config", "config", READS, handlers.config)
    for prefix in ("", "/{prefix}"):
        one = f"{prefix}/namespaces/{{namespace}}"
        add(f"{prefix}/namespaces", "namespaces", READS, handlers.namespaces)
        add(one, "namespace", READS, handlers.namespace)
        add(f"{one}/tables", "tables", READS, partial(handlers.names, state=NameState.TABLE))
        add(f"{one}/tables/{{table}}", "table", READS, handlers.table)
        add(f"{one}/views", "views", READS, partial(handlers.names, state=NameState.VIEW))
        add(f"{one}/views/{{view}}", "view", READS, handlers.view)
        for route in served.writing:
            add(f"{prefix}{route.path}", route.label, [route.method], route.handler, route.needs)
    add("/{rest:path}", "write", _WRITES, _refuse_unserved if served.writing else _refuse_write)
    add("/{rest:path}", "unknown", READS, _refuse_unknown)
    refuse_method = _guarded(served, "unknown", _refuse_method, Role.READ)

    async def refuse(request: Request, _: Exception) -> Response:
        return await refuse_method(request)

    app = Starlette(routes=routes, exception_handlers={HTTPException: refuse})
    app.router.redirect_slashes = False
    return app


class _Handlers:
    """The handlers of the routes. Each uses only the path, the query and the headers of its request."""

    def __init__(self, catalog: RestCatalog, carry: Carrier, writing: Sequence[str]) -> None:
        self._catalog = catalog
        self._carry = carry
        self._writing = writing

    async def config(self, request: Request) -> Response:
        return Response(config_body(request.query_params.get("warehouse"), self._writing), media_type=_JSON)

    async def namespaces(self, request: Request) -> Response:
        format_in(request)
        parent, principal = _dotted(request.query_params.get("parent") or ""), principal_in(request)
        principal.check_list(parent)
        names = await self._carry(self._catalog.namespaces(parent))
        return _listed(request, namespaces_body, [name for name in names if principal.sees(name)])

    async def namespace(self, request: Request) -> Response:
        format_in(request)
        namespace = namespace_in(request)
        return _found(request, namespace_body(namespace, await self._carry(self._catalog.namespace(namespace))))

    async def names(self, request: Request, state: NameState) -> Response:
        format_in(request)
        namespace = namespace_in(request)
        names = await self._carry(self._catalog.names(namespace, state))
        return _listed(request, lambda *page: identifiers_body(namespace, *page), names)

    async def table(self, request: Request) -> Response:
        format_version = format_in(request)
        namespace, name = namespace_in(request), request.path_params["table"]
        if request.method == "HEAD":
            await self._carry(self._catalog.table_exists(namespace, name))
            return Response(status_code=204)
        mode = snapshot_mode(request.query_params.get("snapshots"))
        known = request.headers.get("If-None-Match")
        loaded = await self._carry(self._catalog.load(namespace, name, format_version, mode, known))
        if self._writing and principal_in(request).role >= Role.WRITE:
            await self._carry(self._catalog.make_folder(TableName(f"{namespace}.{name}")))
        if loaded.body is None:
            return Response(status_code=304, headers={"ETag": loaded.etag})
        return Response(loaded.body, media_type=_JSON, headers={"ETag": loaded.etag})

    async def view(self, request: Request) -> Response:
        format_in(request)
        namespace, name = namespace_in(request), request.path_params["view"]
        if request.method == "HEAD":
            await self._carry(self._catalog.view_exists(namespace, name))
            return Response(status_code=204)
        return Response(await self._carry(self._catalog.view(namespace, name)), media_type=_JSON)


async def _refuse_write(request: Request) -> Response:
    if request.path_params["rest"] == "oauth/tokens":
        raise bad_request(
            "this catalog exchanges no credentials for tokens; give the engine the token itself (its option `token`)"
        )
    raise Refusal(
        406,
        "UnsupportedOperationException",
        f"{request.method} {request.url.path[:200]}: this catalog is read-only; Rootline tables are changed by "
        "intents: with rootline.connect in Python, with Spark's format('rootline'), or through the log from any "
        "language (docs/intents.md, docs/foreign-clients.md)",
    )


async def _refuse_unserved(request: Request) -> Response:
    if request.path_params["rest"] == "oauth/tokens":
        return await _refuse_write(request)
    raise Refusal(
        406,
        "UnsupportedOperationException",
        f"{request.method} {request.url.path[:200]}: this catalog does not serve this; GET /v1/config lists its routes",
    )


async def _refuse_unknown(request: Request) -> Response:
    raise Refusal(
        404,
        "NotFoundException",
        f"{request.url.path[:200]} is not a route of this catalog; GET /v1/config names its routes",
    )


async def _refuse_method(request: Request) -> Response:
    raise Refusal(
        405, "BadRequestException", f"{request.method[:20]} is not a method of this catalog; it supports GET and HEAD"
    )


def _guarded(served: ServedCatalog, route: str, handler: Handler, needs: Role) -> Handler:
    """`handler` behind the check of token, role and namespace.

    Errors have the form of the protocol's error model, and responses are counted.
    """

    async def answer(request: Request) -> Response:
        began_s = time.perf_counter()
        principal = None
        try:
            principal = served.client_of(request)
            principal.check(needs, namespace_in(request) if "namespace" in request.path_params else None)
            request.scope[_PRINCIPAL] = principal
            response = await handler(request)
        except Exception as error:
            refusal = refusal_of(error)
            if refusal.status == 500:
                _log.exception("catalog request failed", action="catalog-failed", route=route)
            response = Response(
                refusal.body, status_code=refusal.status, media_type=_JSON, headers=refusal.headers or None
            )
        if needs > Role.READ:
            _log.info(
                "catalog request that writes",
                action="catalog-write",
                route=route,
                path=request.url.path[:_PATH_CHARS_MAX],
                principal=None if principal is None else principal.name,
                status=response.status_code,
            )
        served.catalog.metrics.answered(route, response.status_code, time.perf_counter() - began_s)
        return response

    return answer


def format_in(request: Request) -> FormatVersion | None:
    """The format that the path's prefix selects, or `None` without a prefix."""
    prefix = request.path_params.get("prefix")
    if prefix is None:
        return None
    if prefix not in WAREHOUSES:
        raise Refusal(
            404,
            "NoSuchWarehouseException",
            f"prefix {prefix[:80]!r} does not exist; GET /v1/config?warehouse=v2 (or v3) names the one to use",
        )
    return WAREHOUSES[prefix]


def namespace_in(request: Request) -> str:
    """The namespace in the path, with its levels joined by dots."""
    return _dotted(request.path_params["namespace"])


def _dotted(namespace: str) -> str:
    """The namespace with its levels joined by dots. In a URL they are joined by the control character 0x1F."""
    return namespace.replace("\x1f", ".")


def _found(request: Request, body: bytes) -> Response:
    return Response(status_code=204) if request.method == "HEAD" else Response(body, media_type=_JSON)


def _listed(request: Request, body: Callable[[list[str], str | None, str | None], bytes], names: list[str]) -> Response:
    query = request.query_params
    return Response(body(names, query.get("pageToken"), query.get("pageSize")), media_type=_JSON)
