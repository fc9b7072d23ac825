"""A catalog that is served, for tests that ask it from outside.

Owns: starting and stopping it. Does not own: the lake that it shows.
Invariants: it is composed as `rootline catalog serve` composes it; a port that the system picks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
from prometheus_client import CollectorRegistry

from rootline.catalog.export_keys import FormatVersion
from rootline.catalog.rest.http_settings import CatalogSettings
from rootline.catalog.rest.serving import alone_app, serve_app
from rootline.cli.catalog_service import open_catalog
from rootline.client.loop_thread import LoopThread


@contextmanager
def served(
    warehouse: Path | str, *, log: str | None = None, default_format: FormatVersion | None = None, **settings: Any
) -> Iterator[str]:
    """The URL of a running catalog of `warehouse`; with a `log` it writes too."""
    thread = LoopThread("catalog under test")
    around = AsyncExitStack()

    async def start() -> str:
        catalog = await around.enter_async_context(
            open_catalog(
                str(warehouse), log, "127.0.0.1", CatalogSettings(**settings), CollectorRegistry(), default_format
            )
        )
        return await around.enter_async_context(serve_app(alone_app(catalog), "127.0.0.1", 0))

    try:
        yield thread.run(start())
    finally:
        thread.run(around.aclose())
        thread.close()


@contextmanager
def asked(warehouse: Path | str, **settings: Any) -> Iterator[httpx.Client]:
    """A client of a running catalog of `warehouse`."""
    with served(warehouse, **settings) as url, httpx.Client(base_url=url) as client:
        yield client


def metric(client: httpx.Client, name: str) -> float | None:
    """The value of a sample as it is scraped, labels included in `name`; `None` when there is none."""
    for line in client.get("/metrics").text.splitlines():
        if line.rsplit(" ", 1)[0] == name:
            return float(line.rsplit(" ", 1)[1])
    return None
