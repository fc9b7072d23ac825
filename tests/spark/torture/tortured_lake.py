"""A lake on Kafka and S3 whose writers are Spark drivers that die, while it is deleted from, compacted and expired.

Owns: the lake, its coordinator and worker, the drivers' lives, deletes and rewrites meanwhile, the judgement.
Does not own: Kafka and S3, a driver's job (`job`), what must be in the tables (`sources`), sweeps (`aftermath`).
Invariants: the same seed gives the same sources and the same deaths (when they come is the machine's affair); nothing
dies any more once the time is over, and then every driver must come to its end.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rootline import Invalid, OutcomeUnknown
from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.storage.check.findings import CheckSummary
from rootline.tree.parts.locations import ORPHAN_AGE_PROPERTY
from tests.kafka.kafka_lake import KafkaLake
from tests.kafka.rootline_process import RootlineProcess, ending
from tests.services.constant_ingest.report import upkeep_of
from tests.services.constant_ingest.side import SERVICE_SETTINGS
from tests.spark.torture.aftermath import swept
from tests.spark.torture.job import COUNTERS, MERGED, Job, Lane, StreamJob
from tests.spark.torture.killing_source import Phase
from tests.spark.torture.mortal_driver import MortalDriver
from tests.spark.torture.sources import (
    COUNTER_IDS,
    COUNTERS_SCHEMA,
    DOOMED,
    GROWN,
    LATEST,
    LATEST_COLUMNS,
    LATEST_SCHEMA,
    MERGED_SCHEMA,
    NUMBERS,
    NUMBERS_COLUMNS,
    NUMBERS_SCHEMA,
    TABLES,
    Source,
    differences,
)

_UPKEEP = {
    "rootline.flush.data-files": "8",
    "rootline.compact.data": "true",
    "rootline.compact.data-files": "4",
    "rootline.convert.deletes": "3",
    "rootline.expire.every-commits": "20",
    "rootline.expire.all-seconds": "120",
    "rootline.expire.by-minute-seconds": "180",
    "rootline.expire.root-retention-seconds": "600",
    "rootline.sweep.interval-s": "15",
    "rootline.sweep.scan-retention-s": "600",
    ORPHAN_AGE_PROPERTY: str(8 * 24 * 3600),
}
_PHASES_OF = {
    Lane.SINK: frozenset(Phase) - {Phase.BEFORE_UPLOADS},
    Lane.APPENDER: frozenset(Phase) - {Phase.ZOMBIE},
}
"""Where a driver of each lane can die: the commit of Spark's own writer is in the driver itself."""
_RANDOM_DEATHS = 0.4
_LIFE_S = (0.5, 20.0)
_TELL_S = 5.0
_PHASE_WITHIN_S = 300.0
"""Whose phase has not come until then dies all the same."""


@dataclass
class Torture:
    """`seconds` of deaths by the dice of `seed`. Drivers take turns: every other one is of the lane `APPENDER`.

    `files`: so many, from and to, come in each source before a driver lives again. `master`: of each driver; its
    executors are processes of their own unless it is local. `days` that pass in the end, so that sweeps delete.
    """

    seconds: float
    seed: int
    drivers: int = 2
    phases: Sequence[Phase] = tuple(Phase)
    files: tuple[int, int] = (3, 8)
    master: str = "local-cluster[1,2,600]"
    days: int = 0


@dataclass
class Outcome:
    """What happened. `faults`: nothing, if it held. `orphans`: what no version named, and what was left in the end."""

    deaths: Counter[str] = field(default_factory=Counter)
    endings: Counter[str] = field(default_factory=Counter)
    files: int = 0
    batches: int = 0
    changes: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    meanwhile: Counter[str] = field(default_factory=Counter)
    upkeep: Counter[str] = field(default_factory=Counter)
    orphans: tuple[int, int] = (0, 0)
    faults: list[str] = field(default_factory=list)

    def text(self) -> Iterator[str]:
        """Line by line."""
        yield f"{self.deaths.total()} deaths: {_told(self.deaths)}; ended by itself: {_told(self.endings)}"
        yield f"{self.files} files, {self.batches} batches of streams, {self.changes} changes of rows"
        yield "; ".join(f"{name}: version {self.versions[name]}, {rows} rows" for name, rows in self.rows.items())
        yield f"meanwhile: {_told(self.meanwhile)}; by the worker: {_told(self.upkeep)}"
        yield f"objects that no version named: {self.orphans[0]}; of data, left in the end: {self.orphans[1]}"
        yield from (f"FAULT: {fault}" for fault in self.faults)


@contextlib.contextmanager
def running_lake(address: KafkaLake, folder: Path) -> Iterator[Lake]:
    """The lake with its tables, a coordinator and a worker."""
    environment = {**address.environment(), **SERVICE_SETTINGS}
    roles = [
        RootlineProcess(role, (role, "--http-port", "0"), environment, folder) for role in ("coordinator", "worker")
    ]
    with ending(*roles), address.client() as lake:
        for role in roles:
            role.start()
        roles[0].wait_ready()
        lake.create_table(NUMBERS, NUMBERS_SCHEMA, properties=_UPKEEP, timeout_s=120.0)
        lake.create_table(GROWN, NUMBERS_SCHEMA, partition_by=["stream"], properties=_UPKEEP, timeout_s=120.0)
        lake.create_table(LATEST, LATEST_SCHEMA, properties=_UPKEEP, timeout_s=120.0)
        lake.create_table(MERGED, MERGED_SCHEMA, properties=_UPKEEP, timeout_s=120.0)
        counters = lake.create_table(COUNTERS, COUNTERS_SCHEMA, properties=_UPKEEP, timeout_s=120.0)
        counters.append([{"id": at, "n": 0} for at in COUNTER_IDS])
        yield lake


def tortured(address: KafkaLake, folder: Path, torture: Torture, tell: Callable[[str], None]) -> Outcome:
    """Torture a lake of this address; what became of it."""
    outcome = Outcome()
    sources, drivers = _drivers(address, folder, torture)
    with running_lake(address, folder) as lake:
        meanwhile = random.Random(f"{torture.seed}/meanwhile")
        with _meanwhile(lake, outcome.meanwhile, meanwhile), _told_meanwhile(lake, drivers, tell):
            _all_at_once([_Suffering(driver, own, torture, tell) for driver, own in zip(drivers, sources, strict=True)])
        for name in (NUMBERS, GROWN):
            lake.table(name).delete_where(DOOMED, timeout_s=120.0)
        _judge(lake, outcome, drivers, [source for own in sources for source in own])
    outcome.upkeep = upkeep_of(RootlineProcess("worker", (), {}, folder).lines()).committed
    if torture.days:
        for line in outcome.text():
            tell(line)
        unnamed, _ = outcome.orphans
        with swept(address, folder, TABLES, torture.days, tell) as (lake, left):
            outcome.faults += [f"still stored after {torture.days} days: {key}" for key in left]
            _judge(lake, outcome, drivers, [source for own in sources for source in own])
            outcome.orphans = (unnamed, len(left))
    return outcome


def _judge(lake: Lake, outcome: Outcome, drivers: Sequence[MortalDriver], sources: Sequence[Source]) -> None:
    done = [(driver.job, int(Path(driver.job.done).read_text())) for driver in drivers]
    outcome.changes = sum(changes for _, changes in done)
    outcome.deaths = sum((driver.deaths for driver in drivers), Counter[str]())
    outcome.endings = Counter(ending for driver in drivers for ending in driver.endings)
    outcome.files = sum(source.files for source in sources)
    outcome.batches = sum(_batches(Path(stream.checkpoint)) for job, _ in done for stream in job.streams)
    counted = sum(changes for job, changes in done if job.lane is Lane.SINK)
    merged = {job.number: changes for job, changes in done if job.lane is Lane.APPENDER}
    outcome.faults += differences(lake, sources, counted, merged)
    unnamed = 0
    for name in TABLES:
        table, summary = lake.table(name), CheckSummary()
        outcome.faults += [f"{name}: {fault}" for fault in table.check(data_files="sizes", summary=summary)]
        unnamed += summary.unreferenced_objects
        outcome.versions[name], outcome.rows[name] = table.head().version, table.scan().count()
    outcome.orphans = (unnamed, 0)


def _batches(checkpoint: Path) -> int:
    """Spark forgets all but the last hundred."""
    return 1 + max((int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")), default=-1)


def _drivers(address: KafkaLake, folder: Path, torture: Torture) -> tuple[list[list[Source]], list[MortalDriver]]:
    sources: list[list[Source]] = []
    drivers: list[MortalDriver] = []
    for at in range(torture.drivers):
        name, lane = f"driver-{at}", Lane.APPENDER if at % 2 else Lane.SINK
        tables = (NUMBERS, GROWN, GROWN) if lane is Lane.APPENDER else (NUMBERS, NUMBERS if at else LATEST)
        own = [
            Source(folder / f"{name}-source-{number}", table, 10 * at + number, random.Random(f"{torture.seed}/keys"))
            for number, table in enumerate(tables)
        ]
        streams = tuple(
            StreamJob(
                f"{name}-{number}",
                str(source.folder),
                LATEST_COLUMNS if source.table == LATEST else NUMBERS_COLUMNS,
                str(folder / f"{name}-checkpoint-{number}"),
                source.table,
                {"upsert": "true"} if source.table == LATEST else {},
                grows=source.table == GROWN,
            )
            for number, source in enumerate(own)
        )
        marks = {mark: str(folder / f"{name}.{mark}") for mark in ("done", "begun_mark", "last_mark")}
        deletes_from = GROWN if lane is Lane.APPENDER else NUMBERS
        job = Job(name, at, lane, streams, deletes_from, DOOMED, **marks, master=torture.master)
        sources.append(own)
        drivers.append(MortalDriver(job, address.environment(), folder))
    return sources, drivers


@dataclass
class _Suffering:
    """One driver's lives."""

    driver: MortalDriver
    sources: list[Source]
    torture: Torture
    tell: Callable[[str], None]

    def run(self) -> None:
        name, over_s = self.driver.job.name, time.monotonic() + self.torture.seconds
        dice = random.Random(f"{self.torture.seed}/{name}")
        self._drop(dice)
        phases = [phase for phase in self.torture.phases if phase in _PHASES_OF[self.driver.job.lane]]
        for number, phase in enumerate(_deaths(dice, phases)):
            if number >= len(phases) and time.monotonic() >= over_s:
                break
            lives_on = phase in (None, Phase.EXECUTOR)
            self.driver.live(phase, dice.uniform(*_LIFE_S) if lives_on else _PHASE_WITHIN_S)
            self.tell(
                f"{name}: died {_told(self.driver.deaths)}; ended by itself {_told(Counter(self.driver.endings))}"
            )
            self._drop(dice)
        self.driver.finish()

    def _drop(self, dice: random.Random) -> None:
        for source in self.sources:
            for _ in range(dice.randint(*self.torture.files)):
                source.drop()


def _deaths(dice: random.Random, phases: Sequence[Phase]) -> Iterator[Phase | None]:
    """Of each phase once, then as the dice fall; `None`: at any moment."""
    yield from dice.sample(phases, len(phases))
    while True:
        yield None if dice.random() < _RANDOM_DEATHS else dice.choice(phases)


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{what} {times}" for what, times in counts.items()) or "never"


def _all_at_once(sufferings: Sequence[_Suffering]) -> None:
    faults: list[BaseException] = []

    def run(suffering: _Suffering) -> None:
        try:
            suffering.run()
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=run, args=(suffering,)) for suffering in sufferings]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]


@contextlib.contextmanager
def _meanwhile(lake: Lake, counts: Counter[str], dice: random.Random) -> Iterator[None]:
    """Delete what is doomed, and write tables again, until the block ends."""
    over = threading.Event()
    faults: list[BaseException] = []

    def delete(table: TableHandle) -> object:
        return table.delete_where(DOOMED, isolation="snapshot", timeout_s=60.0)

    def rewrite(table: TableHandle) -> object:
        return table.rewrite(timeout_s=60.0)

    def upkeep() -> None:
        while not over.wait(dice.uniform(0.2, 3.0)):
            change = dice.choice((delete, rewrite))
            table = lake.table(dice.choice((NUMBERS, GROWN) if change is delete else TABLES))
            try:
                counts[f"{change.__name__}: {'done' if change(table) else 'nothing to do'}"] += 1
            except (Invalid, OutcomeUnknown) as error:
                counts[f"{change.__name__}: {error.code}"] += 1
            except BaseException as error:
                faults.append(error)
                return

    thread = threading.Thread(target=upkeep, name="torture upkeep")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if faults:
        raise faults[0]


@contextlib.contextmanager
def _told_meanwhile(lake: Lake, drivers: Sequence[MortalDriver], tell: Callable[[str], None]) -> Iterator[None]:
    """Every few seconds a line of progress, until the block ends."""
    over, began_s = threading.Event(), time.monotonic()

    def run() -> None:
        while not over.wait(_TELL_S):
            heads = {name.partition(".")[2]: lake.table(name).head() for name in TABLES}
            tables = ", ".join(f"{name} {head.version} ({head.totals.rows} rows)" for name, head in heads.items())
            deaths = sum(driver.deaths.total() for driver in drivers)
            tell(f"{time.monotonic() - began_s:5.0f} s  {deaths} deaths; versions: {tables}")

    thread = threading.Thread(target=run, name="torture progress")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
