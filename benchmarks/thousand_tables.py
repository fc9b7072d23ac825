"""A thousand tables, ten of them busy, one hostile: what the busy ones wait, beside what they wait alone.

Owns: the measurement. Does not own: the tables (`backlog` makes them), what is hostile (`hostile_neighbour`), the
process (`command_process`).
Invariants: two coordinators run side by side, one with the ten tables and one with all; phases of the same load
alternate between them, so that a drift of the machine hits both; the crowded one holds the heads of all its tables, and
every other table gets a record now and then.

A crowd in which no one is hostile is measured too: it says whose cost it is.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
import uuid
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from benchmarks.backlog import produce, table_of
from benchmarks.command_process import CommandProcess, running_command
from benchmarks.coordinator_process import environment_of
from benchmarks.far_services import Far, far_services
from benchmarks.hostile_neighbour import Hostile
from benchmarks.measure import Result, Spread, load_average
from benchmarks.own_coordinator import require_commit
from benchmarks.sample_table import data_file, definition
from rootline.adapters.kafka.writer_log import KafkaWriterLog
from rootline.adapters.settings import KafkaSettings
from rootline.coordinator.app import settle_memory
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.bytes.root.statistics_codec import StatisticsCodec
from rootline.schemas.intent import Intent, IntentKind, RemovedFile

TABLES: Final = int(os.environ.get("ROOTLINE_BENCH_TABLES", "1000"))
BUSY: Final = 10
PHASES: Final = int(os.environ.get("ROOTLINE_BENCH_PHASES", "3"))
_PHASE_S: Final = 3.0
_WARM_UP_S: Final = 0.5
_THINK_S: Final = 0.05
_NOW_AND_THEN_S: Final = 0.05
_KEPT: Final = 20
_PATIENCE_S: Final = 600.0
_LOOK_S: Final = 0.5


class Company(Enum):
    """Who else is there."""

    ALONE = "alone"
    CROWD = "among others"
    HOSTILE = "among others and a hostile one"


@dataclass
class Waits:
    """Of all phases of one kind: publish → verdict, s; CPU of the coordinator, s."""

    seconds: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    verdicts: int = 0

    @property
    def cpu_ms(self) -> float:
        """For each verdict of a busy table."""
        return 1000 * self.cpu_s / self.verdicts


@dataclass
class Lake:
    """One log with its coordinator."""

    settings: KafkaSettings
    process: CommandProcess


def measure() -> list[Result]:
    """Measure with services of its own."""
    with far_services() as far, _lakes(far) as (few, many):
        found = asyncio.run(_measure(few, many))
        memory = f"{many.process.cost().rss_mb:.0f} MB against {few.process.cost().rss_mb:.0f} MB"
    alone, load = found[Company.ALONE], load_average()
    yardstick = Spread.of(alone.seconds)
    results = []
    for company, target in ((Company.CROWD, "–"), (Company.HOSTILE, "≤ 1.3")):
        waits, who = found[company], f"{BUSY} busy tables {company.value}"
        spread = Spread.of(waits.seconds)
        notes = (
            f"{TABLES} tables, {memory}; p50 {spread.median / yardstick.median:.2f}; CPU of the coordinator for each "
            f"verdict {waits.cpu_ms:.1f} ms against {alone.cpu_ms:.1f}"
        )
        what, ratio = f"publish → verdict, p99, {who}", spread.p99 / yardstick.p99
        results.append(Result("–", what, spread, yardstick, "p99 alone", ratio, target, load, notes))
    return results


async def _measure(few: Lake, many: Lake) -> dict[Company, Waits]:
    settle_memory()  # the writers' process is not measured
    found = {company: Waits() for company in Company}
    logs = {lake.settings.intents_topic: KafkaWriterLog(lake.settings) for lake in (few, many)}
    hostile = Hostile(many.settings, table_of(TABLES - 1))
    others = _Others(logs[many.settings.intents_topic])
    writers = {topic: [_Writer(log, number) for number in range(BUSY)] for topic, log in logs.items()}
    try:
        for _ in range(PHASES):
            for company in Company:
                lake = few if company is Company.ALONE else many
                before, own = lake.process.cost().cpu_s, list[float]()
                async with asyncio.TaskGroup() as group:
                    beside = [group.create_task(others.run())] if lake is many else []
                    beside += [group.create_task(hostile.run())] if company is Company.HOSTILE else []
                    end_s = time.monotonic() + _PHASE_S
                    writing = [group.create_task(one.run(end_s, own)) for one in writers[lake.settings.intents_topic]]
                    await asyncio.wait(writing)
                    for task in beside:
                        task.cancel()
                found[company].seconds += own
                found[company].cpu_s += lake.process.cost().cpu_s - before
                found[company].verdicts += len(own)
            await asyncio.to_thread(_settled, many)
    finally:
        await hostile.close()
        for log in logs.values():
            await log.close()
    return found


class _Writer:
    """Publishes to one table, waits for the verdict, pauses, and publishes again."""

    def __init__(self, log: KafkaWriterLog, number: int) -> None:
        self._log, self._table = log, table_of(number)
        self._codec = StatisticsCodec(definition(number + 1).tracked_fields)
        self._live: deque[str] = deque()
        self._numbers = itertools.count(1)

    async def run(self, end_s: float, waits: list[float]) -> None:
        warm_s = time.monotonic() + _WARM_UP_S
        while time.monotonic() < end_s:
            record = self.next_record()
            began_s = time.monotonic()
            position = await self._log.publish(self._table.encode(), record)
            verdict = await self._log.wait_verdict(position, timeout_s=_PATIENCE_S)
            if verdict is None:
                raise RuntimeError(f"{self._table}: no verdict within {_PATIENCE_S} s")
            require_commit(verdict)
            if began_s >= warm_s:
                waits.append(time.monotonic() - began_s)
            await asyncio.sleep(_THINK_S)

    def next_record(self) -> bytes:
        """One file more, and one less once the table has enough."""
        name = f"data/{uuid.uuid4().hex}.parquet"
        removed = (RemovedFile(location=self._live.popleft()),) if len(self._live) >= _KEPT else ()
        self._live.append(name)
        added = data_file(next(self._numbers), self._codec).model_copy(update={"location": name})
        kind = IntentKind.OVERWRITE
        return encode_intent(
            Intent(intent_id=name, table=self._table, kind=kind, add_data_files=(added,), remove_files=removed)
        )


class _Others:
    """A record for each table that is neither busy nor hostile, one after the other; no one waits for them."""

    def __init__(self, log: KafkaWriterLog) -> None:
        self._log = log
        self._turn = itertools.cycle(range(BUSY, TABLES - 1))

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            number = next(self._turn)
            await self._log.publish(table_of(number).encode(), _Writer(self._log, number).next_record())
            await asyncio.sleep(_NOW_AND_THEN_S)


@contextmanager
def _lakes(far: Far) -> Iterator[tuple[Lake, Lake]]:
    """One with the busy tables only, one with all; both hold the heads of all their tables."""
    with ExitStack() as around:
        yield _filled(far, "few", BUSY, around), _filled(far, "many", TABLES, around)


def _filled(far: Far, name: str, tables: int, around: ExitStack) -> Lake:
    settings = far.kafka.with_topics()
    warehouse = f"s3://{far.near.bucket}/{name}-{uuid.uuid4().hex[:8]}"
    produce(settings, tables=tables, intents=0)
    environment = environment_of(far.near, settings)
    process = around.enter_context(running_command(far.folder / f"{name}.err", warehouse, settings.url, environment))
    _until(process, tables)
    return Lake(settings, process)


def _until(process: CommandProcess, verdicts: int) -> None:
    began_s = time.monotonic()
    while process.metric("rootline_verdicts_total") < verdicts:
        if time.monotonic() - began_s > _PATIENCE_S:
            raise TimeoutError(f"{verdicts} verdicts are not there after {_PATIENCE_S:.0f} s")
        time.sleep(_LOOK_S)


def _settled(lake: Lake) -> None:
    """Wait until the coordinator has come to the log's end, so that no phase pays for the one before it."""
    began_s = time.monotonic()
    while lake.process.metric("rootline_consumer_lag_records") > 0:
        if time.monotonic() - began_s > _PATIENCE_S:
            raise TimeoutError(f"the log's end is not reached after {_PATIENCE_S:.0f} s")
        time.sleep(_LOOK_S)
