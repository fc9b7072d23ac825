"""The coordinator as a service: reads intents from a log, commits roots to a store, publishes verdicts.

Owns: the composition of the service and its life (probe, read, commit, drain), the memory settings of a process that
only serves tables. Does not own: the components, the embedding of the coordinator in another process.
Invariants: the service does not start on a store that fails its probe. A stop finishes the roots in flight within
`stop_timeout_s`. If it cuts off a PUT, the next owner learns from the head whether the root landed. Python's cycle
collector always stays on.

Theory of `settle_memory`. Hardly any object here is part of a reference cycle: reference counts free a batch when it
is done. But Python's collector runs after every 700 new objects that are still alive, which is every 70 intents, and
scans the batch in flight each time. When the number of objects has grown by a quarter, as during a backlog, it scans
all of them: 0.4 µs an object, 70 ms for the imported libraries alone. No table commits during that time. So the
objects that were loaded at start are frozen, and the others are scanned seldom. Measured over batches of 512
intents: this saves 8 of 62 µs an intent, and p99 was two and a half times the median without it. Arrow's own
allocator keeps freed memory for the thread that freed it. Leaves are decoded on threads, so the process kept twice
the memory of a table of a million files. The system's allocator, which is as fast for such large buffers, is used.
Arrow's readers of Parquet take theirs from the environment alone, so `deploy` sets ARROW_DEFAULT_MEMORY_POOL there too.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from rootline.adapters.system_environment import SystemEnvironment, active_tracer
from rootline.coordinator.protocol.group_window import BatchLimits
from rootline.coordinator.protocol.machine_state import Phase, Policy
from rootline.coordinator.protocol.messages import Noted, Report
from rootline.coordinator.runtime.assignment.consumer_loop import ConsumerLoop
from rootline.coordinator.runtime.assignment.intake import AssignmentSettings
from rootline.coordinator.runtime.assignment.partition_assignment import PartitionAssignment
from rootline.coordinator.runtime.observing import CoordinatorMetrics, RecentEvents, VerdictLines
from rootline.coordinator.runtime.own_tables import HeadCheck, OwnTable, own_tables
from rootline.coordinator.runtime.records import UNREAD, read_principals
from rootline.coordinator.runtime.table.effect_runner import EffectRunner, LeafEncoder, LogCheck, ThreadLeafEncoder
from rootline.coordinator.runtime.table.table_loop import TableContext, TableLoop, TableOwner
from rootline.coordinator.runtime.table.table_states import LASTING
from rootline.coordinator.runtime.table.verdict_outbox import CommitTraces, Publication, TraceBudget
from rootline.coordinator.settings import CoordinatorSettings, coordinator_settings
from rootline.library_log import library_logger
from rootline.ports.environment import Environment
from rootline.ports.head_hints import NO_HINTS, HeadHints
from rootline.ports.intent_feed import CoordinatorLog
from rootline.ports.intent_log import KnowsItsLake
from rootline.ports.object_store import ObjectStore
from rootline.ports.retry_policy import RetryPolicy
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import Acknowledged, TableName, Version
from rootline.schemas.intent_rules import IntentLimits
from rootline.schemas.verdict import Verdict
from rootline.storage.warehouse import FindLake, probe_store

_YOUNG_OBJECTS: Final = 50_000
_YOUNG_ROUNDS: Final = 20
_MIDDLE_ROUNDS: Final = 1_000


def settle_memory() -> None:
    """Freeze the objects that exist now, and run the cycle collector less often. Call it once all modules are
    imported.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, _YOUNG_ROUNDS, _MIDDLE_ROUNDS)
    pa.set_memory_pool(pa.system_memory_pool())


_TABLES_KNOWN_MAX: Final = 100_000
_LAG_WITHIN_S: Final = 2.0
_DELAYS_SPARE: Final = 50


@dataclass(frozen=True, slots=True)
class Readiness:
    """The readiness of the service, with the reason when it is not ready."""

    ready: bool
    reason: str


class CoordinatorService:
    """The coordinator of one process. The constructor starts nothing. `run` does, and returns after a stop."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        log: CoordinatorLog,
        settings: CoordinatorSettings | None = None,
        environment: Environment | None = None,
        limits: IntentLimits | None = None,
        hints: HeadHints = NO_HINTS,
        find_lake: FindLake | None = None,
    ) -> None:
        self._store = store
        self._hints = hints
        self._log = log
        self._log_check = LogCheck(log)
        self._find_lake = find_lake
        self._settings = settings or coordinator_settings()
        self._environment = environment or SystemEnvironment()
        self._logger = library_logger()
        self.metrics = CoordinatorMetrics()
        self.recent = RecentEvents()
        self.started_ms = self._environment.now_ms()
        self._lines = VerdictLines(self._settings.verdicts_logged_per_s, self._settings.commits_logged_per_s)
        self._tracer, self._traced = active_tracer(), TraceBudget()
        self._encoder: LeafEncoder = ThreadLeafEncoder()
        self._policy = _policy(self._settings, self._environment)
        self._consumer = ConsumerLoop(
            log=log,
            make_loop=self._make_loop,
            environment=self._environment,
            settings=AssignmentSettings(
                limits=limits or IntentLimits(),
                queue_bytes_max=self._settings.queue_bytes_max,
                table_idle_s=self._settings.table_idle_s,
                retry_s=self._settings.retry_delay_ms_max / 1000,
                request_timeout_s=self._settings.request_timeout_s,
                parking_after_s=self._settings.parking_after_s,
                parked_bytes_max=self._settings.parked_bytes_max,
                principals=None if (allowed := self._settings.principals_file) is None else read_principals(allowed),
            ),
            wait_s=self._settings.poll_wait_s,
            remember_every_s=self._settings.offsets_commit_interval_s,
            on_published=self._on_published,
        )
        self._heads = HeadCheck(store, lambda: self._consumer.tables, self._settings.request_timeout_s)
        self._newest: dict[TableName, Version] = {}
        self._delays: dict[TableName, dict[Noted, str]] = {}
        self._started = False
        self._ended = False

    async def run(self) -> None:
        """Probe the store, then commit until `request_stop` is called. Closes the log at the end.

        Raises:
            Fenced: `store-lies`; the service must not run on this store.
            Invalid: `lake-mismatch`; the log is another lake's.
            Unavailable: the store or the log cannot be reached at the start.
        """
        running = asyncio.ensure_future(self._start_and_consume())
        stopped = asyncio.ensure_future(self._consumer.stopping.wait())
        try:
            await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if self._started and not running.done():
                await asyncio.wait({running}, timeout=self._settings.stop_timeout_s)
                if not running.done():
                    self._logger.warning("stop timed out", action="stop", timeout_s=self._settings.stop_timeout_s)
        finally:
            stopped.cancel()
            running.cancel()
            await asyncio.gather(running, stopped, return_exceptions=True)
            self._ended = True
            self._lines.close()
            await self._log.close()
        if not running.cancelled() and (error := running.exception()) is not None:
            raise _only(error)

    async def _start_and_consume(self) -> None:
        if self._settings.probe_rounds:
            await probe_store([self._store], self._environment.fresh_id, rounds=self._settings.probe_rounds)
        lake = None if self._find_lake is None else await self._find_lake()
        if lake is not None and isinstance(self._log, KnowsItsLake):
            await self._log.introduce(lake)
            self._consumer.settings = replace(self._consumer.settings, lake=lake)
        self._started = True
        checking = asyncio.ensure_future(self._heads.run())
        try:
            await self._consumer.run()
        finally:
            checking.cancel()
            await asyncio.gather(checking, return_exceptions=True)

    def request_stop(self) -> None:
        """Start no new work. `run` returns once the outcome of every running root PUT is known."""
        self._consumer.request_stop()

    def readiness(self) -> Readiness:
        """Ready from the moment that the store has passed its probe and the log was read to its end, until a stop."""
        if self._ended:
            return Readiness(False, "the service has stopped")
        if self._consumer.stopping.is_set():
            return Readiness(False, "the service is stopping")
        if not self._started:
            return Readiness(False, "the store has not passed its probe yet")
        if self._consumer.paused and not self._consumer.trouble:
            return Readiness(True, self._consumer.paused)
        if not self._consumer.caught_up.is_set():
            return Readiness(False, self._consumer.trouble or "the log has not been read to its end yet")
        return Readiness(not self._consumer.trouble, self._consumer.trouble)

    def tables(self) -> dict[TableName, tuple[Phase, str]]:
        """The phase of every table in memory, and the reason if it is quarantined or paused."""
        return {table: (loop.phase, loop.why) for table, loop in self._consumer.tables.items()}

    def own_tables(self) -> list[OwnTable]:
        """The state of every table in memory, for /readyz, metrics and the console."""
        return own_tables(self._consumer.assignment, self.delay_of, self._heads.damage_of)

    def obstacle_of(self, table: TableName) -> str:
        """The reason why no intent of `table` is decided: it is paused, quarantined or parked. Empty if it is not."""
        loop, assignment = self._consumer.tables.get(table), self._consumer.assignment
        if loop is not None and loop.phase in (Phase.PAUSED, Phase.QUARANTINED):
            return f"the table is {loop.phase.value}: {loop.why}"
        parked = () if assignment is None else assignment.parked.tables.values()
        return next((f"the table is parked: {item.why}" for item in parked if item.table == table and item.records), "")

    async def check_heads(self) -> None:
        """Read the newest roots of some tables back from the store. Runs every minute."""
        await self._heads.check()

    def delay_of(self, table: TableName) -> str:
        """The reason why commits of `table` are delayed, such as a store error. Empty when they are not."""
        return "; ".join(self._delays.get(table, {}).values())

    @property
    def coordinator_id(self) -> str:
        """The name of this coordinator, which it writes into each of its roots."""
        return self._policy.coordinator_id

    @property
    def assignment(self) -> PartitionAssignment | None:
        """The processing of the assigned partitions, if there are any. Read-only."""
        return self._consumer.assignment

    def now_ms(self) -> int:
        """The time of the service's own clock, in milliseconds."""
        return self._environment.now_ms()

    def heads(self) -> dict[TableName, tuple[Version, int]]:
        """The version and timestamp, in milliseconds, of the newest root of every table in memory."""
        found = {}
        for table, loop in self._consumer.tables.items():
            if loop.machine.head is not None:
                header = loop.machine.head.header
                found[table] = (header.version, header.snapshot.timestamp_ms)
        return found

    async def measure(self) -> None:
        """Update the gauges. Call this before the metrics are read."""
        for table, loop in self._consumer.tables.items():
            machine = loop.machine
            if machine.head is not None and self.metrics.is_news(table, machine.head.header.version):
                header, live = machine.head.header, machine.head.live
                entries = {
                    "data": len(live.rows) - len(live.vectors) - len(live.equality_deletes),
                    "vectors": len(live.vectors),
                    "equality_deletes": len(live.equality_deletes),
                    "data_manifests": header.totals.data_manifests,
                    "delete_manifests": header.totals.delete_manifests,
                }
                size = machine.head.root.size_in_bytes
                self.metrics.root(table, size, header.snapshot.timestamp_ms, entries)
                self.metrics.retained(table, header.kept_bytes + size)
                given_up = 0 if header.versions.expiry is None else header.versions.expiry.given_up_bytes
                self.metrics.expired(table, header.versions.oldest, given_up)
        # only tables that exist get a label: a writer can invent any number of names
        own = [table for table in self.own_tables() if table.head is not None or table.state in LASTING]
        self.metrics.states({table.name: table.state for table in own})
        self.metrics.oldest_pending(self._oldest_pending_s())
        self.metrics.ready(self.readiness().ready)
        if self._started and not self._ended:
            assignment = self._consumer.assignment
            self.metrics.holding(
                0 if assignment is None else len(assignment.assigned.starts),
                len(self._log.paused()),
                0 if assignment is None else assignment.buffered_bytes,
            )
            with contextlib.suppress(Unavailable, TimeoutError):
                async with asyncio.timeout(_LAG_WITHIN_S):  # a scraper has a deadline too
                    self.metrics.lag(await self._consumer.lag())

    async def sample(self) -> None:
        """Record the lag and the age of the oldest undecided intent, for the console's charts."""
        lag = None
        if self._started and not self._ended:
            with contextlib.suppress(Unavailable, TimeoutError):
                async with asyncio.timeout(self._settings.request_timeout_s):
                    lag = sum((await self._consumer.lag()).values())
        self.recent.sample(self._environment.now_ms(), lag, self._oldest_pending_s())

    def _oldest_pending_s(self) -> float:
        now_ms = self._environment.now_ms()
        since = (loop.pending_since_ms or now_ms for loop in self._consumer.tables.values())
        return (now_ms - min(since, default=now_ms)) / 1000

    def _make_loop(self, table: TableName, acknowledged: Acknowledged, owner: TableOwner) -> TableLoop:
        runner = EffectRunner(
            self._store,
            table,
            self._settings.request_timeout_s,
            self._log_check.check,
            self._encoder,
            self._confirmed,
            owner.confirm,
            self._hints,
        )
        context = TableContext(
            table=table,
            policy=self._policy,
            runner=runner,
            verdicts=self._log,
            environment=self._environment,
            observe=self._observe,
            owner=owner,
            queue_intents_max=self._settings.table_queue_intents_max,
            queue_bytes_max=self._settings.table_queue_bytes_max,
            traces=None if self._tracer is None else CommitTraces(table, self._tracer, self._traced),
        )
        return TableLoop(context, acknowledged)

    async def _confirmed(self, table: TableName) -> int | None:
        """The highest version of `table` for which the log has a verdict or this process published one.

        Also known for a table that is no longer in memory. `None` if there is no such version.
        """
        own, told = self._newest.get(table), await self._log.confirmed_version(table)
        return max((version for version in (own, told) if version is not None), default=None)

    def _on_published(self, verdicts: Sequence[Verdict], is_repeated: bool) -> None:
        unread = [verdict for verdict in verdicts if verdict.code in UNREAD]
        read = [verdict for verdict in verdicts if verdict.code not in UNREAD]
        now_ms = self._environment.now_ms()
        for some, of_intents in ((unread, False), (read, True)):
            counts = self.metrics.on_published(some, is_repeated)
            self._lines.on_published(some, counts, is_repeated, of_intents=of_intents)
            self.recent.on_published(some, counts, is_repeated, now_ms)

    def _forget_delays(self) -> None:
        """Drop the delay reasons of tables that are no longer in memory, once there are too many reasons."""
        held = self._consumer.tables
        if len(self._delays) > 2 * len(held) + _DELAYS_SPARE:
            self._delays = {table: delays for table, delays in self._delays.items() if table in held}

    def _observe(self, table: TableName, note: Report | Publication) -> None:
        if isinstance(note, Publication):
            now_ms = self._environment.now_ms()
            counts = self.metrics.published(note, now_ms)
            self._lines.on_published(note.verdicts, counts, note.is_repeated, traces=note.traces)
            self.recent.on_published(note.verdicts, counts, note.is_repeated, now_ms)
            if note.version is not None:
                self._newest.pop(table, None)  # moves the table to the end of the dictionary
                self._newest[table] = note.version
                if len(self._newest) > _TABLES_KNOWN_MAX:
                    del self._newest[next(iter(self._newest))]
            return
        if note.noted is Noted.ROOT_LANDED and note.version is not None:
            self._hints.tell(table, note.version)
        self.metrics.report(table, note)
        if note.noted in (Noted.STORE_FAILED, Noted.YIELDED, Noted.PUT_ASKED):
            self._delays.setdefault(table, {})[note.noted] = note.detail
            self._forget_delays()
        elif note.noted is Noted.ROOT_LANDED:
            self._delays.pop(table, None)
            self._lines.landed(table, note)
            self.recent.landed(table, note, self._environment.now_ms())
        log = self._logger
        what = {"action": note.noted.value, "table": table, "version": note.version}
        match note.noted:
            case Noted.QUARANTINED:
                log.error("table quarantined", reason=note.detail, **what)
            case Noted.STORE_FAILED | Noted.YIELDED | Noted.PUT_ASKED:
                log.warning("commit delayed", reason=note.detail, **what)
            case Noted.ENCODING_FAILED:
                log.warning("own leaves not encoded, commits continue", reason=note.detail, **what)
            case Noted.CLOCKS_APART:
                log.warning("clocks went apart", reason=note.detail, **what)
            case Noted.PROGRESS_DROPPED:
                log.warning("progress of a streaming job dropped", reason=note.detail, **what)
            case Noted.ROOT_LANDED:
                pass  # `VerdictLines.landed` logs it
            case _:
                log.debug("commit", detail=note.detail, elapsed_s=note.elapsed_s, **what)


def _only(error: BaseException) -> BaseException:
    """The single error inside nested exception groups. Callers need it, because they judge an error by its category."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _policy(settings: CoordinatorSettings, environment: Environment) -> Policy:
    return Policy(
        coordinator_id=settings.coordinator_id or f"coordinator-{environment.fresh_id()[:12]}",
        limits=BatchLimits(settings.batch_intents_max, settings.batch_bytes_max, settings.batch_age_ms_max / 1000),
        retry=RetryPolicy(settings.retry_delay_ms_min / 1000, settings.retry_delay_ms_max / 1000, settings.losses_max),
        unpublished_roots_max=settings.unpublished_roots_max,
        file_prefixes=settings.file_prefixes,
    )
