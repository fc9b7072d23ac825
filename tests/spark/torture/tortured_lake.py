"""Spark's drivers are killed in every phase of its commit protocol, while others delete and compact the table.

Owns: the sources, the drivers and their deaths, the batch deletes and rewrites, and the comparison at the end with what
DuckDB finds in the sources. Does not own: where a driver dies (`killing_source`), its job (`dying_driver`).
Invariants: a driver is killed with its whole process group and starts again from its checkpoint; rows are compared one
by one, with their numbers.

Run it: `python -m tests.spark.torture.tortured_lake --seconds 300 --streams 3`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import pyarrow as pa

from rootline import Invalid
from rootline.adapters.open import LAKE_FOLDER
from rootline.client.lake import Lake
from rootline.connect import connect
from rootline.demo.service import running_service
from tests.spark.torture.killing_source import PHASE_VARIABLE, Phase

TABLE = "demo.numbers"
SCHEMA = pa.schema([("stream", pa.int32()), ("number", pa.int64()), ("doomed", pa.bool_())])
DOOMED = "doomed = true"
PATIENCE_S = 300.0


@dataclass
class DyingStream:
    """A stream from a folder to the table, whose drivers die."""

    place: Path
    number: int
    options: dict[str, str]
    files: int = 0
    deaths: Counter[str] = field(default_factory=Counter)

    def drop(self, rows: int = 20) -> None:
        """One more file of the source; every fifth row is doomed to be deleted."""
        self.source.mkdir(parents=True, exist_ok=True)
        first = self.files * rows
        lines = [
            json.dumps({"stream": self.number, "number": at, "doomed": at % 5 == 0})
            for at in range(first, first + rows)
        ]
        hidden = self.source / f".{self.files}"
        hidden.write_text("\n".join(lines) + "\n")
        hidden.rename(self.source / f"{self.files:06}.json")
        self.files += 1

    @property
    def source(self) -> Path:
        """Where its files are."""
        return self.place / f"source-{self.number}"

    def run(self, phase: Phase | None = None, kill_after_s: float | None = None) -> int:
        """Run a driver until it has ended or died; its exit code."""
        mark = self.place / f"phase-{self.number}"
        mark.unlink(missing_ok=True)
        if phase is not None:
            mark.write_text(phase)
        checkpoint = self.place / f"checkpoint-{self.number}"
        words = [str(self.source), str(checkpoint), TABLE, json.dumps(self.options)]
        with (self.place / f"driver-{self.number}.log").open("a") as log:
            driver = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.torture.dying_driver", *words],
                env={**os.environ, PHASE_VARIABLE: str(mark)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                code = driver.wait(PATIENCE_S if kill_after_s is None else kill_after_s)
            except subprocess.TimeoutExpired:
                if kill_after_s is None:
                    raise
                code = -signal.SIGKILL
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(driver.pid, signal.SIGKILL)
                driver.wait()
        if code == -signal.SIGKILL:
            self.deaths["at random" if phase is None else phase] += 1
        return code

    def finish(self) -> None:
        """Run drivers that no one kills until one has come to the end."""
        for _ in range(3):
            if self.run() == 0:
                return
        raise AssertionError(f"stream {self.number} does not come to its end: see {self.place}/driver-*.log")


def differences(lake: Lake, streams: list[DyingStream]) -> list[str]:
    """What the table lacks, or has too often, of the rows that are in the sources and not doomed."""
    there = lake.table(TABLE).scan().to_arrow()
    sources = [str(stream.source / "*.json") for stream in streams]
    database = duckdb.connect()
    database.execute(
        "create view wanted as select stream::int as stream, number::bigint as number, doomed "
        f"from read_json({sources!r}) where not doomed"
    )
    database.register("found", there)
    lost = database.execute("select * from wanted except all select * from found order by all").fetchall()
    more = database.execute("select * from found except all select * from wanted order by all").fetchall()
    return [
        f"{len(rows)} rows {word}, such as {rows[0]}" for word, rows in (("lost", lost), ("too many", more)) if rows
    ]


@contextlib.contextmanager
def meanwhile(lake: Lake, counts: Counter[str], dice: random.Random) -> Iterator[None]:
    """Delete what is doomed and compact the table, again and again, until the block ends."""
    over = threading.Event()
    faults: list[BaseException] = []

    def upkeep() -> None:
        table = lake.table(TABLE)
        while not over.wait(dice.uniform(0.2, 1.5)):
            word, change = dice.choice([("delete", lambda: table.delete_where(DOOMED)), ("rewrite", table.rewrite)])
            try:
                counts[f"{word} done"] += bool(change())  # type: ignore[no-untyped-call]
            except Invalid as error:
                counts[f"{word} {error.code}"] += 1
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


def tortured(place: Path, seconds: float, streams: int, seed: int) -> dict[str, object]:
    """Torture a lake below `place` for so long; what happened, and how the table differs from its sources."""
    dice, over_s = random.Random(seed), time.monotonic() + seconds
    folder = place / "lake"
    folder.mkdir(parents=True)
    options = {"warehouse": str(folder), "log": f"sqlite://{folder / LAKE_FOLDER}"}
    counts: Counter[str] = Counter()
    with running_service(folder, place / "up.log"), connect(folder, coordinator="elsewhere") as lake:
        table = lake.create_table(TABLE, SCHEMA, properties={"rootline.flush.data-files": "8"})
        all_streams = [DyingStream(place, number, options) for number in range(streams)]

        def suffer(stream: DyingStream, own: random.Random) -> None:
            phases = list(Phase)
            while time.monotonic() < over_s:
                for _ in range(own.randint(2, 6)):
                    stream.drop()
                if own.random() < 0.25:
                    stream.run(kill_after_s=own.uniform(2, 20))
                else:
                    stream.run(phases[sum(stream.deaths.values()) % len(phases)])
            stream.finish()

        with meanwhile(lake, counts, dice):
            threads = [
                threading.Thread(target=suffer, args=(stream, random.Random(seed + 1 + stream.number)))
                for stream in all_streams
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        table.delete_where(DOOMED)
        faults = [str(fault) for fault in table.check()]
        return {
            "files": sum(stream.files for stream in all_streams),
            "deaths": dict(sum((stream.deaths for stream in all_streams), Counter())),
            "upkeep": dict(counts),
            "versions": table.head().version,
            "differences": differences(lake, all_streams) + faults,
        }


def main() -> int:
    """The program."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    words.add_argument("--seconds", type=float, default=300)
    words.add_argument("--streams", type=int, default=3)
    words.add_argument("--seed", type=int, default=int(time.time()))
    given = words.parse_args()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="rootline-torture-") as place:
        outcome = tortured(Path(place), given.seconds, given.streams, given.seed)
        print(json.dumps(outcome, indent=2))
        return 1 if outcome["differences"] else 0


if __name__ == "__main__":
    sys.exit(main())
