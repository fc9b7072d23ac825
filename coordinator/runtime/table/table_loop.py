"""The one task that owns a table: passes events to the commit machine, starts its effects, and prefetches leaves.

Owns: the table's inbox, its timer, the tasks of its effects, the choice and byte limit of prefetched leaves. Does
not own: any decision (`rootline.coordinator.protocol.commit_machine`), the requests (`effect_runner`), reading and
proving a leaf (`object_fetcher`), publishing (`verdict_outbox`).
Invariants: events are handled one at a time. A heavy step runs on a thread, without the turn lock. The caller that
delivers never waits. Verdicts are published in the order of their roots, repeatedly until the log has acknowledged
them. A stop waits for the root in flight. A lost prefetch changes latency only: the batch that needs the leaf fetches
it. A prefetched leaf is dropped when no waiting record names it.

Source: protocol page, section 3: an object that must be read first is fetched on arrival, not when its batch closes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from rootline.coordinator.protocol.commit_machine import Step, quarantine, step
from rootline.coordinator.protocol.machine_state import Paused, Phase, Policy, TableMachine
from rootline.coordinator.protocol.messages import (
    ArmTimer,
    Arrived,
    Effect,
    EncodeLeaves,
    Event,
    Fetched,
    Noted,
    PublishVerdicts,
    PutRoot,
    Report,
    StopRequested,
    Tick,
    TimerFired,
    VerdictsPublished,
)
from rootline.coordinator.runtime.table.effect_runner import EffectRunner, StoreEffect
from rootline.coordinator.runtime.table.object_fetcher import FooterPrefetch, read_leaf
from rootline.coordinator.runtime.table.verdict_outbox import CommitTraces, Publication, VerdictOutbox
from rootline.library_log import library_logger
from rootline.ports.environment import Environment
from rootline.ports.intent_feed import RecordingSink
from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import RootlineError
from rootline.schemas.identifiers import Acknowledged, TableName
from rootline.schemas.intent import AddedManifest
from rootline.schemas.intent_rules import is_plain
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.stored_objects import TimedReads
from rootline.tree.draft.batch import ABSENT, Absent, Record
from rootline.tree.rules.leaf_rules import LEAVES_PREFIX, LeafNeed, ReadLeaf

AHEAD_BYTES_MAX: Final = 128 * 1024 * 1024
"""Stated sizes of prefetched leaves of one table: room for two large commits and a small one."""


class LeafPrefetch:
    """Prefetches the leaves that one table's waiting records name."""

    def __init__(self, store: ObjectStore, table: TableName, bytes_max: int = AHEAD_BYTES_MAX) -> None:
        self._store, self._table, self._bytes_max = store, table, bytes_max
        self._reads: dict[str, asyncio.Task[ReadLeaf | Absent | None]] = {}
        self._sizes: dict[str, int] = {}
        self.files = FooterPrefetch(store, table)
        """Prefetches the footers of the data files in these leaves, and of those that records name directly."""

    @property
    def buffered_bytes(self) -> int:
        """The stated sizes of the leaves that are buffered or being read."""
        return sum(self._sizes.values())

    def expect(self, records: Iterable[Record], definition: TableDefinition | None, tasks: asyncio.TaskGroup) -> None:
        """Start to read the leaves that `records` name, up to the byte limit. Skips records already refused."""
        judged = [record for record in records if record.refusal is None]
        self.files.expect(judged, definition, tasks)
        for record in judged:
            for manifest in record.intent.add_manifests:
                self._expect(manifest, definition, tasks)

    def keep(self, records: Sequence[Record]) -> None:
        """Drop all leaves except those that `records` name."""
        self.files.keep(records)
        if not self._reads:
            return
        named = {manifest.location for record in records for manifest in record.intent.add_manifests}
        for location in self._reads.keys() - named:
            self._forget(location)

    async def find(self, location: str) -> ReadLeaf | Absent | None:
        """The prefetched leaf at `location`, or `None` if it was not prefetched. Waits for a running read."""
        task = self._reads.get(location)
        if task is None:
            return None
        await asyncio.wait({task})  # a caller that stops waiting must not stop the reading
        found = None if task.cancelled() else task.result()
        if found == ABSENT:
            found = None  # the leaf may have been stored after the read
        if found is None and self._reads.get(location) is task:
            self._forget(location)
        return found

    def close(self) -> None:
        """Cancel all reads and drop all leaves."""
        self.keep(())

    def _expect(self, manifest: AddedManifest, definition: TableDefinition | None, tasks: asyncio.TaskGroup) -> None:
        location, size = manifest.location, manifest.file_size_in_bytes
        if location in self._reads or not (is_plain(location) and location.startswith(LEAVES_PREFIX)):
            return
        if self.buffered_bytes + size <= self._bytes_max:
            self._sizes[location] = size
            self._reads[location] = tasks.create_task(self._read(location, definition), name=f"reading {location}")

    async def _read(self, location: str, definition: TableDefinition | None) -> ReadLeaf | Absent | None:
        try:
            return await read_leaf(self._store, self._table, LeafNeed(location, definition), self.files.reader)
        except RootlineError:
            return None
        except Exception:  # our bug or a store adapter's must not end the table's task
            library_logger().exception("leaf not prefetched", action="retry", table=self._table)
            return None

    def _forget(self, location: str) -> None:
        self._sizes.pop(location, None)
        self._reads.pop(location).cancel()


HEAVY_ENTRIES: Final = 1_000
"""Entries of leaves to match with the root: a step with as many would block other tables for too long."""

Observer = Callable[[TableName, Report | Publication], None]
"""Receives every report and publication, for metrics and log lines."""


class TableOwner(Protocol):
    """The owner of the loops of all tables (`served_tables`)."""

    @property
    def turn(self) -> asyncio.Lock:
        """The lock around each piece of work: one table works at a time, and network I/O runs in between.

        A hundred tables with full queues must not delay heartbeats until all of them have finished.
        """
        ...

    async def confirm(self) -> None:
        """Check that this process still owns the partitions of its records. Raises `Unavailable` if it may not."""
        ...

    def decided(self, table: TableName, up_to: Acknowledged) -> None:
        """Note that every record of the table before these offsets has an acknowledged verdict."""
        ...

    def took_event(self, table: TableName) -> None:
        """Note that the table's loop has handled an event, so that `is_absent` and the like may have changed."""
        ...

    def buffered(self, more_bytes: int) -> None:
        """Note that the table's queue takes `more_bytes` more memory. A negative number means less."""
        ...


@dataclass(frozen=True, slots=True)
class TableContext:
    """The dependencies of a table's loop."""

    table: TableName
    policy: Policy
    runner: EffectRunner
    verdicts: RecordingSink
    environment: Environment
    observe: Observer
    owner: TableOwner
    queue_intents_max: int
    queue_bytes_max: int
    traces: CommitTraces | None = None


class TableLoop:
    """The loop of one table. `deliver` passes it records, `run` is its task."""

    def __init__(self, context: TableContext, acknowledged: Acknowledged) -> None:
        self._context = context
        self._machine = TableMachine(context.table, context.policy, acknowledged=acknowledged)
        self._inbox: asyncio.Queue[Event] = asyncio.Queue()
        self._outbox = VerdictOutbox(
            context.table,
            context.verdicts,
            context.environment,
            context.policy.retry,
            context.runner.timeout_s,
            self._acknowledged,
        )
        self._shelf = LeafPrefetch(TimedReads(context.runner.store, context.runner.timeout_s), context.table)
        self._timer: asyncio.TimerHandle | None = None
        self._encoding: asyncio.Task[None] | None = None
        self._delivered = 0
        self._delivered_bytes = 0
        self._queued_bytes = 0
        self._told_bytes = 0
        self._active_s = context.environment.monotonic_s()
        self._handled = asyncio.Event()
        self._paused_since_ms: int | None = None

    @property
    def phase(self) -> Phase:
        """The kind of phase in which the table's commit machine is."""
        return self._machine.kind

    @property
    def machine(self) -> TableMachine:
        """The table's commit machine, an immutable value."""
        return self._machine

    @property
    def why(self) -> str:
        """The reason why the table is quarantined or paused. Empty if it is not."""
        return self._machine.why

    @property
    def trouble(self) -> str:
        """The reason why verdicts cannot be published. Empty if they can. Publishing is retried."""
        return self._outbox.trouble

    @property
    def is_absent(self) -> bool:
        """Whether the loop knows no root of this table and has no work for it."""
        machine = self._machine
        return machine.kind is Phase.COLD and machine.publishing == 0 and self._delivered == 0 and self._inbox.empty()

    @property
    def is_unknown(self) -> bool:
        """Whether the loop has not found the table's head yet."""
        return self._machine.head is None and not self.is_stuck

    @property
    def is_unlistable(self) -> bool:
        """Whether the store has failed to find the table's head so far. The request is retried."""
        return self.is_unknown and self._machine.failures > 0

    @property
    def is_stuck(self) -> bool:
        """Whether the table commits nothing until an operator acts: it is quarantined or paused."""
        return self._machine.kind in (Phase.QUARANTINED, Phase.PAUSED)

    @property
    def takes_records(self) -> bool:
        """Whether a delivered record may be decided. A quarantined or paused table ignores records."""
        return not self.is_stuck and self._machine.kind is not Phase.STOPPED

    @property
    def has_room(self) -> bool:
        """Whether the table's queue takes more records. A table that is stuck always does, because it ignores them."""
        count = self._delivered + self._machine.queued
        return count < self._context.queue_intents_max and self.buffered_bytes < self._context.queue_bytes_max

    @property
    def buffered_bytes(self) -> int:
        """The approximate memory of the table's intents, in bytes, until their verdicts are acknowledged."""
        return self._delivered_bytes + self._queued_bytes + self._outbox.buffered_bytes

    def is_idle_since(self, monotonic_s: float) -> bool:
        """Whether nothing has happened since this time, and nothing is in flight."""
        machine = self._machine
        at_rest = machine.kind is Phase.IDLE and machine.publishing == 0 and self._delivered == 0
        return at_rest and self._active_s < monotonic_s and self._inbox.empty()

    @property
    def pending_since_ms(self) -> int | None:
        """The append time of the oldest record without an acknowledged verdict, in ms. `None` if there is none."""
        machine = self._machine
        queued = (record.appended_ms for record in (*machine.batch[:1], *machine.queue[:1]))
        oldest = (self._outbox.oldest_ms, self._paused_since_ms, *queued)
        return min((found for found in oldest if found is not None), default=None)

    def deliver(self, records: tuple[Record, ...]) -> None:
        """Enqueue records in the log's order, without a gap after the records before. Check `has_room` first."""
        self._delivered += len(records)
        self._delivered_bytes += sum(record.buffered_bytes for record in records)
        self._tell_held(self.buffered_bytes + self._shelf.buffered_bytes)
        self._inbox.put_nowait(Arrived(records))

    async def wait_for_room(self) -> None:
        """Wait until the queue takes more records."""
        while not self.has_room:
            self._handled.clear()
            await self._handled.wait()

    def pause(self, why: str, *, pending_since_ms: int | None) -> None:
        """Pause the table for the life of this loop. Call it before `run`.

        `pending_since_ms`: the append time of the table's oldest waiting record.
        """
        self._machine = self._machine._replace(phase=Paused(why))
        self._paused_since_ms = pending_since_ms

    def request_stop(self) -> None:
        """Finish the work in flight and start no new work. `run` returns soon after."""
        self._inbox.put_nowait(StopRequested())

    async def run(self) -> None:
        """Handle events until the machine has stopped and all its verdicts are acknowledged."""
        async with asyncio.TaskGroup() as tasks:
            publisher = tasks.create_task(self._outbox.run(), name=f"verdicts of {self._context.table}")
            try:
                while self._machine.kind is not Phase.STOPPED:
                    event = await self._inbox.get()
                    await self._take(event, tasks)
                await self._outbox.drained()
                while not self._inbox.empty():  # the last acknowledgements: the owner counts them
                    await self._take(self._inbox.get_nowait(), tasks)
            finally:
                self._disarm()
                if self._encoding is not None:
                    self._encoding.cancel()
                self._shelf.close()
                publisher.cancel()
                self._tell_held(0)

    async def _take(self, event: Event, tasks: asyncio.TaskGroup) -> None:
        if not is_heavy(self._machine, event):
            async with self._context.owner.turn:
                tick = self._begin(event, tasks)
                self._end(event, tick, self._stepped(event, tick), tasks)
            return
        async with self._context.owner.turn:
            tick = self._begin(event, tasks)
        after = await asyncio.to_thread(self._stepped, event, tick)
        async with self._context.owner.turn:
            self._end(event, tick, after, tasks)

    def _begin(self, event: Event, tasks: asyncio.TaskGroup) -> Tick:
        if isinstance(event, Arrived):
            head = self._machine.head
            self._shelf.expect(event.records, None if head is None else head.definition, tasks)
            if self._context.traces is not None:
                self._context.traces.arrived(event.records)
        environment = self._context.environment
        return Tick(environment.now_ms(), environment.monotonic_s(), environment.fresh_id(), environment.jitter())

    def _stepped(self, event: Event, tick: Tick) -> Step:
        """Step the machine. Safe on any thread, because it reads only values that never change."""
        try:
            return step(self._machine, event, tick)
        except Exception as error:  # our bug: this table commits nothing more, other tables continue
            library_logger().exception("table failed", action="quarantine", table=self._context.table)
            return quarantine(self._machine, f"{type(error).__name__}: {error}")

    def _end(self, event: Event, tick: Tick, stepped: Step, tasks: asyncio.TaskGroup) -> None:
        if isinstance(event, Arrived):
            self._delivered -= len(event.records)
            self._delivered_bytes -= sum(record.buffered_bytes for record in event.records)
        before = self._machine
        self._machine, effects = stepped
        if self.is_stuck and self._paused_since_ms is None:
            arrived = event.records if isinstance(event, Arrived) else ()
            dropped = (*before.batch, *before.queue, *arrived)
            self._paused_since_ms = min((record.appended_ms for record in dropped), default=None)
        after = self._machine
        if after.queue is not before.queue or after.batch is not before.batch:
            self._queued_bytes = sum(record.buffered_bytes for record in (*after.batch, *after.queue))
        self._shelf.keep((*after.batch, *after.queue))
        for effect in effects:
            if self._context.traces is not None:
                _trace(self._context.traces, effect)
            self._start(effect, tasks)
        self._tell_held(self.buffered_bytes + self._shelf.buffered_bytes)
        if after.acknowledged is not before.acknowledged:
            self._context.owner.decided(self._context.table, after.acknowledged)
        self._active_s = tick.monotonic_s
        self._context.owner.took_event(self._context.table)
        self._handled.set()

    def _start(self, effect: Effect, tasks: asyncio.TaskGroup) -> None:
        match effect:
            case ArmTimer():
                self._disarm()
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(effect.delay_s, self._inbox.put_nowait, TimerFired(effect.token))
            case PublishVerdicts():
                self._outbox.publish(effect)
            case Report():
                self._context.observe(self._context.table, effect)
            case EncodeLeaves():
                self._encoding = tasks.create_task(self._run(effect), name=f"encoding leaves of {self._context.table}")
            case _:
                tasks.create_task(self._run(effect), name=f"{type(effect).__name__} of {self._context.table}")

    async def _run(self, effect: StoreEffect) -> None:
        self._inbox.put_nowait(await self._context.runner.run(effect, self._shelf))

    def _tell_held(self, buffered_bytes: int) -> None:
        if buffered_bytes != self._told_bytes:
            self._context.owner.buffered(buffered_bytes - self._told_bytes)
            self._told_bytes = buffered_bytes

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _acknowledged(self, publication: Publication) -> None:
        self._context.observe(self._context.table, publication)
        if self._context.traces is not None:
            self._context.traces.on_published(publication)
        self._inbox.put_nowait(VerdictsPublished(publication.up_to))


def _trace(traces: CommitTraces, effect: Effect) -> None:
    match effect:
        case PutRoot():
            traces.putting(effect.version)
        case Report(noted=Noted.ROOT_LANDED, version=int(version)):
            traces.landed(version)


def is_heavy(machine: TableMachine, event: Event) -> bool:
    """Whether the step may take long, because it may match leaves with many entries with the root."""
    found = [*machine.fetched.found.values(), *(event.fetched.found.values() if isinstance(event, Fetched) else ())]
    entries: int = sum(read.leaf.length for read in found if isinstance(read, ReadLeaf))
    if machine.flush.ready is not None:
        entries += machine.flush.ready.entries
    return entries >= HEAVY_ENTRIES
