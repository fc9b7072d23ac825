"""Dropped tables are purged by workers when their time is over; it passes on `virtual_loop`, which takes none."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from rootline.adapters.memory import MemoryIntentLog
from rootline.ports.object_store import Listing
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import IntentKind, VersionReference
from rootline.schemas.root_header import RootHeader
from rootline.storage.metadata.root_reader import newest_root
from rootline.testing.seeded_environment import SeededEnvironment
from rootline.tree.intents.create_drop import KEPT_PROPERTY
from rootline.tree.state.addressable import check_is_table
from rootline.workers.jobs.expiry_job import PurgeJob
from rootline.workers.jobs.job import JobContext, JobOutcome
from rootline.workers.settings import WorkerSettings
from tests.workers.test_expiry_job import Lake, told

DAY_S = 24 * 3600


def job_of(lake: Lake) -> PurgeJob:
    return PurgeJob(JobContext.of(lake.store, lake.log, lake.environment, WorkerSettings()))


async def newest(lake: Lake) -> RootHeader:
    root = await newest_root(lake.store, lake.table)
    assert root is not None
    return root.header


async def drop(lake: Lake) -> None:
    intent = lake.builder.intent(IntentKind.DROP, table_uuid=lake.builder.definition.table_uuid)
    await lake.commit(intent)


def test_a_table_that_was_dropped_long_enough_ago_is_purged_and_the_dry_run_says_so() -> None:
    async def story(lake: Lake) -> None:
        await lake.append(3)
        assert (await job_of(lake).run(lake.table)).outcome is JobOutcome.NOTHING_DUE
        await drop(lake)
        job = job_of(lake)
        early = await job.run(lake.table)
        assert early.outcome is JobOutcome.NOTHING_DUE
        assert early.again_s == pytest.approx(1_200, abs=60)
        await asyncio.sleep(1_260)
        planned = await job.dry_run(lake.table)
        assert (planned.outcome, planned.entries, planned.condemned[0].objects) == (JobOutcome.PLANNED, 3, 3)
        assert not (await newest(lake)).name.drops[-1].is_purged
        assert (await job.run(lake.table)).outcome is JobOutcome.COMMITTED
        header = await newest(lake)
        assert (header.name.drops[-1].is_purged, header.totals.data_files) == (True, 0)
        with pytest.raises(Invalid, match="with its files, and cannot be restored"):
            check_is_table(header)
        again = await job.run(lake.table)
        assert (again.outcome, again.again_s) == (JobOutcome.NOTHING_DUE, None)

    told(story, Lake(**{"rootline.sweep": "true", KEPT_PROPERTY: "1200"}))


def test_a_table_says_for_how_long_it_is_kept_and_one_that_came_back_is_kept() -> None:
    async def story(lake: Lake) -> None:
        await lake.append(1)
        await drop(lake)
        job = job_of(lake)
        await asyncio.sleep(1_300)
        dropped = (await newest(lake)).name.drops[-1]
        ref = VersionReference(version=dropped.version)
        await lake.commit(lake.builder.intent(IntentKind.RESTORE, table_uuid=dropped.table_uuid, ref=ref))
        assert (await job.run(lake.table)).outcome is JobOutcome.NOTHING_DUE
        await drop(lake)
        assert (await job.run(lake.table)).outcome is JobOutcome.NOTHING_DUE
        await asyncio.sleep(1_300)
        assert (await job.run(lake.table)).outcome is JobOutcome.COMMITTED

    told(story, Lake(**{"rootline.sweep": "true", KEPT_PROPERTY: "1200"}))


def test_a_worker_whose_clock_is_ahead_is_told_so_by_the_coordinator() -> None:
    async def story(lake: Lake) -> None:
        await lake.append(1)
        await drop(lake)
        ahead = SeededEnvironment(2, skew_ms=30 * DAY_S * 1000)
        report = await PurgeJob(JobContext.of(lake.store, lake.log, ahead, WorkerSettings())).run(lake.table)
        assert (report.outcome, report.code) == (JobOutcome.STALE, "purge-stale")
        assert not (await newest(lake)).name.drops[-1].is_purged

    lake = Lake(dated=False, **{"rootline.sweep": "true"})
    lake.log = MemoryIntentLog(clock_ms=lake.environment.now_ms)
    told(story, lake)


class Ahead:
    """A store that dates its answers a month ahead."""

    def __init__(self, lake: Lake) -> None:
        self._store = lake.store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def list(self, prefix: str, *, limit: int | None = None) -> Listing:
        found = await self._store.list(prefix, limit=limit)
        return replace(found, store_ms=(found.store_ms or 0) + 30 * DAY_S * 1000)


def test_a_store_whose_clock_is_ahead_makes_no_dropped_table_old() -> None:
    async def story(lake: Lake) -> None:
        await lake.append(1)
        await drop(lake)
        store: Any = Ahead(lake)
        job = PurgeJob(JobContext.of(store, lake.log, lake.environment, WorkerSettings()))
        assert (await job.dry_run(lake.table)).outcome is JobOutcome.NOTHING_DUE
        report = await job.run(lake.table)
        assert report.outcome is JobOutcome.NOTHING_DUE
        assert report.again_s == pytest.approx(1_200, abs=60)

    told(story, Lake(**{"rootline.sweep": "true", KEPT_PROPERTY: "1200"}))
