"""The REST catalog as a service: on a loop and a store of its own, beside a coordinator or alone.

Owns: composing it from settings, its life. Does not own: its answers (`rootline.catalog`), the coordinator's server
(`services`).
Invariants: a commit never waits for an export, which runs in another thread; nothing but the warehouse is needed; what
is opened is given back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from rootline.cli.listening import port_refused
from rootline.cli.open_lake import check_folder
from rootline.client.session.loop_thread import LoopThread
from rootline.connect import engine_storage, open_warehouse, store_settings, warehouse_url
from rootline.schemas.distribution import install_command
from rootline.schemas.errors import Invalid

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from rootline.catalog.manifest.format_version import FormatVersion
    from rootline.catalog.rest.catalog import RestCatalog
    from rootline.catalog.rest.routes import ServedCatalog
    from rootline.catalog.rest.settings import CatalogSettings
    from rootline.cli.until_stopped import Announce
    from rootline.ports.object_store import ObjectStore

T = TypeVar("T")


async def run_catalog(
    warehouse: str, announce: Announce, *, host: str | None, port: int | None, default_format: FormatVersion | None
) -> None:
    """Serve the catalog alone until a signal. `host` and `port`: as the settings say without them.

    Raises:
        RootlineError: it cannot start.

    """
    from prometheus_client import CollectorRegistry

    from rootline.catalog.rest.settings import catalog_settings
    from rootline.cli.process_metrics import describe_process
    from rootline.cli.until_stopped import signals

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
        async with open_catalog(warehouse, settings, registry, default_format) as served:
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
    settings: CatalogSettings,
    registry: CollectorRegistry,
    default_format: FormatVersion | None = None,
) -> AsyncIterator[ServedCatalog]:
    """The catalog of a warehouse, on a thread of its own, until the block ends.

    Raises:
        Invalid: `setting-invalid`.

    """
    from rootline.catalog.rest.http_settings import http_settings
    from rootline.catalog.rest.routes import ServedCatalog

    tokens = (settings.tokens(), http_settings().tokens())
    thread = LoopThread("rootline catalog")

    def carry(work: Coroutine[Any, Any, T], /) -> Awaitable[T]:
        return asyncio.wrap_future(thread.submit(work))

    try:
        store, catalog = await carry(_opened(warehouse, settings, registry, default_format))
        try:
            yield ServedCatalog(catalog, None, carry, tokens)
        finally:
            await carry(_closed(store, catalog))
    finally:
        await asyncio.to_thread(thread.close)


@contextlib.contextmanager
def server_extra(what: str) -> Iterator[None]:
    """Imports of the libraries that the extra `server` brings."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise Invalid(
            "setting-invalid", f"{what} needs {error.name}, which is not installed: {install_command('server')}"
        ) from error


def warn_if_open(host: str, served: ServedCatalog) -> None:
    """Warn when everyone who reaches this machine may read the metadata of all tables."""
    from rootline.catalog.rest.loopback import is_loopback

    if not served.all_tokens and not is_loopback(host):
        structlog.get_logger().warning(
            "the catalog answers everyone who reaches it, without a token: set ROOTLINE_CATALOG__TOKEN",
            action="catalog-open",
            host=host,
        )


async def _opened(
    warehouse: str, settings: CatalogSettings, registry: CollectorRegistry, default_format: FormatVersion | None
) -> tuple[ObjectStore, RestCatalog]:
    from rootline.catalog.export.exporter import TableExporter
    from rootline.catalog.rest.catalog import RestCatalog
    from rootline.catalog.rest.metrics import CatalogMetrics

    storage = engine_storage(warehouse, store_settings().s3, share_keys=settings.share_s3_keys)
    if settings.share_s3_keys and storage and "s3.access-key-id" not in storage:
        raise Invalid(
            "setting-invalid",
            "ROOTLINE_CATALOG__SHARE_S3_KEYS is set, but there are no keys to share: set ROOTLINE_S3__ACCESS_KEY_ID "
            "and its secret, or let engines use keys of their own",
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
