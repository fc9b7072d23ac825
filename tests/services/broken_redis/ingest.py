"""One run: phases in which Valkey is broken in one way, each followed by one in which it is whole, and the judgement.

Owns: the processes, the order of things, what must hold. Does not own: writers (`crowd`), breakages (`breakages`).
Invariants: a phase lasts at least as long as it was asked for, and until writers were answered and a worker committed
something in it, so no run passes because too little happened; no process is restarted, whatever becomes of Valkey.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from rootline.adapters.redis_calls import LakeKeys
from rootline.schemas.identifiers import TableName
from tests.kafka.chaos.crowd import elapsed
from tests.kafka.judge import assert_whole
from tests.kafka.kafka_lake import KafkaLake
from tests.kafka.rootline_process import RootlineProcess, ending
from tests.services.broken_redis.breakages import BREAKAGES, Valkey
from tests.services.broken_redis.crowd import SCHEMA, Crowd
from tests.services.kafka_service import KafkaService
from tests.services.s3_service import S3Service
from tests.services.valkey_service import ValkeyService

TABLES: Final = tuple(TableName(f"ingest.t{number}") for number in range(4))
WHOLE: Final = "whole"
_ANSWERS_MIN: Final = 4
_PATIENCE_S: Final = 300.0
_PREFIX: Final = "broken"
_EXPIRY: Final = {"rootline.expire.every-commits": "20"}
_READ: Final = (
    "rootline_consumer_lag_records",
    "rootline_worker_tasks_total",
    "rootline_redis_calls_total",
    "rootline_redis_up",
)
"""Metrics; a page has many more, and is asked for again and again."""
_SETTINGS: Final = {
    "ROOTLINE_COORDINATOR__PROBE_ROUNDS": "0",
    "ROOTLINE_WORKER__POLL_INTERVAL_S": "0.5",
    "ROOTLINE_WORKER__POLL_INTERVAL_S_MAX": "2",
    "ROOTLINE_WORKER__DISCOVERY_INTERVAL_S": "2",
    "ROOTLINE_REDIS__PREFIX": _PREFIX,
    "ROOTLINE_REDIS__TIMEOUT_MS": "500",
    "ROOTLINE_REDIS__SILENCE_S": "1",
    "ROOTLINE_REDIS__LEASE_S": "5",
}


@dataclass(frozen=True)
class Plan:
    """Seconds of all phases together at least, and how many write; so many files of a table are flushed at once."""

    seconds: float
    writers: int = 8
    think_s: float = 0.3
    flush_files: int = 10

    @property
    def phase_s(self) -> float:
        return self.seconds / (2 * len(BREAKAGES))


@dataclass(frozen=True)
class Phase:
    """What happened in one: verdicts, tasks of workers that ended well or failed, calls to Valkey by their outcome."""

    name: str
    seconds: float
    answers: int
    p50_s: float
    p99_s: float
    maintained: int
    failed: int
    calls: Counter[str]

    def __str__(self) -> str:
        calls = ", ".join(f"{name} {count}" for name, count in sorted(self.calls.items()))
        return (
            f"{self.name:15} {self.seconds:5.1f} s  {self.answers:5} verdicts, p50 {1e3 * self.p50_s:5.0f} ms, "
            f"p99 {1e3 * self.p99_s:5.0f} ms; maintenance committed {self.maintained}, failed {self.failed}; {calls}"
        )


@dataclass
class Ingest:
    """The parts of one run."""

    plan: Plan
    lake: KafkaLake
    valkey: Valkey
    coordinators: Sequence[RootlineProcess]
    workers: Sequence[RootlineProcess]
    folder: Path
    tell: Callable[[str], None]
    phases: list[Phase] = field(default_factory=list)

    @property
    def processes(self) -> tuple[RootlineProcess, ...]:
        return (*self.coordinators, *self.workers)

    async def run(self) -> list[Phase]:
        """Write, break, mend, stop, judge. Raises `AssertionError`."""
        for process in self.processes:
            process.start()
        await self._started()
        lake = self.lake.client()
        try:
            properties = {**_EXPIRY, "rootline.flush.data-files": str(self.plan.flush_files)}
            for table in TABLES:
                await asyncio.to_thread(lake.create_table, table, SCHEMA, properties=properties, timeout_s=_PATIENCE_S)
            definitions = {table: await asyncio.to_thread(lake.table(table).definition) for table in TABLES}
            crowd = Crowd(lake, definitions, self.plan.writers, self.plan.think_s)
            async with asyncio.TaskGroup() as group:
                group.create_task(crowd.run())
                try:
                    await self._drive(crowd)
                finally:
                    crowd.enough.set()
            await self._drained()
            for table in TABLES:
                rows = await asyncio.to_thread(lambda table=table: lake.table(table).scan().to_arrow())
                assert sorted(rows["id"].to_pylist()) == sorted(crowd.acknowledged[table]), (
                    f"{table}: the rows are not those that were acknowledged"
                )
        finally:
            await asyncio.to_thread(lake.close, patience_s=5.0)
        for process in self.processes:
            process.request_stop()
        for process in self.processes:
            code = await asyncio.to_thread(process.wait)
            assert code == 0, f"{process.name} ended with {code}: {process.tail()}"
        store = self.lake.store()
        try:
            await assert_whole(store, *TABLES)
        finally:
            await store.close()
        return self.phases

    async def _started(self) -> None:
        """Until all of them listen."""
        deadline_s = time.monotonic() + _PATIENCE_S
        while not all("\n" in process.said() for process in self.processes):
            silent = [f"{process.name}: {process.tail()}" for process in self.processes if not process.said()]
            assert time.monotonic() < deadline_s, f"not started: {silent}"
            await elapsed(0.2)

    async def _drive(self, crowd: Crowd) -> None:
        for name, strike in BREAKAGES.items():
            await self._phase(crowd, WHOLE, None)
            await self._phase(crowd, name, strike)
            await asyncio.to_thread(self.valkey.mend)
            await self._until_used(name)
        await self._phase(crowd, WHOLE, None)

    async def _phase(self, crowd: Crowd, name: str, strike: Callable[[Valkey], None] | None) -> None:
        before, began_s = await self._metrics(), time.monotonic()
        crowd.phase = f"{len(self.phases)} {name}"
        while True:
            if strike is not None:
                await asyncio.to_thread(strike, self.valkey)
            await elapsed(0.3)
            now, seconds = await self._metrics(), time.monotonic() - began_s
            answers, maintained = len(crowd.waits_s[crowd.phase]), now.maintained - before.maintained
            if seconds >= self.plan.phase_s and answers >= _ANSWERS_MIN and maintained > 0:
                break
            assert seconds < self.plan.phase_s + _PATIENCE_S, (
                f"{name}: {answers} verdicts and {maintained} commits of workers in {seconds:.0f} s"
            )
        waits = sorted(crowd.waits_s[crowd.phase])
        p50, p99 = (waits[min(len(waits) - 1, int(share * len(waits)))] for share in (0.5, 0.99))
        failed = now.failed - before.failed
        self.phases.append(Phase(name, seconds, len(waits), p50, p99, maintained, failed, now.calls - before.calls))
        self.tell(str(self.phases[-1]))

    async def _until_used(self, after: str) -> None:
        """Every process asks Valkey again once it is whole."""
        deadline_s = time.monotonic() + _PATIENCE_S
        silent = {process.name for process in self.processes}
        while silent := silent.intersection((await self._metrics()).down):
            assert time.monotonic() < deadline_s, f"after {after}: {sorted(silent)} do not use Valkey again"
            await elapsed(0.2)

    async def _drained(self) -> None:
        deadline_s = time.monotonic() + _PATIENCE_S
        while (found := await self._metrics()).lag:
            assert time.monotonic() < deadline_s, f"lag is {found.lag} and stays"
            await elapsed(0.2)

    async def _metrics(self) -> Metrics:
        return await asyncio.to_thread(lambda: _metrics_of(self.processes))


@dataclass(frozen=True)
class Metrics:
    """Of all processes. `down`: names of those that do not ask Valkey now."""

    lag: float
    maintained: int
    failed: int
    calls: Counter[str]
    down: tuple[str, ...]


def _metrics_of(processes: Sequence[RootlineProcess]) -> Metrics:
    lag, maintained, failed, calls, down = 0.0, 0, 0, Counter[str](), list[str]()
    for process in processes:
        assert process.is_alive, f"{process.name} has ended: {process.tail()}"
        with urlopen(f"{process.wait_listening()}/metrics", timeout=60) as reply:
            lines = reply.read().decode().splitlines(keepends=True)
        text = "".join(line for line in lines if line.startswith(_READ))
        for sample in (found for family in text_string_to_metric_families(text) for found in family.samples):
            match sample.name:
                case "rootline_consumer_lag_records":
                    lag += sample.value
                case "rootline_worker_tasks_total" if sample.labels["outcome"] == "committed":
                    maintained += int(sample.value)
                case "rootline_worker_tasks_total" if sample.labels["outcome"] == "failed":
                    failed += int(sample.value)
                case "rootline_redis_calls_total" if sample.value:
                    calls[sample.labels["outcome"]] += int(sample.value)
                case "rootline_redis_up" if not sample.value:
                    down.append(process.name)
    return Metrics(lag, maintained, failed, calls, tuple(down))


@contextmanager
def ingest_of(
    s3: S3Service,
    kafka: KafkaService,
    valkey: ValkeyService,
    folder: Path,
    plan: Plan,
    tell: Callable[[str], None],
) -> Iterator[Ingest]:
    """A run that has not begun; its processes end with the block. `valkey` must be no one else's."""
    lake = KafkaLake(s3, kafka.with_topics(partitions=4))
    environment = {**lake.environment(), **_SETTINGS, "ROOTLINE_REDIS__URL": valkey.url}
    made = {
        role: [RootlineProcess(f"{role}-{at}", (role, "--http-port", "0"), environment, folder) for at in range(2)]
        for role in ("coordinator", "worker")
    }
    server = Valkey(valkey.own(), valkey.url, LakeKeys.of(_PREFIX, lake.warehouse), TABLES)
    with ending(*made["coordinator"], *made["worker"]):
        try:
            yield Ingest(plan, lake, server, made["coordinator"], made["worker"], folder, tell)
        finally:
            server.mend()
