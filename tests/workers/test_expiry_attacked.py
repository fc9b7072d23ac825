"""What clocks and other processes may do to an expiry: no history goes early, and nothing healthy is called damaged."""

from __future__ import annotations

import pytest

from rootline.adapters.memory import MemoryObjectRemover
from rootline.workers.jobs.expiry_job import ExpiryJob
from rootline.workers.jobs.job import JobContext, JobOutcome
from rootline.workers.settings import WorkerSettings
from tests.workers.racing_reads import BeforeRead
from tests.workers.sweep_world import DAY_MS
from tests.workers.test_expiry_job import Lake, told


@pytest.mark.parametrize("read", range(2, 9))
@pytest.mark.parametrize("is_dry", [False, True])
def test_two_expirers_on_a_folder_never_call_the_table_damaged(read: int, *, is_dry: bool) -> None:
    """There roots go at once, so what one plans from, the other has removed."""
    lake = Lake(dated=False, **{"rootline.expire.all-seconds": "3"})

    async def story(lake: Lake) -> None:
        await lake.append(30)

        async def expire() -> None:
            assert (await lake.job().run(lake.table)).outcome is JobOutcome.COMMITTED

        store, remover = BeforeRead(lake.store, read, expire), MemoryObjectRemover(lake.store)
        context = JobContext.of(store, lake.log, lake.environment, WorkerSettings(), remover=remover)
        job = ExpiryJob(context)
        report = await (job.dry_run(lake.table) if is_dry else job.run(lake.table))
        assert report.outcome in (JobOutcome.NOTHING_DUE, JobOutcome.COMMITTED, JobOutcome.REMOVED)
        assert await lake.findings() == []

    told(story, lake)


def test_one_commit_by_a_coordinator_whose_clock_is_a_year_ahead_expires_nothing() -> None:
    lake = Lake(**{"rootline.expire.all-versions": "1000"})

    async def story(lake: Lake) -> None:
        await lake.append(20)
        lake.environment.skew_ms += 365 * DAY_MS
        await lake.append(1)
        lake.environment.skew_ms -= 365 * DAY_MS
        await lake.append(1)
        assert (await lake.job().run(lake.table)).outcome is JobOutcome.NOTHING_DUE
        assert (await lake.header()).versions.oldest == 0

    told(story, lake)
