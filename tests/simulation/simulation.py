"""One simulated world from its seed to its verdict.

Owns: who runs (coordinators in one group, a worker, writers), and in which order things come to an end. Does not own:
the harm that is done (`chaos`), faults of single requests (`faulty_world`, `faulty_log`), what writers publish
(`writers`), what must hold (`judgement`).
Invariants: the same seed and steps give the same trace; safety is checked while faults last, liveness after they stop.
"""

from __future__ import annotations

import asyncio
import gc
import random
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rootline.adapters.memory import MemoryObjectStore
from rootline.client.create_drop import build_definition
from rootline.coordinator.app import CoordinatorService
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.client_commits import CLIENT
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import Intent, IntentKind
from rootline.schemas.object_keys import roots_prefix, table_prefix, version_of_root_key
from rootline.schemas.verdict import VerdictKind
from rootline.testing.seeded_environment import SeededEnvironment
from rootline.testing.virtual_loop import run_virtually
from rootline.tree.parts.header_limits import HEADER_LIMITS, HeaderLimits
from rootline.tree.state.table_state import TableState
from rootline.workers.app import WorkerService
from tests.simulation.chaos import disturb_log, disturb_process, forget_and_cut_off
from tests.simulation.decoded_once import decoded_once
from tests.simulation.engine_side import EngineSide
from tests.simulation.engines import Append
from tests.simulation.faulty_world import Trace, World
from tests.simulation.judgement import is_drained, judge
from tests.simulation.namespaces import Steward, check_namespaces
from tests.simulation.needed import NeededObjects
from tests.simulation.process import Process
from tests.simulation.published import Published
from tests.simulation.readers import read_slowly
from tests.simulation.writers import Writer
from tests.support.group_log import GroupLog

TABLES = tuple(TableName(name) for name in ("sim.events", "sim.clicks", "other.orders"))
PARTITIONS = 3
_SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("k", pa.int32())])
_LIVENESS_S = 3_600.0
_DATES_SPEED = 1_000
SCAN_RETENTION_S = 4_000
"""Longer than it takes to give a version up, remove its root and look twice: a sweep that does not wait is seen."""
ROOT_RETENTION_MS = 600_000
"""What tables have that say nothing else."""
_EXPIRING = {
    "rootline.expire": "true",
    "rootline.expire.every-commits": "3",
    "rootline.expire.all-versions": "3",
    "rootline.expire.by-minute-seconds": "60",
    "rootline.sweep": "true",
    "rootline.sweep.interval-s": "1",
    "rootline.sweep.scan-retention-s": str(SCAN_RETENTION_S),
}
_MAINTAINED = {
    "rootline.flush.data-files": "12",
    "rootline.flush.vectors": "4",
    "rootline.flush.hard-entries": "20",
    "rootline.compact.leaves": "3",
    "rootline.compact.dead-percent": "60",
    "rootline.compact.vector-bytes": "20",
    "rootline.compact.vector-files": "2",
}
_HOLD_S = 3.85
"""How long readers take, at most, where dates run so fast: less than what scans read is kept for."""
_KEEPING = {"rootline.expire": "false", "rootline.sweep": "false"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a simulated world came to."""

    seed: int
    trace_digest: str
    trace_lines: list[str]
    intents: int
    committed: int
    duplicates: int
    rejected: int
    versions: int
    kills: int
    rebalances: int
    rereads: int
    virtual_s: float
    leaves: int
    pages: int
    compactions: int
    vector_compactions: int
    restores: int
    rewrites: int
    conversions: int
    encoded: int
    parked: int
    expiries: int
    removed: int
    drops: int
    creates: int
    sweeps: int
    swept: int
    views: int
    view_changes: int
    changes: int
    specs: int
    read: int
    replaces: int
    tags: int
    namespaces: int
    """Versions of all of them."""
    clients: int
    moved: int
    """Commits of clients, and those that were rejected because their job had moved."""
    appends: Sequence[Append] = ()
    """Of engines."""
    catalog_kills: int = 0


def simulate(
    seed: int,
    steps: int,
    *,
    coordinators: int = 3,
    writers: int = 6,
    keep_trace: bool = False,
    limits: HeaderLimits = HEADER_LIMITS,
    decode_once: bool = True,
    patience_s: float | None = None,
    expires: bool = False,
    drops: bool = False,
    evolves: bool = False,
    namespaces: bool = False,
    tags: bool = False,
    clients: bool = False,
    engines: int = 0,
    jobs: int = 0,
) -> Outcome:
    """Run a world of about `steps` intents; raises `AssertionError` when something that must hold fails.

    `patience_s`: coordinators park tables that are stuck for so long, and the log forgets what the group has passed.
    `decode_once`: decode each root and leaf once for all processes, which changes nothing but the time it takes.
    `expires`: versions expire after a few commits, and the worker sweeps; the store's dates run a thousand times as
    fast as everything else, so that what is not needed goes and heads have to be confirmed, by its dates, within the
    world's time. Writers then add files of long ago, and readers hold on to old versions.
    `drops`: writers drop tables, make them again, bring them back, replace them, and make views of their names.
    `evolves`: writers change columns, partitions and orders all the time.
    `namespaces`: clients make, change and drop the namespaces of the tables meanwhile.
    `tags`: writers tag versions of every age, and go back to them.
    `clients`: more than half of the appends are those of Iceberg clients, which move a few jobs.
    `engines`: so many clients of two REST catalogs make as many calls as writers publish intents. No writer deletes by
    value then: exports would have to read the files.
    `jobs`: so many streaming jobs commit through the catalogs, too.
    """
    crowd = Crowd(
        writers,
        steps,
        expires=expires,
        drops=drops,
        evolves=evolves,
        tags=tags,
        clients=clients,
        by_value=not engines and not jobs,
    )

    async def whole() -> Outcome:
        world, published = _world(seed, keep_trace, patience_s, expires), Published()
        stewards = [Steward(world, f"steward-{number}", TABLES) for number in range(3 if namespaces else 0)]
        side = EngineSide.of(world, published, engines, jobs, steps, TABLES) if engines or jobs else None
        with decoded_once() if decode_once else nullcontext():
            processes = await _live(world, published, seed, coordinators, limits, crowd, stewards, side)
            states = await judge(world, published, TABLES)
            versions = await check_namespaces(world, stewards, TABLES)
            if side is not None:
                side.check()
            return await _outcome(seed, world, processes, states, versions, side)

    with _cycles_found_later():
        return run_virtually(whole())


@contextmanager
def _cycles_found_later() -> Iterator[None]:
    """As in a service (`settle_memory`): hardly anything here makes cycles, and a world is soon over."""
    thresholds = gc.get_threshold()
    gc.set_threshold(200_000, 20, 1_000)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


@dataclass(frozen=True, slots=True)
class Crowd:
    """The writers of a world: how many, how many intents they publish together, and what they do beside files."""

    writers: int
    steps: int
    expires: bool
    drops: bool
    evolves: bool
    tags: bool
    clients: bool
    by_value: bool

    def writer(self, world: World, number: int, published: Published, seed: int) -> Writer:
        """Writers of one table do not agree on its partition, as clients in two languages do not."""
        table = TABLES[number % len(TABLES)]
        shift = number // len(TABLES) % 2
        writer = Writer(
            world,
            f"writer-{number}",
            table,
            published,
            random.Random(f"{seed}/{number}"),
            max(1, self.steps // self.writers),
            (world.log.partition_of(table.encode()) + 1) % PARTITIONS if shift else None,
        )
        writer.drops, writer.evolves, writer.stalls, writer.tags = self.drops, self.evolves, self.expires, self.tags
        writer.clients = self.clients
        writer.by_value = self.by_value
        return writer


def _world(seed: int, keep_trace: bool, patience_s: float | None, expires: bool) -> World:
    rng = random.Random(seed)
    clock = SeededEnvironment(f"store/{seed}")
    log = GroupLog(
        PARTITIONS,
        rebalance_timeout_s=1.0,
        session_timeout_s=0.5,
        identity=uuid.UUID(int=rng.getrandbits(128)),
        clock_ms=clock.now_ms,
        retention_s=None if patience_s is None else 7 * 86_400.0,
    )
    began_ms, speed = clock.now_ms(), _DATES_SPEED if expires else 1

    def store_ms() -> int:
        return began_ms + (clock.now_ms() - began_ms) * speed

    return World(rng, MemoryObjectStore(store_ms), log, Trace(keep_trace), store_ms, patience_s=patience_s)


async def _live(
    world: World,
    published: Published,
    seed: int,
    coordinators: int,
    limits: HeaderLimits,
    crowd: Crowd,
    stewards: Sequence[Steward],
    side: EngineSide | None,
) -> list[Process]:
    """Everything happens, and comes to rest."""
    names = [f"coordinator-{number}" for number in range(coordinators)]
    processes = [Process(world, name, CoordinatorService, limits) for name in names]
    processes.append(Process(world, "worker", WorkerService))
    for process in processes:
        process.start()
    if side is not None:
        side.start()
    try:
        for table in TABLES if crowd.expires else ():
            world.needed[table] = NeededObjects(world.store, table, 1_000 * SCAN_RETENTION_S, ROOT_RETENTION_MS)
        for table in TABLES:
            await _create(world, table, processes, _EXPIRING if crowd.expires else _KEEPING, published, side)
    except BaseException:
        await _end(*_tasks(processes))
        raise
    crowded = [crowd.writer(world, number, published, seed) for number in range(crowd.writers)]
    chaos = asyncio.gather(
        disturb_log(world, list(TABLES)),
        *(disturb_process(world, process) for process in processes),
        *(steward.run() for steward in stewards),
        *([] if side is None else [side.front.disturb()]),
        *([] if world.patience_s is None else [forget_and_cut_off(world, list(TABLES))]),
        *(read_slowly(world, table, f"{seed}/{at}", _HOLD_S) for at in range(4) for table in TABLES if crowd.expires),
    )
    writing = asyncio.gather(*(writer.run() for writer in crowded), *([] if side is None else side.running()))
    done, _ = await asyncio.wait({writing, chaos}, return_when=asyncio.FIRST_COMPLETED, timeout=100_000.0)
    try:
        if chaos in done:
            await chaos  # a process ended by itself: its error
        assert writing in done, f"liveness: {_whereabouts(processes)}"
        await writing
        world.roughness = 0.0
        await _end(chaos)
        world.unreachable.clear()
        for process in processes:
            process.revive()
        if side is not None:
            await side.settle()
        await _drained(world, processes)
        for process in processes:
            await process.kill()
    finally:
        await _end(chaos, writing, *_tasks(processes))
        if side is not None:
            await side.close()
    await asyncio.gather(*world.late, return_exceptions=True)
    return processes


async def _create(
    world: World,
    table: TableName,
    processes: Sequence[Process],
    properties: Mapping[str, str],
    published: Published,
    side: EngineSide | None,
) -> None:
    all_properties = {**_MAINTAINED, **properties}
    if side is not None:
        await side.create(table, all_properties)
        return
    table_uuid = uuid.UUID(int=world.rng.getrandbits(128))
    definition = build_definition(_SCHEMA, partition_by=["k"], table_uuid=table_uuid, properties=all_properties)
    published.first[table] = definition
    intent = Intent(
        intent_id=f"create-{table}", table=table, kind=IntentKind.CREATE, definition=definition.to_json().decode()
    )
    position = await world.log.publish(table.encode(), encode_intent(intent))
    async with asyncio.timeout(_LIVENESS_S):
        while (verdict := await world.log.wait_verdict(position, timeout_s=1.0)) is None:
            for process in processes:
                process.raise_failure()
    assert verdict.kind is VerdictKind.COMMITTED, verdict


async def _drained(world: World, processes: Sequence[Process]) -> None:
    """When faults stop, lag reaches zero."""
    try:
        async with asyncio.timeout(_LIVENESS_S):
            while not is_drained(world):
                await asyncio.sleep(0.5)
                for process in processes:
                    process.raise_failure()
    except TimeoutError:
        raise AssertionError(
            f"liveness: {world.log.undecided()[:5]} undecided, remembered {world.log.group.remembered}, "
            f"{_whereabouts(processes)}"
        ) from None


def _whereabouts(processes: Sequence[Process]) -> str:
    return ", ".join(f"{process.name} {process.task}" for process in processes)


def _tasks(processes: Sequence[Process]) -> list[asyncio.Task[None]]:
    return [process.task for process in processes if process.task is not None]


async def _end(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _outcome(
    seed: int,
    world: World,
    processes: Sequence[Process],
    states: Sequence[TableState],
    namespaces: int,
    side: EngineSide | None,
) -> Outcome:
    kinds = [verdict.kind for verdict in world.log.verdicts.values()]
    roots, pages = 0, 0
    for table in TABLES:
        listed = await world.store.list(roots_prefix(table))
        roots += sum(version_of_root_key(key) is not None for key in listed.keys)
        pages += len((await world.store.list(f"{table_prefix(table)}metadata/pages/")).keys)
    return Outcome(
        seed=seed,
        trace_digest=world.trace.digest,
        trace_lines=world.trace.lines,
        intents=len(kinds),
        committed=kinds.count(VerdictKind.COMMITTED),
        duplicates=kinds.count(VerdictKind.DUPLICATE),
        rejected=kinds.count(VerdictKind.REJECTED),
        versions=roots,
        kills=sum(process.kills for process in processes) - len(processes),
        rebalances=world.log.group.generation,
        rereads=world.rereads,
        encoded=world.encoded,
        parked=world.parked,
        virtual_s=asyncio.get_running_loop().time(),
        leaves=sum(len(state.leaves) for state in states),
        pages=pages,
        restores=_committed(world, b"\x0erestore"),
        rewrites=_committed(world, b"\x0erewrite"),
        conversions=_committed(world, b"convert_equality_deletes"),
        compactions=_committed(world, b"compact_leaves"),
        vector_compactions=_committed(world, b"compact_vectors"),
        expiries=_committed(world, b"\x0cexpire"),
        removed=world.removed,
        drops=_committed(world, b"\x08drop") + _committed(world, b"\x0apurge"),
        creates=_committed(world, b"\x0ccreate"),
        sweeps=_committed(world, b"\x0asweep"),
        swept=world.swept,
        views=_committed(world, b"\x16create_view"),
        view_changes=_committed(world, b"\x18replace_view"),
        changes=_committed(world, b'"replaces-definition"'),
        specs=max(len(state.definition.partition_specs) for state in states),
        read=world.read,
        replaces=_committed(world, b"\x0ereplace"),
        tags=_committed(world, b"\x06tag"),
        namespaces=namespaces,
        clients=_committed(world, CLIENT.encode()),
        moved=sum(verdict.code == "progress-moved" for verdict in world.log.verdicts.values()),
        appends=() if side is None else side.appends,
        catalog_kills=0 if side is None else side.kills,
    )


def _committed(world: World, kind: bytes) -> int:
    """Intents of a kind; `kind` occurs in no others."""
    records = [record for record in world.log.records() if kind in record.value]
    return sum(world.log.verdicts[record.position].kind is VerdictKind.COMMITTED for record in records)
