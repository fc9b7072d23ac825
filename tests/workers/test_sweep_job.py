"""Sweeps condemn what nothing references, and delete it a retention later, and nothing else ever."""

from __future__ import annotations

import asyncio

import pytest

from rootline.schemas.errors import Corrupt, Invalid, RootlineError
from rootline.schemas.identifiers import ObjectKey
from rootline.schemas.object_keys import key_of
from rootline.schemas.verdict import VerdictKind
from rootline.workers.jobs.job import JobOutcome, Removed
from tests.workers.sweep_world import ORPHAN_AGE_MS, SweepWorld, file_named, tell


def of_kinds(found: tuple[Removed, ...]) -> dict[str, int]:
    return {item.kind: item.objects for item in found}


async def swept_orphan(world: SweepWorld) -> None:
    """A table with one orphan that is condemned, and not yet due."""
    await world.upload("orphan")
    await world.append("a")
    await world.later(9)
    await world.append("b")
    assert (await world.sweep()).outcome is JobOutcome.COMMITTED, "the horizon"
    assert (await world.head()).header.locations.horizon_ms > 0
    report = await world.sweep()
    assert report.outcome is JobOutcome.COMMITTED
    assert of_kinds(report.condemned) == {"data-file": 1}


def test_an_orphan_is_condemned_behind_the_horizon_and_deleted_a_retention_later() -> None:
    async def story(world: SweepWorld) -> None:
        await swept_orphan(world)
        assert (await world.sweep()).outcome is JobOutcome.NOTHING_DUE, "the retention has not passed"
        await world.later(0.99)
        assert (await world.sweep()).outcome is JobOutcome.NOTHING_DUE
        await world.later(0.02)
        report = await world.sweep()
        assert report.outcome is JobOutcome.REMOVED
        assert of_kinds(report.removed) == {"data-file": 1}
        assert world.remover.removed == [key_of(world.table, file_named("orphan").location)]
        assert await world.has("a")
        assert await world.has("b")

    tell(story)


def test_what_is_younger_than_the_horizon_stays_however_often_it_is_swept() -> None:
    async def story(world: SweepWorld) -> None:
        await world.append("a")
        await world.later(9)
        await world.upload("late")
        for _ in range(5):
            await world.append(f"more {world.environment.now_ms()}")
            await world.sweep()
            await world.later(1)
        assert await world.has("late")
        assert world.remover.removed == []

    tell(story)


def test_a_stalled_writer_whose_file_was_condemned_or_deleted_is_refused() -> None:
    async def story(world: SweepWorld) -> None:
        stalled = world.append_of(file_named("orphan"))
        await swept_orphan(world)
        assert (await world.decide(stalled)).code == "file-removed"
        await world.later(2)
        await world.sweep()
        assert not await world.has("orphan")
        assert (await world.decide(world.append_of(file_named("orphan")))).code == "file-removed"

    tell(story)


def test_a_writer_who_comes_between_reading_and_applying_keeps_its_file() -> None:
    async def story(world: SweepWorld) -> None:
        await world.upload("slow")
        await world.append("a")
        await world.later(9)
        await world.append("b")

        class Late:
            """A log on which the slow writer's intent is just ahead of the second sweep's."""

            published = 0

            def __getattr__(self, name: str) -> object:
                return getattr(world.log, name)

            async def publish(self, key: bytes, value: bytes) -> object:
                self.published += 1
                if self.published == 1:
                    await world.committed(world.append_of(file_named("slow")))
                return await world.log.publish(key, value)

        await world.sweep(log=Late())
        await world.sweep()
        await world.later(3)
        await world.sweep()
        assert await world.has("slow")

    tell(story)


def test_a_leaf_that_left_with_expired_versions_goes_whatever_its_age_is() -> None:
    async def story(world: SweepWorld) -> None:
        await world.append("a", "b")
        await world.flush()
        (first,) = [name for name in await world.keys() if name.startswith("metadata/leaves/")]
        await world.remove("a")
        await world.append("c")
        await world.compact()
        head = (await world.head()).header.version
        assert (await world.sweep()).outcome is JobOutcome.NOTHING_DUE, "every version can be read"
        await world.expire(head)
        report = await world.sweep()
        assert of_kinds(report.condemned)["leaf"] >= 1
        world.forget_roots(head)
        await world.later(2)
        await world.sweep()
        assert first not in await world.keys()
        assert not await world.has("a"), "the file that left"
        assert await world.has("b")
        assert await world.has("c")

    tell(story)


def test_a_tag_keeps_all_that_its_version_names() -> None:
    async def story(world: SweepWorld) -> None:
        version = await world.append("a")
        await world.tag("keep", version)
        await world.remove("a")
        head = (await world.head()).header.version
        await world.expire(head, version)
        world.forget_roots(head, version)
        await world.later(20)
        await world.append("b")
        for _ in range(4):
            await world.sweep()
            await world.later(2)
        assert await world.has("a")
        await world.restore(version)
        assert await world.has("a")

    tell(story)


def test_a_dry_run_says_what_would_go_and_changes_nothing() -> None:
    async def story(world: SweepWorld) -> None:
        await swept_orphan(world)
        await world.later(2)
        before = await world.keys()
        report = await world.job().dry_run(world.table)
        assert report.outcome is JobOutcome.PLANNED
        assert report.removed == (Removed("data-file", 1, len(b"orphan")),)
        assert await world.keys() == before

    tell(story)


def test_names_that_rootline_does_not_give_are_never_deleted() -> None:
    async def story(world: SweepWorld) -> None:
        foreign = [
            "data/part-0.parquet",
            "data/notes.txt",
            "metadata/leaves/mine.parquet",
            "metadata/pages/x.avro",
            "README",
        ]
        for location in foreign:
            await world.store.put_if_absent(ObjectKey(key_of(world.table, location)), b"x")
        await swept_orphan(world)
        await world.later(2)
        await world.sweep()
        assert set(foreign) <= await world.keys()

    tell(story)


@pytest.mark.parametrize(
    "location", ["metadata/v1.metadata.json", "metadata/version-hint.text", "metadata/snap-1.avro"]
)
def test_a_folder_with_metadata_of_other_software_is_not_swept(location: str) -> None:
    async def story(world: SweepWorld) -> None:
        await swept_orphan(world)
        await world.store.put_if_absent(ObjectKey(key_of(world.table, location)), b"{}")
        await world.later(2)
        with pytest.raises(Invalid, match="metadata of other software") as caught:
            await world.sweep()
        assert caught.value.code == "sweep-refused"
        assert (await world.sweep(now=False)).outcome is JobOutcome.NOTHING_DUE
        assert await world.has("orphan")

    tell(story)


def test_a_log_that_keeps_everything_refuses_the_sweep() -> None:
    async def story(world: SweepWorld) -> None:
        await world.append("a")
        with pytest.raises(Invalid, match="no retention limit"):
            await world.sweep(keeps=None)

    tell(story)


def test_data_files_of_a_table_with_exports_stay() -> None:
    async def story(world: SweepWorld) -> None:
        await swept_orphan(world)
        await world.store.put_if_absent(ObjectKey(key_of(world.table, "export/x.metadata.json")), b"{}")
        await world.later(2)
        await world.sweep()
        assert await world.has("orphan")

    tell(story)


def test_a_damaged_leaf_stops_every_deletion() -> None:
    async def story(world: SweepWorld) -> None:
        await swept_orphan(world)
        await world.flush()
        (leaf,) = [name for name in await world.keys() if name.startswith("metadata/leaves/")]
        key = ObjectKey(key_of(world.table, leaf))
        found = await world.store.get(key)
        assert found is not None
        await world.later(2)
        world.store.place(key, found.body[:-9] + bytes(9))
        with pytest.raises(Corrupt):
            await world.sweep()
        world.store.discard(key)
        with pytest.raises(Corrupt):
            await world.sweep()
        assert world.remover.removed == []
        world.store.place(key, found.body)
        await world.sweep()
        assert not await world.has("orphan")

    tell(story)


def test_two_sweepers_at_once_are_safe() -> None:
    async def story(world: SweepWorld) -> None:
        await swept_orphan(world)
        await world.upload("second")
        await world.later(10)
        await world.append("c")
        for _ in range(4):
            await asyncio.gather(world.sweep(), world.sweep())
            await world.later(1.1)
        assert not await world.has("orphan")
        assert not await world.has("second")
        assert await world.has("a")
        assert len((await world.head()).header.locations.condemned) <= 3

    tell(story)


def test_a_crash_between_storing_the_page_and_publishing_leaves_an_orphan_that_a_later_sweep_takes() -> None:
    async def story(world: SweepWorld) -> None:
        await swept_orphan(world)
        await world.later(9)
        await world.upload("again")
        await world.append("c")

        class Down:
            def __getattr__(self, name: str) -> object:
                return getattr(world.log, name)

            async def publish(self, key: bytes, value: bytes) -> object:
                raise ConnectionError("down")

        with pytest.raises((RootlineError, ConnectionError)):
            await world.sweep(log=Down())
        for _ in range(6):
            await world.later(9)
            await world.append(f"more {world.environment.now_ms()}")
            await world.sweep()
        assert not await world.has("again")

    tell(story)


def test_the_pages_of_done_sweeps_go_when_the_horizon_has_passed_them() -> None:
    async def story(world: SweepWorld) -> None:
        for number in range(12):
            await world.upload(f"orphan {number}")
            await world.append(f"file {number}")
            await world.later(3)
            await world.sweep()
            await world.sweep()
        held = (await world.head()).header.locations.condemned
        assert len(held) <= 8
        await world.later(ORPHAN_AGE_MS / 86_400_000 + 2)
        await world.append("last")
        for _ in range(4):
            await world.append(f"tick {world.environment.now_ms()}")
            await world.sweep()
            await world.later(1.1)
        assert not any([await world.has(f"orphan {number}") for number in range(12)])
        assert all([await world.has(f"file {number}") for number in range(12)])

    tell(story)


def test_a_table_that_does_not_ask_for_sweeps_is_left_alone_by_the_worker() -> None:
    async def story(world: SweepWorld) -> None:
        await world.upload("orphan")
        await world.append("a")
        await world.later(30)
        await world.append("b")
        assert (await world.sweep(now=False)).outcome is JobOutcome.NOTHING_DUE
        assert (await world.head()).header.locations.horizon_ms == 0

    tell(story, **{"rootline.sweep": "false"})


def test_a_young_intent_of_a_writer_commits_beside_every_sweep() -> None:
    async def story(world: SweepWorld) -> None:
        for number in range(20):
            file = await world.upload(f"f{number}")
            await world.later(0.9)
            await world.sweep()
            verdict = await world.decide(world.append_of(file))
            assert verdict.kind is VerdictKind.COMMITTED, verdict
        assert world.remover.removed == [] or all("pages" in key for key in world.remover.removed)

    tell(story)
