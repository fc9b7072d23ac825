"""One simulated world from its seed to its verdict.

Owns: who runs (coordinators, workers, writers), who is killed or paused when, and what must hold at the end.
Does not own: faults of single requests (`faulty_world`), what writers publish (`writers`).
Invariants: the same seed and steps give the same trace; safety is checked while faults last, liveness after they stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from dataclasses import dataclass, field
from itertools import pairwise

import pyarrow as pa

from rootline.adapters.memory_intent_log import MemoryIntentLog
from rootline.adapters.memory_object_store import MemoryObjectStore
from rootline.client.definition_builder import build_definition
from rootline.coordinator.app import CoordinatorService
from rootline.coordinator.settings import CoordinatorSettings
from rootline.schemas.errors import RootlineError
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import Intent, IntentKind
from rootline.schemas.intent_codec import decode_intent, encode_intent
from rootline.schemas.intent_limits import IntentLimits
from rootline.schemas.object_keys import roots_prefix, version_of_root_key
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.storage.chain_check import check_table
from rootline.storage.table_loader import load_table
from rootline.testing.seeded_environment import SeededEnvironment
from rootline.testing.virtual_loop import run_virtually
from rootline.workers.app import WorkerService
from rootline.workers.settings import WorkerSettings
from tests.simulation.faulty_world import ProcessLog, ProcessStore, Trace, World
from tests.simulation.reference import replay
from tests.simulation.writers import Published, Writer, live_data, stored_positions

TABLE = TableName("sim.events")
_SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("k", pa.int32())])
_LIVENESS_S = 3_600.0


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
    virtual_s: float
    leaves: int


@dataclass(slots=True)
class _Process:
    """A coordinator or worker that can be killed, paused and started again."""

    world: World
    name: str
    kind: type[CoordinatorService] | type[WorkerService]
    running: asyncio.Event = field(default_factory=asyncio.Event)
    incarnation: int = 0
    task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.incarnation += 1
        self.running = asyncio.Event()
        self.running.set()
        name = f"{self.name}.{self.incarnation}"
        store, log = ProcessStore(self.world, name, self.running), ProcessLog(self.world, name, self.running)
        seed = f"{name}/{self.world.rng.random()}"
        environment = SeededEnvironment(seed, skew_ms=self.world.rng.randint(-60_000, 60_000))
        service: CoordinatorService | WorkerService
        if self.kind is CoordinatorService:
            service = CoordinatorService(
                store=store,
                log=log,
                environment=environment,
                settings=CoordinatorSettings(coordinator_id=name, probe_rounds=0, batch_intents_max=16),
            )
        else:
            service = WorkerService(
                store=store,
                log=log,
                environment=environment,
                settings=WorkerSettings(poll_interval_s=0.2, poll_interval_s_max=1.0, verdict_timeout_s=5.0),
            )
        self.world.trace.note(name, "starts")
        self.task = asyncio.ensure_future(service.run())

    async def kill(self) -> None:
        """Stop between any two steps; requests that were sent are carried out all the same."""
        self.world.trace.note(self.name, "killed")
        assert self.task is not None
        self.running.clear()
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task

    def revive(self) -> None:
        """Run from now on, whatever was done to it."""
        self.running.set()
        if self.task is not None and self.task.done():
            if not self.task.cancelled():
                self.task.result()
            self.start()

    async def pause(self, seconds: float) -> None:
        """Hear nothing for a while, longer than any time-out, then go on."""
        self.world.trace.note(self.name, "paused", f"{seconds:.3f}")
        running = self.running
        running.clear()
        await asyncio.sleep(seconds)
        running.set()


def simulate(seed: int, steps: int, *, coordinators: int = 3, writers: int = 6, keep_trace: bool = False) -> Outcome:
    """Run a world of about `steps` intents; raises `AssertionError` when something that must hold fails."""
    return run_virtually(_simulate(seed, steps, coordinators, writers, keep_trace))


async def _simulate(seed: int, steps: int, coordinators: int, writers: int, keep_trace: bool) -> Outcome:
    rng = random.Random(seed)
    clock = SeededEnvironment(f"store/{seed}")
    world = World(
        rng,
        MemoryObjectStore(clock.now_ms),
        MemoryIntentLog(identity=uuid.UUID(int=rng.getrandbits(128)), clock_ms=clock.now_ms),
        Trace(keep_trace),
    )
    processes = [_Process(world, f"coordinator-{number}", CoordinatorService) for number in range(coordinators)]
    processes.append(_Process(world, "worker", WorkerService))
    for process in processes:
        process.start()
    await _create(world, uuid.UUID(int=rng.getrandbits(128)))
    published = Published()
    crowd = [
        Writer(world, f"writer-{number}", TABLE, published, random.Random(f"{seed}/{number}"), max(1, steps // writers))
        for number in range(writers)
    ]
    chaos = asyncio.gather(*(_chaos(world, process) for process in processes))
    writing = asyncio.gather(*(writer.run() for writer in crowd))
    done, _ = await asyncio.wait({writing, chaos}, return_when=asyncio.FIRST_COMPLETED, timeout=100_000.0)
    if chaos in done:
        await chaos  # a process ended by itself: its error
    assert writing in done, f"liveness: {_phases(processes)}"
    await writing
    world.roughness = 0.0
    chaos.cancel()
    await asyncio.gather(chaos, return_exceptions=True)
    for process in processes:
        process.revive()
    await _drained(world)
    for process in processes:
        await process.kill()
    await asyncio.gather(*world.late, return_exceptions=True)
    return await _judge(seed, world, published, sum(process.incarnation - 1 for process in processes))


def _phases(processes: list[_Process]) -> str:
    return ", ".join(f"{process.name} {process.task}" for process in processes)


async def _create(world: World, table_uuid: uuid.UUID) -> None:
    definition = build_definition(
        _SCHEMA,
        partition_by=["k"],
        table_uuid=table_uuid,
        properties={"rootline.flush.data-files": "12", "rootline.flush.vectors": "4"},
    )
    intent = Intent(
        intent_id=f"create-{table_uuid}", table=TABLE, kind=IntentKind.CREATE, definition=definition.to_json().decode()
    )
    position = await world.log.publish(TABLE.encode(), encode_intent(intent))
    verdict = await world.log.wait_verdict(position, timeout_s=_LIVENESS_S)
    assert verdict is not None, "the table was not created"
    assert verdict.kind is VerdictKind.COMMITTED, verdict


async def _chaos(world: World, process: _Process) -> None:
    """Kill, restart and pause one process for as long as the writers write."""
    while True:
        await asyncio.sleep(world.rng.expovariate(1 / 1.0))
        if world.rng.random() < 0.6:
            await process.kill()
            await asyncio.sleep(world.rng.expovariate(1 / 0.5))
            process.start()
        else:
            await process.pause(world.rng.choice((0.02, 0.1, 0.5, 2.0, 15.0, 400.0)))
        assert process.task is not None
        if process.task.done():
            process.task.result()


async def _drained(world: World) -> None:
    """When faults stop, every record gets its verdict."""
    end = await world.log.end_offset()
    async with asyncio.timeout(_LIVENESS_S):
        while await world.log.first_undecided() < end:  # noqa: ASYNC110 - virtual time; the log has no such event
            await asyncio.sleep(0.5)


async def _judge(seed: int, world: World, published: Published, kills: int) -> Outcome:
    end = await world.log.end_offset()
    records = await world.log.read(0, limit=end, wait_s=0)
    verdicts: list[Verdict] = []
    intents: list[Intent | None] = []
    for record in records:
        verdict = await world.log.wait_verdict(record.position, timeout_s=0)
        assert verdict is not None
        verdicts.append(verdict)
        try:
            intent = decode_intent(record.value, record.headers, IntentLimits())
        except RootlineError:
            intent = None
        intents.append(intent if intent is not None and intent.intent_id in published.intents else None)
    _check_order(verdicts)
    reference = replay(verdicts, intents, published.vectors)
    state = await load_table(world.store, TABLE)
    assert state is not None
    assert sorted(reference.files) == live_data(state), "the live files are not those of the accepted intents"
    for name, deleted in reference.files.items():
        assert await stored_positions(world, TABLE, state, name) == deleted, f"{name}: other rows are deleted"
    findings = [finding async for finding in check_table(world.store, TABLE)]
    assert not findings, findings
    kinds = [verdict.kind for verdict in verdicts]
    roots = await world.store.list(roots_prefix(TABLE))
    return Outcome(
        seed=seed,
        trace_digest=world.trace.digest,
        trace_lines=world.trace.lines,
        intents=len(records),
        committed=kinds.count(VerdictKind.COMMITTED),
        duplicates=kinds.count(VerdictKind.DUPLICATE),
        rejected=kinds.count(VerdictKind.REJECTED),
        versions=sum(version_of_root_key(key) is not None for key in roots.keys),
        kills=kills,
        virtual_s=asyncio.get_running_loop().time(),
        leaves=len(state.leaves),
    )


def _check_order(verdicts: list[Verdict]) -> None:
    """Versions follow the log's order, and sequence numbers increase strictly."""
    committed = [verdict for verdict in verdicts if verdict.kind is VerdictKind.COMMITTED]
    for before, after in pairwise(committed):
        assert before.version is not None
        assert after.version is not None
        assert before.sequence_number is not None
        assert after.sequence_number is not None
        assert before.version <= after.version, f"offset {after.offset} was committed before offset {before.offset}"
        assert before.sequence_number < after.sequence_number, (
            f"offset {after.offset} has no sequence number of its own"
        )
