"""What a worker shows to those who watch it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from rootline.adapters.memory import MemoryIntentLog, MemoryObjectStore
from rootline.ports.object_store import Listing
from rootline.ports.task_queue import Ending, Task, TaskKind
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import Version
from rootline.schemas.object_keys import root_key
from rootline.testing.seeded_environment import SeededEnvironment
from rootline.testing.virtual_loop import run_virtually
from rootline.workers.app import WorkerService
from rootline.workers.server import http_app, serve
from rootline.workers.settings import WorkerSettings
from tests.maintenance.table_builder import TableBuilder
from tests.workers.log_coordinator import LogCoordinator


class Refusing(MemoryObjectStore):
    """Lists nothing while `away`."""

    away = False

    async def list(self, prefix: str, *, limit: int | None = None) -> Listing:
        if self.away:
            raise Unavailable("store-unavailable", "the store is away")
        return await super().list(prefix, limit=limit)

    async def folders(self, prefix: str) -> Sequence[str]:
        if self.away:
            raise Unavailable("store-unavailable", "the store is away")
        return await super().folders(prefix)


async def due_table(store: MemoryObjectStore, name: str) -> TableBuilder:
    builder = TableBuilder(store, name, **{"rootline.flush.data-files": "3"})
    await builder.create()
    await builder.append(0, 1, 2)
    return builder


def service_of(store: MemoryObjectStore, log: MemoryIntentLog, **settings: Any) -> WorkerService:
    return WorkerService(store=store, log=log, settings=WorkerSettings(**settings), environment=SeededEnvironment(1))


def client_of(service: WorkerService) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(http_app(service)), base_url="http://worker")


async def scraped(service: WorkerService) -> Mapping[str, float]:
    async with client_of(service) as client:
        answer = await client.get("/metrics")
    assert answer.status_code == 200
    lines = [line.rsplit(" ", 1) for line in answer.text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


async def readiness(service: WorkerService) -> tuple[int, Any]:
    async with client_of(service) as client:
        assert (await client.get("/healthz")).text == "ok\n"
        answer = await client.get("/readyz")
    return answer.status_code, answer.json()


def test_the_numbers_follow_what_happened_kind_by_kind() -> None:
    async def story() -> None:
        store, log = MemoryObjectStore(), MemoryIntentLog()
        good, bad = await due_table(store, "demo.good"), await due_table(store, "demo.bad")
        store.place(root_key(bad.table, Version(1)), b"damaged")
        service = service_of(store, log)
        coordinator = asyncio.create_task(LogCoordinator(log, good).serve())
        running = asyncio.create_task(service.run())
        await asyncio.sleep(10)
        seen = await scraped(service)
        assert seen["rootline_worker_tables"] == 2
        assert seen['rootline_worker_tasks_total{kind="flush",outcome="committed"}'] == 1
        assert seen['rootline_worker_tasks_total{kind="flush",outcome="failed"}'] >= 1
        assert seen['rootline_worker_tasks_total{kind="compact",outcome="nothing-due"}'] >= 1
        assert seen['rootline_worker_failures_total{code="root-corrupt"}'] >= 1
        assert seen['rootline_worker_leaves_committed_total{kind="flush"}'] >= 1
        assert seen['rootline_worker_entries_moved_total{kind="flush"}'] == 3
        assert seen['rootline_worker_task_seconds_count{kind="flush"}'] >= 2
        assert seen['rootline_worker_tasks_running{kind="flush"}'] == 0
        assert seen['rootline_worker_last_success_timestamp_seconds{kind="flush"}'] > 0
        assert seen['rootline_worker_queue_tasks{look="root"}'] == 0
        service.request_stop()
        await running
        coordinator.cancel()

    run_virtually(story())


def test_a_task_that_runs_and_those_that_wait_are_seen() -> None:
    async def story() -> None:
        store, log = MemoryObjectStore(), MemoryIntentLog()
        for number in range(3):
            await due_table(store, f"demo.t{number}")
        service = service_of(store, log, jobs_at_once=1, verdict_timeout_s=1_000.0)
        running = asyncio.create_task(service.run())
        await asyncio.sleep(30)  # no coordinator: the first flush waits for its verdict
        seen = await scraped(service)
        assert seen['rootline_worker_tasks_running{kind="flush"}'] == 1
        assert seen['rootline_worker_queue_tasks{look="root"}'] == 2
        service.request_stop()
        await running
        seen = await scraped(service)
        assert seen['rootline_worker_tasks_running{kind="flush"}'] == 0

    run_virtually(story())


def test_it_is_ready_while_it_can_list_the_tables_and_says_which_of_them_fail_and_why() -> None:
    async def story() -> None:
        store, log = Refusing(), MemoryIntentLog()
        good, bad = await due_table(store, "demo.good"), await due_table(store, "demo.bad")
        key = root_key(bad.table, Version(1))
        found = await store.get(key)
        assert found is not None
        store.place(key, b"damaged")
        service = service_of(store, log)
        assert await readiness(service) == (503, {"ready": False, "reason": "it has not started", "failing": {}})
        coordinator = asyncio.create_task(LogCoordinator(log, good, bad).serve())
        running = asyncio.create_task(service.run())
        await asyncio.sleep(10)
        status, said = await readiness(service)
        assert (status, said["ready"], list(said["failing"])) == (200, True, ["demo.bad"])
        assert said["failing"]["demo.bad"].startswith("flush: ")
        assert str(key) in said["failing"]["demo.bad"]

        store.away = True
        await asyncio.sleep(120)
        status, said = await readiness(service)
        assert (status, said["ready"]) == (503, False)
        assert "the store is away" in said["reason"]
        assert "the store is away" in said["failing"]["demo.good"]

        store.away = False
        store.place(key, found.body)
        await asyncio.sleep(120)
        assert await readiness(service) == (200, {"ready": True, "reason": "", "failing": {}})
        service.request_stop()
        await running
        status, said = await readiness(service)
        assert (status, said["reason"]) == (503, "it has stopped")
        coordinator.cancel()

    run_virtually(story())


def test_a_worker_in_a_process_with_a_registry_reports_into_it() -> None:
    registry = CollectorRegistry()
    service = WorkerService(
        store=MemoryObjectStore(), log=MemoryIntentLog(), settings=WorkerSettings(), registry=registry
    )
    assert service.metrics.registry is registry
    assert "rootline_worker_tasks" in {metric.name for metric in registry.collect()}


async def test_it_listens_on_loopback_on_a_port_of_the_systems_choice() -> None:
    service = WorkerService(store=MemoryObjectStore(), log=MemoryIntentLog(), settings=WorkerSettings())
    async with serve(service, WorkerSettings().http_host, 0) as url, httpx.AsyncClient(base_url=url) as client:
        assert url.startswith("http://127.0.0.1:")
        assert (await client.get("/healthz")).status_code == 200
    with pytest.raises(httpx.ConnectError):
        await httpx.AsyncClient(base_url=url).get("/healthz")


def test_a_queue_that_cannot_be_reached_is_told() -> None:
    class Away:
        is_shared = False

        async def offer(self, task: Task) -> Any:
            raise Unavailable("queue-unavailable", "no queue")

        async def take(self, *, wait_s: float) -> Task | None:
            raise Unavailable("queue-unavailable", "no queue")

        async def finish(self, task: Task, ending: Ending = Ending.DONE) -> None: ...

        async def renew(self) -> float:
            raise Unavailable("queue-unavailable", "no queue")

        async def waiting(self) -> Mapping[TaskKind, int]:
            raise Unavailable("queue-unavailable", "no queue")

        async def close(self) -> None: ...

    async def story() -> None:
        service = WorkerService(
            store=MemoryObjectStore(),
            log=MemoryIntentLog(),
            settings=WorkerSettings(),
            queue=Away(),
            environment=SeededEnvironment(1),
        )
        running = asyncio.create_task(service.run())
        await asyncio.sleep(10)
        status, said = await readiness(service)
        assert (status, said["reason"]) == (503, "the task queue cannot be reached: no queue")
        assert 'rootline_worker_queue_tasks{look="root"}' not in await scraped(service)
        service.request_stop()
        await running

    run_virtually(story())
