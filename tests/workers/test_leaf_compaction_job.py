"""A worker compacts the leaves that its flushes leave behind."""

from __future__ import annotations

import asyncio

from rootline.adapters.memory_intent_log import MemoryIntentLog
from rootline.adapters.memory_object_store import MemoryObjectStore
from rootline.adapters.system_environment import SystemEnvironment
from rootline.schemas.content_entry import ContentType
from rootline.schemas.intent import IntentKind
from rootline.workers.app import WorkerService
from rootline.workers.jobs.leaf_compaction_job import leaf_compaction_job
from rootline.workers.jobs.maintenance_job import JobOutcome, MaintenanceJob
from rootline.workers.settings import WorkerSettings
from tests.maintenance.table_builder import TableBuilder, data_file
from tests.workers.log_coordinator import LogCoordinator


async def a_table_with_leaves(count: int, **properties: str) -> TableBuilder:
    builder = TableBuilder(MemoryObjectStore(), **properties)
    await builder.create()
    for number in range(count):
        await builder.append(2 * number, 2 * number + 1)
        await builder.flush()
    return builder


def job_of(builder: TableBuilder, log: MemoryIntentLog, *, now: bool = False) -> MaintenanceJob:
    return leaf_compaction_job(builder.store, log, SystemEnvironment(), WorkerSettings(), now=now)


async def test_small_leaves_become_one_by_an_intent() -> None:
    builder, log = await a_table_with_leaves(8), MemoryIntentLog()
    await builder.delete_rows({1: [4]})
    before = builder.live_files()
    serving = asyncio.create_task(LogCoordinator(log, builder).serve())
    report = await job_of(builder, log).run(builder.table)
    serving.cancel()
    assert (report.outcome, report.leaves, report.entries) == (JobOutcome.COMMITTED, 1, 16)
    assert len(builder.rows_of(ContentType.DATA_MANIFEST)) == 1
    assert builder.live_files() == before
    assert builder.state.header.snapshot.operation == "replace"
    assert await builder.findings() == []


async def test_below_the_thresholds_nothing_is_read_and_nothing_published() -> None:
    builder, log = await a_table_with_leaves(7), MemoryIntentLog()
    assert (await job_of(builder, log).run(builder.table)).outcome is JobOutcome.NOTHING_DUE
    assert await log.end_offset() == 0


async def test_a_compaction_of_leaves_that_died_meanwhile_is_planned_anew() -> None:
    builder, log = await a_table_with_leaves(2), MemoryIntentLog()
    coordinator = LogCoordinator(log, builder)
    await coordinator.publish(builder.removal(0, 1, 2, 3))  # ahead of the compaction on the log, after it in the plan
    await coordinator.publish(builder.intent(IntentKind.APPEND, add_data_files=(data_file(9),)))
    serving = asyncio.create_task(coordinator.serve())
    report = await job_of(builder, log, now=True).run(builder.table)
    serving.cancel()
    assert (report.outcome, report.leaves, report.entries) == (JobOutcome.COMMITTED, 0, 0)
    assert builder.rows_of(ContentType.DATA_MANIFEST) == []  # those that were dead as a whole have left
    assert len(builder.live_files()) == 1
    assert await builder.findings() == []


async def test_the_worker_looks_at_a_tables_leaves_after_its_root() -> None:
    builder = await a_table_with_leaves(2, **{"rootline.compact.leaves": "2"})
    log = MemoryIntentLog()
    service = WorkerService(store=builder.store, log=log, settings=WorkerSettings())
    serving = asyncio.create_task(LogCoordinator(log, builder).serve())
    await service.look_once()
    flush, compaction = await service.carry_out_one(), await service.carry_out_one()
    serving.cancel()
    assert flush is not None
    assert compaction is not None
    assert (flush.outcome, compaction.outcome) == (JobOutcome.NOTHING_DUE, JobOutcome.COMMITTED)
    assert (service.counters.compactions_committed, service.counters.flushes_committed) == (1, 0)
