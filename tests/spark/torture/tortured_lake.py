"""A lake on Kafka and S3 whose writers are Spark drivers that die, while it is deleted from and compacted.

Owns: the lake, its coordinator and worker, the drivers' lives, deletes and rewrites meanwhile, the judgement.
Does not own: Kafka and S3, a driver's job (`job`), what must be in the tables (`sources`).
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
from tests.kafka.kafka_lake import KafkaLake
from tests.kafka.rootline_process import RootlineProcess, ending
from tests.services.constant_ingest.report import upkeep_of
from tests.spark.torture.job import COUNTERS, Job, StreamJob
from tests.spark.torture.killing_source import Phase
from tests.spark.torture.mortal_driver import MortalDriver
from tests.spark.torture.sources import (
    COUNTER_IDS,
    COUNTERS_SCHEMA,
    DOOMED,
    LATEST,
    LATEST_COLUMNS,
    LATEST_SCHEMA,
    NUMBERS,
    NUMBERS_COLUMNS,
    NUMBERS_SCHEMA,
    Source,
    differences,
)

_UPKEEP = {
    "rootline.flush.data-files": "8",
    "rootline.compact.data": "true",
    "rootline.compact.data-files": "4",
    "rootline.convert.deletes": "3",
}
_RANDOM_DEATHS = 0.4
_LIFE_S = (0.5, 20.0)
_PHASE_WITHIN_S = 300.0
"""Whose phase has not come until then dies all the same."""


@dataclass
class Torture:
    """`seconds` of deaths by the dice of `seed`. Each of the drivers has two streams, and one of the first's upserts.

    `files`: so many, from and to, come in each source before a driver lives again. `master`: of each driver; its
    executors are processes of their own unless it is local.
    """

    seconds: float
    seed: int
    drivers: int = 2
    phases: Sequence[Phase] = tuple(Phase)
    files: tuple[int, int] = (4, 10)
    master: str = "local-cluster[1,2,600]"


@dataclass
class Outcome:
    """What happened. `faults`: nothing, if it held."""

    deaths: Counter[str] = field(default_factory=Counter)
    endings: Counter[str] = field(default_factory=Counter)
    files: int = 0
    changes: int = 0
    meanwhile: Counter[str] = field(default_factory=Counter)
    upkeep: Counter[str] = field(default_factory=Counter)
    versions: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


@contextlib.contextmanager
def running_lake(address: KafkaLake, folder: Path) -> Iterator[Lake]:
    """The lake with its tables, a coordinator and a worker."""
    roles = [
        RootlineProcess(role, (role, "--http-port", "0"), address.environment(), folder)
        for role in ("coordinator", "worker")
    ]
    with ending(*roles), address.client() as lake:
        for role in roles:
            role.start()
        roles[0].wait_ready()
        lake.create_table(NUMBERS, NUMBERS_SCHEMA, properties=_UPKEEP, timeout_s=120.0)
        lake.create_table(LATEST, LATEST_SCHEMA, properties=_UPKEEP, timeout_s=120.0)
        counters = lake.create_table(COUNTERS, COUNTERS_SCHEMA, timeout_s=120.0)
        counters.append([{"id": at, "n": 0} for at in COUNTER_IDS])
        yield lake


def tortured(address: KafkaLake, folder: Path, torture: Torture, tell: Callable[[str], None]) -> Outcome:
    """Torture a lake of this address; what became of it."""
    outcome = Outcome()
    with running_lake(address, folder) as lake:
        sources, drivers = _drivers(address, folder, torture)
        with _meanwhile(lake, outcome.meanwhile, random.Random(f"{torture.seed}/meanwhile")):
            _all_at_once([_Suffering(driver, own, torture, tell) for driver, own in zip(drivers, sources, strict=True)])
        table = lake.table(NUMBERS)
        table.delete_where(DOOMED, timeout_s=120.0)
        for driver in drivers:
            outcome.deaths += driver.deaths
            outcome.endings.update(driver.endings)
            outcome.changes += int(Path(driver.job.done).read_text())
        every = [source for own in sources for source in own]
        outcome.files = sum(source.files for source in every)
        outcome.upkeep = upkeep_of(RootlineProcess("worker", (), {}, folder).lines()).committed
        outcome.faults += differences(lake, every, outcome.changes)
        for name in (NUMBERS, LATEST, COUNTERS):
            outcome.versions[name] = lake.table(name).head().version
            outcome.faults += [f"{name}: {fault}" for fault in lake.table(name).check()]
    return outcome


def _drivers(address: KafkaLake, folder: Path, torture: Torture) -> tuple[list[list[Source]], list[MortalDriver]]:
    sources: list[list[Source]] = []
    drivers: list[MortalDriver] = []
    for at in range(torture.drivers):
        name = f"driver-{at}"
        own = [
            Source(folder / f"{name}-source-0", 2 * at, random.Random()),
            Source(folder / f"{name}-source-1", 2 * at + 1 if at else None, random.Random(f"{torture.seed}/keys")),
        ]
        streams = tuple(
            StreamJob(
                str(source.folder),
                LATEST_COLUMNS if source.stream is None else NUMBERS_COLUMNS,
                str(folder / f"{name}-checkpoint-{number}"),
                LATEST if source.stream is None else NUMBERS,
                {"upsert": "true"} if source.stream is None else {},
            )
            for number, source in enumerate(own)
        )
        marks = {mark: str(folder / f"{name}.{mark}") for mark in ("done", "begun_mark", "last_mark")}
        job = Job(name=name, streams=streams, deletes_from=NUMBERS, doomed=DOOMED, **marks, master=torture.master)
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
        for number, phase in enumerate(self._deaths(dice)):
            if number >= len(self.torture.phases) and time.monotonic() >= over_s:
                break
            lives_on = phase in (None, Phase.EXECUTOR)
            self.driver.live(phase, dice.uniform(*_LIFE_S) if lives_on else _PHASE_WITHIN_S)
            self.tell(
                f"{name}: died {_told(self.driver.deaths)}; ended by itself {_told(Counter(self.driver.endings))}"
            )
            self._drop(dice)
        self.driver.finish()

    def _deaths(self, dice: random.Random) -> Iterator[Phase | None]:
        """Of each phase once, then as the dice fall; `None`: at any moment."""
        phases = self.torture.phases
        yield from dice.sample(phases, len(phases))
        while True:
            yield None if dice.random() < _RANDOM_DEATHS else dice.choice(phases)

    def _drop(self, dice: random.Random) -> None:
        for source in self.sources:
            for _ in range(dice.randint(*self.torture.files)):
                source.drop()


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
        tables = [lake.table(name) for name in (NUMBERS, LATEST, COUNTERS)]
        while not over.wait(dice.uniform(0.2, 3.0)):
            change = dice.choice((delete, rewrite))
            table = tables[0] if change is delete else dice.choice(tables)
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
