"""Goal 1b: a commit from one process through the coordinator of another, over the embedded log, against a bare PUT.

Owns: the measurement through the public API, locally and with 60 ms of delay, and the floor it is held against. Does
not own: the services, the coordinator's process (`command_process`).
Invariants: subject and the yardsticks alternate on one store and one disk; the coordinator runs as
`rootline coordinator` does.

Theory. Such a commit cannot be quicker than the bare PUT, one durable write of the log before it (the intent), one
after it (the verdict, whose commit is its acknowledgement), and two processes that wake up, each for the other's write.
The floor in the notes is measured here: the PUT and two durable transactions of SQLite, in the same run.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import rootline
from benchmarks.command_process import running_command
from benchmarks.coordinator_process import environment_of
from benchmarks.far_services import ADDED_MS, bare_put, far_store
from benchmarks.measure import Result, Spread, load_average
from benchmarks.sample_table import data_file, definition
from rootline.adapters.open import open_store
from rootline.schemas.bytes.root.statistics_codec import StatisticsCodec
from rootline.schemas.identifiers import TableName
from tests.services.s3_service import S3Service, running_s3
from tests.support.loaded_tables import load_table

SAMPLES: Final = int(os.environ.get("ROOTLINE_BENCH_SAMPLES", "200"))
_FAR_SAMPLES: Final = 40
_WARM_UP: Final = 10
_FILLED: Final = 900
_PER_INTENT: Final = 300
_TABLE: Final = "bench.events"
_GOALS: Final = {"S3": "≤ 2", f"S3 +{ADDED_MS} ms": "≤ 1.08"}


def measure() -> list[Result]:
    """Measure on a store beside us, then on one that is far away."""
    near_name, far_name = _GOALS
    with tempfile.TemporaryDirectory(prefix="rootline-bench-", dir=".") as folder:
        with tempfile.TemporaryDirectory(prefix="rootline-bench-") as data, running_s3(Path(data)) as near:
            results = asyncio.run(_against(near, _made(Path(folder) / "near"), near_name, SAMPLES))
        with far_store() as far:
            return [*results, *asyncio.run(_against(far, _made(Path(folder) / "far"), far_name, _FAR_SAMPLES))]


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder.absolute()


async def _against(service: S3Service, folder: Path, name: str, samples: int) -> list[Result]:
    environment = environment_of(service, None)
    warehouse, log = f"s3://{service.bucket}/two-{os.getpid()}", f"sqlite://{folder / 'log'}"
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        with running_command(folder / "coordinator.err", warehouse, log, environment) as coordinator:
            coordinator.wait_ready()
            with rootline.connect(warehouse, log=log, coordinator="elsewhere") as lake:
                return await _sampled(service, warehouse, lake, _DurableWrites(folder / "floor.sqlite"), name, samples)
    finally:
        for variable, value in before.items():
            if value is None:
                del os.environ[variable]
            else:
                os.environ[variable] = value


async def _sampled(
    service: S3Service, warehouse: str, lake: rootline.Lake, writes: _DurableWrites, name: str, samples: int
) -> list[Result]:
    described = definition()
    codec = StatisticsCodec(described.tracked_fields)
    table = await asyncio.to_thread(lake.create_table, _TABLE, described.schema, properties=described.properties)
    files = [data_file(number, codec) for number in range(_FILLED + samples + _WARM_UP)]
    for first in range(0, _FILLED, _PER_INTENT):
        await asyncio.to_thread(table.add_files, files[first : first + _PER_INTENT])
    commits: list[float] = []
    puts: list[float] = []
    durable: list[float] = []
    async with bare_put(service) as put:
        size = await _root_bytes(warehouse)
        for number in range(-_WARM_UP, samples):
            began = time.perf_counter()
            table.add_files([files[_FILLED + _WARM_UP + number]])
            taken = time.perf_counter() - began
            wrote = writes.write()
            bare = await put(size)
            if number >= 0:
                commits.append(taken)
                durable.append(wrote)
                puts.append(bare)
    return _results(name, size, commits, puts, durable)


def _results(
    name: str, size: int, commits: Sequence[float], puts: Sequence[float], durable: Sequence[float]
) -> list[Result]:
    subject, yardstick, write = (Spread.of(list(seconds)) for seconds in (commits, puts, durable))
    floor = yardstick.median + 2 * write.median
    return [
        Result(
            "1b",
            f"commit through another process, embedded log, {name}",
            subject,
            yardstick,
            "bare conditional PUT",
            subject.median / yardstick.median,
            _GOALS[name],
            load_average(),
            f"root of {size / 1024:.0f} KiB; floor: the PUT and two durable writes of a log, "
            f"{write.median * 1000:.2f} ms each, are {floor / yardstick.median:.2f} × the PUT",
        )
    ]


async def _root_bytes(warehouse: str) -> int:
    """The length of the newest root."""
    store = open_store(warehouse)
    try:
        state = await load_table(store, TableName(_TABLE))
    finally:
        await store.close()
    assert state is not None
    return state.root.size_in_bytes


class _DurableWrites:
    """A SQLite file with the log's settings, and one small durable transaction at a time."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB NOT NULL)")

    def write(self) -> float:
        began = time.perf_counter()
        self._connection.execute("INSERT INTO rows (body) VALUES (?)", (bytes(2_000),))
        return time.perf_counter() - began
