"""The whole life of swept tables, drawn by a seed: stalled writers, resent appends, tags, restores, expiry, sweeps.

A model too simple to be wrong says what must be live. After every sweep, all that any version names that can be read is
in the store.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from rootline.schemas.intent import DataFile
from rootline.schemas.object_keys import key_of
from rootline.schemas.verdict import VerdictKind
from rootline.storage.check.chain import check_table
from rootline.storage.check.findings import DataFiles
from rootline.storage.metadata.page_reader import read_kept
from rootline.tree.state.addressable import Addressable
from rootline.tree.state.table_state import TableState
from tests.support.examples import drawn
from tests.support.loaded_tables import load_table
from tests.workers.sweep_world import SweepWorld, file_named, tell

STEPS = 70
ALLOWED = {"file-removed", "expired", "file-missing", "file-already-live", "version-unknown", "file-not-live"}


class Life:
    """One table's life. `live`: names of the files that must be live; `then`: the same by version."""

    def __init__(self, world: SweepWorld, seed: int) -> None:
        self.world, self.rng = world, random.Random(seed)
        self.names = 0
        self.live: set[str] = set()
        self.then: dict[int, frozenset[str]] = {}
        self.stalled: list[DataFile] = []
        self.tags: dict[str, int] = {}
        self.kept: set[int] = set()
        self.oldest = 0
        self.codes: list[str | None] = []

    async def step(self) -> None:
        step = self.rng.choice(
            [self.append] * 4
            + [self.stall, self.stall, self.resume, self.resend, self.remove, self.tag, self.restore, self.maintain]
            + [self.expire, self.forget, self.sweep, self.sweep, self.race, self.wait, self.wait]
        )
        await step()
        head = await self.world.head()
        self.then[head.header.version] = frozenset(self.live)

    async def decide(self, file: DataFile) -> None:
        verdict = await self.world.decide(self.world.append_of(file))
        self.codes.append(verdict.code)
        if verdict.kind is VerdictKind.COMMITTED:
            self.live.add(file.location)
        else:
            assert verdict.code in ALLOWED, verdict

    async def upload(self) -> DataFile:
        self.names += 1
        return await self.world.upload(f"file {self.names}")

    async def append(self) -> None:
        await self.decide(await self.upload())

    async def stall(self) -> None:
        self.stalled.append(await self.upload())

    async def resume(self) -> None:
        if self.stalled:
            await self.decide(self.stalled.pop(self.rng.randrange(len(self.stalled))))

    async def resend(self) -> None:
        """An append without a writer comes a second time, perhaps long after its file was removed."""
        if self.names:
            await self.decide(file_named(f"file {self.rng.randint(1, self.names)}"))

    async def remove(self) -> None:
        if self.live:
            location = self.rng.choice(sorted(self.live))
            await self.world.remove_location(location)
            self.live.discard(location)

    async def tag(self) -> None:
        head = (await self.world.head()).header.version
        version = self.rng.choice([head, self.rng.randint(self.oldest, head)])
        name = f"t{len(self.tags)}"
        await self.world.tag(name, version)
        self.tags[name] = version

    async def restore(self) -> None:
        head = (await self.world.head()).header.version
        versions = [*range(self.oldest, head + 1), *self.tags.values(), *self.kept]
        version = self.rng.choice([one for one in versions if one in self.then])
        await self.world.restore(version)
        self.live = set(self.then[version])

    async def maintain(self) -> None:
        await (self.world.flush() if self.rng.random() < 0.6 else self.world.compact())

    async def expire(self) -> None:
        head = (await self.world.head()).header.version
        oldest = self.rng.randint(self.oldest, head)
        below = {version for version in self.tags.values() if version < oldest}
        candidates = [one for one in (*range(self.oldest, oldest), *self.kept) if one < oldest]
        below |= set(self.rng.sample(candidates, min(len(candidates), 2)))
        await self.world.expire(oldest, *sorted(below))
        self.oldest, self.kept = oldest, below

    async def forget(self) -> None:
        self.world.forget_roots(self.oldest, *self.kept)

    async def wait(self) -> None:
        await self.world.later(self.rng.choice([0.1, 0.6, 1.1, 3, 9]))

    async def sweep(self) -> None:
        await self.world.sweep()
        await self.assert_whole()

    async def race(self) -> None:
        """Two sweeps beside a writer who was stalled, and one who restores."""
        await asyncio.gather(self.world.sweep(), self.world.sweep(), self.resume())
        await self.assert_whole()

    async def assert_whole(self) -> None:
        world = self.world
        state = await load_table(world.store, world.table)
        assert state is not None
        assert {item.entry.location for item in state.live.entries()} == self.live
        known = Addressable.of(state.header, await read_kept(world.store, state.header))
        for version in {*known.older(), *range(known.oldest, known.newest + 1)}:
            then = await load_table(world.store, world.table, version)  # type: ignore[arg-type]
            assert then is not None
            for item in then.live.entries():
                assert await world.store.get(key_of(world.table, item.entry.location)) is not None, (version, item)


@pytest.mark.parametrize("seed", drawn(10))
def test_a_long_life_loses_nothing_that_can_be_read(seed: int) -> None:
    async def story(world: SweepWorld) -> None:
        await world.upload("never published")
        life = Life(world, seed)
        life.then[0] = frozenset()
        for _ in range(STEPS):
            await life.step()
        for _ in range(4):
            await world.append(f"last {world.environment.now_ms()}")
            life.live = {item.entry.location for item in (await loaded(world)).live.entries()}
            await life.sweep()
            await world.later(9)
        found = [item async for item in check_table(world.store, world.table, data_files=DataFiles.LISTED)]
        assert found == []
        assert not await world.has("never published")

    tell(story)


async def loaded(world: SweepWorld) -> TableState:
    state = await load_table(world.store, world.table)
    assert state is not None
    return state
