"""Simulated readers, who take their time: what they have planned to read stays until they have read it.

Owns: which versions are read, and for how long. Does not own: faults, of which a reader has none here.
Invariants: every choice comes from the seed; a reader changes nothing, and takes no random number of the world.
"""

from __future__ import annotations

import asyncio
import random

from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import ObjectKey, TableName, Version
from rootline.schemas.object_keys import table_prefix
from rootline.schemas.parts.name import NameState
from rootline.storage.metadata.root_reader import newest_root, read_root
from tests.simulation.faulty_world import World
from tests.simulation.needed import read_by_scans


async def read_slowly(world: World, table: TableName, seed: str, hold_s: float) -> None:
    """Plan a scan of some version that can be read, and find its files there up to `hold_s` later; for ever."""
    rng = random.Random(f"reader of {table}, {seed}")
    while True:
        await asyncio.sleep(rng.expovariate(1 / 0.2))
        planned = await _planned(world, table, rng)
        await asyncio.sleep(rng.uniform(0.5, 1.0) * hold_s)
        present = set((await world.store.list(table_prefix(table))).keys)
        lost = planned - present
        assert not lost, f"{table}: deleted while it was read: {sorted(lost)[:5]}"
        world.read += bool(planned)


async def _planned(world: World, table: TableName, rng: random.Random) -> set[ObjectKey]:
    """All that a scan of one version reads: no one waits in between, so none of it can have gone."""
    head = await newest_root(world.store, table)
    if head is None or head.header.name.state is not NameState.TABLE:
        return set()
    newest, oldest = head.header.version, head.header.versions.oldest
    version = rng.choice([newest, rng.randint(oldest, newest), *sorted(head.header.tags.values())])
    try:
        root = await read_root(world.store, table, Version(version))
    except Corrupt:
        assert version != newest, f"{table}: the head cannot be read"
        raise
    return (
        set() if root.header.name.state is not NameState.TABLE else set(await read_by_scans(world.store, table, root))
    )
