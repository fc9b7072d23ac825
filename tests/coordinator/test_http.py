"""What the coordinator shows to those who watch it."""

from __future__ import annotations

import asyncio
import re
import time

import httpx
import pytest

from rootline.adapters.embedded_feed import EmbeddedFeed
from rootline.adapters.memory import MemoryIntentLog, MemoryObjectStore
from rootline.catalog.exporter import TableExporter
from rootline.catalog.rest.catalog import CatalogMetrics, RestCatalog
from rootline.catalog.rest.routes import ServedCatalog
from rootline.coordinator.app import CoordinatorService
from rootline.coordinator.http.server import http_app, serve
from rootline.coordinator.settings import CoordinatorSettings
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import TableName
from rootline.schemas.object_keys import root_key
from tests.coordinator.generated_pages import DOCS, metrics, metrics_page
from tests.coordinator.hooked_ports import HookedStore
from tests.coordinator.running_service import TABLE, Running, append_intent, running

CONTRACT = {
    "rootline_intent_visible_seconds": (),
    "rootline_commit_seconds": (),
    "rootline_oldest_pending_intent_seconds": (),
    "rootline_put_total": ("outcome",),
    "rootline_rebases_total": ("cause",),
    "rootline_clocks_apart_total": (),
    "rootline_verdicts_total": ("verdict", "code"),
    "rootline_consumer_lag_records": ("topic", "partition"),
    "rootline_last_commit_timestamp_seconds": ("table",),
    "rootline_root_bytes": ("table",),
    "rootline_retained_root_bytes": ("table",),
    "rootline_given_up_root_bytes": ("table",),
    "rootline_oldest_version": ("table",),
    "rootline_root_entries": ("table", "content"),
    "rootline_table_state": ("table", "state"),
}
OUR_OWN: dict[str, tuple[str, ...]] = {
    "rootline_export_lag_seconds": ("table",),
    "rootline_export_seconds": (),
    "rootline_export_requests_total": ("kind",),
    "rootline_export_failures_total": ("code",),
    "rootline_catalog_requests_total": ("route", "code"),
    "rootline_catalog_request_seconds": ("route",),
    "rootline_build_info": ("version", "python"),
    "rootline_store_failures_total": ("table",),
    "rootline_assigned_partitions": (),
    "rootline_coordinator_ready": (),
    "rootline_paused_partitions": (),
    "rootline_progress_dropped_total": (),
    "rootline_queue_bytes": (),
    "rootline_verdicts_told_again_total": ("verdict", "code"),
    "rootline_control_records_skipped_total": ("topic",),
}
REDIS: dict[str, tuple[str, ...]] = {
    "rootline_redis_calls_total": ("use", "outcome"),
    "rootline_redis_up": (),
    "rootline_head_hints_total": ("outcome",),
    "rootline_worker_shared_tasks_total": ("outcome",),
    "rootline_worker_dead_tasks": (),
}
WORKERS: dict[str, tuple[str, ...]] = {
    "rootline_worker_tasks_total": ("kind", "outcome"),
    "rootline_worker_failures_total": ("code",),
    "rootline_worker_tasks_running": ("kind",),
    "rootline_worker_last_success_timestamp_seconds": ("kind",),
    "rootline_worker_last_change_timestamp_seconds": ("kind",),
    "rootline_worker_task_seconds": ("kind",),
    "rootline_worker_leaves_committed_total": ("kind",),
    "rootline_worker_entries_moved_total": ("kind",),
    "rootline_worker_queue_tasks": ("look",),
    "rootline_worker_tables": (),
    "rootline_worker_looks_total": (),
    "rootline_worker_tasks_refused_total": (),
}
SPARK: dict[str, tuple[str, ...]] = {
    "rootline_spark_rows_total": ("query", "table"),
    "rootline_spark_commits_total": ("query", "table", "verdict", "code"),
    "rootline_spark_verdict_seconds": ("query", "table"),
    "rootline_spark_waited_seconds_total": ("query", "table", "reason"),
    "rootline_spark_version": ("query", "table"),
    "rootline_spark_versions_behind": ("query", "table"),
    "rootline_spark_last_progress_timestamp_seconds": ("query",),
    "rootline_spark_failures_total": ("query",),
}


def client_of(service: CoordinatorService) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(http_app(service)), base_url="http://coordinator")


async def scraped(service: Running) -> dict[str, float]:
    async with client_of(service.service) as client:
        answer = await client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    lines = [line.rsplit(" ", 1) for line in answer.text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


def test_names_and_labels_are_the_contract() -> None:
    assert {name: labels for name, _, labels, _ in metrics()} == CONTRACT | OUR_OWN | WORKERS | REDIS | SPARK


def test_the_metrics_page_in_the_docs_is_what_the_registry_holds() -> None:
    page = (DOCS / "metrics.md").read_text()
    assert page == metrics_page(), "run: python -m tests.coordinator.generated_pages"


async def test_a_service_is_not_ready_until_probe_and_log_are_done_nor_after_its_stop() -> None:
    gate, probing = asyncio.Event(), asyncio.Event()

    async def hold(operation: str, key: str) -> None:
        probing.set()
        await gate.wait()

    service = CoordinatorService(
        store=HookedStore(before=hold),
        log=EmbeddedFeed(MemoryIntentLog()),
        settings=CoordinatorSettings(probe_rounds=1),
    )
    task = asyncio.ensure_future(service.run())
    await probing.wait()
    async with client_of(service) as client:
        assert (await client.get("/healthz")).text == "ok\n", "alive, though not ready"
        answer = await client.get("/readyz")
        assert answer.status_code == 503
        assert answer.json()["reason"] == "the store has not passed its probe yet"
        gate.set()
        async with asyncio.timeout(60):
            while (await client.get("/readyz")).status_code != 200:  # noqa: ASYNC110 - as a load balancer asks
                await asyncio.sleep(0)
        service.request_stop()
        assert (await client.get("/readyz")).json()["reason"] == "the service is stopping"
        await task
        assert (await client.get("/readyz")).status_code == 503


async def test_tables_and_the_reason_of_a_quarantine_are_shown() -> None:
    store, log = MemoryObjectStore(), MemoryIntentLog()
    async with running(store, log) as service:
        await service.create()
    key = root_key(TABLE, 0)  # type: ignore[arg-type]
    found = await store.get(key)
    assert found is not None
    store.place(key, b"damaged")
    async with running(store, log) as service, client_of(service.service) as client:
        await log.publish(TABLE.encode(), encode_intent(append_intent("held")))
        other = TableName("c.d")
        await service.create(other)
        answer = await client.get("/readyz")
        assert answer.status_code == 200, "one corrupt table does not take the others' service away"
        tables = answer.json()["tables"]
        assert tables[TABLE]["state"] == "quarantined"
        assert "root-corrupt" in tables[TABLE]["why"]
        assert tables[other]["why"] == ""


async def test_a_table_whose_store_fails_says_why_it_waits_and_no_longer_once_nothing_waits() -> None:
    is_down = False

    async def failing(operation: str, key: str) -> None:
        if is_down:
            raise Unavailable("store-unavailable", f"{key}: Access Denied")

    log = MemoryIntentLog()
    async with running(HookedStore(before=failing), log) as service, client_of(service.service) as client:
        await service.create()
        is_down = True
        await log.publish(TABLE.encode(), encode_intent(append_intent("waits")))
        async with asyncio.timeout(60):
            while True:
                shown = (await client.get("/readyz")).json()["tables"][TABLE]
                if shown["why"]:
                    break
                await asyncio.sleep(0)
        assert "Access Denied" in shown["why"]
        is_down = False
        async with asyncio.timeout(60):
            while shown["why"]:
                shown = (await client.get("/readyz")).json()["tables"][TABLE]
                await asyncio.sleep(0)


async def test_the_numbers_follow_what_happened() -> None:
    async with running() as service:
        await service.create()
        await service.commit(append_intent("one"), append_intent("bad", location="../x"))
        await service.decide(b"junk")
        await service.commit(append_intent("two"))
        seen = await scraped(service)
        state = service.service._consumer.tables[TABLE].machine.head
        assert state is not None
    table = f'{{table="{TABLE}"}}'
    assert seen['rootline_put_total{outcome="landed"}'] == 3
    assert seen['rootline_verdicts_total{code="",verdict="committed"}'] == 3
    assert seen['rootline_verdicts_total{code="location-invalid",verdict="rejected"}'] == 1
    assert seen["rootline_commit_seconds_count"] == 3
    assert seen["rootline_intent_visible_seconds_count"] == 4
    assert seen[f"rootline_root_bytes{table}"] == state.root.size_in_bytes
    retained = state.header.earlier_bytes + state.root.size_in_bytes
    assert seen[f"rootline_retained_root_bytes{table}"] == retained
    assert seen[f'rootline_root_entries{{content="data",table="{TABLE}"}}'] == 2
    assert seen[f'rootline_table_state{{state="idle",table="{TABLE}"}}'] == 1
    [lag] = [value for name, value in seen.items() if name.startswith("rootline_consumer_lag_records")]
    assert lag == 0


async def test_an_unreadable_log_takes_the_lag_away_and_nothing_else() -> None:
    class Ending(MemoryIntentLog):
        down = False

        async def end_offset(self) -> int:
            if self.down:
                raise Unavailable("log-unavailable", "away")
            return await super().end_offset()

    log = Ending()
    async with running(None, log) as service:
        await service.create()
        log.down = True
        assert (await scraped(service))['rootline_put_total{outcome="landed"}'] == 1


async def test_the_catalog_is_beside_the_coordinator_and_its_lag_follows_the_commits() -> None:
    async with running() as service:
        registry = service.service.metrics.registry
        exporter = TableExporter(service.store, "memory://lake")
        catalog = ServedCatalog(RestCatalog(service.store, exporter, CatalogMetrics(registry)))
        app = http_app(service.service, catalog)
        lag = f'rootline_export_lag_seconds{{table="{TABLE}"}}'
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://coordinator") as client:

            async def sample(name: str) -> float | None:
                lines = (await client.get("/metrics")).text.splitlines()
                return next((float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name} ")), None)

            await service.create()
            assert await sample(lag) is None, "nobody has read it"
            namespace, name = TABLE.split(".")
            answer = await client.get(f"/v1/namespaces/{namespace}/tables/{name}")
            assert answer.json()["metadata"]["properties"]["rootline.version"] == "0"
            assert await sample(lag) == 0
            await service.commit(append_intent("one"))
            [(_, committed_ms)] = service.service.heads().values()
            least_ms = int(time.time() * 1000) - committed_ms
            lag_s = await sample(lag)
            assert lag_s is not None
            assert round(lag_s * 1000) >= least_ms
            await client.get(f"/v1/namespaces/{namespace}/tables/{name}")
            assert await sample(lag) == 0
            assert (await client.get("/healthz")).text == "ok\n"


async def test_without_a_catalog_nothing_is_under_v1() -> None:
    async with running() as service, client_of(service.service) as client:
        assert (await client.get("/v1/config")).status_code == 404


@pytest.mark.parametrize("path", ["/docs", "/openapi.json", "/redoc", "/console", "/console/nothing.js"])
async def test_nothing_else_is_there(path: str) -> None:
    async with running() as service, client_of(service.service) as client:
        assert (await client.get(path)).status_code == 404
        assert (await client.post("/readyz")).status_code == 405


async def test_it_listens_on_a_port_of_the_systems_choice_and_stops_with_its_block() -> None:
    async with running() as service:
        async with serve(service.service, "127.0.0.1", 0) as url, httpx.AsyncClient() as client:
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+", url)
            assert (await client.get(f"{url}/healthz")).text == "ok\n"
            host, port = url.removeprefix("http://").split(":")
            with pytest.raises(OSError, match="in use"):
                async with serve(service.service, host, int(port)):
                    pass
        async with httpx.AsyncClient() as client:
            with pytest.raises(httpx.ConnectError):
                await client.get(f"{url}/healthz")
