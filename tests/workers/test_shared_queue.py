"""Workers that share a queue: the watcher's part, with a queue that is as forgetful as a shared one may be."""

from __future__ import annotations

import asyncio

from rootline.adapters.memory import MemoryIntentLog, MemoryObjectStore, MemoryTaskQueue
from rootline.ports.task_queue import OFFERED_AGAIN_S, Ending, Offer, Task, TaskKind
from rootline.schemas.identifiers import TableName, Version
from rootline.testing.seeded_environment import SeededEnvironment
from rootline.testing.virtual_loop import run_virtually
from rootline.workers.app import WorkerService
from rootline.workers.jobs.job import JobOutcome
from rootline.workers.settings import WorkerSettings
from tests.maintenance.table_builder import TableBuilder
from tests.workers.log_coordinator import LogCoordinator


class SharedQueue(MemoryTaskQueue):
    """As if other processes took from it; `answers` replace those to offers of roots."""

    is_shared = True

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[Offer] = []
        self.offered: list[Task] = []
        self.endings: list[tuple[TaskKind, Ending]] = []
        self.renewed = 0

    async def offer(self, task: Task) -> Offer:
        if task.kind is TaskKind.ROOT:
            self.offered.append(task)
            if self.answers:
                return self.answers.pop(0)
        return await super().offer(task)

    async def finish(self, task: Task, ending: Ending = Ending.DONE) -> None:
        self.endings.append((task.kind, ending))
        await super().finish(task, ending)

    async def renew(self) -> float:
        self.renewed += 1
        return 20.0


async def table(store: MemoryObjectStore, files: int = 2) -> TableBuilder:
    builder = TableBuilder(store, "demo.flights", **{"rootline.flush.data-files": "3"})
    await builder.create()
    await builder.append(*range(files))
    return builder


def service_of(store: MemoryObjectStore, queue: SharedQueue, log: MemoryIntentLog | None = None) -> WorkerService:
    return WorkerService(
        store=store,
        log=log or MemoryIntentLog(),
        settings=WorkerSettings(),
        environment=SeededEnvironment(1),
        queue=queue,
    )


def test_a_task_that_a_shared_queue_lost_is_offered_again_though_the_table_is_quiet() -> None:
    async def story() -> None:
        store, queue = MemoryObjectStore(), SharedQueue()
        await table(store)
        queue.answers = [Offer.QUEUED]  # and it is lost
        service = service_of(store, queue)
        running = asyncio.create_task(service.run())
        await asyncio.sleep(OFFERED_AGAIN_S - 60)
        assert len(queue.offered) == 1
        await asyncio.sleep(120)
        assert len(queue.offered) == 2
        assert queue.endings[0] == (TaskKind.ROOT, Ending.DONE)
        assert queue.renewed > 10
        service.request_stop()
        await running

    run_virtually(story())


def test_what_another_worker_has_done_is_not_offered_at_every_look() -> None:
    async def story() -> None:
        store, queue = MemoryObjectStore(), SharedQueue()
        await table(store)
        queue.answers = [Offer.DONE]
        service = service_of(store, queue)
        for _ in range(5):
            await asyncio.sleep(await service.look_once())
        assert len(queue.offered) == 1

    run_virtually(story())


def test_a_table_that_another_worker_could_maintain_is_not_failing_here_any_more() -> None:
    async def story() -> None:
        store, queue = MemoryObjectStore(), SharedQueue()
        builder = await table(store)
        root = store.dated("demo/flights/metadata/roots/")[0].key
        found = await store.get(root)
        assert found is not None
        store.place(root, b"damaged")
        service = service_of(store, queue)
        await service.look_once()
        assert await service.carry_out_one() is None
        assert builder.table in service.readiness().failing
        store.place(root, found.body)
        queue.answers = [Offer.DONE]
        while queue.answers:  # noqa: ASYNC110
            await asyncio.sleep(await service.look_once())
        assert service.readiness().failing == {}

    run_virtually(story())


def test_a_table_whose_task_was_given_up_is_shown_as_failing_until_it_is_taken_again() -> None:
    async def story() -> None:
        store, queue = MemoryObjectStore(), SharedQueue()
        await table(store)
        queue.answers = 3 * [Offer.GIVEN_UP]
        service = service_of(store, queue)
        while queue.answers:  # noqa: ASYNC110
            await asyncio.sleep(await service.look_once())
        assert "rootline tasks list" in service.readiness().failing[TableName("demo.flights")]
        while len(queue.offered) < 4:  # noqa: ASYNC110
            await asyncio.sleep(await service.look_once())
        assert service.readiness().failing == {}

    run_virtually(story())


def test_a_task_for_a_table_that_does_not_exist_or_a_version_to_come_does_nothing() -> None:
    async def story() -> None:
        store, queue = MemoryObjectStore(), SharedQueue()
        builder = await table(store, files=3)
        log = MemoryIntentLog()
        service = service_of(store, queue, log)
        coordinator = asyncio.create_task(LogCoordinator(log, builder).serve())
        await queue.offer(Task(TaskKind.ROOT, TableName("demo.nowhere"), Version(7)))
        await queue.offer(Task(TaskKind.ROOT, builder.table, Version(2**60)))
        await queue.offer(Task(TaskKind.HISTORY, TableName("demo.never"), Version(0)))
        reports = []
        while (report := await service.carry_out_one()) is not None:
            reports.append(report.outcome)
        assert reports.count(JobOutcome.COMMITTED) == 1, "what was due, whatever version the task names"
        assert set(reports) == {JobOutcome.NOTHING_DUE, JobOutcome.COMMITTED}
        assert service.counters.failures == 0
        coordinator.cancel()

    run_virtually(story())


def test_a_worker_that_is_stopped_gives_its_task_back() -> None:
    async def story() -> None:
        store, queue = MemoryObjectStore(), SharedQueue()
        await table(store, files=3)  # due, and no coordinator answers
        settings = WorkerSettings(stop_timeout_s=1.0)
        service = WorkerService(
            store=store, log=MemoryIntentLog(), settings=settings, environment=SeededEnvironment(1), queue=queue
        )
        running = asyncio.create_task(service.run())
        await asyncio.sleep(5)
        service.request_stop()
        await running
        assert queue.endings == [(TaskKind.ROOT, Ending.CUT_OFF)]

    run_virtually(story())
