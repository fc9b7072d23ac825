"""The HTTP routes of one coordinator: health, readiness, metrics, the console with its JSON, and the Iceberg
catalog.

Owns: the routes, access to them, the response headers that stop the console's page from running foreign scripts.
Does not own: the values (`findings`, `own_tables`, `observing`), the page itself (the files in `page`), the catalog
(`rootline.catalog.rest.routes`), the start and stop of the server (`rootline.catalog.rest.serving`).
Uses Starlette without FastAPI, whose OpenAPI models took a quarter of a service's start time. No route needs them.
Invariants: read-only. The page's files contain no data and need no token. All data needs the token if one is set.
Without a token only requests from this machine are served. A response is bounded however large the lake is, and no
commit waits for one. Port 0 lets the system pick a port. Signal handlers are left to the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from importlib import resources
from typing import Any, Final, Protocol

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route

from rootline.catalog.rest.connections import is_loopback, named_host
from rootline.catalog.rest.routes import Handler, ServedCatalog, catalog_app
from rootline.catalog.rest.serving import AUTHORIZED, own_routes, read_route, serve_app
from rootline.coordinator.app import CoordinatorService
from rootline.coordinator.http.findings import Situation, TableRow, counts_of, findings, selected, table_rows
from rootline.coordinator.runtime.observing import Event
from rootline.coordinator.runtime.table.table_states import LakeTables, LakeView
from rootline.library_log import library_logger
from rootline.schemas.error_codes import CATEGORIES, CODES
from rootline.schemas.errors import RootlineError
from rootline.schemas.identifiers import TableName
from rootline.tree.view import LeafOutline, TreeOutline

PAGE: Final = {"/": ("index.html", "text/html; charset=utf-8")} | {
    f"/console/{name}": (name, kind)
    for name, kind in (
        ("console.css", "text/css; charset=utf-8"),
        ("console.js", "text/javascript; charset=utf-8"),
        ("charts.js", "text/javascript; charset=utf-8"),
        ("tree.js", "text/javascript; charset=utf-8"),
        ("nodes.js", "text/javascript; charset=utf-8"),
        ("icon.svg", "image/svg+xml"),
    )
}
"""Path → file and media type. The files contain no data, so they need no token."""
ROWS_MAX: Final = 200
LEAVES_MAX: Final = 96
_DELETES_MAX: Final = 4
_SAME_ROWS_S: Final = 1.0
_SAFE: Final = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY"}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_OF_PAGE: Final = _SAFE | {"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"}
_OF_DATA: Final = _SAFE | {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_HERE: Final = "this coordinator"


@dataclass(slots=True)
class Console:
    """The data behind the console's responses.

    `lake` is the source of tables that other coordinators own, `None` if only this process can read the store.
    `why_no_worker` returns the reason why the worker in this process is not ready, or an empty string.
    """

    service: CoordinatorService
    lake: LakeView | None
    why_no_worker: Callable[[], str]
    _rows: list[TableRow] = field(default_factory=list)
    _rows_at_s: float = -1.0
    _lake: LakeTables = LakeTables()

    def rows(self) -> list[TableRow]:
        """All tables, the worst first. Cached for a second, however many clients ask."""
        now_s = time.monotonic()
        if self._rows_at_s < 0 or now_s - self._rows_at_s > _SAME_ROWS_S:
            self._lake = LakeTables() if self.lake is None else self.lake.tables()
            self._rows = table_rows(self.service.own_tables(), self._lake.tables, _HERE, self.service.now_ms())
            self._rows_at_s = now_s
        return self._rows

    def overview(self, after: int, since_ms: int) -> dict[str, Any]:
        """The findings, the numbers, the events after event `after` and the samples later than `since_ms`."""
        rows, recent, now_ms = self.rows(), self.service.recent, self.service.now_ms()
        readiness = self.service.readiness()
        codes = recent.codes()
        situation = Situation(
            now_ms=now_ms,
            ready=readiness.ready,
            reason=readiness.reason,
            worker_reason=self.why_no_worker(),
            troubles=self._lake.troubles,
            rows=rows,
            samples=recent.samples_after(0),
            codes=codes,
        )
        return {
            "coordinator": self.service.coordinator_id,
            "started_ms": self.service.started_ms,
            "now_ms": now_ms,
            "ready": readiness.ready,
            "reason": readiness.reason,
            "looked_at_ms": self._lake.at_ms,
            "whole_lake": self.lake is not None,
            "findings": [asdict(finding) for finding in findings(situation)],
            "tables": len(rows),
            "states": counts_of(rows),
            "commits": recent.commits,
            "verdicts": recent.verdicts,
            "rejections": recent.rejections,
            "codes": [asdict(item) for item in codes[:ROWS_MAX]],
            "number": recent.number,
            "events": [_event(event) for event in recent.events_after(after)],
            "samples": [asdict(sample) for sample in recent.samples_after(since_ms)],
        }

    async def table(self, name: str, known: int | None) -> dict[str, Any]:
        """One table for its page in the console: its row, its rejections, and its tree.

        The tree is omitted while version `known` is still the newest.
        """
        row = next((row for row in self.rows() if row.name == name), None)
        body: dict[str, Any] = {
            "row": None if row is None else asdict(row),
            "rejections": [_event(event) for event in self.service.recent.rejections_of(name)[:20]],
            "tree": None,
            "tree_missing": "",
        }
        if row is None or row.head is None or self.lake is None:
            body["tree_missing"] = (
                "this coordinator knows no root of the table" if self.lake is not None else "the store is not shared"
            )
        elif row.head != known:
            try:
                outline = await self.lake.outline(TableName(name))
            except (RootlineError, TimeoutError) as error:
                body["tree_missing"] = f"the table's root cannot be read: {str(error) or 'no answer in time'}"
            else:
                body["tree"] = None if outline is None else _tree(outline)
                body["tree_missing"] = "" if outline is not None else "there is no such table"
        return body


def console_routes(console: Console) -> list[Route]:
    """The page at `/`, its files and its data under `/console`."""
    files = resources.files("rootline.coordinator.http") / "page"

    async def overview(request: Request) -> JSONResponse:
        """The findings and the recent events."""
        return _said(console.overview(_number(request, "after", 0), _number(request, "since_ms", 0)))

    async def tables(request: Request) -> JSONResponse:
        """A page of the list of tables."""
        offset, limit = _number(request, "offset", 0, least=0), _number(request, "limit", 50, least=1, most=ROWS_MAX)
        search, state = _text(request, "search", 300), _text(request, "state", 30)
        rows = console.rows()
        found = selected(rows, search, state)
        page = [asdict(row) for row in found[offset : offset + limit]]
        return _said({"tables": page, "matching": len(found), "offset": offset, "states": counts_of(rows)})

    async def table(request: Request) -> JSONResponse:
        """One table."""
        known = _number(request, "known", 0) if "known" in request.query_params else None
        return _said(await console.table(_text(request, "name", 1_000), known))

    return [
        *(_file_route(path, (files / name).read_bytes(), kind) for path, (name, kind) in PAGE.items()),
        read_route("/console/data/overview", _for_readers(overview)),
        read_route("/console/data/tables", _for_readers(tables)),
        read_route("/console/data/table", _for_readers(table)),
        read_route("/console/data/code", _for_readers(_code)),
        read_route("/console/codes/{name}.md", _page_of_code),
    ]


async def _code(request: Request) -> JSONResponse:
    """The explanation of a code, as `rootline explain` prints it."""
    name = _text(request, "name", 100)
    known = CODES.get(name)
    if known is None:
        return _said({"error": f"there is no code {name!r}"}, 404)
    says = CATEGORIES[known.category].says
    return _said({**asdict(known), "cause": known.meaning, "do_not": known.avoid, "says": says})


async def _page_of_code(request: Request) -> Response:
    """The documentation page of a code. It contains nothing about this lake."""
    known = CODES.get(request.path_params["name"])
    if known is None:
        return PlainTextResponse("there is no such code\n", 404, _OF_PAGE)
    return PlainTextResponse(known.page(), headers=_OF_PAGE)


async def sample_lag(service: CoordinatorService, every_s: float = 5.0) -> None:
    """Record the lag every `every_s` seconds, until cancelled."""
    while True:
        try:
            await service.sample()
        except Exception:  # a failed observation must not end the service
            library_logger().exception("lag not sampled", action="sample")
        await asyncio.sleep(every_s)


def open_paths() -> frozenset[str]:
    """Paths that need no token, because they contain nothing about the lake."""
    return frozenset((*PAGE, *(f"/console/codes/{code}.md" for code in CODES)))


def _file_route(path: str, body: bytes, kind: str) -> Route:
    async def file(_: Request) -> Response:
        return Response(body, media_type=kind, headers=_OF_PAGE)

    return read_route(path, file)


class _Unreadable(Exception):
    """A query parameter cannot be used. The text is the reason."""


def _for_readers(answer: Callable[[Request], Awaitable[JSONResponse]]) -> Handler:
    """A handler that refuses requests without permission, and responds 422 to a query that cannot be used."""

    async def answered(request: Request) -> Response:
        refusal = _refusal(request)
        if refusal is not None:
            return refusal
        try:
            return await answer(request)
        except _Unreadable as error:
            return _said({"error": str(error)}, 422)

    return answered


def _number(request: Request, name: str, default: int, *, least: int | None = None, most: int | None = None) -> int:
    given = request.query_params.get(name)
    if given is None:
        return default
    try:
        number = int(given)
    except ValueError:
        raise _Unreadable(f"{name}={given[:80]!r} is not a whole number") from None
    if least is not None and number < least:
        raise _Unreadable(f"{name} is too small: the least is {least}")
    if most is not None and number > most:
        raise _Unreadable(f"{name} is too large: the most is {most}")
    return number


def _text(request: Request, name: str, length_max: int) -> str:
    given = request.query_params.get(name, "")
    if len(given) > length_max:
        raise _Unreadable(f"{name} has {len(given):,} characters: the most is {length_max:,}")
    return given


def _refusal(request: Request) -> JSONResponse | None:
    """The 403 response to a request from another machine that carries no token, else `None`.

    The server has already refused a wrong token.
    """
    if request.scope.get(AUTHORIZED) or (is_loopback(_client(request)) and is_loopback(named_host(request.scope))):
        return None
    said = (
        "without a token the console serves only this machine: set ROOTLINE_HTTP__TOKEN, or open the page by its "
        "loopback address"
    )
    return _said({"error": said}, 403)


def _client(request: Request) -> str:
    return request.client.host if request.client is not None else ""


def _said(body: dict[str, Any], status: int = 200) -> JSONResponse:
    return JSONResponse(body, status, _OF_DATA)


def _event(event: Event) -> dict[str, Any]:
    return {**asdict(event), "kind": event.kind.value, "counts": dict(event.counts)}


def _tree(outline: TreeOutline) -> dict[str, Any]:
    rest = outline.leaves[LEAVES_MAX:]
    return {
        "table": outline.table,
        "version": outline.version,
        "snapshot_id": str(outline.snapshot_id),
        "operation": outline.operation,
        "size_in_bytes": outline.size_in_bytes,
        "blocks": outline.blocks,
        "rows": outline.rows,
        "deleted_rows": outline.deleted_rows,
        "data_files": outline.data_files,
        "groups": [
            {
                "content": group.content_type.name.lower(),
                "files": group.files,
                "rows": group.rows,
                "added": group.added,
                "removed": group.removed,
                "size_in_bytes": group.size_in_bytes,
            }
            for group in outline.groups
        ],
        "leaves": [_leaf(leaf) for leaf in outline.leaves[:LEAVES_MAX]],
        "leaf_count": len(outline.leaves),
        "rest": {
            "leaves": len(rest),
            "entries": sum(leaf.entries for leaf in rest),
            "live": sum(leaf.live for leaf in rest),
            "rows": sum(leaf.rows for leaf in rest),
            "size_in_bytes": sum(leaf.size_in_bytes for leaf in rest),
        },
        "entries": sum(leaf.entries for leaf in outline.leaves),
        "live": sum(leaf.live for leaf in outline.leaves),
        "leaf_bytes": sum(leaf.size_in_bytes for leaf in outline.leaves),
    }


def _leaf(leaf: LeafOutline) -> dict[str, Any]:
    return {
        "location": leaf.location,
        "content": leaf.content_type.name.lower(),
        "status": leaf.status.name.lower(),
        "spec_id": leaf.spec_id,
        "entries": leaf.entries,
        "live": leaf.live,
        "dead": leaf.dead,
        "newly_dead": leaf.newly_dead,
        "rows": leaf.rows,
        "size_in_bytes": leaf.size_in_bytes,
        "vector": "none" if not leaf.dead else "inline" if leaf.is_inline else "stored",
        "deletes": [_leaf(child) for child in leaf.deletes[:_DELETES_MAX]],
        "more_deletes": max(0, len(leaf.deletes) - _DELETES_MAX),
    }


class Beside(Protocol):
    """A worker in the same process, whose metrics are in the coordinator's registry."""

    def readiness(self) -> BesideReadiness:
        """The worker's readiness, and the reason if it is not ready."""
        ...

    async def measure(self) -> None:
        """Update the gauges."""
        ...


class BesideReadiness(Protocol):
    """The worker's readiness as /readyz and the console show it."""

    @property
    def reason(self) -> str:
        """The reason why the worker does not work. Empty if it does."""
        ...

    @property
    def failing(self) -> Mapping[TableName, str]:
        """The tables whose maintenance fails, and the reason of each."""
        ...

    def to_json(self) -> dict[str, Any]:
        """The readiness as a JSON object."""
        ...


def http_app(
    service: CoordinatorService,
    catalog: ServedCatalog | None = None,
    beside: Beside | None = None,
    lake: LakeView | None = None,
    *,
    console: bool = True,
) -> Starlette:
    """The routes over `service`, the worker `beside` it, and the Iceberg REST catalog under /v1 if there is one.

    `lake`: the source of tables that are not in this coordinator's memory, for the console.
    """

    async def readyz(_: Request) -> JSONResponse:
        """200 if the service is ready, else 503, with the reason and the state of each table."""
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
        # on a thread: with many tables it takes long enough to delay commits
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
    """Serve until the block ends. Yields the URL that it listens on. Raises `OSError` when the port is taken."""
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
