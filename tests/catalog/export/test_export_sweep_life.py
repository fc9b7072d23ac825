"""A table's life in a folder, with every kind of upkeep: engines can read each export for a day after they got it."""

from __future__ import annotations

import asyncio
import os
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable

from rootline.adapters.open import open_remover
from rootline.adapters.system_environment import SystemEnvironment
from rootline.catalog.exporter import TableExporter
from rootline.catalog.retained_exports import metadata_locations
from rootline.client.lake import Lake
from rootline.client.session import Session
from rootline.ports.intent_log import LogKeeps
from rootline.workers.jobs.job import JobReport
from rootline.workers.kinds import COMPACT, EXPIRE, FLUSH, SWEEP, MaintenanceKind, Rights, maintain
from tests.catalog.exported_lake import TABLE, V2, V3, ExportedLake, ids_of, rows
from tests.support.examples import drawn

DAY_S = 24 * 3600
FOLDER = "demo/flights"


class LaterEnvironment(SystemEnvironment):
    """The system's clock, `ahead_s` ahead."""

    def __init__(self, ahead_s: int) -> None:
        self._ahead_s = ahead_s

    def now_ms(self) -> int:
        return super().now_ms() + 1000 * self._ahead_s


async def keeps() -> LogKeeps:
    return LogKeeps(7 * DAY_S)


@dataclass
class Life:
    """One table, and what engines were told of it. `ahead_s`: how far the store's and the workers' clocks are ahead."""

    lake: ExportedLake
    rng: random.Random
    ahead_s: int = 0
    next_id: int = 0
    known: set[Path] = field(default_factory=set)
    told: list[tuple[int, str, list[int]]] = field(default_factory=list)
    """When, where the metadata.json is, and the ids of the rows."""
    removed: int = 0

    def __post_init__(self) -> None:
        self.exporters: list[TableExporter] = [self.lake.fresh(), self.lake.fresh()]

    def step(self) -> None:
        step = self.rng.choice(
            [self.append] * 3
            + [self.delete, self.flush, self.compact, self.tag, self.expire, self.expire]
            + [self.sweep] * 4
            + [self.export] * 4
            + [self.wait] * 3
        )
        step()
        self.date()
        for at_s, location, ids in self.told:
            if at_s > self.ahead_s - DAY_S:
                assert ids_of(StaticTable.from_metadata(location).scan().to_arrow()) == ids, (step.__name__, location)

    def date(self) -> None:
        """Give what was just stored the store's date."""
        for path in (self.lake.folder / FOLDER).rglob("*"):
            if path.is_file() and path not in self.known:
                self.known.add(path)
                was = path.stat().st_mtime
                os.utime(path, (was + self.ahead_s, was + self.ahead_s))

    def append(self) -> None:
        self.lake.table.append(rows(*range(self.next_id, self.next_id + 3)))
        self.next_id += 3

    def delete(self) -> None:
        self.lake.table.delete_where(f"id = {self.rng.randrange(self.next_id + 1)}")

    def tag(self) -> None:
        self.lake.table.tag(self.rng.choice("ab"))

    def upkeep(self, what: MaintenanceKind) -> JobReport:
        async def work(session: Session) -> JobReport:
            rights = Rights(open_remover(str(self.lake.folder), session.store), keeps)
            later = LaterEnvironment(self.ahead_s)
            return await maintain(session.store, session.log, later, TABLE, what, dry_run=False, rights=rights)

        return self.lake.lake.holder.run(work)

    def flush(self) -> None:
        self.upkeep(FLUSH)

    def compact(self) -> None:
        self.upkeep(COMPACT)

    def expire(self) -> None:
        self.upkeep(EXPIRE)

    def sweep(self) -> None:
        report = self.upkeep(SWEEP)
        self.removed += sum(item.objects for item in report.removed if item.kind.startswith("export"))

    def wait(self) -> None:
        self.ahead_s += self.rng.choice([DAY_S // 3, DAY_S, 2 * DAY_S])

    def export(self) -> None:
        which = self.rng.randrange(3)
        exporter = self.lake.fresh() if which == 2 else self.exporters[which]
        found = asyncio.run(exporter.export(TABLE, self.rng.choice([V2, V3])))
        self.told.append((self.ahead_s, found.metadata_location, ids_of(self.lake.table.scan().to_arrow())))

    def metadata_files(self) -> int:
        keys = [str(path.relative_to(self.lake.folder)) for path in (self.lake.folder / FOLDER).rglob("*.json")]
        return len(metadata_locations(f"{FOLDER}/", keys))


@pytest.mark.parametrize("seed", drawn(5))
def test_every_export_can_be_read_for_a_day_after_an_engine_got_it(folder: Path, lake: Lake, seed: int) -> None:
    properties = {f"rootline.expire.{name}": "1" for name in ("by-minute-seconds", "by-hour-seconds")}
    properties["rootline.expire.all-versions"] = "3"
    life = Life(ExportedLake(folder, lake, **properties), random.Random(seed))
    for _ in range(45):
        life.step()
    for _ in range(4):
        life.ahead_s += 2 * DAY_S
        life.append()
        life.date()
        life.export()
        life.date()
        life.expire()
        life.sweep()
        life.date()
    assert life.removed > 0
    told = len({location for _, location, _ in life.told})
    assert life.metadata_files() < told
    assert list(life.lake.table.check()) == []
