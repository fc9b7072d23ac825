"""Recordings of simulated writers and a worker at one calm coordinator, for replays before and after a refactoring.

Owns: which worlds are recorded, and when what is in them appended. Does not own: what writers publish (`writers`), the
form of a recording and the coordinator (`replayed_log`).
Invariants: the same seed gives the same recording. What a writer or a worker stores is in the recording, what a
coordinator stores is not.
"""

from __future__ import annotations

import asyncio
import functools
import random
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rootline.adapters.memory import MemoryObjectStore
from rootline.client.create_drop import build_definition
from rootline.ports.object_store import PutReply
from rootline.schemas.bytes.intent_codec import decode_intent, encode_intent
from rootline.schemas.errors import RootlineError
from rootline.schemas.identifiers import Headers, LogPosition, ObjectKey, TableName
from rootline.schemas.intent import Intent, IntentKind
from rootline.schemas.intent_rules import IntentLimits
from rootline.testing.virtual_loop import run_virtually
from rootline.workers.app import WorkerService
from tests.simulation.decoded_once import decoded_once
from tests.simulation.faulty_log import WorkersLog
from tests.simulation.faulty_world import ProcessStore, Trace, World
from tests.simulation.process import _WORKERS, _keeps, _WorkersEnvironment
from tests.simulation.published import Published
from tests.simulation.replayed_log import (
    TICK_S,
    Coordinators,
    Event,
    Journal,
    Record,
    Removal,
    ReplayedLog,
    Restart,
    Setup,
    Upload,
    dates_of,
    sleep_until,
    write_recording,
)
from tests.simulation.simulation import _EXPIRING, _KEEPING, _SCHEMA, TABLES
from tests.simulation.writers import Writer

_PAST_TICK_S: Final = 0.000_5
"""No append is at a whole millisecond, where a rounding error could change its time."""
_RESTARTS_EVERY: Final = 40
"""Ticks."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """The writers of one recorded world, and what they do beside files."""

    setup: Setup
    seed: int
    steps: int
    writers: int = 9
    expires: bool = False
    drops: bool = False
    evolves: bool = False
    tags: bool = False
    has_worker: bool = True


def crowds(roots: int) -> list[Crowd]:
    """The worlds: what each of them has more of than the others."""
    small, steps = 300, max(30, roots // 6)

    def setup(name: str, **more: Any) -> Setup:
        return Setup(name, partitions=3, fault_share=0.06, batch_max=16, **more)

    return [
        Crowd(setup("plain"), 1, steps),
        Crowd(setup("small-headers", header_bytes=small), 2, steps * 3 // 2, drops=True, tags=True),
        Crowd(setup("changing"), 3, steps, evolves=True, tags=True),
        Crowd(setup("expiring", dates_speed=1_000), 4, steps, expires=True, tags=True, evolves=True),
        Crowd(setup("names", dates_speed=1_000), 5, steps * 3, expires=True, drops=True, evolves=True, tags=True),
        Crowd(setup("without-a-worker"), 6, steps, has_worker=False),
    ]


class _Recorder:
    """The events of a recording so far."""

    def __init__(self) -> None:
        self.events: list[tuple[float, Event]] = []

    def note(self, event: Event) -> None:
        self.events.append((asyncio.get_running_loop().time(), event))


class _RecordedStore(MemoryObjectStore):
    """The store: it notes what anyone but a coordinator changes."""

    def __init__(self, setup: Setup, recorder: _Recorder) -> None:
        super().__init__(dates_of(setup))
        self._recorder, self._is_coordinators = recorder, False

    async def put_of_coordinator(self, key: ObjectKey, body: bytes, *, after: Any = None) -> PutReply:
        self._is_coordinators = True
        try:
            return await self.put_if_absent(key, body, after=after)  # a PUT into memory waits for nothing
        finally:
            self._is_coordinators = False

    def place(self, key: ObjectKey, body: bytes) -> None:
        super().place(key, body)
        if not self._is_coordinators:
            self._recorder.note(Upload(key, bytes(body)))

    def discard(self, key: ObjectKey) -> None:
        super().discard(key)
        self._recorder.note(Removal((key,)))


class _RecordedLog(ReplayedLog):
    """The log: it notes every record."""

    def __init__(self, setup: Setup, recorder: _Recorder) -> None:
        super().__init__(setup)
        self._recorder = recorder

    def append(
        self, key: bytes | None, value: bytes, *, partition: int | None = None, headers: Headers = ()
    ) -> LogPosition:
        position = super().append(key, value, partition=partition, headers=headers)
        self._recorder.note(Record(position.partition, key, value, tuple(headers), kind_of(value, headers)))
        return position


def kind_of(value: bytes, headers: Headers) -> str:
    """The kind of a record's intent, or an empty string if no one can read it."""
    try:
        intent = decode_intent(value, dict(headers), IntentLimits())
    except RootlineError:
        return ""
    return f"{intent.kind.value}, adopts" if intent.adopt else intent.kind.value


async def turn_of(table: TableName) -> None:
    """Wait for the next moment at which records of `table` are appended."""
    loop = asyncio.get_running_loop()
    share = TABLES.index(table) / len(TABLES) if table in TABLES else 0.0
    ticks = int((loop.time() - _PAST_TICK_S) / TICK_S - share) + 1
    at_s = (ticks + share) * TICK_S + _PAST_TICK_S
    await sleep_until(at_s if at_s > loop.time() else at_s + TICK_S)


@dataclass(slots=True)
class _Writer(Writer):
    """A writer that publishes at its table's turn only."""

    async def _publish(self, intent: Intent) -> LogPosition:
        await turn_of(self.table)
        return await Writer._publish(self, intent)


@dataclass(slots=True)
class _WorkersLog(WorkersLog):
    """The worker's side of the log. It publishes at the table's turn only."""

    async def publish(self, key: bytes, value: bytes) -> LogPosition:
        await turn_of(TableName(key.decode()))
        return await self.world.log.publish(key, value)

    async def publish_many(self, records: Sequence[Any]) -> list[LogPosition]:
        await turn_of(TableName(records[0][0].decode()))
        return await self.world.log.publish_many(records)


async def _strangers(world: World, rng: random.Random) -> None:
    """Publish what no one can read or should have published: cut, changed, as JSON, on other partitions."""
    while True:
        table = rng.choice(TABLES)
        await turn_of(table)
        known = [record for record in world.log.records() if record.key == table.encode()][-30:]
        if not known or rng.random() < 0.8:
            continue
        found = rng.choice(known)
        value, roll = bytearray(found.value), rng.random()
        if roll < 0.2:
            value = value[: rng.randrange(len(value))]
        elif roll < 0.5:
            value[rng.randrange(len(value))] ^= 1 << rng.randrange(8)
        elif roll < 0.6:
            value = bytearray(rng.randbytes(40))
        elif roll < 0.9:
            value = bytearray(_as_json(found.value, found.headers, rng))
        asks = (("rootline-verdict", b"json"),) if rng.random() < 0.5 else ()
        headers = (*found.headers, *asks) if rng.random() < 0.7 else asks
        world.log.append(found.key, bytes(value), partition=rng.randrange(world.log.partitions), headers=headers)


def _as_json(value: bytes, headers: Headers, rng: random.Random) -> bytes:
    try:
        intent = decode_intent(value, dict(headers), IntentLimits())
    except RootlineError:
        return value
    name = f"json-{rng.getrandbits(64):x}"
    writer = {} if rng.random() < 0.5 else {"writer_id": None, "writer_sequence": None}
    return intent.model_copy(update={"intent_id": name, **writer}).model_dump_json().encode()


async def _restarts(coordinators: Coordinators, recorder: _Recorder) -> None:
    """Every now and then another coordinator, in a pause of all tables."""
    number = 0
    while True:
        await asyncio.sleep(_RESTARTS_EVERY * TICK_S - asyncio.get_running_loop().time() % TICK_S + 0.97 * TICK_S)
        number += 1
        event = Restart(is_killed=number % 2 == 0)
        recorder.note(event)
        await coordinators.restart(event)


async def _create(world: World, table: TableName, published: Published, crowd: Crowd) -> None:
    definition = build_definition(
        _SCHEMA,
        partition_by=["k"],
        table_uuid=uuid.UUID(int=world.rng.getrandbits(128)),
        properties={
            "rootline.flush.data-files": "12",
            "rootline.flush.vectors": "4",
            "rootline.flush.hard-entries": "20" if crowd.has_worker else "12",
            "rootline.compact.leaves": "3",
            "rootline.compact.dead-percent": "60",
            "rootline.compact.vector-bytes": "20",
            "rootline.compact.vector-files": "2",
            **(_EXPIRING if crowd.expires else _KEEPING),
        },
    )
    published.first[table] = definition
    await turn_of(table)
    intent = Intent(
        intent_id=f"create-{table}", table=table, kind=IntentKind.CREATE, definition=definition.to_json().decode()
    )
    position = await world.log.publish(table.encode(), encode_intent(intent))
    assert await world.log.wait_verdict(position, timeout_s=60.0) is not None


async def _record(crowd: Crowd, folder: Path) -> list[tuple[float, Event]]:
    setup, recorder, rng = crowd.setup, _Recorder(), random.Random(crowd.seed)
    store, log = _RecordedStore(setup, recorder), _RecordedLog(setup, recorder)
    journal = Journal(folder)
    coordinators = Coordinators(setup, log, store, store.put_of_coordinator, journal)
    world = World(rng, store, log, Trace(), dates_of(setup), roughness=0.0)
    published = Published()
    coordinators.start()
    for table in TABLES:
        await _create(world, table, published, crowd)
    running = asyncio.Event()
    running.set()
    worker_store = ProcessStore(world, "worker", running)
    worker = WorkerService(
        store=worker_store,
        log=_WorkersLog(world),
        environment=_WorkersEnvironment(f"worker/{crowd.seed}", dates=world.dates),
        remover=worker_store,
        keeps=_keeps,
        settings=_WORKERS,
    )
    around = [asyncio.ensure_future(_strangers(world, rng)), asyncio.ensure_future(_restarts(coordinators, recorder))]
    if crowd.has_worker:
        around.append(asyncio.ensure_future(worker.run()))
    writers = []
    for number in range(crowd.writers):
        table = TABLES[number % len(TABLES)]
        partition = (log.partition_of(table.encode()) + 1) % setup.partitions if number // len(TABLES) % 2 else None
        own = random.Random(f"{crowd.seed}/{number}")
        writer = _Writer(
            world, f"writer-{number}", table, published, own, max(1, crowd.steps // crowd.writers), partition
        )
        writer.drops, writer.evolves, writer.stalls, writer.tags = crowd.drops, crowd.evolves, crowd.expires, crowd.tags
        writers.append(asyncio.ensure_future(writer.run()))
    try:
        await asyncio.gather(*writers)
    finally:
        for task in (*around, *writers):
            task.cancel()
        await asyncio.gather(*around, *writers, return_exceptions=True)
    await coordinators.until_decided()
    journal.close()
    return recorder.events


def record(crowd: Crowd, path: Path) -> None:
    """Run the world and write its recording to `path`; the coordinator's journal is in a folder beside it."""
    with decoded_once():
        events = run_virtually(_record(crowd, path.with_suffix(".recorded")))
    write_recording(path, crowd.setup, events)


def recordings(roots: int) -> dict[str, Callable[[Path], None]]:
    """Name → what makes the recording. All together have about so many roots."""
    return {crowd.setup.name: functools.partial(record, crowd) for crowd in crowds(roots)}
