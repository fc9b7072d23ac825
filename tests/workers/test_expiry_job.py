"""Expiry beside the real coordinator: what is given up, and which roots are removed when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from rootline.adapters.embedded_feed import EmbeddedFeed
from rootline.adapters.memory import MemoryIntentLog, MemoryObjectRemover, MemoryObjectStore
from rootline.client.time_travel import PointInTime, read_root_at
from rootline.client.version_history import read_changes, read_history
from rootline.coordinator.app import CoordinatorService
from rootline.coordinator.settings import CoordinatorSettings
from rootline.ports.object_remover import ObjectRemover
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.errors import Corrupt, Invalid, Unavailable
from rootline.schemas.identifiers import ObjectKey, Version
from rootline.schemas.intent import Intent, IntentKind, VersionReference
from rootline.schemas.object_keys import key_of, root_key, roots_prefix, version_of_root_key
from rootline.schemas.root_header import RootHeader
from rootline.schemas.verdict import VerdictKind
from rootline.storage.check.chain import check_table
from rootline.storage.check.findings import DataFiles
from rootline.testing.seeded_environment import SeededEnvironment
from rootline.testing.virtual_loop import run_virtually
from rootline.workers.app import WorkerService
from rootline.workers.jobs.expiry_job import ExpiryJob
from rootline.workers.jobs.job import JobContext, JobOutcome
from rootline.workers.settings import WorkerSettings
from tests.maintenance.table_builder import TableBuilder, data_file
from tests.support.loaded_tables import load_table

PROPERTIES = {
    "rootline.expire": "true",
    "rootline.expire.every-commits": "5",
    "rootline.expire.all-versions": "10",
    "rootline.expire.all-seconds": "100000",
}


class Denied(MemoryObjectRemover):
    """A store that lets no one remove anything."""

    async def remove(self, keys: Sequence[ObjectKey]) -> None:
        raise Unavailable("store-unavailable", "DELETE was answered AccessDenied")


class Dying(MemoryObjectRemover):
    """A process that ends after it removed two objects."""

    async def remove(self, keys: Sequence[ObjectKey]) -> None:
        await super().remove(keys[:2])
        raise Unavailable("store-unavailable", "the connection was lost")


class Lake:
    """One table, its coordinator, and jobs."""

    def __init__(self, *, dated: bool = True, **properties: str) -> None:
        self.environment = SeededEnvironment(1)
        self.store = MemoryObjectStore(self.environment.now_ms if dated else None)
        self.log = MemoryIntentLog(clock_ms=self.environment.now_ms)
        self.builder = TableBuilder(self.store, **(PROPERTIES | properties))
        self.table = self.builder.table
        self.files = 0

    def job(self, remover: ObjectRemover | None = None, *, now: bool = False) -> ExpiryJob:
        chosen = MemoryObjectRemover(self.store) if remover is None else remover
        context = JobContext.of(self.store, self.log, self.environment, WorkerSettings(), now=now, remover=chosen)
        return ExpiryJob(context)

    async def commit(self, intent: Intent) -> None:
        position = await self.log.publish(self.table.encode(), encode_intent(intent))
        verdict = await self.log.wait_verdict(position, timeout_s=600)
        assert verdict is not None
        assert verdict.kind is VerdictKind.COMMITTED, verdict

    async def append(self, times: int, every_s: float = 1.0) -> None:
        for _ in range(times):
            self.files += 1
            await self.commit(self.builder.intent(IntentKind.APPEND, add_data_files=(data_file(self.files),)))
            await asyncio.sleep(every_s)

    async def tag(self, name: str, version: int) -> None:
        await self.commit(self.builder.intent(IntentKind.TAG, ref=VersionReference(version=version, tag=name)))

    async def header(self) -> RootHeader:
        state = await load_table(self.store, self.table)
        assert state is not None
        return state.header

    async def roots(self) -> set[int]:
        keys = (await self.store.list(roots_prefix(self.table))).keys
        return {version for key in keys if (version := version_of_root_key(key)) is not None}

    async def findings(self) -> list[Any]:
        return [item async for item in check_table(self.store, self.table, data_files=DataFiles.IGNORED)]


def told(story: Callable[[Lake], Coroutine[Any, Any, None]], lake: Lake) -> None:
    """Let a story happen to a table that exists."""

    async def whole() -> None:
        feed = EmbeddedFeed(lake.log)
        coordinator = CoordinatorService(
            store=lake.store, log=feed, settings=CoordinatorSettings(), environment=lake.environment
        )
        serving = asyncio.create_task(coordinator.run())
        definition = lake.builder.definition.to_json().decode()
        await lake.commit(lake.builder.intent(IntentKind.CREATE, definition=definition))
        await story(lake)
        coordinator.request_stop()
        await serving

    run_virtually(whole())


def test_roots_go_a_retention_after_they_were_given_up() -> None:
    async def story(lake: Lake) -> None:
        job = lake.job()
        await lake.append(30)
        before = await lake.roots()
        report = await job.run(lake.table)
        assert (report.outcome, report.removed) == (JobOutcome.COMMITTED, ())
        assert report.again_s is not None
        header = await lake.header()
        assert header.versions.oldest == header.version - 10
        await asyncio.sleep(590)
        assert (await job.run(lake.table)).removed == ()
        assert before <= await lake.roots()
        await asyncio.sleep(70)
        (removed,) = (await job.run(lake.table)).removed
        kept = (await lake.header()).versions.oldest
        assert removed.kind == "roots"
        assert min(version for version in await lake.roots() if version >= kept) == kept
        assert removed.objects == len(before - await lake.roots())
        assert removed.size_in_bytes > 1_000
        assert await lake.findings() == []
        assert (await job.run(lake.table)).outcome is JobOutcome.NOTHING_DUE

    told(story, Lake())


async def readable(lake: Lake) -> set[int]:
    return {item.version for item in await read_history(lake.store, lake.table, 1_000)}


def test_what_has_just_been_given_up_waits_however_old_its_root_is() -> None:
    async def story(lake: Lake) -> None:
        job = lake.job()
        await lake.append(40, every_s=20.0)
        await job.run(lake.table)
        await lake.append(40, every_s=20.0)
        before = await readable(lake)
        assert (await job.run(lake.table)).outcome is JobOutcome.COMMITTED
        given_up = before - await readable(lake)
        now_ms, store_ms = lake.environment.now_ms(), {}
        for item in lake.store.dated(roots_prefix(lake.table)):
            store_ms[version_of_root_key(item.key)] = item.last_modified_ms
        old = {version for version in given_up if now_ms - store_ms.get(Version(version), now_ms) > 600_000}
        assert len(old) > 5
        assert given_up <= await lake.roots()
        await asyncio.sleep(700)
        await job.run(lake.table)
        assert not given_up & await lake.roots()

    told(story, Lake())


def test_a_root_that_was_stored_again_after_its_version_was_given_up_waits_by_its_own_date() -> None:
    """By a coordinator that slept: whoever sees that root may still be at work with it."""

    async def story(lake: Lake) -> None:
        job = lake.job()
        await lake.append(40, every_s=20.0)
        before = await readable(lake)
        bodies = {version: await lake.store.get(root_key(lake.table, Version(version))) for version in before}
        await job.run(lake.table)
        late = min(before - await readable(lake))
        await asyncio.sleep(700)
        await job.run(lake.table)
        assert late not in await lake.roots()
        found = bodies[late]
        assert found is not None
        lake.store.place(root_key(lake.table, Version(late)), found.body)
        await asyncio.sleep(300)
        await lake.job().run(lake.table)
        assert late in await lake.roots()
        await asyncio.sleep(400)
        await lake.job().run(lake.table)
        assert late not in await lake.roots()

    told(story, Lake())


@pytest.mark.parametrize(("dated", "outcome"), [(False, JobOutcome.COMMITTED), (True, JobOutcome.NOTHING_DUE)])
def test_where_roots_go_at_once_fewer_versions_are_worth_an_expiry(*, dated: bool, outcome: JobOutcome) -> None:
    async def story(lake: Lake) -> None:
        await lake.append(70)
        job = lake.job()
        assert (await job.run(lake.table)).outcome is outcome
        held = len(await lake.roots())
        assert held == 71 if dated else held < 20
        assert (await job.run(lake.table)).outcome is JobOutcome.NOTHING_DUE

    lake = Lake(dated=dated)
    limits = {name: value for name, value in PROPERTIES.items() if name != "rootline.expire.every-commits"}
    lake.builder = TableBuilder(lake.store, **limits)
    told(story, lake)


def test_a_store_without_dates_of_its_own_gives_roots_up_at_once() -> None:
    async def story(lake: Lake) -> None:
        await lake.append(30)
        report = await lake.job().run(lake.table)
        assert report.outcome is JobOutcome.COMMITTED
        assert report.removed[0].objects > 15
        header = await lake.header()
        assert {version for version in await lake.roots() if version >= header.versions.oldest} == set(
            range(header.versions.oldest, header.version + 1)
        )
        assert await lake.findings() == []

    told(story, Lake(dated=False))


def test_what_was_given_up_is_read_no_more_and_what_is_kept_is_read_on() -> None:
    async def story(lake: Lake) -> None:
        await lake.append(60, every_s=30.0)
        await lake.tag("release", 3)
        lake_versions = {header.version: header for header in await read_history(lake.store, lake.table, 100)}
        await lake.job().run(lake.table)
        header = await lake.header()
        known = [item.version for item in await read_history(lake.store, lake.table, 100)]
        assert known == sorted(known, reverse=True)
        assert 3 in known
        kept = [version for version in known if version < header.versions.oldest]
        assert 10 < len(kept) < 40
        for version in kept:
            then = lake_versions[version]
            for point in (
                PointInTime(version=version),
                PointInTime(snapshot_id=then.snapshot.snapshot_id),
                PointInTime(timestamp=then.snapshot.timestamp_ms),
                PointInTime(timestamp=then.snapshot.timestamp_ms + 1),
            ):
                assert (await read_root_at(lake.store, lake.table, point)).header == then
        assert (await read_root_at(lake.store, lake.table, PointInTime(tag="release"))).header.version == 3
        gone = next(version for version in range(header.versions.oldest) if version not in known)
        for point in (
            PointInTime(version=gone),
            PointInTime(snapshot_id=lake_versions[Version(gone)].snapshot.snapshot_id),
            PointInTime(timestamp=lake_versions[Version(0)].snapshot.timestamp_ms - 1),
        ):
            with pytest.raises(Invalid) as refused:
                await read_root_at(lake.store, lake.table, point)
            assert refused.value.code == "version-unknown"
        first, last = min(kept), max(kept)
        changes = await read_changes(lake.store, lake.table, first, last)
        assert len(changes.added_files) == last - first
        assert len((await read_changes(lake.store, lake.table, last, None)).added_files) == 60 - last
        assert await lake.findings() == []

    told(story, Lake(dated=False))


def test_the_oldest_version_may_be_a_restore() -> None:
    async def story(lake: Lake) -> None:
        await lake.append(20)
        await lake.commit(lake.builder.intent(IntentKind.RESTORE, ref=VersionReference(version=12)))
        restored = (await lake.header()).version
        await lake.commit(lake.builder.intent(IntentKind.RESTORE, ref=VersionReference(version=19)))
        await lake.append(9)
        await lake.job(now=True).run(lake.table)
        assert (await lake.header()).versions.oldest == restored + 1
        assert await lake.findings() == []

    told(story, Lake(dated=False))


def test_two_at_once_and_a_crash_half_way_do_no_harm() -> None:
    async def story(lake: Lake) -> None:
        await lake.append(30)
        with pytest.raises(Unavailable):
            await lake.job(Dying(lake.store)).run(lake.table)
        await lake.append(10)
        one, two = lake.job(), lake.job()
        await asyncio.gather(one.run(lake.table), two.run(lake.table))
        header = await lake.header()
        assert await lake.findings() == []
        assert set(range(header.versions.oldest, header.version + 1)) <= await lake.roots()
        assert min(await lake.roots()) == header.versions.oldest or header.versions.expiry is not None

    told(story, Lake(dated=False))


def test_a_page_that_cannot_be_read_stops_the_removal() -> None:
    async def story(lake: Lake) -> None:
        await lake.append(60, every_s=30.0)
        job = lake.job()
        await job.run(lake.table)
        await lake.append(1)
        header = await lake.header()
        assert header.versions.expiry is not None
        assert header.versions.expiry.kept is not None
        lake.store.place(key_of(lake.table, header.versions.expiry.kept.location), b"damaged")
        before = await lake.roots()
        with pytest.raises(Corrupt, match="metadata/pages"):
            await lake.job(now=True).run(lake.table)
        assert await lake.roots() == before

    told(story, Lake(dated=False))


def test_only_keys_that_are_exactly_roots_are_removed() -> None:
    async def story(lake: Lake) -> None:
        await lake.append(30)
        prefix = roots_prefix(lake.table)
        foreign = [
            ObjectKey(f"{prefix}{'0' * 16}-0.avro"),
            ObjectKey(f"{prefix}notes.txt"),
            ObjectKey(f"{prefix}deeper/{root_key(lake.table, Version(1)).rpartition('/')[2]}"),
        ]
        for key in foreign:
            lake.store.place(key, b"x")
        await lake.job().run(lake.table)
        assert set(foreign) <= set((await lake.store.list(prefix)).keys)

    told(story, Lake(dated=False))


def test_a_dry_run_says_what_would_go_and_changes_nothing() -> None:
    async def story(lake: Lake) -> None:
        await lake.append(30)
        before, version = await lake.roots(), (await lake.header()).version
        report = await lake.job(now=True).dry_run(lake.table)
        assert report.outcome is JobOutcome.PLANNED
        (removed,) = report.removed
        assert (removed.kind, removed.objects) == ("roots", report.entries)
        assert removed.size_in_bytes > 1_000 * removed.objects
        assert (await lake.roots(), (await lake.header()).version) == (before, version)
        done = await lake.job(now=True).run(lake.table)
        assert done.removed == report.removed

    told(story, Lake(dated=False))


def test_a_worker_that_may_not_remove_says_so_and_goes_on() -> None:
    async def story(lake: Lake) -> None:
        worker = WorkerService(
            store=lake.store,
            log=lake.log,
            settings=WorkerSettings(poll_interval_s=0.5, discovery_interval_s=1.0),
            environment=lake.environment,
            remover=Denied(lake.store),
        )
        working = asyncio.create_task(worker.run())
        await lake.append(60)
        worker.request_stop()
        await working
        assert worker.counters.failures > 0
        assert worker.counters.outcomes["flush", JobOutcome.COMMITTED] > 0
        assert (await lake.header()).versions.oldest > 0
        assert set(range((await lake.header()).version + 1)) == await lake.roots()

    told(story, Lake(dated=False, **{"rootline.flush.data-files": "10"}))


def test_a_worker_removes_what_has_waited_long_enough_though_nothing_is_committed_any_more() -> None:
    async def story(lake: Lake) -> None:
        worker = WorkerService(
            store=lake.store,
            log=lake.log,
            settings=WorkerSettings(poll_interval_s=0.5, discovery_interval_s=1.0),
            environment=lake.environment,
            remover=MemoryObjectRemover(lake.store),
        )
        working = asyncio.create_task(worker.run())
        await lake.append(40)
        header = await lake.header()
        assert len(await lake.roots()) == header.version + 1
        await asyncio.sleep(1_000)
        worker.request_stop()
        await working
        assert worker.counters.failures == 0
        assert worker.counters.objects_removed["roots"] == header.version + 1 - len(await lake.roots()) > 20
        assert worker.counters.bytes_removed["roots"] > 20_000
        assert await lake.findings() == []

    told(story, Lake())


def test_a_table_without_the_property_keeps_everything() -> None:
    async def story(lake: Lake) -> None:
        await lake.append(30)
        assert (await lake.job().run(lake.table)).outcome is JobOutcome.NOTHING_DUE
        assert (await lake.header()).versions.oldest == 0

    told(story, Lake(**{"rootline.expire": "false"}))
