"""What a table's commits cost while another table of the same process moves its rows to a leaf by itself.

Owns: the measurement. Does not own: the tables' shapes (`sample_table`), when a root is too long
(`rootline.maintenance.flush_plan`).
Invariants: the yardstick is the same two writers in the same process a moment before, when no flush is due; what is
counted of the flush lasts from the commit that makes it due to the first root that names a leaf; the store is in
memory, behind a wait, so that nothing but the process itself is measured.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from dataclasses import dataclass, field, replace
from typing import Final

from benchmarks.measure import Result, Spread, load_average
from benchmarks.sample_table import append_record, create_record, definition
from rootline.adapters.embedded_feed import EmbeddedFeed
from rootline.adapters.memory import MemoryIntentLog, MemoryObjectStore
from rootline.coordinator.app import CoordinatorService, settle_memory
from rootline.coordinator.settings import CoordinatorSettings
from rootline.ports.object_store import Listing, ObjectStore, Predecessor, PutReply, StoredObject
from rootline.schemas.bytes.root.statistics_codec import StatisticsCodec
from rootline.schemas.identifiers import ObjectKey, TableName
from rootline.schemas.object_keys import version_of_root_key
from rootline.schemas.verdict import VerdictKind
from tests.support.loaded_tables import load_table

ENTRIES: Final = int(os.environ.get("ROOTLINE_BENCH_FLUSH_ENTRIES", "50000"))
_FLUSHING = TableName("bench.flushing")
_BESIDE = TableName("bench.beside")
_PER_FILLING: Final = 1_000
_QUIET_S: Final = 6.0
_STORE_S: Final = 0.002
_PAUSE_S: Final = 0.05
_APART_S: Final = 0.5
_TIMEOUT_S: Final = 120.0
_MANY: Final = 1_000_000


@dataclass(slots=True)
class _WaitingStore:
    """Memory, two milliseconds away; `flushed` is set when a root follows a leaf."""

    inner: ObjectStore = field(default_factory=MemoryObjectStore)
    flushed: asyncio.Event = field(default_factory=asyncio.Event)
    _has_leaf: bool = False

    async def get(self, key: ObjectKey) -> StoredObject | None:
        await asyncio.sleep(_STORE_S)
        return await self.inner.get(key)

    async def put_if_absent(self, key: ObjectKey, body: bytes, *, after: Predecessor | None = None) -> PutReply:
        await asyncio.sleep(_STORE_S)
        reply = await self.inner.put_if_absent(key, body, after=after)
        self._has_leaf = self._has_leaf or "/leaves/" in key
        if self._has_leaf and version_of_root_key(key) is not None and _FLUSHING.split(".")[1] in key:
            self.flushed.set()
        return reply

    async def list(self, prefix: str, *, limit: int | None = None) -> Listing:
        await asyncio.sleep(_STORE_S)
        return await self.inner.list(prefix, limit=limit)

    async def stored_ms(self, key: ObjectKey) -> int | None:
        return await self.inner.stored_ms(key)

    async def folders(self, prefix: str) -> list[str]:
        return list(await self.inner.folders(prefix))

    async def close(self) -> None:
        await self.inner.close()


@dataclass(slots=True)
class _Writer:
    """Publishes one file after another, each when the one before has its verdict; (began, seconds) of each."""

    log: MemoryIntentLog
    table: TableName
    codec: StatisticsCodec
    numbers: itertools.count[int]
    pause_s: float = 0.0
    taken: list[tuple[float, float]] = field(default_factory=list)

    async def run(self) -> None:
        while True:
            await self.publish(1)
            await asyncio.sleep(self.pause_s)

    async def publish(self, count: int) -> None:
        first = next(self.numbers)
        for _ in range(count - 1):
            next(self.numbers)
        record = append_record(range(first, first + count), self.codec, self.table)
        began_s = time.perf_counter()
        position = await self.log.publish(self.table.encode(), record)
        verdict = await self.log.wait_verdict(position, timeout_s=_TIMEOUT_S)
        if verdict is None or verdict.kind is not VerdictKind.COMMITTED:
            raise RuntimeError(f"the benchmark's own intent came to {verdict}")
        self.taken.append((began_s, time.perf_counter() - began_s))

    def between(self, begin_s: float, end_s: float) -> list[float]:
        """Seconds of the commits that begin in this time."""
        return [taken for began_s, taken in self.taken if begin_s <= began_s < end_s]


def measure() -> list[Result]:
    """In this process alone."""
    return asyncio.run(_measure())


async def _measure() -> list[Result]:
    settle_memory()  # as a coordinator's process does
    log, store = MemoryIntentLog(), _WaitingStore()
    coordinator = CoordinatorService(store=store, log=EmbeddedFeed(log), settings=CoordinatorSettings(probe_rounds=0))
    running = asyncio.ensure_future(coordinator.run())
    try:
        flushing = await _table(log, _FLUSHING, 1, ENTRIES)
        beside = await _table(log, _BESIDE, 2, _MANY)
        while (start := len(flushing.taken) * _PER_FILLING) < ENTRIES - _PER_FILLING:
            await flushing.publish(min(_PER_FILLING, ENTRIES - _PER_FILLING - start))
        flushing.pause_s = _PAUSE_S  # a hundred or two while it is quiet: none of them makes the flush due
        writing = asyncio.gather(flushing.run(), beside.run())
        quiet_s = time.perf_counter()
        await asyncio.sleep(_QUIET_S)
        calm_s = time.perf_counter()
        await asyncio.sleep(_APART_S)  # so that no commit counts on both sides
        due_s = time.perf_counter()
        await flushing.publish(_PER_FILLING)
        async with asyncio.timeout(_TIMEOUT_S):
            await store.flushed.wait()
        end_s = time.perf_counter()
        await asyncio.sleep(_PAUSE_S)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        await _check(store)
    finally:
        coordinator.request_stop()
        await running
    others, own = beside.between(due_s, end_s), flushing.between(due_s, end_s)
    calm, own_calm = beside.between(quiet_s, calm_s), flushing.between(quiet_s, calm_s)
    longest = f"longest {max(others) * 1000:.0f} ms against {max(calm) * 1000:.0f}"
    span = f"{len(others)} commits in {end_s - due_s:.1f} s, from the commit that makes it due to the leaf's root"
    what = f"a leaf of {ENTRIES} entries: the other table's commits"
    return [
        _result(f"{what}, p99", others, calm, Spread.of(others).p99 / Spread.of(calm).p99, f"{longest}; {span}"),
        _result(f"{what}, longest", others, calm, max(others) / max(calm), longest),
        _result(
            f"a leaf of {ENTRIES} entries: the table's own commits, longest",
            own,
            own_calm,
            max(own) / max(own_calm),
            f"longest {max(own) * 1000:.0f} ms against {max(own_calm) * 1000:.0f}",
        ),
    ]


async def _table(log: MemoryIntentLog, name: TableName, number: int, hard_entries: int) -> _Writer:
    described = definition(number)
    properties = {**described.properties, "rootline.flush.hard-entries": str(hard_entries)}
    described = replace(described, properties={**properties, "rootline.flush.hard-bytes": str(2**33)})
    position = await log.publish(name.encode(), create_record(described, name))
    await log.wait_verdict(position, timeout_s=_TIMEOUT_S)
    return _Writer(log, name, StatisticsCodec(described.tracked_fields), itertools.count())


async def _check(store: ObjectStore) -> None:
    state = await load_table(store, _FLUSHING)
    moved = 0 if state is None else sum(leaf.length for leaf in state.leaves.values())
    if moved < ENTRIES:
        raise RuntimeError(f"the leaves have {moved} entries, not the {ENTRIES} that were to be flushed")


def _result(what: str, subject: list[float], yardstick: list[float], ratio: float, notes: str) -> Result:
    name = "the same writers, no flush due"
    return Result("–", what, Spread.of(subject), Spread.of(yardstick), name, ratio, "–", load_average(), notes)
