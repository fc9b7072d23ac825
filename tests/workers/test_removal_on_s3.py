"""Expiry and sweep on a real S3 store, on a bad wire: deletions that fail, and those that succeed and say they failed.

The world's clock is forty days behind the store's, and every object is given the world's date: so days can pass.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rootline.adapters.embedded_feed import EmbeddedFeed
from rootline.adapters.memory import MemoryIntentLog
from rootline.adapters.s3_object_store import S3ObjectRemover, S3ObjectStore
from rootline.adapters.system_environment import SystemEnvironment
from rootline.coordinator.app import CoordinatorService
from rootline.coordinator.settings import CoordinatorSettings
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import ObjectKey
from rootline.storage.check.chain import check_table
from rootline.storage.check.findings import DataFiles
from rootline.workers.jobs.expiry_job import RootRemoval
from rootline.workers.jobs.job import JobContext
from rootline.workers.settings import WorkerSettings
from tests.maintenance.table_builder import TableBuilder
from tests.services.recording_proxy import Fate, RecordingProxy, recording_proxy
from tests.services.s3_service import S3Service
from tests.support.examples import drawn
from tests.workers.sweep_world import DAY_MS, SweepWorld, file_named, keeps
from tests.workers.test_sweep_life import Life

pytestmark = pytest.mark.services
BEHIND_MS = 40 * DAY_MS
STEPS = 45


class Behind(SystemEnvironment):
    """The time of this machine, `skew_ms` away."""

    def __init__(self) -> None:
        self.skew_ms = -BEHIND_MS

    def now_ms(self) -> int:
        return super().now_ms() + self.skew_ms


class Counting(S3ObjectRemover):
    """Keeps what was asked to go, in order."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.removed: list[str] = []

    async def remove(self, keys: Sequence[ObjectKey]) -> None:
        self.removed += keys
        await super().remove(keys)


class S3World(SweepWorld):
    """`folder`: where the store keeps the warehouse."""

    def __init__(self, store: S3ObjectStore, remover: Counting, folder: Path) -> None:
        self.environment = Behind()  # type: ignore[assignment]
        self.store, self.remover, self.folder = store, remover, folder  # type: ignore[assignment]
        self.log = MemoryIntentLog(clock_ms=self.environment.now_ms)
        self.builder = TableBuilder(store, **{"rootline.sweep": "true"})  # type: ignore[arg-type]
        self.table = self.builder.table
        self.context = JobContext.of(
            store, self.log, self.environment, WorkerSettings(), now=True, remover=remover, keeps=keeps
        )
        self._dated: set[Path] = set()

    def date(self) -> None:
        """Give what is new the world's date."""
        now_s = self.environment.now_ms() / 1000
        for path in (one for one in self.folder.rglob("*") if one.is_file() and one not in self._dated):
            os.utime(path, (now_s, now_s))
            self._dated.add(path)


class LifeOnS3(Life):
    """Roots go as a worker removes them; what the wire breaks is done again later."""

    world: S3World

    def __init__(self, world: S3World, seed: int, wire: RecordingProxy) -> None:
        super().__init__(world, seed)
        self.wire = wire

    async def step(self) -> None:
        await super().step()
        self.world.date()

    async def forget(self) -> None:
        removal = RootRemoval(self.world.context, self.world.remover)
        await self.on_a_bad_wire(removal.run(self.world.table, is_news=True))

    async def sweep(self) -> None:
        await self.on_a_bad_wire(self.world.sweep())
        await self.assert_whole()

    async def race(self) -> None:
        await asyncio.gather(*(self.on_a_bad_wire(self.world.sweep()) for _ in range(2)), self.resume())
        await self.assert_whole()

    async def on_a_bad_wire(self, work: Any) -> None:
        bad = [Fate.REPLY_LOST, Fate.ANSWERED_503, Fate.REQUEST_LOST, Fate.REPLY_CUT]
        self.wire.fates = [self.rng.choice([*[Fate.RELAYED] * 6, *bad]) for _ in range(4)]
        try:
            await work
        except Unavailable:
            self.world.date()
        self.wire.fates = []


@asynccontextmanager
async def told(service: S3Service) -> AsyncIterator[tuple[S3World, RecordingProxy]]:
    """A table on S3 beside its coordinator, and the wire that all deletions and inventories go over."""
    assert service.folder is not None, "the dates of objects can only be changed in a store of our own"
    prefix = f"test-{uuid.uuid4().hex}"
    async with recording_proxy(service.address) as wire:
        store = service.store(prefix)
        remover = Counting(service.bucket, prefix, service.settings(endpoint=wire.endpoint))
        world = S3World(store, remover, service.folder / prefix)
        coordinator = CoordinatorService(
            store=store,
            log=EmbeddedFeed(world.log),
            settings=CoordinatorSettings(probe_rounds=0),
            environment=world.environment,
        )
        running = asyncio.create_task(coordinator.run())
        await world.create()
        world.date()
        yield world, wire
        coordinator.request_stop()
        await running
        await remover.close()
        await store.close()


@pytest.mark.parametrize("seed", drawn(5))
async def test_a_long_life_on_a_bad_wire_loses_nothing_that_can_be_read(s3_service: S3Service, seed: int) -> None:
    async with told(s3_service) as (world, wire):
        await world.upload("never published")
        life = LifeOnS3(world, seed, wire)
        life.then[0] = frozenset()
        for _ in range(STEPS):
            await life.step()
        await world.append("the last one")
        life.live.add(file_named("the last one").location)
        for _ in range(6):
            world.date()
            await world.later(4)
            await world.sweep()
        await life.assert_whole()
        found = [item async for item in check_table(world.store, world.table, data_files=DataFiles.LISTED)]
        assert found == []
        assert not await world.has("never published")
        assert world.remover.removed


async def test_a_deletion_that_was_done_and_said_to_have_failed_is_made_good_by_the_next_look(
    s3_service: S3Service,
) -> None:
    async with told(s3_service) as (world, wire):
        orphans = [f"orphan {number}" for number in range(3)]
        for name in orphans:
            await world.upload(name)
        await world.append("a")
        world.date()
        await world.later(9)
        await world.append("b")
        world.date()
        await world.sweep()  # raises the horizon
        world.date()
        assert (await world.sweep()).condemned
        world.date()
        await world.later(2)
        world.date()
        inventories = 2
        wire.fates = [Fate.RELAYED] * inventories + [Fate.REPLY_LOST]
        with pytest.raises(Unavailable, match="DELETE of 3 objects"):
            await world.sweep()
        assert [await world.has(name) for name in orphans] == [False] * 3
        asked = list(world.remover.removed)
        await world.sweep()
        assert world.remover.removed == asked, "there is nothing more to delete, and nothing is asked for again"
        assert [await world.has(name) for name in "ab"] == [True] * 2
