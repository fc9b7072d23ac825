"""Goal 6b: one commit of 10,000 and of 100,000 files, given as columns, and of 10,000 that are given one by one.

Owns: the measurement, from the files' statistics in the writer's memory to the verdict. Does not own: other
commits (`commit_latency`).
Invariants: the measured time includes encoding, storing, reading and proving leaves; each sample commits to a
table of its own; subject and yardstick encode the same columns, in turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import tempfile
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.measure import Result, interleaved, load_average
from benchmarks.own_coordinator import coordinating, require_commit
from benchmarks.sample_table import COLUMNS, create_record, definition, rows_of, statistics
from rootline.adapters.local_object_store import LocalObjectStore
from rootline.adapters.memory import MemoryIntentLog
from rootline.adapters.system_environment import SystemEnvironment
from rootline.client.new_files import FileList, append_files
from rootline.client.session import Session, WriterStamp
from rootline.maintenance.file_leaves import cut_evenly, leaf_columns
from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.leaf_codec import ROW_GROUP_ENTRIES
from rootline.schemas.bytes.leaf_schema import arrow_type_of_bound
from rootline.schemas.bytes.single_values import to_generic
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import DataFile
from rootline.schemas.table_definition import TableDefinition
from tests.services.s3_service import running_s3

SIZES: Final = (10_000, 100_000)
SAMPLES: Final = int(os.environ.get("ROOTLINE_BENCH_LEAF_SAMPLES", "5"))
_WARM_UP: Final = 1
_GOAL: Final = 60_000
_GOAL_OF_A_LIST: Final = 20_000
_BEST_PEER: Final = 37_000
_PYICEBERG: Final = 6_300
_YARDSTICK: Final = "pyarrow writing the same Parquet"


def measure() -> list[Result]:
    """Measure on local files, then on S3."""
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="rootline-bench-", dir=".") as folder:
        results += asyncio.run(_on(LocalObjectStore(Path(folder) / "lake"), "local files"))
    with tempfile.TemporaryDirectory(prefix="rootline-bench-") as folder, running_s3(Path(folder)) as service:
        results += asyncio.run(_on(service.store(), "S3"))
    return results


def file_list(count: int, table: TableDefinition, seed: int = 1) -> pa.Table:
    """`count` files as a writer knows them: random bounds, because sorted ones would compress too well."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(10_000, 15_000, count)
    bounds = {
        f"_{tracked.tracked_id}": _statistics(rng, rows, arrow_type_of_bound(tracked.type))
        for tracked in table.tracked_by_id.values()
    }
    return pa.table(
        {
            "location": [f"data/{uuid.UUID(int=int(at) << 64)}-{at}.parquet" for at in range(count)],
            "record_count": rows,
            "file_size_in_bytes": rng.integers(1_000_000, 100_000_000, count),
            "content_stats": pa.StructArray.from_arrays(list(bounds.values()), list(bounds)),
        }
    )


def _statistics(
    rng: np.random.Generator, rows: np.ndarray[tuple[int], np.dtype[np.int64]], kind: pa.DataType
) -> pa.Array:
    pairs = np.sort(rng.integers(0, 2**40, (len(rows), 2)), axis=1)
    lower, upper = (pa.array(pairs[:, side]) for side in (0, 1))
    nans = pa.nulls(len(rows), pa.int64())
    sizes = [pa.nulls(len(rows), pa.int32())] * 2
    if pa.types.is_floating(kind):
        lower, upper = (pc.divide(side.cast(kind), 8.0) for side in (lower, upper))
        nans = pa.array(np.zeros(len(rows), np.int64))
    elif pa.types.is_string(kind):
        lower, upper = (pa.array([f"key-{value:012x}" for value in pairs[:, side]]) for side in (0, 1))
        sizes = [pa.array(np.full(len(rows), size, np.int32)) for size in (12, 40)]
    else:
        lower, upper = (side.cast(kind) for side in (lower, upper))
    nulls = pa.array(rng.integers(0, 7, len(rows)))
    tight = pa.array(np.ones(len(rows), np.bool_))
    return pa.StructArray.from_arrays(
        [lower, upper, tight, pa.array(rows), nulls, nans, *sizes],
        [
            "lower_bound",
            "upper_bound",
            "tight_bounds",
            "value_count",
            "null_value_count",
            "nan_value_count",
            "avg_value_size_in_bytes",
            "max_value_size_in_bytes",
        ],
    )


@dataclass(slots=True)
class _Lake:
    """A coordinator in this process, and a writer."""

    session: Session
    log: MemoryIntentLog

    async def new_table(self, number: int) -> tuple[TableName, TableDefinition]:
        name, table = TableName(f"bench.leaf{number}"), definition(number + 1)
        position = await self.log.publish(name.encode(), create_record(table, name))
        verdict = await self.log.wait_verdict(position, timeout_s=30)
        require_commit(verdict)
        return name, table


@contextlib.asynccontextmanager
async def _lake(store: ObjectStore) -> AsyncIterator[_Lake]:
    try:
        async with coordinating(store) as log:
            yield _Lake(Session(store, log, SystemEnvironment(), store.close, lambda table: None), log)
    finally:
        await store.close()


async def _on(store: ObjectStore, where: str) -> list[Result]:
    async with _lake(store) as lake:
        files = {size: file_list(size, definition()) for size in SIZES}
        results = [
            await _commits(lake, f"{COLUMNS} columns, {where}", files[size], files[size], number * 1_000, _GOAL)
            for number, size in enumerate(SIZES)
        ]
        small = SIZES[0]
        what = f"{COLUMNS} columns, a plain list with generic statistics, {where}"
        return [*results, await _commits(lake, what, plain_list(small), files[small], 9_000, _GOAL_OF_A_LIST)]


def plain_list(count: int) -> list[DataFile]:
    """As many files as a client without our code describes them, one by one."""
    tracked = definition().tracked_by_id
    return [
        DataFile(
            location=f"data/{uuid.UUID(int=at)}.parquet",
            record_count=rows_of(at),
            file_size_in_bytes=1_000_000 + at,
            statistics=to_generic(statistics(at), tracked),
        )
        for at in range(count)
    ]


async def _commits(lake: _Lake, what: str, files: FileList, columns: pa.Table, first_table: int, goal: int) -> Result:
    """`files` is what is committed, `columns` as many files, which the yardstick writes."""
    size = len(files)
    loop = asyncio.get_running_loop()

    async def commit(number: int) -> float:
        name, table = await lake.new_table(first_table + number)
        began = loop.time()
        await append_files(lake.session, WriterStamp(None), name, table, files, timeout_s=120)
        return loop.time() - began

    async def encode(number: int) -> float:
        began = loop.time()
        await asyncio.to_thread(_plain_parquet, columns, definition())
        return loop.time() - began

    subject, yardstick = await interleaved(commit, encode, SAMPLES, _WARM_UP)
    rate, bare = size / subject.median, size / yardstick.median
    return Result(
        "6b",
        f"one commit of {size:,} files × {what}",
        subject,
        yardstick,
        _YARDSTICK,
        subject.median / yardstick.median,
        f"≥ {goal:,} files/s",
        load_average(),
        f"{rate:,.0f} files/s (goal {goal:,}, best peer {_BEST_PEER:,}, PyIceberg {_PYICEBERG:,}); "
        f"the yardstick alone {bare:,.0f}",
    )


def _plain_parquet(files: pa.Table, table: TableDefinition) -> None:
    """The same columns into files of the same settings, without digests, store, log, proof and commit."""
    for piece in cut_evenly(leaf_columns(files, table, table.default_spec_id)):
        pq.write_table(
            piece,
            io.BytesIO(),
            compression="zstd",
            use_dictionary=True,  # as Arrow does unless told otherwise
            write_statistics=False,
            write_page_checksum=True,
            store_schema=False,
            row_group_size=ROW_GROUP_ENTRIES,
        )
