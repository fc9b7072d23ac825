"""What stores, clocks and other processes may do to a sweep: nothing that is live goes, and no table stays stuck."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from rootline.adapters.memory import MemoryObjectRemover
from rootline.ports.object_remover import DatedObject, ObjectRemover
from rootline.schemas.bytes.root.location_pages import CONDEMNED_PAGES, CondemnedLocations
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import ObjectKey, Version
from rootline.schemas.intent import DataFile, IntentKind
from rootline.schemas.location_hashes import LocationHashes, location_hash
from rootline.schemas.object_keys import key_of, root_key, table_prefix
from rootline.workers.app import WorkerService
from rootline.workers.jobs.job import JobContext, JobOutcome
from rootline.workers.jobs.sweep_job import SweepJob
from rootline.workers.settings import WorkerSettings
from tests.maintenance.table_builder import data_file
from tests.workers.racing_reads import BeforeRead
from tests.workers.sweep_world import DAY_MS, SweepWorld, file_named, keeps, tell
from tests.workers.test_expiry_job import Lake, told

Listing = Sequence[DatedObject]


class Listed:
    """A remover whose listings are as `told` makes them."""

    def __init__(self, inner: ObjectRemover, told: Callable[[Listing], Listing]) -> None:
        self._inner, self._told = inner, told

    async def inventory(self, prefix: str) -> AsyncIterator[Listing]:
        async for page in self._inner.inventory(prefix):
            yield self._told(page)

    async def remove(self, keys: Sequence[ObjectKey]) -> None:
        await self._inner.remove(keys)

    async def close(self) -> None:
        """Keep everything."""


def test_a_listing_that_repeats_itself_counts_everything_once() -> None:
    async def story(world: SweepWorld) -> None:
        await world.upload("orphan")
        await world.append("a")
        await world.later(9)
        await world.append("b")
        twice = Listed(world.remover, lambda page: [one for item in page for one in (item, item)])
        for _ in range(4):
            await world.sweep(remover=twice)
            await world.later(1.1)
        assert await world.has("a")
        assert not await world.has("orphan")

    tell(story)


@pytest.mark.parametrize(("named", "listed"), [("k=A", "k=a"), ("k=\u00e9", "k=e\u0301")])
def test_a_live_file_stays_where_the_file_system_lists_its_folder_otherwise_than_it_is_named(
    named: str, listed: str
) -> None:
    """As on file systems that cannot tell case apart, or that normalize names: the first writer's name is the one."""

    async def story(world: SweepWorld) -> None:
        live, orphan = (f"data/{named}/{uuid.uuid5(uuid.NAMESPACE_URL, name)}.parquet" for name in ("live", "orphan"))
        for location in (live, orphan):
            await world.store.put_if_absent(key_of(world.table, location), b"rows")
        file: DataFile = data_file(1).model_copy(update={"location": live})
        await world.committed(world.append_of(file))
        await world.later(9)
        await world.append("b")

        def otherwise(page: Listing) -> Listing:
            return [replace(item, key=ObjectKey(item.key.replace(named, listed))) for item in page]

        for _ in range(4):
            await world.sweep(remover=Listed(world.remover, otherwise))
            await world.later(1.1)
        gone = key_of(world.table, orphan).replace(named, listed)
        assert {key for key in world.remover.removed if "/data/" in key} == {gone}

    tell(story)


def test_what_left_is_refused_under_the_name_that_it_had_not_only_under_the_one_that_is_listed() -> None:
    async def story(world: SweepWorld) -> None:
        location = f"data/k=A/{uuid.uuid5(uuid.NAMESPACE_URL, 'left')}.parquet"
        await world.store.put_if_absent(key_of(world.table, location), b"rows")
        append = world.append_of(data_file(1).model_copy(update={"location": location}))
        await world.committed(append)
        await world.remove_location(location)
        await world.append("b")
        await world.expire((await world.head()).header.version)

        def otherwise(page: Listing) -> Listing:
            return [replace(item, key=ObjectKey(item.key.replace("k=A", "k=a"))) for item in page]

        report = await world.sweep(remover=Listed(world.remover, otherwise))
        assert [item.kind for item in report.condemned] == ["data-file"]
        again = append.model_copy(update={"intent_id": "sent again"})
        assert (await world.decide(again)).code == "file-removed"

    tell(story)


def test_a_clock_that_was_a_year_ahead_holds_no_deletion_up() -> None:
    async def story(world: SweepWorld) -> None:
        await world.upload("orphan")
        await world.append("a")
        await world.later(9)
        world.environment.skew_ms += 365 * DAY_MS
        await world.append("b")
        world.environment.skew_ms -= 365 * DAY_MS
        for _ in range(6):
            await world.later(1)
            await world.sweep()
        assert not await world.has("orphan")
        assert await world.has("a")

    tell(story)


@pytest.mark.parametrize("read", range(2, 10))
def test_versions_that_expire_while_a_sweep_reads_are_no_damage(read: int) -> None:
    lake = Lake(dated=False, **{"rootline.expire.all-seconds": "3"})

    async def story(lake: Lake) -> None:
        await lake.append(30)

        async def expire() -> None:
            assert (await lake.job().run(lake.table)).outcome is JobOutcome.COMMITTED

        context = JobContext.of(
            BeforeRead(lake.store, read, expire),
            lake.log,
            lake.environment,
            WorkerSettings(),
            now=True,
            remover=MemoryObjectRemover(lake.store),
            keeps=keeps,
        )
        assert (await SweepJob(context).run(lake.table)).outcome in (JobOutcome.NOTHING_DUE, JobOutcome.COMMITTED)
        assert await lake.findings() == []

    told(story, lake)


@pytest.mark.parametrize("folder", ["city=\u0645\u06cc\u200c\u062e", "city=a\\b", f"city={'x' * 251}"])
def test_an_orphan_whose_name_no_store_takes_is_named_and_everything_else_goes(folder: str) -> None:
    """Other software stored it, and the listing shows it. It counts from the first look on, whatever its age is."""

    async def story(world: SweepWorld) -> None:
        await world.upload("orphan")
        await world.append("a")
        listed = f"data/{folder}/{uuid.uuid5(uuid.NAMESPACE_URL, 'odd')}.parquet"
        odd = DatedObject(ObjectKey(key_of(world.table, listed)), 4, world.environment.now_ms())

        class Beside(MemoryObjectRemover):
            """Lists one more object, and removes nothing if one of the names is no key, as every remover does."""

            async def inventory(self, prefix: str) -> AsyncIterator[Listing]:
                async for page in super().inventory(prefix):
                    yield page
                if odd.key.startswith(prefix):
                    yield [odd]

        job = world.job(remover=Beside(world.store))
        told: list[str] = []
        for _ in range(14):
            await world.later(1.1)
            told += (await job.run(world.table)).troubles
        assert not await world.has("orphan")
        assert await world.has("a")
        assert len(set(told)) == 1
        assert "1 objects have names that no store takes" in told[0]
        assert repr(odd.key)[:30] in told[0]

    tell(story)


def test_a_look_that_comes_too_early_says_when_to_come_again_so_that_an_idle_table_is_not_forgotten() -> None:
    async def story(world: SweepWorld) -> None:
        await world.upload("orphan")
        await world.append("a")
        await world.later(9)
        await world.append("b")
        job = world.job(now=False)
        waits: list[float | None] = []
        for _ in range(8):
            report = await job.run(world.table)
            waits.append(report.again_s)
            if report.outcome is JobOutcome.REMOVED:
                break
            early = await job.run(world.table)
            assert early.again_s is not None
            await world.pause(max(report.again_s or 0, early.again_s))
        assert not await world.has("orphan"), waits

    tell(story)


def test_a_live_location_that_an_intent_condemned_all_the_same_is_never_deleted() -> None:
    """A foreign sweep says that it read what it did not: the check at deletion is the last one, and is enough."""

    async def story(world: SweepWorld) -> None:
        await world.append("a", "b")
        await world.flush()
        await world.append("c")
        names = [name for name in await world.keys() if not name.startswith("metadata/roots/")]
        head = (await world.head()).header
        hashes = LocationHashes.of(map(location_hash, names))
        page, body = CONDEMNED_PAGES.encode(head.table_uuid, CondemnedLocations(0, hashes))
        await world.store.put_if_absent(key_of(world.table, page.reference.location), body)
        lie: dict[str, Any] = {"location": page.reference.location, "digest": page.reference.digest}
        lie["file_size_in_bytes"] = len(body)
        number = head.snapshot.sequence_number + 100
        sweep = world.builder.intent(
            IntentKind.SWEEP, page=lie, read_sequence_number=number, made_from_version=head.version
        )
        await world.committed(sweep)
        assert len((await world.head()).header.locations.condemned) == 1
        for _ in range(3):
            await world.later(1.1)
            await world.sweep()
        assert world.remover.removed == []
        assert set(names) <= await world.keys()

    tell(story)


def test_a_table_that_cannot_be_swept_still_expires_and_the_metrics_tell() -> None:
    lake = Lake(dated=False, **{"rootline.sweep": "true"})

    async def story(lake: Lake) -> None:
        foreign = key_of(lake.table, "metadata/v1.metadata.json")
        await lake.store.put_if_absent(foreign, b"{}")
        worker = WorkerService(
            store=lake.store,
            log=lake.log,
            environment=lake.environment,
            remover=MemoryObjectRemover(lake.store),
            keeps=keeps,
        )
        said = worker.metrics.registry.get_sample_value
        for _ in range(3):
            await lake.append(20)
            await lake.append(1, every_s=WorkerSettings().sweep_delay_s)
            await worker.look_once()
            for _ in range(4):
                await worker.carry_out_one()
        assert said("rootline_worker_tasks_total", {"kind": "sweep", "outcome": "failed"}) == 1, (
            "and then an hour later"
        )
        assert said("rootline_worker_failures_total", {"code": "sweep-refused"}) == 1
        assert said("rootline_worker_last_change_timestamp_seconds", {"kind": "sweep"}) is None
        assert said("rootline_worker_last_change_timestamp_seconds", {"kind": "expire"})
        header = await lake.header()
        assert header.version - header.versions.oldest < 25

    told(story, lake)


def test_a_worker_tells_of_what_it_cannot_sweep_and_the_look_counts_as_a_success() -> None:
    lake = Lake(dated=False, **{"rootline.sweep": "true"})

    async def story(lake: Lake) -> None:
        odd = f"data/a\u200c=b/{uuid.uuid4()}.parquet"
        lake.store.place(key_of(lake.table, odd), b"rows")
        worker = WorkerService(
            store=lake.store,
            log=lake.log,
            environment=lake.environment,
            remover=MemoryObjectRemover(lake.store),
            keeps=keeps,
        )
        said = worker.metrics.registry.get_sample_value
        for _ in range(3):
            await lake.append(20)
            await lake.append(1, every_s=WorkerSettings().sweep_delay_s)
            await worker.look_once()
            for _ in range(4):
                await worker.carry_out_one()
        counts.append(said("rootline_worker_failures_total", {"code": "sweep-refused"}))
        assert not said("rootline_worker_tasks_total", {"kind": "sweep", "outcome": "failed"})

    counts: list[float | None] = []
    with capture_logs() as logs:
        told(story, lake)
    lines = [line for line in logs if line.get("action") == "sweep-held-up"]
    assert counts == [len(lines)]
    assert lines[0]["table"] == lake.table
    assert "names that no store takes" in lines[0]["reason"]


def test_an_object_that_was_stored_again_since_the_look_stays() -> None:
    """What was read and judged was another object of that name."""

    async def story(world: SweepWorld) -> None:
        await world.upload("orphan")
        await world.append("a")
        while not (await world.head()).header.locations.condemned:
            await world.later(1.1)
            await world.sweep()
        await world.later(1.1)
        key = key_of(world.table, file_named("orphan").location)

        class StoredAgain(MemoryObjectRemover):
            """Between the look at the table and the listing that finds the keys to delete."""

            listings = 0

            async def inventory(self, prefix: str) -> AsyncIterator[Listing]:
                self.listings += prefix == table_prefix(world.table)
                if self.listings == 2:
                    world.store.place(key, b"other rows")
                async for page in super().inventory(prefix):
                    yield page

        remover = StoredAgain(world.store)
        await world.sweep(remover=remover)
        assert remover.listings == 2
        found = await world.store.get(key)
        assert found is not None
        assert found.body == b"other rows"

    tell(story)


def test_a_kept_version_whose_root_is_not_listed_ends_the_look() -> None:
    """A listing may lack a root: what only that version names would be condemned."""

    async def story(world: SweepWorld) -> None:
        kept = await world.append("of a kept version")
        await world.remove("of a kept version")
        await world.append("a")
        head = (await world.head()).header.version
        await world.expire(head, kept)
        world.forget_roots(head, kept)
        hidden = root_key(world.table, Version(kept))
        without = Listed(world.remover, lambda page: [item for item in page if item.key != hidden])
        with pytest.raises(Unavailable, match=f"root {kept} is readable, but the store did not list it"):
            await world.sweep(remover=without)
        assert (await world.head()).header.locations.condemned == ()
        for _ in range(14):
            await world.later(1.1)
            await world.sweep()
        assert await world.has("of a kept version")

    tell(story)
