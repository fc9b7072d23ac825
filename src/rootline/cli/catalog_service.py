"""The REST catalog as a service, with its own loop and store, beside a coordinator or alone.

Owns: composing it from settings, starting and closing it. Does not own: its responses (`rootline.catalog`), the
coordinator's server (`services`).
Invariants: a commit never waits for an export, which runs in another thread. Only the warehouse is needed. Every opened
store and thread is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rootline.cli.options import check_folder
from rootline.cli.service_process import Announce, describe_process, port_refused, server_extra, signals
from rootline.client.loop_thread import LoopThread
from rootline.connect import EmbeddableLake, engine_storage, open_warehouse, store_settings, warehouse_url
from rootline.library_log import library_logger
from rootline.schemas.errors import Invalid

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from rootline.catalog.export_keys import FormatVersion
    from rootline.catalog.rest.catalog import RestCatalog
    from rootline.catalog.rest.http_settings import CatalogSettings
    from rootline.catalog.rest.routes import ServedCatalog
    from rootline.ports.object_store import ObjectStore
    from rootline.schemas.identifiers import TableName

T = TypeVar("T")
EMBEDDED: Final = ""
"""The log in the warehouse's own folder."""


async def run_catalog(
    warehouse: str,
    log: str | None,
    announce: Announce,
    *,
    host: str | None,
    port: int | None,
    default_format: FormatVersion | None,
) -> None:
    """Serve the catalog alone until a signal. Without a `log`, it only reads. `host` and `port` replace the settings.

    Raises:
        RootlineError: it cannot start.

    """
    from prometheus_client import CollectorRegistry

    from rootline.catalog.rest.http_settings import catalog_settings

    with server_extra("rootline catalog serve"):
        from rootline.catalog.rest.serving import alone_app, serve_app
    if warehouse.startswith("memory:"):
        raise Invalid(
            "setting-invalid",
            f"warehouse {warehouse!r} is in the memory of one process, where no engine can read it; name a folder or s3://",
        )
    check_folder(warehouse)
    settings = catalog_settings()
    host, port = settings.http_host if host is None else host, settings.http_port if port is None else port
    stop, registry = asyncio.Event(), CollectorRegistry()
    describe_process(registry)
    with signals(stop):
        async with open_catalog(warehouse, log, host, settings, registry, default_format) as served:
            await served.carry(served.catalog.reach())
            warn_if_open(host, served)
            async with contextlib.AsyncExitStack() as around:
                with port_refused("the catalog", host, port, "--port"):
                    url = await around.enter_async_context(serve_app(alone_app(served), host, port))
                text = f"catalog of {warehouse} on {url}"
                announce({"event": "listening", "warehouse": warehouse, "url": url, "roles": ["catalog"]}, text)
                await stop.wait()
    announce({"event": "stopped"}, "stopped")


@contextlib.asynccontextmanager
async def open_catalog(
    warehouse: str,
    log: str | None,
    host: str,
    settings: CatalogSettings,
    registry: CollectorRegistry,
    default_format: FormatVersion | None = None,
    obstacle_of: Callable[[TableName], str] | None = None,
) -> AsyncIterator[ServedCatalog]:
    """Serve the catalog of a warehouse on its own thread until the block ends.

    It also writes if `log` names the intent log (`EMBEDDED`: the one in the warehouse's folder), and if a token is
    needed or `host` is a loopback address. `obstacle_of`: see `write_routes`.

    Raises:
        Invalid: `setting-invalid`.

    """
    from rootline.catalog.rest.connections import is_loopback
    from rootline.catalog.rest.http_settings import http_settings
    from rootline.catalog.rest.routes import ServedCatalog
    from rootline.rest.routes import write_routes
    from rootline.rest.writing import Writing

    principals, tokens = settings.principals(), (settings.tokens(), http_settings().tokens())
    needs_token = principals is not None or any(each.are_needed for each in tokens)
    may_write = log is not None and (is_loopback(host) or needs_token)
    if log is not None and not may_write:
        library_logger("rootline.catalog").warning(
            "the catalog only reads: it would let everyone write who reaches it; set ROOTLINE_CATALOG__TOKEN",
            action="catalog-reads-only",
            host=host,
        )
    thread = LoopThread("rootline catalog")

    def carry(work: Coroutine[Any, Any, T], /) -> Awaitable[T]:
        return asyncio.wrap_future(thread.submit(work))

    try:
        store, catalog = await carry(_opened(warehouse, settings, registry, default_format))
        try:
            if log is None or not may_write:
                yield ServedCatalog(catalog, None, carry, tokens, principals=principals)
                return
            session = await carry(EmbeddableLake(warehouse, log or None, "elsewhere", None).open())
            try:
                writing = Writing(session, catalog, settings.commit_timeout_s)
                yield ServedCatalog(catalog, None, carry, tokens, write_routes(writing, carry, obstacle_of), principals)
            finally:
                await carry(session.close())
        finally:
            await carry(_closed(store, catalog))
    finally:
        await asyncio.to_thread(thread.close)


def warn_if_open(host: str, served: ServedCatalog) -> None:
    """Warn when everyone who reaches this machine may read the metadata of all tables."""
    from rootline.catalog.rest.connections import is_loopback

    if not served.needs_token and not is_loopback(host):
        library_logger("rootline.catalog").warning(
            "the catalog answers everyone who reaches it, without a token: set ROOTLINE_CATALOG__TOKEN",
            action="catalog-open",
            host=host,
        )


async def _opened(
    warehouse: str, settings: CatalogSettings, registry: CollectorRegistry, default_format: FormatVersion | None
) -> tuple[ObjectStore, RestCatalog]:
    from rootline.catalog.exporter import TableExporter
    from rootline.catalog.rest.catalog import CatalogMetrics, RestCatalog

    storage = engine_storage(warehouse, store_settings().s3, share_keys=settings.share_s3_keys)
    if settings.share_s3_keys and storage and "s3.access-key-id" not in storage:
        raise Invalid(
            "setting-invalid",
            "ROOTLINE_CATALOG__SHARE_S3_KEYS is set, but there are no keys to share: set ROOTLINE_S3__ACCESS_KEY_ID "
            "and its secret, or let engines use their own keys",
        )
    store = open_warehouse(warehouse)
    catalog = RestCatalog(
        store,
        TableExporter(store, warehouse_url(warehouse)),
        CatalogMetrics(registry),
        storage=storage,
        default_format=default_format,
        request_timeout_s=settings.request_timeout_s,
    )
    return store, catalog


async def _closed(store: ObjectStore, catalog: RestCatalog) -> None:
    await catalog.close()
    await store.close()
