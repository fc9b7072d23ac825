"""A simulated process: a coordinator or a worker that is killed, stopped, paused, cut off, and started again.

Owns: one process's life. Does not own: when what is done to it (`chaos`), faults of its requests (`faulty_world`,
`faulty_log`).
Invariants: a killed process leaves nothing behind but the requests it has sent, and its seat in the group.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from rootline.coordinator.app import CoordinatorService
from rootline.coordinator.settings import CoordinatorSettings
from rootline.ports.intent_log import LogKeeps
from rootline.testing.seeded_environment import SeededEnvironment
from rootline.tree.intents.flush import OwnFlush
from rootline.tree.parts.header_limits import HEADER_LIMITS, HeaderLimits
from rootline.tree.state.table_state import TableState
from rootline.workers.app import WorkerService
from rootline.workers.settings import WorkerSettings
from tests.simulation.faulty_log import CoordinatorsLog, WorkersLog
from tests.simulation.faulty_world import ProcessStore, World
from tests.support.own_flush import own_flush

_EIGHT_DAYS_MS = 8 * 24 * 3600 * 1000
"""Longer than an idle writer stays in the ledger."""


_COORDINATORS = CoordinatorSettings(probe_rounds=0, batch_intents_max=16, offsets_commit_interval_s=0.05)
"""Read once: a process starts often, and reading takes longer than its start."""
_WORKERS = WorkerSettings(
    poll_interval_s=0.2,
    poll_interval_s_max=1.0,
    verdict_timeout_s=5.0,
    sweep_delay_s=0.1,
    sweep_time_share_max=1.0,
)


async def _keeps() -> LogKeeps:
    """As long as coordinators hold every horizon to."""
    return LogKeeps(7 * 24 * 3600)


class SlowEncoder:
    """Leaves take a while, in which their table goes on, or fail; every choice follows from the process's name."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self._name, self._rng = world, name, random.Random(f"leaves of {name}")

    async def encode(self, head: TableState) -> OwnFlush:
        await asyncio.sleep(self._rng.expovariate(1 / 0.2) * self._world.roughness)
        if self._rng.random() < 0.2 * self._world.roughness:
            self._world.trace.note(self._name, "leaves fail", head.header.table, head.header.version)
            raise MemoryError
        self._world.trace.note(self._name, "leaves are ready", head.header.table, head.header.version)
        self._world.encoded += 1
        return own_flush(head)


@dataclass(slots=True)
class _WorkersEnvironment(SeededEnvironment):
    """Its wall clock runs as fast as the store's dates: removal counts by the earlier of the two."""

    dates: Callable[[], int] = lambda: 0

    def now_ms(self) -> int:
        """Skewed, as of any process."""
        return self.dates() + self.skew_ms


@dataclass(slots=True)
class Process:
    """`incarnation` counts its starts; `kills` those of its ends that it did not choose."""

    world: World
    name: str
    kind: type[CoordinatorService] | type[WorkerService]
    limits: HeaderLimits = HEADER_LIMITS
    running: asyncio.Event = field(default_factory=asyncio.Event)
    incarnation: int = 0
    kills: int = 0
    task: asyncio.Task[None] | None = None
    _service: CoordinatorService | WorkerService | None = None

    @property
    def is_coordinator(self) -> bool:
        return self.kind is CoordinatorService

    def start(self) -> None:
        self.incarnation += 1
        self.running = asyncio.Event()
        self.running.set()
        world, name = self.world, f"{self.name}.{self.incarnation}"
        store = ProcessStore(world, name, self.running)
        skew_ms = world.rng.randint(-60_000, 60_000)
        if world.chance(0.2):
            skew_ms += world.rng.choice((-_EIGHT_DAYS_MS, _EIGHT_DAYS_MS))
        environment = SeededEnvironment(f"{name}/{world.rng.random()}", skew_ms=skew_ms)
        if self.is_coordinator:
            settings = _COORDINATORS.model_copy(
                update={
                    "coordinator_id": name,
                    "table_queue_intents_max": world.rng.choice((2, 4, 4_096)),
                    "parking_after_s": world.patience_s or 600.0,
                }
            )
            log = CoordinatorsLog(world, name, self.running, world.log.member(self.name))
            coordinator = CoordinatorService(store=store, log=log, environment=environment, settings=settings)
            coordinator._encoder = SlowEncoder(world, name)
            coordinator._policy = replace(coordinator._policy, header_limits=self.limits)
            self._service = coordinator
        else:
            self._service = WorkerService(
                store=store,
                log=WorkersLog(world),
                environment=_WorkersEnvironment(environment.seed, skew_ms=skew_ms, dates=world.dates),
                remover=store,
                keeps=_keeps,
                settings=_WORKERS,
            )
        world.trace.note(name, "starts")
        self.task = asyncio.ensure_future(self._service.run())

    async def kill(self) -> None:
        """Stop between any two steps; requests that were sent are carried out all the same."""
        self.world.trace.note(self.name, "killed")
        assert self.task is not None
        self.kills += 1
        self.running.clear()
        if self.is_coordinator:
            self.world.log.crash(self.name)
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task

    async def stop(self) -> None:
        """Ask it to end; it finishes what it has in flight, if it can."""
        self.world.trace.note(self.name, "stopped")
        assert self.task is not None
        assert self._service is not None
        self._service.request_stop()
        await self.task

    async def pause(self, seconds: float) -> None:
        """Hear nothing for a while, longer than any time-out, then go on."""
        self.world.trace.note(self.name, "paused", f"{seconds:.3f}")
        running = self.running
        running.clear()
        await self._out_of_the_group(seconds)
        running.set()

    async def cut_off(self, seconds: float) -> None:
        """The group does not hear of it, nor it of the group; store and verdicts are as near as ever: a zombie."""
        self.world.trace.note(self.name, "cut off", f"{seconds:.3f}")
        await self._out_of_the_group(seconds)

    def revive(self) -> None:
        """Run from now on, whatever was done to it."""
        self.running.set()
        if self.is_coordinator:
            self.world.log.resume(self.name)
        self.raise_failure()
        if self.task is not None and self.task.done():
            self.start()

    def raise_failure(self) -> None:
        """What the process ended with by itself."""
        if self.task is not None and self.task.done() and not self.task.cancelled():
            self.task.result()

    async def _out_of_the_group(self, seconds: float) -> None:
        if self.is_coordinator:
            self.world.log.pause(self.name)
        await asyncio.sleep(seconds)
        if self.is_coordinator:
            self.world.log.resume(self.name)
