"""Stores that do not delete what they are asked to, and workers that come after one that ended.

All of it is on the loop of `virtual_loop`, where a sleep takes no time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from rootline.adapters.memory import MemoryObjectRemover, MemoryObjectStore
from rootline.ports.object_store import Listing
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import ObjectKey
from rootline.schemas.object_keys import key_of, root_key
from rootline.workers.jobs.expiry_job import RootRemoval
from rootline.workers.jobs.job import JobContext, JobOutcome
from rootline.workers.settings import WorkerSettings
from tests.workers.sweep_world import DAY_MS, MemoryRemover, SweepWorld, file_named, tell
from tests.workers.test_expiry_job import Lake, told


class Locked(MemoryRemover):
    """A store that does not let one object go, as one under a legal hold; it removes the others that it is asked to."""

    def __init__(self, world: SweepWorld, locked: ObjectKey) -> None:
        super().__init__(world.store)
        self.locked = locked

    async def remove(self, keys: Sequence[ObjectKey]) -> None:
        await super().remove([key for key in keys if key != self.locked])
        if self.locked in keys:
            raise Unavailable("store-unavailable", f"DELETE left 1 of them, {self.locked}")


def test_one_object_that_cannot_be_deleted_stops_neither_the_horizon_nor_what_else_is_condemned() -> None:
    async def story(world: SweepWorld) -> None:
        await world.upload("locked")
        await world.append("a")
        await world.later(9)
        await world.append("b")
        remover = Locked(world, key_of(world.table, file_named("locked").location))
        await world.sweep(remover=remover)
        await world.later(2)
        await world.upload("later")
        before_ms = (await world.head()).header.locations.horizon_ms
        told = []
        for _ in range(16):
            await world.later(1)
            try:
                await world.sweep(remover=remover)
            except Unavailable as error:
                told.append(error)
        assert len(told) > 8, "each look at which it was due tells of it"
        assert (await world.head()).header.locations.horizon_ms > before_ms + 7 * 24 * 3_600_000
        assert not await world.has("later")
        assert await world.has("a")

    tell(story)


def test_roots_behind_one_that_cannot_be_removed_go_all_the_same() -> None:
    lake = Lake(dated=False, **{"rootline.expire.every-commits": "1", "rootline.expire.all-versions": "2"})

    class Held(MemoryObjectRemover):
        async def remove(self, keys: Sequence[ObjectKey]) -> None:
            held = root_key(lake.table, 1_000)  # type: ignore[arg-type]
            await super().remove([key for key in keys if key != held])
            if held in keys:
                raise Unavailable("store-unavailable", f"DELETE left 1 of them, {held}")

    async def story(lake: Lake) -> None:
        await lake.append(1_100, every_s=0)
        job = lake.job(Held(lake.store))
        with pytest.raises(Unavailable, match="left 1 of them"):
            await job.run(lake.table)
        assert min(await lake.roots()) == 1_000

    told(story, lake)


class Ahead:
    """A store whose LIST was answered by a machine with a clock that is a day ahead."""

    def __init__(self, store: MemoryObjectStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def list(self, prefix: str, *, limit: int | None = None) -> Listing:
        found = await self._store.list(prefix, limit=limit)
        return Listing(found.keys, (found.store_ms or 0) + 2 * DAY_MS)


def test_one_answer_that_is_dated_days_ahead_removes_no_root_before_its_time() -> None:
    """Else a coordinator that stalled for a minute could make a root again that another one had made."""

    async def story(lake: Lake) -> None:
        await lake.append(30)
        assert (await lake.job().run(lake.table)).outcome is JobOutcome.COMMITTED
        ahead: Any = Ahead(lake.store)
        context = JobContext.of(ahead, lake.log, lake.environment, WorkerSettings())
        before = await lake.roots()
        await RootRemoval(context, MemoryObjectRemover(lake.store)).run(lake.table, is_news=True)
        assert await lake.roots() == before

    told(story, Lake())


def test_one_answer_that_is_dated_days_ahead_deletes_nothing_before_the_retention() -> None:
    async def story(world: SweepWorld) -> None:
        await world.upload("orphan")
        await world.append("a")
        await world.later(9)
        await world.append("b")
        ahead: Any = Ahead(world.store)
        while not (await world.sweep()).condemned:
            await world.append("c")
        await world.sweep(store=ahead)
        assert await world.has("orphan")

    tell(story)


def test_a_worker_removes_the_roots_that_another_one_gave_up_before_it_ended() -> None:
    async def story(lake: Lake) -> None:
        first, second = lake.job(), lake.job()
        await lake.append(30)
        assert (await second.run(lake.table)).outcome is JobOutcome.COMMITTED
        await asyncio.sleep(700)
        assert (await second.run(lake.table)).removed
        assert not (await second.run(lake.table)).removed
        await lake.append(30)
        assert (await first.run(lake.table)).outcome is JobOutcome.COMMITTED
        again_s = (await second.run(lake.table)).again_s
        assert again_s is not None
        await asyncio.sleep(700)
        assert (await second.run(lake.table)).removed

    told(story, Lake())
