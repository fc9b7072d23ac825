"""A flush job writes leaves, publishes one intent, and knows what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from rootline.adapters.memory import MemoryIntentLog, MemoryObjectStore
from rootline.adapters.system_environment import SystemEnvironment
from rootline.ports.intent_log import NewRecord
from rootline.schemas.content_entry import ContentType
from rootline.schemas.errors import Corrupt, OutcomeUnknown, Unavailable
from rootline.schemas.identifiers import LogPosition, TableName
from rootline.schemas.intent import IntentKind
from rootline.schemas.object_keys import root_key
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.storage.check.chain import check_table
from rootline.storage.check.findings import DataFiles
from rootline.testing.object_stores import Fault, FaultyObjectStore, scripted
from rootline.workers.jobs.job import JobContext, JobOutcome, WorkerLog
from rootline.workers.jobs.maintenance_job import MaintenanceJob
from rootline.workers.jobs.metadata_jobs import flush_job
from rootline.workers.settings import WorkerSettings
from tests.maintenance.table_builder import TableBuilder, data_file, location_of
from tests.workers.log_coordinator import LogCoordinator

LEAVES = "demo/flights/metadata/leaves/"


async def a_table(*numbers: int, **properties: str) -> TableBuilder:
    builder = TableBuilder(MemoryObjectStore(), **properties)
    await builder.create()
    await builder.append(*numbers)
    return builder


def job_of(
    builder: TableBuilder,
    log: WorkerLog,
    *,
    now: bool = True,
    verdict_timeout_s: float = 60.0,
    store: FaultyObjectStore | None = None,
) -> MaintenanceJob:
    settings = WorkerSettings(verdict_timeout_s=verdict_timeout_s)
    return flush_job(JobContext.of(store or builder.store, log, SystemEnvironment(), settings, now=now))


@asynccontextmanager
async def serving(coordinator: LogCoordinator) -> AsyncIterator[None]:
    task = asyncio.create_task(coordinator.serve())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def leaves_in(builder: TableBuilder) -> Sequence[str]:
    return (await builder.store.list(LEAVES)).keys


async def assert_sound(builder: TableBuilder) -> None:
    assert [f async for f in check_table(builder.store, builder.table, data_files=DataFiles.IGNORED)] == []


async def test_a_flush_moves_the_root_s_files_into_leaves() -> None:
    builder, log = await a_table(*range(6)), MemoryIntentLog()
    await builder.delete_rows({1: [4]})
    before = builder.live_files()
    async with serving(LogCoordinator(log, builder)):
        report = await job_of(builder, log).run(builder.table)
    assert (report.outcome, report.leaves, report.entries) == (JobOutcome.COMMITTED, 2, 7)
    assert report.version == builder.state.header.version
    assert builder.live_files() == before
    assert builder.rows_of(ContentType.DATA) == []
    await assert_sound(builder)


async def test_a_table_below_its_own_thresholds_is_left_alone() -> None:
    builder, log = await a_table(*range(6), **{"rootline.flush.data-files": "7"}), MemoryIntentLog()
    job = job_of(builder, log, now=False)
    assert (await job.run(builder.table)).outcome is JobOutcome.NOTHING_DUE
    await builder.append(6)
    async with serving(LogCoordinator(log, builder)):
        assert (await job.run(builder.table)).outcome is JobOutcome.COMMITTED
    assert await log.end_offset() == 1


async def test_a_table_that_does_not_exist_has_nothing_due() -> None:
    builder, log = await a_table(0), MemoryIntentLog()
    assert (await job_of(builder, log).run(TableName("demo.nothing"))).outcome is JobOutcome.NOTHING_DUE


async def test_vectors_of_leafed_files_are_flushed_to_their_leaf() -> None:
    builder, log = await a_table(*range(4)), MemoryIntentLog()
    job = job_of(builder, log)
    async with serving(LogCoordinator(log, builder)):
        await job.run(builder.table)
        await builder.delete_rows({2: [3]})
        report = await job.run(builder.table)
    assert (report.outcome, report.leaves, report.entries) == (JobOutcome.COMMITTED, 1, 1)
    (delete_leaf,) = builder.rows_of(ContentType.DELETE_MANIFEST)
    assert delete_leaf.referenced_file == builder.rows_of(ContentType.DATA_MANIFEST)[0].location
    await assert_sound(builder)


async def test_a_flush_that_came_too_late_is_planned_again() -> None:
    builder, log = await a_table(0, 1), MemoryIntentLog()
    coordinator = LogCoordinator(log, builder)
    await coordinator.publish(builder.removal(0, 1))  # ahead of the flush on the log, after it in the plan
    await coordinator.publish(builder.intent(IntentKind.APPEND, add_data_files=(data_file(2),)))
    async with serving(coordinator):
        report = await job_of(builder, log).run(builder.table)
    assert (report.outcome, report.entries) == (JobOutcome.COMMITTED, 1)
    assert builder.live_files() == {location_of(2)}
    assert len(await leaves_in(builder)) == 2  # the first one is an orphan; the sweep's, not ours
    await assert_sound(builder)


async def test_while_a_verdict_is_awaited_no_second_flush_is_made() -> None:
    builder, log = await a_table(*range(3)), MemoryIntentLog()
    job = job_of(builder, log, verdict_timeout_s=0.01)
    assert (await job.run(builder.table)).outcome is JobOutcome.UNKNOWN
    assert (await job.run(builder.table)).outcome is JobOutcome.UNKNOWN
    assert await log.end_offset() == 1
    assert len(await leaves_in(builder)) == 1
    await LogCoordinator(log, builder).decide()
    report = await job.run(builder.table)
    assert (report.outcome, report.entries) == (JobOutcome.COMMITTED, 3)
    assert (await job.run(builder.table)).outcome is JobOutcome.NOTHING_DUE


class ForgetfulLog(MemoryIntentLog):
    """Keeps a record, and says that it does not know."""

    def __init__(self, *, losses: int, keeps: bool) -> None:
        super().__init__()
        self._losses, self._keeps = losses, keeps

    async def publish(self, key: bytes, value: bytes) -> LogPosition:
        if self._losses == 0:
            return await super().publish(key, value)
        self._losses -= 1
        if self._keeps:
            await super().publish(key, value)
        raise OutcomeUnknown("publish-unknown", "the log did not answer")


@pytest.mark.parametrize("keeps", [True, False])
async def test_a_flush_whose_publication_is_uncertain_is_sent_again_and_lands_once(keeps: bool) -> None:
    builder, log = await a_table(*range(3)), ForgetfulLog(losses=1, keeps=keeps)
    async with serving(LogCoordinator(log, builder)):
        report = await job_of(builder, log).run(builder.table)
    assert report.outcome is JobOutcome.COMMITTED
    assert len(builder.rows_of(ContentType.DATA_MANIFEST)) == 1
    await assert_sound(builder)


class ReplaceableLog:
    """A log's address: another log may be found there later."""

    def __init__(self) -> None:
        self.log = MemoryIntentLog()

    async def publish(self, key: bytes, value: bytes) -> LogPosition:
        return await self.log.publish(key, value)

    async def publish_many(self, records: Sequence[NewRecord]) -> list[LogPosition]:
        return await self.log.publish_many(records)

    async def wait_verdict(self, position: LogPosition, *, timeout_s: float) -> Verdict | None:
        return await self.log.wait_verdict(position, timeout_s=timeout_s)


async def test_a_flush_on_a_log_that_was_replaced_is_planned_again() -> None:
    builder, address = await a_table(*range(3)), ReplaceableLog()
    job = job_of(builder, address, verdict_timeout_s=0.01)
    assert (await job.run(builder.table)).outcome is JobOutcome.UNKNOWN
    address.log = MemoryIntentLog()
    async with serving(LogCoordinator(address.log, builder)):
        assert (await job.run(builder.table)).outcome in (JobOutcome.COMMITTED, JobOutcome.UNKNOWN)
        while (await job.run(builder.table)).outcome is not JobOutcome.NOTHING_DUE:
            pass
    assert builder.rows_of(ContentType.DATA) == []


async def test_a_verdict_on_another_intent_in_the_place_of_a_flush_says_nothing_of_it() -> None:
    """As where the log was restored from an older copy, and its next records have the same offsets."""
    builder, log = await a_table(*range(3)), MemoryIntentLog()
    job = job_of(builder, log, verdict_timeout_s=0.01)
    assert (await job.run(builder.table)).outcome is JobOutcome.UNKNOWN
    [flush] = await log.read(0, limit=1, wait_s=0.0)
    log_id, partition, offset = flush.position
    other = Verdict(
        intent_id="another",
        table=builder.table,
        kind=VerdictKind.COMMITTED,
        log=log_id,
        partition=partition,
        offset=offset,
        version=7,
    )
    await log.publish_verdicts([other], [])
    assert (await job.run(builder.table)).outcome is JobOutcome.UNKNOWN
    assert await log.end_offset() == 2  # planned again
    async with serving(LogCoordinator(log, builder)):
        while (await job.run(builder.table)).outcome is not JobOutcome.NOTHING_DUE:
            pass
    assert builder.rows_of(ContentType.DATA) == []


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.OWN_CONFLICT])
async def test_a_leaf_whose_reply_is_lost_is_found_stored(fault: Fault) -> None:
    builder, log = await a_table(*range(3)), MemoryIntentLog()
    store = FaultyObjectStore(builder.store, scripted([fault], under=LEAVES))
    async with serving(LogCoordinator(log, builder)):
        report = await job_of(builder, log, store=store).run(builder.table)
    assert report.outcome is JobOutcome.COMMITTED


async def test_a_leaf_that_was_not_stored_is_never_published() -> None:
    builder, log = await a_table(*range(3)), MemoryIntentLog()
    store = FaultyObjectStore(builder.store, scripted([Fault.LOST_REQUEST], under=LEAVES))
    with pytest.raises(Unavailable):
        await job_of(builder, log, store=store).run(builder.table)
    assert await log.end_offset() == 0


async def test_other_bytes_under_the_name_of_a_new_leaf_stop_the_flush_before_it_is_published() -> None:
    builder, log = await a_table(*range(3)), MemoryIntentLog()
    store = FaultyObjectStore(builder.store, scripted([Fault.OWN_CONFLICT, Fault.TRUNCATED], under=LEAVES))
    with pytest.raises(Corrupt, match="other bytes are stored under this name") as failure:
        await job_of(builder, log, store=store).run(builder.table)
    assert failure.value.code == "leaf-corrupt"
    assert await log.end_offset() == 0


async def test_a_corrupt_head_stops_the_flush_before_anything_is_written() -> None:
    builder, log = await a_table(*range(3)), MemoryIntentLog()
    assert isinstance(builder.store, MemoryObjectStore)
    builder.store.place(root_key(builder.table, builder.state.header.version), b"Obj\x01 damaged")
    with pytest.raises(Corrupt):
        await job_of(builder, log).run(builder.table)
    assert await leaves_in(builder) == ()


async def test_one_process_does_one_thing_to_a_table_at_a_time_whatever_its_queue_hands_out_twice() -> None:
    """A shared queue that lost its leases gave the same worker the same task again."""
    builder, log = await a_table(*range(6)), MemoryIntentLog()
    coordinator, job = LogCoordinator(log, builder), job_of(builder, log)
    async with serving(coordinator):
        reports = await asyncio.gather(job.run(builder.table), job.run(builder.table))
    assert [report.outcome for report in reports] == [JobOutcome.COMMITTED, JobOutcome.NOTHING_DUE]
    assert len(await leaves_in(builder)) == 1
    await assert_sound(builder)
