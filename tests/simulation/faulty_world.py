"""The store as each simulated process sees it: late, lossy, sometimes lying dead, never inconsistent.

Owns: the world, and what happens to a request between a process and the one true store. Does not own: who asks, the
way to the log (`faulty_log`).
Invariants: a request that was sent is carried out whether or not the sender lives to hear of it; the store itself is
linearizable, with dates; every choice comes from the world's seed, and is written into the trace.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rootline.adapters.memory import MemoryObjectStore
from rootline.ports.object_remover import DatedObject
from rootline.ports.object_store import Listing, Predecessor, PutReply, PutStatus, StoredObject
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import ObjectKey, TableName
from rootline.schemas.object_keys import table_prefix, version_of_root_key
from tests.simulation.needed import NeededObjects
from tests.support.group_log import GroupLog

T = TypeVar("T")


@dataclass(slots=True)
class Trace:
    """Everything that happened, as a digest and (optionally) as lines."""

    keep: bool = False
    lines: list[str] = field(default_factory=list)
    count: int = 0
    _digest: Any = field(default_factory=hashlib.sha256)

    def note(self, *words: object) -> None:
        line = f"{asyncio.get_running_loop().time():.6f} {' '.join(map(str, words))}"
        self._digest.update(line.encode())
        self.count += 1
        if self.keep:
            self.lines.append(line)

    @property
    def digest(self) -> str:
        return str(self._digest.hexdigest())[:16]


@dataclass(slots=True)
class World:
    """The one true store and log, the seed's random numbers, and how rough things are (`roughness` 0 = calm).

    `dates`: the store's clock. `unreachable`: folders whose objects cannot be read now. `patience_s`: after which
    coordinators park a table.
    """

    rng: random.Random
    store: MemoryObjectStore
    log: GroupLog
    trace: Trace
    dates: Callable[[], int]
    roughness: float = 1.0
    is_one_away_for_long: bool = False
    rereads: int = 0
    encoded: int = 0
    parked: int = 0
    patience_s: float | None = None
    unreachable: set[str] = field(default_factory=set)
    removed: int = 0
    swept: int = 0
    read: int = 0
    late: set[asyncio.Task[Any]] = field(default_factory=set)
    needed: dict[TableName, NeededObjects] = field(default_factory=dict)
    """By table, where versions expire."""

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability * self.roughness

    def is_cut_off(self, key: str) -> bool:
        return any(key.startswith(folder) for folder in self.unreachable)

    def needed_of(self, key: str) -> NeededObjects | None:
        """What is needed of the table whose object `key` is."""
        if not self.needed:
            return None
        return next((needed for table, needed in self.needed.items() if key.startswith(table_prefix(table))), None)

    def delay_s(self) -> float:
        return self.rng.expovariate(1 / 0.004)

    def send(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start what outlives its sender."""
        task = asyncio.ensure_future(work)
        self.late.add(task)
        task.add_done_callback(self.late.discard)
        return task


async def _after(delay_s: float, work: Callable[[], Awaitable[T]]) -> T:
    await asyncio.sleep(delay_s)
    return await work()


@dataclass(slots=True)
class ProcessStore:
    """One process's connection to the store. A paused process hears nothing until it is resumed.

    `faults`: how many of the reads fail, as a part of the usual ones.
    """

    world: World
    name: str
    running: asyncio.Event
    faults: float = 1.0

    async def get(self, key: ObjectKey) -> StoredObject | None:
        await self._travel("get", key)
        found = await self.world.store.get(key)
        if found is not None and self.world.chance(0.01 * self.faults):
            raise Unavailable("store-unavailable", f"{key}: the answer was cut off")
        await self._travel_back()
        return found

    async def list(self, prefix: str, *, limit: int | None = None) -> Listing:
        await self._travel("list", prefix)
        found = await self.world.store.list(prefix, limit=limit)
        await self._travel_back()
        return found

    async def stored_ms(self, key: ObjectKey) -> int | None:
        await self._travel("head", key)
        found = await self.world.store.stored_ms(key)
        await self._travel_back()
        return found

    async def folders(self, prefix: str) -> Sequence[str]:
        await self._travel("folders", prefix)
        found = await self.world.store.folders(prefix)
        await self._travel_back()
        return found

    async def put_if_absent(self, key: ObjectKey, body: bytes, *, after: Predecessor | None = None) -> PutReply:
        world = self.world
        fate = world.rng.random() / world.roughness if world.roughness else 1.0

        async def arrive() -> PutReply:
            reply = await world.store.put_if_absent(key, body, after=after)
            needed = world.needed_of(key)
            if needed is not None and reply.answer is PutStatus.CREATED:
                await needed.landed(key, world.dates())
            world.trace.note(self.name, "put", key, hashlib.sha256(body).hexdigest()[:8], reply.answer.value)
            return reply

        if fate < 0.03 or world.is_cut_off(key):
            world.trace.note(self.name, "put never arrives", key)
            await self._travel_back()
            return PutReply(PutStatus.NO_ANSWER, detail="connection refused, perhaps")
        if fate < 0.06:
            world.trace.note(self.name, "put will land late", key)
            world.send(_after(world.rng.uniform(0.01, 3.0), arrive))
            await self._travel_back()
            return PutReply(PutStatus.NO_ANSWER, detail="time-out")
        sent = world.send(_after(world.delay_s(), arrive))
        if fate < 0.09:
            world.trace.note(self.name, "put sent twice", key)
            await asyncio.shield(sent)
            again = world.send(_after(world.delay_s(), arrive))
            return await asyncio.shield(again)
        reply = await asyncio.shield(sent)
        await self._travel_back()
        if fate < 0.14:
            world.trace.note(self.name, "reply lost", key)
            return PutReply(PutStatus.NO_ANSWER, detail="the connection broke")
        if fate < 0.16:
            return PutReply(PutStatus.EXISTS, reply.store_ms, "409")
        return reply

    async def close(self) -> None:
        pass

    async def inventory(self, prefix: str) -> AsyncIterator[Sequence[DatedObject]]:
        """What a worker sees when it looks for what may go."""
        await self._travel("inventory", prefix)
        found = self.world.store.dated(prefix)
        await self._travel_back()
        yield found

    async def remove(self, keys: Sequence[ObjectKey]) -> None:
        """It may be carried out in part, late, twice, or without an answer."""
        world = self.world

        async def arrive() -> None:
            for key in keys:
                world.trace.note(self.name, "remove", key)
                needed = world.needed_of(key)
                if needed is not None and await world.store.stored_ms(key) is not None:
                    needed.going(key, world.dates())
                world.store.discard(key)
            world.removed += len(keys)
            world.swept += sum(version_of_root_key(key) is None for key in keys)

        await self._travel("remove", f"{len(keys)} objects")
        fate = world.rng.random() / world.roughness if world.roughness else 1.0
        if fate < 0.1:
            world.trace.note(self.name, "removal lands late, and twice")
            for _ in range(2):
                world.send(_after(world.rng.uniform(0.01, 3.0), arrive))
            raise Unavailable("store-unavailable", "no answer")
        if fate < 0.2:
            keys = keys[: len(keys) // 2]
            await arrive()
            raise Unavailable("store-unavailable", "the connection broke")
        await arrive()
        await self._travel_back()

    async def _travel(self, what: str, key: str) -> None:
        await asyncio.sleep(self.world.delay_s())
        await self.running.wait()
        if self.world.is_cut_off(key) or self.world.chance(0.02 * self.faults):
            self.world.trace.note(self.name, what, key, "503")
            raise Unavailable("store-unavailable", "503 Slow Down")

    async def _travel_back(self) -> None:
        await asyncio.sleep(self.world.delay_s())
        await self.running.wait()
