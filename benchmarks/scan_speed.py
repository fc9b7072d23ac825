"""Goal 16: a scan beside pyarrow's dataset over the same files, and the bytes that one column of twenty costs on S3.

Owns: both measurements, and their tables. Does not own: services (`tests.services`), interleaving (`measure`).
Invariants: subject and yardstick read the same files of one folder in turn, and give the same number of rows; the
yardstick's files are listed before, the subject finds its own each time.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

import rootline
from benchmarks.measure import Result, Spread, interleaved, load_average
from rootline.adapters.s3_object_store import S3ObjectStore
from rootline.client.create_drop import build_definition
from rootline.client.data_file_writer import write_files
from rootline.client.table_handle import TableHandle
from rootline.ports.object_store import ObjectStore, StoredObject
from rootline.schemas.content_entry import ContentEntry, ContentType, FileFormat, Status, VersionInfo
from rootline.schemas.identifiers import ObjectKey, TableName
from rootline.schemas.object_keys import key_of
from rootline.storage.rows.data_file_reader import RowsWanted
from rootline.storage.rows.scan_executor import scan_table
from rootline.tree.scan.file_task import FileTask
from tests.services.s3_service import running_s3

ROWS: Final = int(os.environ.get("ROOTLINE_BENCH_SCAN_ROWS", "10000000"))
_FILE_ROWS: Final = 1_000_000
_SAMPLES: Final = int(os.environ.get("ROOTLINE_BENCH_SCAN_SAMPLES", "7"))
_WIDE_ROWS: Final = 500_000
_WIDE_COLUMNS: Final = 20
_DATASET: Final = "pyarrow's dataset, same files"
_CHECKED: Final = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
"""A scan always compares checksums of pages, the dataset on request only."""
_TABLE: Final = "demo.flights"
_WIDE: Final = TableName("demo.wide")


def measure() -> list[Result]:
    """Both, the table of ten columns in a folder first."""
    with tempfile.TemporaryDirectory(prefix="rootline-bench-", dir=".") as folder:
        results = _beside_dataset(Path(folder).resolve())
    with tempfile.TemporaryDirectory(prefix="rootline-bench-") as folder, running_s3(Path(folder)) as service:
        results.append(asyncio.run(_one_of_twenty(service.store())))
    return results


def _beside_dataset(folder: Path) -> list[Result]:
    with rootline.connect(str(folder)) as lake:
        table = lake.create_table(_TABLE, flights(1, 0).schema)
        for start in range(0, ROWS, _FILE_ROWS):
            table.append(flights(min(_FILE_ROWS, ROWS - start), start))
        dataset = ds.dataset([str(path) for path in sorted(folder.rglob("data/*.parquet"))])
        late = ds.field("delay") > 40
        first = ROWS * 3 // 4
        few = (ds.field("id") >= first) & (ds.field("id") < first + 1000)
        return [
            _compared(
                "to_arrow(), every column", lambda: len(table.scan().to_arrow()), lambda: len(dataset.to_table())
            ),
            _compared(
                "to_arrow(), one column of ten",
                lambda: len(table.scan(columns=["delay"]).to_arrow()),
                lambda: len(dataset.to_table(columns=["delay"])),
            ),
            _compared(
                "to_arrow(), one column of ten",
                lambda: len(table.scan(columns=["delay"]).to_arrow()),
                lambda: len(dataset.to_table(columns=["delay"], fragment_scan_options=_CHECKED)),
                "pyarrow's dataset with checksums of pages, same files",
            ),
            _compared(
                "to_arrow(), a filter that a sixth of the rows match",
                lambda: len(table.scan(where="delay > 40").to_arrow()),
                lambda: len(dataset.to_table(filter=late)),
            ),
            _compared(
                "to_arrow(), a filter that a thousand neighbours match",
                lambda: len(table.scan(where=f"id >= {first} and id < {first + 1000}").to_arrow()),
                lambda: len(dataset.to_table(filter=few)),
            ),
            _compared("count()", lambda: table.scan().count(), dataset.count_rows),
            _compared(
                "to_batches(), every column", lambda: _streamed(table), lambda: sum(map(len, dataset.to_batches()))
            ),
        ]


def _streamed(table: TableHandle) -> int:
    return sum(map(len, table.scan().to_batches()))


def _compared(
    what: str, subject: Callable[[], int], yardstick: Callable[[], int], yardstick_name: str = _DATASET
) -> Result:
    """Both in turn. The ratio of CPU time is in the notes: on a busy machine it says more than the clock."""
    assert subject() == yardstick()
    cpu: tuple[list[float], list[float]] = ([], [])

    async def timed(which: int, work: Callable[[], int]) -> float:
        began, began_cpu = time.perf_counter(), time.process_time()
        work()
        cpu[which].append(time.process_time() - began_cpu)
        return time.perf_counter() - began

    ours, theirs = asyncio.run(
        interleaved(lambda _: timed(0, subject), lambda _: timed(1, yardstick), samples=_SAMPLES, warm_up=1)
    )
    spent, allowed = (Spread.of(seconds[1:]) for seconds in cpu)
    return Result(
        "16",
        f"{what}, {ROWS:,} rows",
        ours,
        theirs,
        yardstick_name,
        ours.median / theirs.median,
        "≤ 1.2",
        load_average(),
        f"CPU by minimum {spent.minimum / allowed.minimum:.2f} ×, by median {spent.median / allowed.median:.2f} ×",
    )


def flights(rows: int, start: int) -> pa.Table:
    """`rows` rows of ten columns, from number `start` on."""
    draw = np.random.default_rng(start)
    numbers = np.arange(start, start + rows)
    arrival = pa.array(np.round(draw.normal(10, 30, rows)), mask=draw.random(rows) < 0.02)
    return pa.table(
        {
            "id": numbers,
            "ts": pa.array(numbers * 1_000_000, pa.timestamp("us")),
            "carrier": np.array(["UA", "AA", "DL", "WN", "B6", "EV"])[draw.integers(0, 6, rows)],
            "tail": np.array([f"N{number:05d}" for number in range(4_000)])[draw.integers(0, 4_000, rows)],
            "number": draw.integers(1, 7_000, rows).astype(np.int32),
            "delay": draw.normal(10, 30, rows),
            "arrival_delay": arrival,
            "distance": draw.integers(80, 5_000, rows),
            "day": pa.array(draw.integers(15_000, 15_365, rows).astype(np.int32)).cast(pa.date32()),
            "is_late": draw.random(rows) < 0.3,
        }
    )


async def _one_of_twenty(store: S3ObjectStore) -> Result:
    """One file in a bucket; what its reads fetch is counted where they reach the store."""
    draw = np.random.default_rng(7)
    rows = pa.table({f"c{at}": draw.integers(0, 1 << 40, _WIDE_ROWS) for at in range(_WIDE_COLUMNS)})
    definition = build_definition(rows.schema, table_uuid=uuid.UUID(int=16))
    (written,) = write_files(rows, definition, iter(uuid.uuid4, None))
    file = written.data_file
    info = VersionInfo(Status.EXISTING, 1, 1, 1)
    entry = ContentEntry(
        ContentType.DATA, file.location, FileFormat.PARQUET, info, 0, file.record_count, file.file_size_in_bytes
    )
    await store.put_if_absent(key_of(_WIDE, file.location), written.body)

    async def scanned(columns: list[str] | None) -> tuple[_CountedReads, float]:
        counted = _CountedReads(store)
        began = time.perf_counter()
        wanted = RowsWanted.of(definition, columns)
        found = await scan_table(cast("ObjectStore", counted), _WIDE, [FileTask(entry)], wanted)
        assert len(found) == _WIDE_ROWS
        return counted, time.perf_counter() - began

    async def one(_: int) -> float:
        return (await scanned(["c7"]))[1]

    async def every(_: int) -> float:
        return (await scanned(None))[1]

    ours, theirs = await interleaved(one, every, samples=_SAMPLES, warm_up=1)
    counted, _ = await scanned(["c7"])
    await store.close()
    return Result(
        "16",
        f"bytes of a scan of one column of {_WIDE_COLUMNS}, S3",
        ours,
        theirs,
        "every column; the ratio is that of bytes, to the whole file",
        counted.bytes / len(written.body),
        "≤ 0.1",
        load_average(),
        f"{counted.requests} requests, {counted.bytes:,} of {len(written.body):,} bytes",
    )


class _CountedReads:
    """Passes reads on to a store, and counts their bytes."""

    def __init__(self, store: S3ObjectStore) -> None:
        self._store = store
        self.requests = self.bytes = 0

    async def get(self, key: ObjectKey) -> StoredObject | None:
        found = await self._store.get(key)
        self._count(None if found is None else found.body)
        return found

    async def length_of(self, key: ObjectKey) -> int | None:
        self.requests += 1
        return await self._store.length_of(key)

    async def part_of(self, key: ObjectKey, start: int, length: int) -> bytes | None:
        found = await self._store.part_of(key, start, length)
        self._count(found)
        return found

    def _count(self, found: bytes | None) -> None:
        self.requests += 1
        self.bytes += len(found or b"")
