"""Thresholds follow how fast roots are written, because every root is kept for a while."""

from __future__ import annotations

from dataclasses import replace

from rootline.adapters.memory import MemoryIntentLog
from rootline.adapters.system_environment import SystemEnvironment
from rootline.maintenance.flush_plan import CommitPace
from rootline.maintenance.limits import FEW_FILES, FEW_VECTORS, FlushLimits
from rootline.schemas.identifiers import Version
from rootline.workers.jobs.job import JobContext, JobOutcome
from rootline.workers.jobs.metadata_jobs import flush_job
from rootline.workers.settings import WorkerSettings
from tests.maintenance.table_builder import TableBuilder

MB = 1_000_000


async def test_the_pace_is_that_between_the_heads_that_were_seen() -> None:
    builder = TableBuilder()
    await builder.create()
    header, pace = builder.state.header, CommitPace()

    def head(version: int, timestamp_ms: int) -> float:
        snapshot = replace(header.snapshot, timestamp_ms=timestamp_ms)
        return pace.see(replace(header, version=Version(version), snapshot=snapshot))

    assert head(10, 1_000_000) == 0.0
    assert head(30, 1_002_000) == 10.0
    assert head(31, 1_002_100) == 10.0  # too near to tell
    assert head(34, 1_006_000) == 1.0
    assert head(0, 1_007_000) == 0.0  # another table of that name


def test_a_table_that_is_written_slowly_keeps_its_thresholds() -> None:
    limits = FlushLimits()
    assert limits.at_pace(MB, 0.0) == limits
    assert limits.at_pace(MB, 1.0) == limits


def test_ten_roots_of_a_megabyte_a_second_are_too_much_and_make_a_flush_due_early() -> None:
    fast = FlushLimits().at_pace(MB, 10.0)
    assert (fast.data_files, fast.vectors) == (FEW_FILES, FEW_VECTORS)
    assert FlushLimits().at_pace(MB // 10, 10.0) == FlushLimits()  # once the root is short, they hold again
    own = FlushLimits(data_files=12, vectors=4)
    assert own.at_pace(MB, 10.0) == own


def test_a_table_whose_versions_expire_keeps_its_roots_short_above_one_commit_a_second() -> None:
    limits = FlushLimits.of_properties({"rootline.expire": "true"})
    assert limits.at_pace(1_000, 1.0) == limits
    fast = limits.at_pace(1_000, 1.1)
    assert (fast.data_files, fast.vectors) == (FEW_FILES, FEW_VECTORS)


def test_what_an_hour_may_take_is_a_property_of_the_table() -> None:
    limits = FlushLimits.of_properties({"rootline.flush.retained-bytes": str(40_000 * MB)})
    assert limits.at_pace(MB, 10.0) == limits


async def test_a_worker_flushes_a_fast_table_earlier_than_a_slow_one() -> None:
    for seconds_a_commit, outcome in ((1, JobOutcome.UNKNOWN), (60, JobOutcome.NOTHING_DUE)):
        builder = TableBuilder(**{"rootline.flush.retained-bytes": str(20 * MB)})
        await builder.create()
        settings = WorkerSettings(verdict_timeout_s=0.001)
        job = flush_job(JobContext.of(builder.store, MemoryIntentLog(), SystemEnvironment(), settings))
        assert (await job.run(builder.table)).outcome is JobOutcome.NOTHING_DUE
        await builder.append(*range(FEW_FILES))
        builder.now_ms += 1_000 * seconds_a_commit
        await builder.append(FEW_FILES)
        assert (await job.run(builder.table)).outcome is outcome


async def test_a_root_knows_the_bytes_of_those_before_it() -> None:
    builder = TableBuilder()
    await builder.create()
    sizes = [builder.state.root.size_in_bytes]
    for number in range(5):
        await builder.append(number)
        assert builder.state.header.earlier_bytes == sum(sizes)
        sizes.append(builder.state.root.size_in_bytes)
    assert await builder.findings() == []
