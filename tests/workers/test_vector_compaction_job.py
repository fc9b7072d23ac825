"""A worker moves large manifest vectors out of the root, and joins vectors of data files in few Puffin files."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from rootline.adapters.memory import MemoryIntentLog
from rootline.adapters.system_environment import SystemEnvironment
from rootline.maintenance.limits import CompactionLimits
from rootline.maintenance.vector_compaction_plan import large_vectors
from rootline.schemas.content_entry import ContentType
from rootline.workers.jobs.job import JobContext, JobOutcome
from rootline.workers.jobs.metadata_jobs import flush_job, vector_compaction_job
from rootline.workers.settings import WorkerSettings
from tests.maintenance.table_builder import TableBuilder, location_of
from tests.support.loaded_tables import load_table
from tests.workers.log_coordinator import LogCoordinator


async def a_table(**properties: str) -> TableBuilder:
    """A leaf of eight files, of which three are dead."""
    builder = TableBuilder(**properties)
    await builder.create()
    await builder.append(*range(8))
    await builder.flush()
    await builder.remove(0, 1)
    await builder.remove(5)
    return builder


async def test_a_large_vector_moves_and_the_table_is_what_it_was() -> None:
    builder, log = await a_table(**{"rootline.compact.vector-bytes": "10"}), MemoryIntentLog()
    before = builder.live_files()
    serving = asyncio.create_task(LogCoordinator(log, builder).serve())
    job = vector_compaction_job(JobContext.of(builder.store, log, SystemEnvironment(), WorkerSettings()))
    report = await job.run(builder.table)
    assert (report.outcome, report.entries) == (JobOutcome.COMMITTED, 1)
    (mask,) = builder.rows_of(ContentType.MANIFEST_DV)
    assert mask.location.startswith("metadata/vectors/")
    assert mask.record_count == 3
    assert (await job.run(builder.table)).outcome is JobOutcome.NOTHING_DUE
    read = await load_table(builder.store, builder.table)
    assert read is not None
    assert {live.entry.location for live in read.live.entries()} == before == builder.live_files()
    assert await builder.findings() == []
    serving.cancel()


async def test_vectors_of_data_files_still_find_their_leaf_for_a_flush() -> None:
    builder, log = (
        await a_table(**{"rootline.compact.vector-bytes": "10", "rootline.flush.vectors": "1"}),
        MemoryIntentLog(),
    )
    serving = asyncio.create_task(LogCoordinator(log, builder).serve())
    context = JobContext.of(builder.store, log, SystemEnvironment(), WorkerSettings())
    await vector_compaction_job(context).run(builder.table)
    await builder.delete_rows({3: [1]})
    report = await flush_job(context).run(builder.table)
    serving.cancel()
    assert (report.outcome, report.entries) == (JobOutcome.COMMITTED, 1)
    (deletes,) = builder.rows_of(ContentType.DELETE_MANIFEST)
    assert deletes.referenced_file is not None
    assert builder.state.vector_of(location_of(3)) is not None
    assert await builder.findings() == []


def test_vectors_are_large_alone_or_all_together() -> None:
    limits = CompactionLimits(vector_bytes=1_000, root_vector_bytes=4_000)
    assert large_vectors({"a": 1_000, "b": 1_001, "c": 10}, limits) == ["b"]
    many = {f"{number}": 900 for number in range(5)}
    assert large_vectors(many, limits) == ["0", "1", "2"]
    assert large_vectors({f"{number}": 100 for number in range(50)}, limits) == []


async def with_scattered_vectors(files: int, **properties: str) -> TableBuilder:
    """Data files in a leaf, each with a vector in a Puffin file of its own; half of the vectors are in a leaf."""
    builder = TableBuilder(**properties)
    await builder.create()
    await builder.append(*range(files))
    await builder.flush()
    for number in range(files):
        await builder.delete_rows({number: [1]})
        if number == files // 2:
            await builder.flush()
    return builder


def puffin_files(builder: TableBuilder) -> set[str]:
    vectors = [builder.state.vector_of(location) for location in builder.live_files()]
    return {vector.location for vector in vectors if vector is not None}


async def deleted_rows(builder: TableBuilder) -> dict[str, list[int]]:
    vectors = {location: builder.state.vector_of(location) for location in builder.live_files()}
    return {name: list(await builder.read_vector(vector)) for name, vector in vectors.items() if vector is not None}


async def test_vectors_of_many_small_deletes_are_joined_and_delete_the_same_rows() -> None:
    builder, log = await with_scattered_vectors(16), MemoryIntentLog()
    before = await deleted_rows(builder)
    assert len(puffin_files(builder)) == 16
    serving = asyncio.create_task(LogCoordinator(log, builder).serve())
    context = JobContext.of(builder.store, log, SystemEnvironment(), WorkerSettings())
    job = vector_compaction_job(context)
    report = await job.run(builder.table)
    assert (report.outcome, report.entries) == (JobOutcome.COMMITTED, 16)
    assert len(puffin_files(builder)) == 1
    assert await deleted_rows(builder) == before
    assert await builder.findings() == []
    assert (await job.run(builder.table)).outcome is JobOutcome.NOTHING_DUE
    await flush_job(replace(context, now=True)).run(builder.table)
    assert (len(puffin_files(builder)), await deleted_rows(builder)) == (1, before)
    assert await builder.findings() == []
    serving.cancel()


async def test_few_files_of_vectors_are_joined_only_by_hand() -> None:
    builder, log = await with_scattered_vectors(4), MemoryIntentLog()
    serving = asyncio.create_task(LogCoordinator(log, builder).serve())
    context = JobContext.of(builder.store, log, SystemEnvironment(), WorkerSettings())
    assert (await vector_compaction_job(context).run(builder.table)).outcome is JobOutcome.NOTHING_DUE
    by_hand = await vector_compaction_job(replace(context, now=True)).run(builder.table)
    assert (by_hand.outcome, len(puffin_files(builder))) == (JobOutcome.COMMITTED, 1)
    serving.cancel()


async def test_what_is_joined_is_bounded_and_full_files_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rootline.maintenance.vector_compaction_plan.JOINED_MAX", 4)
    builder, log = await with_scattered_vectors(10, **{"rootline.compact.vector-files": "3"}), MemoryIntentLog()
    serving = asyncio.create_task(LogCoordinator(log, builder).serve())
    job = vector_compaction_job(JobContext.of(builder.store, log, SystemEnvironment(), WorkerSettings()))
    joined = []
    while (report := await job.run(builder.table)).outcome is JobOutcome.COMMITTED:
        joined.append(report.entries)
    assert (joined, len(puffin_files(builder))) == ([4, 4], 4)
    serving.cancel()
