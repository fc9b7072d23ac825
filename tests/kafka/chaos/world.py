"""One chaotic run, from its services to its judgement.

Owns: who runs, for how long, and what is counted. Does not own: faults (`faults`), writers (`crowd`), judgement
(`topic_watch`, `judge`).
Invariants: its processes end with it; the seed is told before anything can go wrong.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from confluent_kafka import KafkaException

from rootline.adapters.kafka.topics import topic_identity
from rootline.client.lake import Lake
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.intent_rules import IntentKind
from rootline.schemas.verdict import VerdictKind
from rootline.storage.metadata.root_reader import read_root
from tests.kafka.chaos.crowd import Crowd, elapsed
from tests.kafka.chaos.faults import Faults
from tests.kafka.judge import Told, assert_whole, judge_table, judge_topics
from tests.kafka.kafka_lake import KafkaLake
from tests.kafka.rootline_process import RootlineProcess, ending
from tests.kafka.topic_watch import Watch
from tests.services.kafka_service import KafkaService
from tests.services.s3_service import S3Service
from tests.services.toxiproxy import Proxy, Toxiproxy

COORDINATORS = 3
AHEAD = 2
"""Which of them has a clock that is eight days ahead."""
PARTITIONS = 5
TABLES = tuple(f"chaos.t{number}" for number in range(6))
SESSION_S = 6.0
DRAIN_S = 240.0
_SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("k", pa.int32())])
_PROPERTIES = {
    "rootline.flush.data-files": "30",
    "rootline.expire.every-commits": "5",
    "rootline.expire.all-versions": "5",
    "rootline.sweep.interval-s": "2",
}
_SETTINGS = {
    "ROOTLINE_COORDINATOR__REQUEST_TIMEOUT_S": "3",
    "ROOTLINE_COORDINATOR__RETRY_DELAY_MS_MAX": "500",
    "ROOTLINE_COORDINATOR__OFFSETS_COMMIT_INTERVAL_S": "0.2",
    "ROOTLINE_COORDINATOR__POLL_WAIT_S": "0.2",
    "ROOTLINE_COORDINATOR__PARKING_AFTER_S": "3",
    "ROOTLINE_COORDINATOR__PROBE_ROUNDS": "1",
    "ROOTLINE_COORDINATOR__STOP_TIMEOUT_S": "5",
    "ROOTLINE_COORDINATOR__BATCH_INTENTS_MAX": "8",
    "ROOTLINE_S3__CONNECT_TIMEOUT_S": "1",
    "ROOTLINE_S3__READ_TIMEOUT_S": "1",
    "ROOTLINE_S3__REQUEST_TIMEOUT_S": "2",
}


@dataclass(frozen=True)
class Services:
    """Where a run takes place."""

    s3: S3Service
    kafka: KafkaService
    toxiproxy: Toxiproxy


@dataclass(frozen=True)
class Chaos:
    """How wild, for how long at least. `kills_broker`: from time to time, if it is ours.

    `sees_all`: it goes on, up to ten times as long, until everything has happened that a run is for.
    """

    seed: int
    seconds: float
    writers: int = 32
    kills_broker: bool = False
    sees_all: bool = False


@dataclass(frozen=True)
class Summary:
    """The outcome of a run."""

    faults: dict[str, int]
    facts: dict[str, int]

    def __str__(self) -> str:
        return "; ".join(f"{name} {count}" for name, count in (*sorted(self.faults.items()), *self.facts.items()))


async def run_chaos(services: Services, folder: Path, chaos: Chaos, tell: Callable[[str], None]) -> Summary:
    """Raises `AssertionError` when something that must hold fails."""
    tell(f"seed {chaos.seed}, {chaos.seconds:.0f} s of faults; logs in {folder}")
    began_s = time.monotonic()

    def told(what: str) -> None:
        tell(f"{time.monotonic() - began_s:6.1f} s  {what}")

    async with AsyncExitStack() as around:
        world = _World(services, folder, chaos, told, around)
        await asyncio.to_thread(world.start)
        try:
            await world.write_under_faults()
            await world.drain()
            return await world.judge()
        finally:
            await world.close_writers()


class _World:
    """The parts of one run."""

    def __init__(
        self, services: Services, folder: Path, chaos: Chaos, tell: Callable[[str], None], around: AsyncExitStack
    ) -> None:
        self._chaos = chaos
        self._tell = tell
        kafka = services.kafka.with_topics(
            partitions=PARTITIONS,
            session_timeout_s=SESSION_S,
            rebalance_deadline_s=3.0,
            request_timeout_s=3.0,
            delivery_timeout_s=10.0,
        )
        self._lake = KafkaLake(services.s3, kafka)
        shaky, brokers = around.enter_context(services.kafka.proxied(services.toxiproxy, kafka))
        self._stores: list[Proxy] = []
        processes: list[RootlineProcess] = []
        for number in range(COORDINATORS + 1):
            name = f"coordinator-{number}"
            proxy = services.toxiproxy.proxy(f"{self._lake.prefix}-{number}", services.s3.address)
            self._stores.append(around.enter_context(proxy))
            way = self._lake.through(s3_endpoint=self._stores[-1].endpoint, kafka=shaky)
            environment = {**way.environment(), **_SETTINGS}
            if number == AHEAD:
                environment["PYTHONPATH"] = str(Path(__file__).with_name("days_ahead"))
            words = ("coordinator", "--http-port", "0")
            processes.append(RootlineProcess(name, words, environment, folder))
        self._coordinators, self._extra = processes[:COORDINATORS], processes[-1]
        maintaining = {**self._lake.environment(), "ROOTLINE_WORKER__SWEEP_DELAY_S": "1"}
        self._worker = RootlineProcess("worker", ("worker",), maintaining, folder)
        around.enter_context(ending(*processes, self._worker))
        self._writing = [self._lake.client(), self._lake.through(kafka=shaky).client()]
        self._store = self._lake.store()
        around.push_async_callback(self._store.close)
        self._watch = Watch(kafka)
        around.callback(self._watch.close)
        self._crowd = Crowd(self._writing, self._store, TABLES, chaos.seed, chaos.writers, kafka)
        self._faults = Faults(
            self._coordinators,
            self._extra,
            self._stores,
            brokers,
            kafka,
            chaos.seed,
            services.kafka.broker if chaos.kills_broker else None,
            tell,
            self._watch,
            chaos.seconds,
        )

    def start(self) -> None:
        """Coordinators, then tables."""
        for process in (*self._coordinators, self._worker):
            process.start()
        lake: Lake = self._writing[0]
        for table in TABLES:
            lake.create_table(table, _SCHEMA, properties=_PROPERTIES, timeout_s=DRAIN_S)
        self._tell(f"{len(TABLES)} tables made")

    async def write_under_faults(self) -> None:
        """Safety is judged all the while."""
        self._crowd.start()
        striking = asyncio.create_task(self._faults.run())
        until_s = time.monotonic() + self._chaos.seconds
        latest_s = until_s + 9 * self._chaos.seconds
        told_s = time.monotonic()
        try:
            while time.monotonic() < until_s:
                await elapsed(0.3)
                self._crowd.raise_failure()
                if striking.done():
                    striking.result()
                await self._sample()
                if self._chaos.sees_all and time.monotonic() >= until_s < latest_s and not self._saw_all():
                    until_s += 5.0
                if time.monotonic() - told_s > 10:
                    told_s = time.monotonic()
                    self._progress()
        finally:
            striking.cancel()
            await asyncio.gather(striking, return_exceptions=True)

    def _saw_all(self) -> bool:
        """Whether everything happened that a run is for."""
        missing = [
            what
            for what, count in (
                ("offsets that expired", self._faults.counts["offsets and records expire"]),
                ("versions that expired", self._logged("expiry committed")),
                ("PUTs whose replies were lost", len(self._asked())),
                ("tables that were dropped", self._crowd.founded[IntentKind.DROP]),
                ("tables that were replaced", self._crowd.founded[IntentKind.REPLACE]),
                ("more than a hundred commits", self._committed() > 100),
            )
            if not count
        ]
        if missing:
            self._tell(f"goes on, for {', '.join(missing)}")
        return not missing

    async def drain(self) -> None:
        """The faults stop; every writer is answered, and the group comes to the ends."""
        self._tell("no faults any more")
        await asyncio.to_thread(self._faults.settle)
        await self._crowd.finish(DRAIN_S)
        self._worker.request_stop()
        deadline_s = time.monotonic() + DRAIN_S
        while True:
            self._faults.look_after()
            await self._sample()
            if not self._watch.behind and not self._worker.is_alive:
                for process in self._coordinators:  # one that has just begun would die of a signal, as any program
                    await asyncio.to_thread(process.wait_listening)
                return
            if time.monotonic() > deadline_s:
                states = [f"{process.name}: {process.readiness()}" for process in self._coordinators]
                raise AssertionError(
                    f"liveness: {self._watch.behind} records not passed {DRAIN_S:.0f} s later; {states}"
                )
            await elapsed(0.2)

    async def judge(self) -> Summary:
        """What must hold at the end."""
        self._progress()
        for process in (*self._coordinators, self._worker):
            process.request_stop()
        log = (await asyncio.to_thread(topic_identity, self._lake.kafka, self._lake.kafka.intents_topic)).log
        ledger = self._crowd.ledger
        judged = judge_topics(self._watch, log, Told(ledger.acknowledged, ledger.told))
        live = [await judge_table(self._watch, self._store, table) for table in TABLES]
        await assert_whole(self._store, *TABLES)
        for process in (*self._coordinators, self._worker):
            code = await asyncio.to_thread(process.wait)
            assert code == 0, f"{process.name} was asked to stop, and ended with {code}: {process.tail()}"
        asked, lost = await self._asked_puts()
        facts = {
            "rebalances": self._logged("partitions assigned"),
            "asked PUTs": asked,
            "of those landed unanswered": lost,
            "tables cut off": self._logged("tables cut off"),
            "records": judged.records,
            **{kind.value: count for kind, count in judged.kinds.items()},
            "verdicts repeated": judged.repeated,
            "published again": ledger.sent_again,
            "publish unknown": ledger.unknown,
            "live files": sum(live),
            "expiries": self._logged("expiry committed"),
            "drops": self._crowd.founded[IntentKind.DROP],
            "replaces": self._crowd.founded[IntentKind.REPLACE],
            "samples": self._watch.samples,
        }
        return Summary(dict(self._faults.counts), facts)

    async def close_writers(self) -> None:
        """End all that still write, and close the connections."""
        await self._crowd.give_up()
        for lake in self._writing:
            await asyncio.to_thread(lake.close, patience_s=1.0)

    async def _sample(self) -> None:
        try:
            await asyncio.to_thread(self._watch.sample)
        except KafkaException as error:
            if not self._chaos.kills_broker:
                raise
            self._tell(f"not sampled: {error}")

    def _progress(self) -> None:
        ledger, watch = self._crowd.ledger, self._watch
        decided = sum(1 for place in list(watch.written) if watch.verdicts.get(place))  # a thread may read on
        self._tell(
            f"{len(watch.written)} records, {decided} decided, offsets {sum(watch.committed.values())}; "
            f"{ledger.decided} answers, {ledger.sent_again} sent again"
        )

    def _logged(self, event: str) -> int:
        processes = (*self._coordinators, self._extra, self._worker)
        return sum(line.get("event") == event for process in processes for line in process.lines())

    def _committed(self) -> int:
        """Intents that were committed, as far as the topics were read."""
        verdicts = [found[0] for found in list(self._watch.verdicts.values()) if found]
        return sum(verdict.kind is VerdictKind.COMMITTED for verdict in verdicts)

    def _asked(self) -> set[tuple[str, str, int]]:
        """Coordinator, table and version of each PUT whose outcome had to be asked for."""
        return {
            (process.name, line["table"], line["version"])
            for process in (*self._coordinators, self._extra)
            for line in process.lines()
            if line.get("action") == "put_asked" and line.get("version") is not None
        }

    async def _asked_puts(self) -> tuple[int, int]:
        """PUTs whose outcome had to be asked for; those of them that had landed."""
        asked = self._asked()
        landed = 0
        for name, table, version in asked:
            try:
                root = await read_root(self._store, TableName(table), Version(version))
            except Corrupt:  # another attempt has not landed either
                continue
            landed += root.header.coordinator_id.startswith(f"{name}.")
        return len(asked), landed
