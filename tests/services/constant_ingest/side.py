"""One of the two lakes that are driven side by side: its services, its writers and readers, its bytes.

Owns: what belongs to one lake: processes, crowd, samples. Does not own: the clock, the store and the broker (`proof`).
Invariants: both lakes have a coordinator, a worker and writers of their own, and the same load; they differ in table
properties alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rootline.adapters.kafka.writer_log import KafkaWriterLog
from rootline.client.lake import Lake
from rootline.client.session import Session
from rootline.schemas.object_keys import key_of
from rootline.schemas.root_header import RootHeader
from tests.kafka.kafka_lake import KafkaLake
from tests.kafka.rootline_process import RootlineProcess, ending
from tests.services.constant_ingest.fast_clock import FastClock, FastEnvironment
from tests.services.constant_ingest.fast_service import CLOCK
from tests.services.constant_ingest.gate import Gate
from tests.services.constant_ingest.readers import Readers
from tests.services.constant_ingest.writers import SCHEMA, TABLE, Writers
from tests.services.service_process import ServiceProcess
from tests.support.opened_sessions import nothing_known

SERVICE_SETTINGS: Final = {
    "ROOTLINE_COORDINATOR__VERDICTS_LOGGED_PER_S": "20",
    "ROOTLINE_COORDINATOR__REQUEST_TIMEOUT_S": "60",
    "ROOTLINE_S3__CONNECT_TIMEOUT_S": "60",
    "ROOTLINE_S3__READ_TIMEOUT_S": "60",
    "ROOTLINE_S3__REQUEST_TIMEOUT_S": "120",
    "ROOTLINE_WORKER__POLL_INTERVAL_S": "1",
    "ROOTLINE_WORKER__SWEEP_DELAY_S": "2",
    "ROOTLINE_WORKER__SWEEP_TIME_SHARE_MAX": "0.2",
}
_PATIENT: Final = {"connect_timeout_s": 60.0, "read_timeout_s": 60.0, "request_timeout_s": 120.0}
"""No fault is injected, and no answer is late: a busy machine is no failure."""
_CHECK_PATIENCE_S: Final = 600


@dataclass(frozen=True)
class FastLake(KafkaLake):
    """A lake whose writers' clocks run fast."""

    clock: FastClock | None = None

    async def open(self) -> Session:
        """As `KafkaLake.open`."""
        assert self.clock is not None
        store, log = self.s3.store(self.prefix, **_PATIENT), KafkaWriterLog(self.kafka)

        async def close() -> None:
            await log.close()
            await store.close()

        return Session(store, log, FastEnvironment(self.clock), close, nothing_known)


@dataclass(frozen=True)
class Sample:
    """At a moment (seconds of the run): versions so far, bytes that live, and all that is stored, by kind."""

    at_s: float
    version: int
    live_bytes: int
    rows: int
    stored: Counter[str]

    @property
    def stored_bytes(self) -> int:
        return self.stored.total()


@dataclass
class Side:
    """`name`: with or without upkeep. `folder`: of its log lines; `objects`: of its objects, on the store's disk."""

    name: str
    lake: FastLake
    folder: Path
    objects: Path
    properties: Mapping[str, str]
    gate: Gate
    writers: Writers
    readers: Readers
    reading: Lake
    samples: list[Sample] = field(default_factory=list)
    _processes: list[ServiceProcess] = field(default_factory=list)

    @staticmethod
    def of(name: str, lake: FastLake, folder: Path, objects: Path, properties: Mapping[str, str], load: Load) -> Side:
        """A side that has not started."""
        gate = load.gate
        writers = Writers(lake.client(), load.writers, load.think_s, name == WITH_UPKEEP, gate)
        reading = lake.client()
        count, pause_s = (load.readers, 1.0) if name == WITH_UPKEEP else (1, 10.0)  # many small files take long
        readers = Readers(reading, count, load.hold_s, pause_s, gate, writers.history)
        return Side(name, lake, folder, objects, properties, gate, writers, readers, reading)

    def start(self) -> None:
        """Its services, and the table."""
        assert self.lake.clock is not None
        environment = {**self.lake.environment(), **SERVICE_SETTINGS, CLOCK: str(self.lake.clock.path)}
        for role in ("coordinator", "worker"):
            command = (sys.executable, "-m", "tests.services.constant_ingest.fast_service", role)
            log = self.folder / f"{self.name}-{role}.log"
            self._processes.append(ServiceProcess(command, log, environment))
        self.writers.lake.create_table(
            TABLE, SCHEMA, partition_by=["part"], properties=self.properties, timeout_s=120.0
        )

    async def drive(self) -> None:
        """Write and read until both are told that it is enough."""
        definition = await asyncio.to_thread(self.writers.lake.table(TABLE).definition)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.writers.run(definition))
            group.create_task(self.readers.run())

    def is_alive(self) -> bool:
        """Whether its services run."""
        return all(process.is_alive for process in self._processes)

    async def sample(self, at_s: float) -> None:
        """What it weighs now."""
        header = await asyncio.to_thread(self.head)
        stored = await asyncio.to_thread(self._stored)
        self.samples.append(Sample(at_s, header.version, header.totals.data_bytes, header.totals.rows, stored))

    def head(self) -> RootHeader:
        """The newest root's header."""
        return self.reading.table(TABLE).head()

    def check(self) -> str:
        """What `rootline check` says; empty: it is clean."""
        words = ("check", TABLE, "--data-files", "sizes")
        checking = RootlineProcess(
            f"{self.name}-check", words, {**self.lake.environment(), **SERVICE_SETTINGS}, self.folder
        )
        checking.start()
        with ending(checking):
            code = checking.wait(_CHECK_PATIENCE_S)
        return "" if code == 0 else f"ended with {code}: {checking.said()[-2000:]}{checking.tail()}"

    def stop(self) -> None:
        """Worker first."""
        for process in reversed(self._processes):
            process.stop()

    def close(self) -> None:
        """The connections."""
        for lake in (self.writers.lake, self.reading):
            lake.close(patience_s=5.0)

    def lines(self, role: str) -> list[dict[str, Any]]:
        """What its coordinator or its worker logged."""
        lines = (self.folder / f"{self.name}-{role}.log").read_bytes().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith(b"{") and line.endswith(b"\n")]

    def _stored(self) -> Counter[str]:
        found: Counter[str] = Counter()
        table = self.objects / self.lake.prefix / key_of(TABLE, "")
        for parent, _, names in os.walk(table):
            place = Path(parent).relative_to(table).parts[:2]
            kind = "/".join(place) if place[:1] == ("metadata",) else "data"
            for name in names:
                try:
                    found[kind] += (Path(parent) / name).stat().st_size
                except FileNotFoundError:
                    continue
        return found


WITH_UPKEEP: Final = "upkept"
BARE: Final = "bare"


@dataclass(frozen=True)
class Load:
    """What both lakes bear."""

    gate: Gate
    writers: int
    readers: int
    think_s: float
    hold_s: float
