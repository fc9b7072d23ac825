"""The writing routes of the REST catalog.

Owns: paths, methods, the role that each needs, rights that depend on the body or the query. Does not own: reading
routes, tokens and the check of a role (`rootline.catalog.rest`), what a request does (`namespaces`, `tables`, `views`),
errors (`refusals`).
Invariants: a body is read and checked on the server's event loop, and everything else runs on the catalog's. A request
whose client hangs up is carried on, because its intent may be published already.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from rootline.catalog.rest.principals import Role
from rootline.catalog.rest.responses import Refusal, bad_request
from rootline.catalog.rest.routes import Carrier, Handler, WriteRoute, format_in, namespace_in, principal_in
from rootline.rest import namespaces, tables, views
from rootline.rest.bodies import (
    NamespaceChange,
    NamespaceToCreate,
    Renaming,
    TableToCreate,
    TableToRegister,
    Updates,
    ViewToCreate,
    ViewUpdates,
    read_body,
)
from rootline.rest.refusals import refusal_of_change
from rootline.rest.writing import Writing
from rootline.schemas.identifiers import TableName

_NAMESPACE: Final = "/namespaces/{namespace}"
_TABLE: Final = f"{_NAMESPACE}/tables/{{table}}"
_VIEW: Final = f"{_NAMESPACE}/views/{{view}}"
_EMPTY: Final = 204
Work = Callable[[Request], Awaitable[Coroutine[Any, Any, bytes | None]]]
"""Reads and checks a request, and returns the work to do for it, whose result is the response's body."""


ObstacleOf = Callable[[TableName], str]
"""Returns why no intent of a name is decided, or an empty text."""


def write_routes(writing: Writing, carry: Carrier, obstacle_of: ObstacleOf | None = None) -> tuple[WriteRoute, ...]:
    """The routes, whose work is carried to the catalog's event loop.

    `obstacle_of` asks the coordinator, if it is in this process. It is called on the server's event loop, before
    anything is published.
    """

    async def create_namespace(request: Request) -> Coroutine[Any, Any, bytes]:
        asked = await read_body(request, NamespaceToCreate)
        principal_in(request).check(Role.WRITE, ".".join(asked.namespace))
        return namespaces.create(writing, asked)

    async def change_namespace(request: Request) -> Coroutine[Any, Any, bytes]:
        return namespaces.change(writing, namespace_in(request), await read_body(request, NamespaceChange))

    async def drop_namespace(request: Request) -> Coroutine[Any, Any, None]:
        return namespaces.drop(writing, namespace_in(request))

    async def create_table(request: Request) -> Coroutine[Any, Any, bytes]:
        return tables.create(
            writing, namespace_in(request), await read_body(request, TableToCreate), format_in(request)
        )

    async def register_table(request: Request) -> Coroutine[Any, Any, bytes]:
        principal_in(request).check_everywhere(Role.ADMIN)  # it names files of any namespace
        asked = await read_body(request, TableToRegister)
        return tables.register(writing, namespace_in(request), asked, format_in(request))

    async def commit_table(request: Request) -> Coroutine[Any, Any, bytes]:
        asked, name = await read_body(request, Updates), request.path_params["table"]
        return tables.commit(writing, namespace_in(request), name, asked, format_in(request))

    async def drop_table(request: Request) -> Coroutine[Any, Any, None]:
        is_purge = _truth(request.query_params.get("purgeRequested"))
        principal_in(request).check(Role.ADMIN if is_purge else Role.WRITE)
        return tables.drop(writing, namespace_in(request), request.path_params["table"], is_purge=is_purge)

    async def create_view(request: Request) -> Coroutine[Any, Any, bytes]:
        return views.create(writing, namespace_in(request), await read_body(request, ViewToCreate))

    async def register_view(request: Request) -> Coroutine[Any, Any, None]:
        return views.register(writing, namespace_in(request), await read_body(request, TableToRegister))

    async def commit_view(request: Request) -> Coroutine[Any, Any, bytes]:
        asked, name = await read_body(request, ViewUpdates), request.path_params["view"]
        return views.commit(writing, namespace_in(request), name, asked)

    async def drop_view(request: Request) -> Coroutine[Any, Any, None]:
        return views.drop(writing, namespace_in(request), request.path_params["view"])

    async def rename_table(request: Request) -> Coroutine[Any, Any, None]:
        return tables.rename(writing, await _renaming(request))

    async def rename_view(request: Request) -> Coroutine[Any, Any, None]:
        return views.rename(writing, await _renaming(request))

    async def report(request: Request) -> Coroutine[Any, Any, None]:
        return _dropped()

    def route(path: str, label: str, method: str, role: Role, work: Work) -> WriteRoute:
        return WriteRoute(path, label, method, _handler(work, carry, None if role is Role.READ else obstacle_of), role)

    return (
        route("/namespaces", "create-namespace", "POST", Role.WRITE, create_namespace),
        route(f"{_NAMESPACE}/properties", "change-namespace", "POST", Role.WRITE, change_namespace),
        route(_NAMESPACE, "drop-namespace", "DELETE", Role.WRITE, drop_namespace),
        route(f"{_NAMESPACE}/tables", "create-table", "POST", Role.WRITE, create_table),
        route(f"{_NAMESPACE}/register", "register-table", "POST", Role.ADMIN, register_table),
        route(_TABLE, "commit-table", "POST", Role.WRITE, commit_table),
        route(_TABLE, "drop-table", "DELETE", Role.WRITE, drop_table),
        route(f"{_TABLE}/metrics", "report-metrics", "POST", Role.READ, report),
        route(f"{_NAMESPACE}/views", "create-view", "POST", Role.WRITE, create_view),
        route(f"{_NAMESPACE}/register-view", "register-view", "POST", Role.WRITE, register_view),
        route(_VIEW, "commit-view", "POST", Role.WRITE, commit_view),
        route(_VIEW, "drop-view", "DELETE", Role.WRITE, drop_view),
        route("/tables/rename", "rename-table", "POST", Role.WRITE, rename_table),
        route("/views/rename", "rename-view", "POST", Role.WRITE, rename_view),
    )


def _handler(work: Work, carry: Carrier, obstacle_of: ObstacleOf | None) -> Handler:
    async def answer(request: Request) -> Response:
        format_in(request)  # an unknown prefix is refused
        name = request.path_params.get("table") or request.path_params.get("view")
        if obstacle_of is not None and name:
            table = TableName(f"{namespace_in(request)}.{name}")
            if obstacle := obstacle_of(table):
                words = f"{table}: nothing was published, because {obstacle}; `rootline status {table}` has details"
                raise Refusal(503, "ServiceUnavailableException", words)
        try:
            body = await carry(await work(request))
        except Exception as error:
            raise refusal_of_change(error) from error
        return Response(status_code=_EMPTY) if body is None else Response(body, media_type="application/json")

    return answer


async def _renaming(request: Request) -> Renaming:
    """The body of a request to rename, if its client may write both names."""
    asked, principal = await read_body(request, Renaming), principal_in(request)
    for name in (asked.source, asked.destination):
        principal.check(Role.WRITE, name.parent)
    return asked


async def _dropped() -> None:
    """Drop a report of metrics. It is counted as a request."""


def _truth(text: str | None) -> bool:
    if text is None or text.lower() in ("", "false"):
        return False
    if text.lower() == "true":
        return True
    raise bad_request(f"purgeRequested={text[:40]}: write true or false")
