"""Goals 8, 10, 11 and 12: what a table's size costs, from a thousand files to a million.

Owns: commits to tables of each size in turn, cold plans, a cold coordinator, its memory. Does not own: the tables
(`large_table`), PyIceberg's table (`iceberg_table`), the picture (`growth`).
Invariants: every size has the same statistics of the same columns; sizes alternate commit by commit.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from benchmarks import growth, iceberg_table
from benchmarks.commit_latency import CountingStore, Table
from benchmarks.large_table import build
from benchmarks.loaded_table import anonymous_bytes
from benchmarks.measure import Result, Spread, load_average
from benchmarks.own_coordinator import coordinating
from benchmarks.sample_table import TABLE, definition
from rootline.adapters.local_object_store import LocalObjectStore
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.bytes.root.statistics_codec import StatisticsCodec
from rootline.schemas.content_entry import ContentType
from rootline.schemas.object_keys import key_of
from rootline.storage.metadata.root_reader import find_head, read_definition, read_root
from rootline.storage.metadata.scan_loader import plan_scan
from rootline.tree.filter.pruning import PruningFilter

SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)
_COMPARED: Final = 100_000
_COMMITS: Final = 60
_PLANS: Final = 5
_SELECTIVE: Final = "c0 > 40000000 and c0 <= 40050000"
"""Fifty files of any table that has more than forty thousand."""


def measure() -> list[Result]:
    """Measure all four goals on tables that are made here, on local files."""
    with tempfile.TemporaryDirectory(prefix="rootline-bench-", dir=".") as folder:
        folders = {size: Path(folder) / str(size) for size in SIZES}
        for size, where in folders.items():
            began = time.perf_counter()
            asyncio.run(_built(where, size))
            print(f"  a table of {size:,} files in {time.perf_counter() - began:.1f} s", flush=True)
        return [
            *asyncio.run(_plans(folders)),
            *asyncio.run(_cold(folders[SIZES[-1]])),
            *_memory(folders),
            *asyncio.run(_commits(folders)),
        ]


async def _built(folder: Path, size: int) -> None:
    store = LocalObjectStore(folder)
    await build(store, size)
    await store.close()


async def _commits(folders: dict[int, Path]) -> list[Result]:
    taken: dict[int, list[float]] = {size: [] for size in folders}
    sizes: dict[int, int] = {}
    async with AsyncExitStack() as stack:
        tables = {}
        for size, folder in folders.items():
            tables[size] = await served_table(stack, folder, size)
        for _ in range(_COMMITS):
            for size, table in tables.items():
                taken[size].append(await table.commit())
                sizes[size] = table.store.last_size
    spreads = {size: Spread.of(seconds[10:]) for size, seconds in taken.items()}
    medians = {size: spread.median for size, spread in spreads.items()}
    growth.draw(Path("benchmarks/results/growth.svg"), medians, sizes)
    best, worst = min(medians, key=medians.__getitem__), max(medians, key=medians.__getitem__)
    notes = "; ".join(f"{size:,} files: {1_000 * medians[size]:.2f} ms, root {sizes[size]:,} bytes" for size in medians)
    return [
        Result(
            "8",
            f"commit of a file to a table of {worst:,} files",
            spreads[worst],
            spreads[best],
            f"the same with {best:,} files",
            medians[worst] / medians[best],
            "≤ 1.3",
            load_average(),
            notes,
        )
    ]


async def served_table(stack: AsyncExitStack, folder: Path, files: int) -> Table:
    """The table of `files` files in `folder`, with a coordinator that runs until the stack is closed."""
    store = CountingStore(LocalObjectStore(folder))
    stack.push_async_callback(store.close)
    log = await stack.enter_async_context(coordinating(store))
    return Table(store, log, StatisticsCodec(definition().tracked_fields), 10 * files)


async def _plans(folders: dict[int, Path]) -> list[Result]:
    theirs = iceberg_table.plan_seconds(folders[_COMPARED].parent / "iceberg", _COMPARED, _SELECTIVE)
    results = []
    for which, where in (("all", None), ("selective", _SELECTIVE)):
        for size in (_COMPARED, SIZES[-1]):
            ours = await _plan_seconds(folders[size], where)
            ratio = (ours.median / size) / (theirs[which].median / _COMPARED)
            results.append(
                Result(
                    "10",
                    f"cold plan of {size:,} files, {which}",
                    ours,
                    theirs[which],
                    f"PyIceberg plan_files, {_COMPARED:,} files",
                    ratio,
                    f"{ours.median / size * 1e6:.2f} µs a file; goal ≤ {'0.5' if where is None else '0.1'}",
                    load_average(),
                    "ratio of the seconds a file",
                )
            )
    return results


async def _plan_seconds(folder: Path, where: str | None) -> Spread:
    seconds = []
    for _ in range(_PLANS):
        store = LocalObjectStore(folder)
        began = time.perf_counter()
        root = await _newest_root(store)
        table = await read_definition(store, root.header)
        plan = await plan_scan(store, root, table, PruningFilter.of(where, table))
        found = sum(1 for _ in plan.tasks())
        seconds.append(time.perf_counter() - began)
        assert found == (50 if where else root.header.totals.data_files), found
        await store.close()
    return Spread.of(seconds)


async def _cold(folder: Path) -> list[Result]:
    """A coordinator's start to its first commit, against reading root and location columns."""
    ours, theirs = [], []
    for number in range(3):
        began = time.perf_counter()
        async with AsyncExitStack() as stack:
            table = await served_table(stack, folder, SIZES[-1] * (number + 2))
            await table.commit()
            ours.append(time.perf_counter() - began)
        theirs.append(await _location_columns(folder))
    subject, yardstick = Spread.of(ours), Spread.of(theirs)
    return [
        Result(
            "11",
            f"cold coordinator: start to first commit, {SIZES[-1]:,} files",
            subject,
            yardstick,
            "reading root and location columns",
            subject.median / yardstick.median,
            "≤ 2",
            load_average(),
        )
    ]


async def _location_columns(folder: Path) -> float:
    store = LocalObjectStore(folder)
    began = time.perf_counter()
    root = await _newest_root(store)
    for row in root.rows:
        if row.entry.content_type is ContentType.DATA_MANIFEST:
            pq.read_table(folder / key_of(TABLE, row.entry.location), columns=["location"]).column(0).to_pylist()
    taken = time.perf_counter() - began
    await store.close()
    return taken


async def _newest_root(store: LocalObjectStore) -> Root:
    head = await find_head(store, TABLE)
    assert head is not None
    return await read_root(store, TABLE, head.version)


def _memory(folders: dict[int, Path]) -> list[Result]:
    """The memory of a process that has loaded a table to build on it, and has looked up a file in it."""
    held = {size: anonymous_bytes(folders[size]) for size in (SIZES[0], SIZES[-1])}
    small, large = held
    per_million = (held[large] - held[small]) / (large - small) * 1e6
    return [
        Result(
            "12",
            "coordinator's memory for a million files",
            None,
            None,
            "64 MB",
            per_million / 64e6,
            "≤ 1",
            load_average(),
            f"{per_million / 1e6:.1f} MB more than with {small:,} files; leaves' bytes are mapped files, not counted",
        )
    ]
