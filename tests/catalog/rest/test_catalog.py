"""What questions to the catalog cost, and what happens when the store behind it fails or is slow."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from rootline.catalog.exporter import TableExporter
from rootline.catalog.rest.catalog import CatalogMetrics, RestCatalog, TableDirectory
from rootline.catalog.rest.http_settings import CatalogSettings
from rootline.catalog.rest.responses import Refusal, SnapshotMode
from rootline.catalog.rest.routes import ServedCatalog
from rootline.catalog.rest.serving import alone_app
from rootline.cli.catalog_service import open_catalog
from rootline.schemas.errors import Corrupt, Unavailable
from rootline.schemas.identifiers import TableName
from tests.coordinator.hooked_ports import Hook, HookedStore
from tests.coordinator.running_service import append_intent, running

NAMES = ("a.b", "a.c", "d.e")
STORAGE = {"s3.region": "eu-1", "s3.endpoint": "http://store"}


@asynccontextmanager
async def tables(before: Hook | None = None) -> AsyncIterator[HookedStore]:
    """A store with three tables; its calls are counted from then on."""
    store = HookedStore()
    async with running(store) as service:
        for name in NAMES:
            await service.create(TableName(name))
        await service.commit(append_intent("one"))
        store.calls.clear()
        if before is not None:
            store.before = before
        yield store


def catalog_of(store: HookedStore, exporter: TableExporter | None = None, **options: Any) -> RestCatalog:
    exporter = exporter or TableExporter(store, "s3://bucket/lake")
    return RestCatalog(store, exporter, CatalogMetrics(CollectorRegistry()), **{"storage": STORAGE, **options})


def client_of(catalog: RestCatalog) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(alone_app(ServedCatalog(catalog)), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://catalog")


async def metadata_of(catalog: RestCatalog) -> dict[str, Any]:
    loaded = await catalog.load("a", "b", None, SnapshotMode.ALL, None)
    assert loaded.body is not None
    return dict(json.loads(loaded.body))


async def test_roots_are_read_once_to_tell_tables_from_views() -> None:
    async with tables() as store:
        directory = TableDirectory(store)
        assert await directory.namespaces() == ["a", "d"]
        assert await directory.names("a") == ["b", "c"]
        store.calls.clear()
        assert (await directory.namespaces(), await directory.names("a")) == (["a", "d"], ["b", "c"])
        # the warehouse and a table of each namespace; then the namespace and each table of it, which may be dropped
        assert [operation for operation, _ in store.calls] == ["folders", "list", "list", "folders", "list", "list"]


async def test_a_table_that_is_there_costs_one_request_to_confirm_and_one_to_load_again() -> None:
    async with tables() as store:
        catalog = catalog_of(store)
        await catalog.table_exists("a", "b")
        assert [operation for operation, _ in store.calls] == ["list", "get"]
        store.calls.clear()
        await catalog.table_exists("a", "b")
        assert [operation for operation, _ in store.calls] == ["list"]
        first = await metadata_of(catalog)
        store.calls.clear()
        assert await metadata_of(catalog) == first
        assert [operation for operation, _ in store.calls] == ["list"]


async def test_the_answer_tells_how_the_store_is_reached() -> None:
    async with tables() as store:
        found = await metadata_of(catalog_of(store))
    assert found["config"] == STORAGE
    assert found["metadata-location"].startswith("s3://bucket/lake/a/b/export/v3/")


async def test_an_entity_tag_changes_with_the_settings_of_the_store() -> None:
    async with tables() as store:
        before = await catalog_of(store).load("a", "b", None, SnapshotMode.ALL, None)
        assert (
            await catalog_of(store, storage={}).load("a", "b", None, SnapshotMode.ALL, before.etag)
        ).body is not None


async def test_readers_at_once_share_one_making() -> None:
    async with tables() as store:
        await catalog_of(store).load("a", "b", None, SnapshotMode.ALL, None)
        puts = sum(operation == "put" for operation, _ in store.calls)
    async with tables() as store:
        catalog = catalog_of(store)
        await asyncio.gather(*(catalog.load("a", "b", None, SnapshotMode.ALL, None) for _ in range(20)))
        assert sum(operation == "put" for operation, _ in store.calls) == puts > 0


async def test_a_making_outlives_the_patience_of_who_asked_for_it() -> None:
    gate, at_gate = asyncio.Event(), asyncio.Event()

    async def hold(operation: str, key: str) -> None:
        if operation == "put" and "/export/" in key:
            at_gate.set()
            await gate.wait()

    async with tables(hold) as store:
        exporter = TableExporter(store, "s3://bucket/lake")
        with pytest.raises(Unavailable) as refused:
            await catalog_of(store, exporter, request_timeout_s=1e-9).load("a", "b", None, SnapshotMode.ALL, None)
        assert refused.value.code == "export-unfinished"
        await at_gate.wait()
        gate.set()
        assert (await metadata_of(catalog_of(store, exporter)))["metadata"]["properties"]["rootline.version"] == "1"


async def test_what_is_being_made_is_given_up_at_the_end() -> None:
    at_gate = asyncio.Event()

    async def hold(operation: str, key: str) -> None:
        if operation == "put" and "/export/" in key:
            at_gate.set()
            await asyncio.Event().wait()

    async with tables(hold) as store:
        before = asyncio.all_tasks()
        catalog = catalog_of(store, request_timeout_s=1e-9)
        with pytest.raises(Unavailable):
            await catalog.load("a", "b", None, SnapshotMode.ALL, None)
        await at_gate.wait()
        await catalog.close()
        assert asyncio.all_tasks() == before


async def test_a_served_catalog_lives_on_a_thread_and_a_loop_of_its_own(tmp_path: Path) -> None:
    async def where() -> tuple[threading.Thread, asyncio.AbstractEventLoop]:
        return threading.current_thread(), asyncio.get_running_loop()

    async with open_catalog(str(tmp_path), None, "127.0.0.1", CatalogSettings(), CollectorRegistry()) as served:
        thread, loop = await served.carry(where())
        assert thread is not threading.current_thread()
        assert loop is not asyncio.get_running_loop()
    assert not thread.is_alive()


async def test_a_store_that_is_away_is_a_503_that_says_when_to_come_back() -> None:
    async def away(operation: str, key: str) -> None:
        raise Unavailable("store-unavailable", "the store does not answer")

    async with tables() as store:
        catalog = catalog_of(store)
        store.before = away
        async with client_of(catalog) as client:
            for path in ("namespaces", "namespaces/a", "namespaces/a/tables", "namespaces/a/tables/b"):
                answer = await client.get(f"/v1/v3/{path}")
                error = answer.json()["error"]
                assert (answer.status_code, error["type"]) == (503, "ServiceUnavailableException")
                assert int(answer.headers["retry-after"]) > 0
                assert "Check that it is running" in error["message"]
            ready = await client.get("/readyz")
            assert (ready.status_code, ready.json()["ready"]) == (503, False)
            assert (await client.get("/healthz")).status_code == 200


async def test_a_fault_of_our_own_is_a_500_that_tells_nothing_of_the_inside() -> None:
    async def violations(operation: str, key: str) -> None:
        raise ZeroDivisionError("an inner matter")

    async with tables() as store:
        catalog = catalog_of(store)
        store.before = violations
        async with client_of(catalog) as client:
            answer = await client.get("/v1/v3/namespaces/a/tables/b")
            scraped = (await client.get("/metrics")).text
    assert answer.status_code == 500
    assert answer.json()["error"]["type"] == "InternalServerError"
    assert "inner matter" not in answer.text
    assert "Traceback" not in answer.text
    assert 'rootline_export_failures_total{code="unexpected"} 1.0' in scraped
    assert 'rootline_catalog_requests_total{code="500",route="table"} 1.0' in scraped


async def test_an_object_that_is_missing_is_told_as_damage() -> None:
    async with tables() as store:
        catalog = catalog_of(store)
        with pytest.raises(Refusal, match=r"Table does not exist: x\.y"):
            await catalog.table_exists("x", "y")

        async def missing(operation: str, key: str) -> None:
            if operation == "get" and "/definitions/" in key:
                raise Corrupt("object-missing", f"{key}: there is no such object")

        store.before = missing
        async with client_of(catalog) as client:
            error = (await client.get("/v1/v3/namespaces/a/tables/b")).json()["error"]
    assert (error["code"], "Restore the object from a copy" in error["message"]) == (500, True)
