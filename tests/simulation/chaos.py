"""What is done to simulated processes and to their log while writers write.

Owns: which harm comes when. Does not own: what it does (`process`, `tests.support.group_log`).
Invariants: every choice comes from the world's seed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.intent import DataFile, Intent, IntentKind
from tests.simulation.faulty_world import World
from tests.simulation.process import Process

_SECONDS = (0.02, 0.1, 0.5, 2.0, 15.0, 400.0)
_LONG_S = 100.0
"""Only one process at a time is away for so long: otherwise all of them soon are, and a long world stands still."""
_NOISE = (b"nothing", b"\xc3\x01\xff", b"{}", b"")


async def disturb_process(world: World, process: Process) -> None:
    """Kill, stop, pause, cut off and start one process again, for ever."""
    while True:
        await asyncio.sleep(world.rng.expovariate(1 / 1.0))
        roll = world.rng.random()
        if roll < 0.5:
            await process.kill()
            await asyncio.sleep(world.rng.expovariate(1 / 0.5))
            process.start()
        elif roll < 0.6:
            await process.stop()
            process.start()
        elif roll < 0.8:
            await _away(world, process.pause)
        else:
            await _away(world, process.cut_off)
        process.raise_failure()


async def _away(world: World, leave: Callable[[float], Awaitable[None]]) -> None:
    seconds = world.rng.choice(_SECONDS)
    if seconds < _LONG_S:
        await leave(seconds)
    elif not world.is_one_away_for_long:
        world.is_one_away_for_long = True
        await leave(seconds)
        world.is_one_away_for_long = False


async def disturb_log(world: World, tables: list[str]) -> None:
    """Rebalances, records that are no intents, gaps, intents for nobody, and once one partition more; for ever."""
    rng, log = world.rng, world.log
    while True:
        await asyncio.sleep(rng.expovariate(1 / 0.3))
        roll = rng.random()
        if roll < 0.3:
            world.trace.note("rebalance")
            log.rebalance()
        elif roll < 0.7:
            key = rng.choice([None, *(table.encode() for table in tables)])
            for _ in range(rng.randint(1, 5)):
                log.append(key, rng.choice(_NOISE))
        elif roll < 0.85:
            log.skip(rng.randrange(log.partitions), rng.randint(1, 3))
        elif roll < 0.95:
            key, value = nowhere(rng)
            log.append(key, value)
        elif log.partitions < 4:
            world.trace.note("one partition more")
            log.add_partition()


def nowhere(rng: random.Random) -> tuple[bytes, bytes]:
    """Key and value of an intent for a table that does not exist."""
    added = DataFile(location="data/stray.parquet", record_count=1, file_size_in_bytes=1)
    name, table = f"stray-{rng.getrandbits(64):016x}", "nowhere.t"
    intent = Intent(intent_id=name, table=table, kind=IntentKind.APPEND, add_data_files=(added,))
    return table.encode(), encode_intent(intent)


async def forget_and_cut_off(world: World, tables: list[str]) -> None:
    """Retention removes what the group has passed, and now and then no one can read one table's objects; for ever."""
    rng, log = world.rng, world.log
    while True:
        await asyncio.sleep(rng.expovariate(1 / 0.5))
        for partition in range(log.partitions):
            log.hide_before(partition, log.remembered(partition) or 0)
        if rng.random() < 0.3:
            folder = rng.choice(tables).replace(".", "/")
            world.trace.note("cut off", folder)
            world.unreachable.add(folder)
            await asyncio.sleep(rng.choice((0.5, 2.0, 8.0)))
            world.unreachable.discard(folder)
