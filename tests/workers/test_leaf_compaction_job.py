"""A worker compacts the leaves that its flushes leave behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from pyiceberg.partitioning import PartitionSpec as IcebergSpec

from rootline.adapters.memory import MemoryIntentLog, MemoryObjectStore
from rootline.adapters.system_environment import SystemEnvironment
from rootline.catalog.adoption_plan import AdoptionPlan, plan_adoption
from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.bytes.root.root_codec import Root, decode_root
from rootline.schemas.content_entry import ContentEntry, ContentType, FileFormat
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import Version
from rootline.schemas.intent import Intent, IntentKind, RemovedFile
from rootline.schemas.object_keys import key_of
from rootline.storage.check.chain import check_table
from rootline.storage.metadata.table_loader import load_to_build_on
from rootline.tree.proof.adoption import encode_adopted, is_adopted
from rootline.workers.app import WorkerService
from rootline.workers.jobs.job import JobContext, JobOutcome
from rootline.workers.jobs.maintenance_job import MaintenanceJob
from rootline.workers.jobs.metadata_jobs import LeafCompactionPlanner, leaf_compaction_job
from rootline.workers.settings import WorkerSettings
from tests.catalog.adopt.test_adoption_intents import BASE, intent_of, planned
from tests.catalog.hand_written_table import HandWritten, rows
from tests.coordinator.hooked_ports import HookedStore
from tests.coordinator.running_service import TABLE, running
from tests.maintenance.table_builder import TableBuilder, data_file
from tests.schemas.iceberg_manifests import leaf_row, manifest, record
from tests.workers.log_coordinator import LogCoordinator


async def a_table_with_leaves(count: int, **properties: str) -> TableBuilder:
    builder = TableBuilder(MemoryObjectStore(), **properties)
    await builder.create()
    for number in range(count):
        await builder.append(2 * number, 2 * number + 1)
        await builder.flush()
    return builder


def root_of(plan: AdoptionPlan, rows: Sequence[ContentEntry]) -> Root:
    """What `plan` adopts, with these rows."""
    header = decode_root(plan.body, name="adopted").header
    return encode_adopted(TABLE, plan.definition, header.snapshot, rows, header.row_ids.next, header.totals)[0]


def job_of(builder: TableBuilder, log: MemoryIntentLog, *, now: bool = False) -> MaintenanceJob:
    return leaf_compaction_job(JobContext.of(builder.store, log, SystemEnvironment(), WorkerSettings(), now=now))


def planner_of(store: ObjectStore) -> LeafCompactionPlanner:
    """One that keeps no leaf in memory."""
    settings = WorkerSettings(leaf_cache_bytes_max=0)
    return LeafCompactionPlanner(JobContext.of(store, MemoryIntentLog(), SystemEnvironment(), settings))


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


async def test_a_compaction_of_leaves_that_died_meanwhile_is_planned_again() -> None:
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
    assert service.counters.outcomes == {("compaction", JobOutcome.COMMITTED): 1}


@pytest.mark.parametrize("switch", ["true", "false"])
async def test_the_worker_turns_adopted_leaves_into_columns_unless_the_table_says_no(switch: str) -> None:
    store, log = MemoryObjectStore(), MemoryIntentLog()
    old = HandWritten(BASE, 3, lambda location, body: store.place(location, body))  # type: ignore[arg-type]
    old.manifest("m1", [old.data("a", rows(0, "UA")), old.data("b", rows(10, "DL"))], 1)
    old.manifest("d1", [old.vector("v", "data/a.parquet", [0, 9])], 2)
    plan = await plan_adoption(store, TABLE, old.finish(2, properties={"rootline.compact.adopted": switch}))
    store.place(key_of(TABLE, plan.named.location), plan.body)
    async with running(store, log) as service:
        await service.commit(intent_of(plan))
        worker = WorkerService(store=store, log=log, settings=WorkerSettings())
        await worker.look_once()
        outcomes = [
            report and report.outcome for report in (await worker.carry_out_one(), await worker.carry_out_one())
        ]
        context = JobContext.of(store, log, SystemEnvironment(), WorkerSettings(), now=True)
        by_hand = await leaf_compaction_job(context).run(TABLE)
    first, second = JobOutcome.COMMITTED, JobOutcome.NOTHING_DUE
    is_on = switch == "true"
    assert outcomes == [JobOutcome.NOTHING_DUE, first if is_on else second]
    assert by_hand.outcome is (second if is_on else first)
    rows_of_root = [row.entry for row in (await load_to_build_on(store, TABLE, Version(1))).root.rows]
    assert {entry.content_type: entry.file_format for entry in rows_of_root} == {
        ContentType.DATA_MANIFEST: FileFormat.PARQUET,
        ContentType.DELETE_MANIFEST: FileFormat.AVRO,
    }
    assert [finding async for finding in check_table(store, TABLE)] == []


def removal(name: str) -> Intent:
    files = (RemovedFile(location=f"{BASE}/data/{name}.parquet"),)
    return Intent(intent_id=f"remove {name}", table=TABLE, kind=IntentKind.REMOVE, remove_files=files)


async def live_data_files(store: MemoryObjectStore, version: int) -> set[str]:
    state = await load_to_build_on(store, TABLE, Version(version))
    live = (one.entry for one in state.live.entries())
    return {entry.location.rsplit("/")[-1] for entry in live if entry.content_type is ContentType.DATA}


async def test_what_is_removed_while_an_adopted_leaf_is_compacted_stays_removed() -> None:
    store, log = MemoryObjectStore(), MemoryIntentLog()
    plan = await planned(store)
    async with running(store, log) as service:
        await service.commit(intent_of(plan))

        async def remove_first(operation: str, key: str) -> None:
            if operation == "put":
                await service.commit(removal("b"))

        hooked = HookedStore(store, before=remove_first)
        context = JobContext.of(hooked, log, SystemEnvironment(), WorkerSettings())
        report = await leaf_compaction_job(context).run(TABLE)
    assert (report.outcome, report.entries, report.version) == (JobOutcome.COMMITTED, 3, 2)
    assert await live_data_files(store, 2) == {"a.parquet", "c.parquet"}
    assert [finding async for finding in check_table(store, TABLE)] == []


async def test_an_adopted_leaf_that_loses_an_entry_in_the_very_root_that_compacts_it_leaves_with_the_next() -> None:
    store, log = MemoryObjectStore(), MemoryIntentLog()
    plan = await planned(store)
    async with running(store, log) as service:
        await service.commit(intent_of(plan))
    job = leaf_compaction_job(JobContext.of(store, log, SystemEnvironment(), WorkerSettings()))
    await log.publish(TABLE.encode(), encode_intent(removal("b")))
    compacting = asyncio.create_task(job.run(TABLE))
    assert len(await log.read(2, limit=1, wait_s=20.0)) == 1
    async with running(store, log):  # both are there: they share a root
        report = await compacting
        assert (report.outcome, report.version) == (JobOutcome.COMMITTED, 1)
        leaves = [row.entry for row in (await load_to_build_on(store, TABLE, Version(1))).root.rows]
        assert [entry.location for entry in leaves if is_adopted(entry)] == [
            f"{BASE}/metadata/{name}.avro" for name in ("m1", "d1")
        ]
        again = await job.run(TABLE)
        assert (again.outcome, again.leaves, again.version) == (JobOutcome.COMMITTED, 0, 2)
        assert (await job.run(TABLE)).outcome is JobOutcome.NOTHING_DUE
    assert await live_data_files(store, 2) == {"a.parquet", "c.parquet"}
    assert [finding async for finding in check_table(store, TABLE)] == []


async def test_an_adopted_leaf_that_columns_cannot_hold_stays_and_the_others_go_without_it() -> None:
    store = MemoryObjectStore()
    plan = await planned(store)
    said = [row.entry for row in decode_root(plan.body, name="adopted").rows]
    first, second = said[:2]
    body = manifest(3, [record("c")], spec=IcebergSpec(spec_id=3))  # it does not tell its partition
    store.place(second.location, body)  # type: ignore[arg-type]
    unknown = leaf_row(body, 1, location=second.location)
    elsewhere = leaf_row(b"", 1, location="gs://bucket/m.avro")  # nothing is read there
    root = root_of(plan, [first, unknown, elsewhere, *said[2:]])
    reads = HookedStore(store)
    planner = planner_of(reads)
    found = await planner.plan(TABLE, root, plan.definition)
    assert found is not None
    assert found.replaces == (first.location,)
    assert {key for _, key in reads.calls} == {first.location, unknown.location, elsewhere.location}
    reads.calls.clear()
    assert await planner.plan(TABLE, root_of(plan, [unknown, elsewhere]), plan.definition) is None
    assert reads.calls == []


async def test_an_adopted_leaf_that_is_gone_keeps_no_other_from_its_turn_and_is_taken_when_it_is_back() -> None:
    store = MemoryObjectStore()
    plan = await planned(store)
    root = decode_root(plan.body, name="adopted")
    first, second = [row.entry.location for row in root.rows][:2]
    stored = await store.get(second)  # type: ignore[arg-type]
    assert stored is not None
    planner = planner_of(store)
    for body, wanted in ((None, {first}), (stored.body[:9], {first}), (stored.body, {first, second})):
        store.discard(stored.key)
        if body is not None:
            store.place(stored.key, body)
        found = await planner.plan(TABLE, root, plan.definition)
        assert found is not None
        assert set(found.replaces) == wanted


async def test_a_leaf_that_never_comes_while_a_compaction_is_planned_is_unavailable() -> None:
    builder = await a_table_with_leaves(2)

    async def leaves_hang(_: str, key: str) -> None:
        if "/leaves/" in key:
            await asyncio.Event().wait()

    store = HookedStore(builder.store, before=leaves_hang)
    settings = WorkerSettings(request_timeout_s=0.05)
    job = leaf_compaction_job(JobContext.of(store, MemoryIntentLog(), SystemEnvironment(), settings, now=True))
    with pytest.raises(Unavailable, match=r"planning a compaction of leaves got no answer within 0.05 s"):
        await job.run(builder.table)
