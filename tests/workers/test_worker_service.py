"""The worker notices what changes, works on every table, and stops cleanly."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from rootline.adapters.memory import MemoryIntentLog, MemoryObjectStore, MemoryTaskQueue
from rootline.ports.object_store import Listing
from rootline.ports.task_queue import Offer, Task, TaskKind
from rootline.schemas.content_entry import ContentType
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import ObjectKey, TableName, Version
from rootline.schemas.object_keys import root_key
from rootline.storage.metadata.root_reader import list_tables
from rootline.testing.seeded_environment import SeededEnvironment
from rootline.testing.virtual_loop import run_virtually
from rootline.workers.app import WorkerService
from rootline.workers.jobs.job import JobOutcome
from rootline.workers.settings import WorkerSettings
from tests.maintenance.table_builder import TableBuilder
from tests.workers.log_coordinator import LogCoordinator


class CountingStore(MemoryObjectStore):
    """Counts LIST requests."""

    def __init__(self) -> None:
        super().__init__()
        self.lists = 0

    async def list(self, prefix: str, *, limit: int | None = None) -> Listing:
        self.lists += 1
        return await super().list(prefix, limit=limit)


class LockedNamespace(MemoryObjectStore):
    """A store in which the folder of one namespace may not be listed, nor the roots of one table."""

    async def folders(self, prefix: str) -> Sequence[str]:
        if prefix == "locked/":
            raise Unavailable("store-unavailable", "locked: Permission denied")
        return await super().folders(prefix)

    async def list(self, prefix: str, *, limit: int | None = None) -> Listing:
        if prefix.startswith("demo/closed/"):
            raise Unavailable("store-unavailable", "demo/closed: Permission denied")
        return await super().list(prefix, limit=limit)


async def tables(store: MemoryObjectStore, *names: str, files: int = 3) -> list[TableBuilder]:
    made = []
    for name in names:
        builder = TableBuilder(store, name, **{"rootline.flush.data-files": "3"})
        await builder.create()
        await builder.append(*range(files))
        made.append(builder)
    return made


def service_of(store: MemoryObjectStore, log: MemoryIntentLog, **settings: Any) -> WorkerService:
    return WorkerService(store=store, log=log, settings=WorkerSettings(**settings), environment=SeededEnvironment(1))


def test_every_table_that_is_due_is_flushed_and_a_stop_ends_the_service() -> None:
    async def story() -> None:
        store, log = MemoryObjectStore(), MemoryIntentLog()
        builders = await tables(store, "demo.flights", "demo.planes", "other.things")
        (small,) = await tables(store, "other.small", files=2)
        service = service_of(store, log)
        coordinator = asyncio.create_task(LogCoordinator(log, *builders, small).serve())
        running = asyncio.create_task(service.run())
        await asyncio.sleep(10)  # virtual
        service.request_stop()
        await running
        coordinator.cancel()
        assert [len(builder.rows_of(ContentType.DATA)) for builder in (*builders, small)] == [0, 0, 0, 2]
        counters = service.counters
        assert (counters.tables, counters.outcomes["flush", JobOutcome.COMMITTED], counters.entries_moved) == (4, 3, 9)
        assert (counters.failures, counters.jobs_running) == (0, 0)

    run_virtually(story())


def test_folders_that_may_not_be_listed_keep_a_worker_from_no_other_table() -> None:
    async def story() -> None:
        store, log = LockedNamespace(), MemoryIntentLog()
        (builder,) = await tables(store, "demo.flights")
        for key in ("locked/t/data/x", "demo/closed/data/x"):
            store.place(ObjectKey(key), b"of somebody else")
        service = service_of(store, log)
        coordinator = asyncio.create_task(LogCoordinator(log, builder).serve())
        running = asyncio.create_task(service.run())
        await asyncio.sleep(10)  # virtual
        said = service.readiness()
        service.request_stop()
        await running
        coordinator.cancel()
        assert service.counters.outcomes["flush", JobOutcome.COMMITTED] == 1
        assert "some tables cannot be listed: " in said.reason
        assert "Permission denied" in said.reason
        assert service.counters.failures > 0

    run_virtually(story())


def test_a_table_that_becomes_due_later_is_noticed_and_a_new_one_is_discovered() -> None:
    async def story() -> None:
        store, log = MemoryObjectStore(), MemoryIntentLog()
        (builder,) = await tables(store, "demo.flights", files=2)
        late = TableBuilder(store, "demo.late", **{"rootline.flush.data-files": "1"})
        service = service_of(store, log)
        coordinator = asyncio.create_task(LogCoordinator(log, builder, late).serve())
        running = asyncio.create_task(service.run())
        await asyncio.sleep(300)
        assert service.counters.outcomes["flush", JobOutcome.COMMITTED] == 0
        await builder.append(7)
        await late.create()
        await late.append(1)
        await asyncio.sleep(60)
        assert service.counters.outcomes["flush", JobOutcome.COMMITTED] == 2
        service.request_stop()
        await running
        coordinator.cancel()

    run_virtually(story())


def test_a_table_of_many_versions_a_second_is_looked_at_more_often() -> None:
    async def story() -> None:
        store, log = CountingStore(), MemoryIntentLog()
        (builder,) = await tables(store, "demo.flights", files=2)
        service = service_of(store, log, poll_interval_s=1.0)
        await service.look_once()
        waits = []
        for number in range(100):
            await builder.append(number + 10)
            if number % 50 == 49:
                await asyncio.sleep(1.2)
                waits.append(await service.look_once())
        assert all(0.4 <= wait_s <= 0.6 for wait_s in waits), waits
        await asyncio.sleep(1.2)
        assert await service.look_once() > 0.8

    run_virtually(story())


def test_quiet_tables_are_looked_at_less_and_less_often() -> None:
    async def story() -> None:
        store, log = CountingStore(), MemoryIntentLog()
        await tables(store, "demo.flights", files=2)
        service = service_of(store, log, poll_interval_s=1.0, poll_interval_s_max=64.0)
        running = asyncio.create_task(service.run())
        await asyncio.sleep(100)
        lists = store.lists
        await asyncio.sleep(3_600)
        assert store.lists - lists <= 3_600 / 64 * 1.2
        service.request_stop()
        await running

    run_virtually(story())


def test_one_corrupt_table_stops_no_other_and_is_tried_less_and_less_often() -> None:
    async def story() -> None:
        store, log = MemoryObjectStore(), MemoryIntentLog()
        bad, good = await tables(store, "demo.bad", "demo.good")
        store.place(root_key(bad.table, Version(1)), b"damaged")
        service = service_of(store, log, poll_interval_s=1.0, poll_interval_s_max=64.0)
        coordinator = asyncio.create_task(LogCoordinator(log, good).serve())
        with capture_logs() as lines:
            running = asyncio.create_task(service.run())
            await asyncio.sleep(640)
            service.request_stop()
            await running
        coordinator.cancel()
        assert good.rows_of(ContentType.DATA) == []
        assert service.counters.outcomes["flush", JobOutcome.COMMITTED] == 1
        assert 5 <= service.counters.failures <= 20
        failed = [line for line in lines if line.get("action") == "flush-failed"]
        assert {(line["table"], line["code"]) for line in failed} == {("demo.bad", "root-corrupt")}

    run_virtually(story())


def test_without_a_coordinator_no_second_flush_is_written() -> None:
    async def story() -> None:
        store, log = MemoryObjectStore(), MemoryIntentLog()
        (builder,) = await tables(store, "demo.flights")
        service = service_of(store, log, verdict_timeout_s=5.0)
        running = asyncio.create_task(service.run())
        await asyncio.sleep(120)
        assert await log.end_offset() == 1
        assert len((await store.list("demo/flights/metadata/leaves/")).keys) == 1
        coordinator = asyncio.create_task(LogCoordinator(log, builder).serve())
        await asyncio.sleep(120)
        assert service.counters.outcomes["flush", JobOutcome.COMMITTED] == 1
        service.request_stop()
        await running
        coordinator.cancel()

    run_virtually(story())


def test_a_stop_does_not_wait_for_a_verdict_for_ever() -> None:
    async def story() -> None:
        store, log = MemoryObjectStore(), MemoryIntentLog()
        await tables(store, "demo.flights")
        service = service_of(store, log, verdict_timeout_s=10_000.0, stop_timeout_s=5.0)
        running = asyncio.create_task(service.run())
        await asyncio.sleep(60)
        started_s = asyncio.get_running_loop().time()
        service.request_stop()
        await running
        assert asyncio.get_running_loop().time() - started_s <= 5.5

    run_virtually(story())


def test_every_log_line_carries_an_action() -> None:
    async def story() -> None:
        store, log = MemoryObjectStore(), MemoryIntentLog()
        builders = await tables(store, "demo.flights")
        service = service_of(store, log)
        coordinator = asyncio.create_task(LogCoordinator(log, *builders).serve())
        with capture_logs() as lines:
            running = asyncio.create_task(service.run())
            await asyncio.sleep(10)
            service.request_stop()
            await running
        coordinator.cancel()
        actions = [line["action"] for line in lines]
        assert actions[0] == "worker-started"
        assert "flush-committed" in actions
        assert actions[-1] == "worker-stopped"

    run_virtually(story())


async def test_a_queue_takes_one_task_of_a_table_at_a_time_and_no_more_than_it_may() -> None:
    queue = MemoryTaskQueue(tasks_max=2)
    one, two, three = (Task(TaskKind.ROOT, TableName(f"demo.t{number}"), Version(0)) for number in range(3))
    assert [await queue.offer(task) for task in (one, one, two, three)] == [
        Offer.QUEUED,
        Offer.ALREADY_THERE,
        Offer.QUEUED,
        Offer.FULL,
    ]
    assert await queue.take(wait_s=1) == one
    assert await queue.offer(one) is Offer.ALREADY_THERE
    await queue.finish(one)
    assert await queue.offer(one) is Offer.QUEUED
    assert await queue.take(wait_s=1) == two
    assert await queue.take(wait_s=1) == one
    assert await queue.take(wait_s=0.001) is None


async def test_folders_of_other_things_are_no_tables() -> None:
    store = MemoryObjectStore()
    await tables(store, "demo.flights")
    for key in ("readme.txt", "demo/notes/readme.txt", "1st/table/metadata/roots/x", "demo/flights/data/a/b"):
        store.place(ObjectKey(key), b"")
    assert await list_tables(store) == ["demo.flights"]


def test_settings_out_of_bounds_are_refused() -> None:
    with pytest.raises(ValueError, match="poll_interval_s"):
        WorkerSettings(poll_interval_s=0)
