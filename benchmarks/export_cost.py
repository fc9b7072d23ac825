"""What exports cost: the first export of a table, the export of a one-file commit, another reader.

Owns: the measurement, on local files. Does not own: the table (`large_table`), PyIceberg's (`iceberg_table`).
Invariants: a commit, its export and a commit by PyIceberg alternate; requests and bytes are counted at the
store.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.commit_latency import CountingStore
from benchmarks.iceberg_table import IcebergWriter
from benchmarks.large_table import build
from benchmarks.many_files import served_table
from benchmarks.measure import Result, Spread, load_average
from benchmarks.sample_table import TABLE
from rootline.adapters.local_object_store import LocalObjectStore
from rootline.catalog.export_keys import FormatVersion
from rootline.catalog.exporter import ExportedTable, TableExporter

SIZES: Final = tuple(int(size) for size in os.environ.get("ROOTLINE_BENCH_FILES", "100000,1000000").split(","))
_COMPARED: Final = 12_500
_COMMITS: Final = 40
_WARM_UP: Final = 5
_READERS: Final = 20


@dataclass(slots=True)
class _Export:
    """One export, as the store sees it."""

    seconds: float
    requests: int
    objects: int
    written: int


def measure() -> list[Result]:
    """Measure every size in turn, as V3."""
    with tempfile.TemporaryDirectory(prefix="rootline-bench-", dir=".") as folder:
        results: list[Result] = []
        for size in SIZES:
            where = Path(folder).resolve() / str(size)
            asyncio.run(_built(where, size))
            theirs = IcebergWriter(Path(folder) / f"iceberg-{size}", _COMPARED)
            results += asyncio.run(_of_size(where, size, theirs))
        return results


async def _built(folder: Path, size: int) -> None:
    store = LocalObjectStore(folder)
    await build(store, size)
    await store.close()


async def _of_size(folder: Path, size: int, theirs: IcebergWriter) -> list[Result]:
    async with AsyncExitStack() as stack:
        store = CountingStore(LocalObjectStore(folder))
        stack.push_async_callback(store.close)
        exporter = TableExporter(store, folder.as_uri())
        first = await _exported(exporter, store)
        table = await served_table(stack, folder, size)
        commits: list[float] = []
        exports: list[_Export] = []
        of_iceberg: list[float] = []
        for _ in range(_COMMITS):
            commits.append(await table.commit())
            exports.append(await _exported(exporter, store))
            of_iceberg.append(theirs.commit())
        yardsticks = Spread.of(commits[_WARM_UP:]), Spread.of(of_iceberg[_WARM_UP:])
        again = [await _exported(exporter, store) for _ in range(_READERS)]
        others = [await _exported(TableExporter(store, folder.as_uri()), store) for _ in range(_READERS)]
    return [
        _first(size, first, theirs),
        *_of_commits(size, exports[_WARM_UP:], *yardsticks, table.store.last_size),
        _readers(size, again, others, yardsticks[0]),
    ]


async def _exported(exporter: TableExporter, store: CountingStore) -> _Export:
    before = (store.requests, store.objects, store.written)
    began = time.perf_counter()
    found: ExportedTable = await exporter.export(TABLE, FormatVersion.V3)
    taken = time.perf_counter() - began
    assert found.metadata_location
    return _Export(taken, store.requests - before[0], store.objects - before[1], store.written - before[2])


def _first(size: int, made: _Export, theirs: IcebergWriter) -> Result:
    ours, yardstick = Spread.of([made.seconds]), Spread.of([theirs.seconds])
    return Result(
        "export",
        f"first export of {size:,} files",
        ours,
        yardstick,
        f"PyIceberg writing the manifests of {_COMPARED:,} files",
        (made.seconds / size) / (theirs.seconds / _COMPARED),
        f"{made.seconds / size * 1e6:.1f} µs a file",
        load_average(),
        f"ratio of the seconds a file; {made.requests} requests, {made.objects} objects, {made.written:,} bytes: "
        f"{made.written / size:.0f} a file (PyIceberg {theirs.size / _COMPARED:.0f})",
    )


def _of_commits(
    size: int, exports: list[_Export], commits: Spread, of_iceberg: Spread, root_bytes: int
) -> list[Result]:
    ours = Spread.of([export.seconds for export in exports])
    requests, objects, written = (
        sorted(values)[len(values) // 2]
        for values in zip(*((one.requests, one.objects, one.written) for one in exports), strict=True)
    )
    what = f"export of a one-file commit, {size:,} files"
    notes = (
        f"median: {requests} requests, {objects} of them PUTs, {written:,} bytes; the commit: 1 request, "
        f"a root of {root_bytes:,} bytes"
    )
    return [
        Result("export", what, ours, commits, "the commit", ours.median / commits.median, "–", load_average(), notes),
        Result(
            "export",
            what,
            ours,
            of_iceberg,
            f"PyIceberg's own commit to {_COMPARED:,} files",
            ours.median / of_iceberg.median,
            "–",
            load_average(),
            "PyIceberg's files are not synced, and its catalog costs nothing; what Rootline stores is durable",
        ),
    ]


def _readers(size: int, again: list[_Export], others: list[_Export], commits: Spread) -> Result:
    ours, of_others = (Spread.of([one.seconds for one in exports]) for exports in (again, others))
    return Result(
        "export",
        f"another reader of the same version, {size:,} files",
        ours,
        commits,
        "the commit",
        ours.median / commits.median,
        "0 objects",
        load_average(),
        f"by the same exporter: {again[-1].requests} request, {again[-1].objects} objects; by a new one, as of another "
        f"process: {others[-1].requests} requests, {others[-1].objects} objects, {1_000 * of_others.median:.1f} ms",
    )
