"""Parts of Parquet files through Arrow's file systems, beside our own ranged reads (decision 0120).

Owns: the figures of the decision. Does not own: the prototypes (`arrow_scans`), what may end a process
(`parts_in_trouble`).
Invariants: all ways give equal rows; samples alternate; requests are
counted where they leave the process; whatever may end or block a process runs in one of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.arrow_scans import SCANS, WAYS, Lake, made, scanned
from benchmarks.measure import Spread, load_average
from benchmarks.parts_in_trouble import footers, said_by, saved
from tests.services.recording_proxy import RecordedRequest, recording_proxy
from tests.services.s3_service import S3Service, running_s3
from tests.services.toxiproxy import running_toxiproxy

_SAMPLES: Final = int(os.environ.get("ROOTLINE_BENCH_PARTS_SAMPLES", "7"))
_LATE_MS: Final = 20
_COLUMNS: Final = 20


def _range_bytes(request: RecordedRequest) -> int:
    first, _, last = request.headers.get("range", "bytes=0-0").removeprefix("bytes=").partition("-")
    return int(last) - int(first) + 1 if "range" in request.headers else 0


async def counted(service: S3Service, lake: Lake) -> None:
    """Requests and bytes of each scan by each way; equal rows too."""
    print("\n| scan | way | requests | of them HEAD | bytes asked for |\n|---|---|---|---|---|")
    for scan in SCANS:
        expected = None
        for way in WAYS:
            async with recording_proxy(service.address) as recorder:
                store = service.store(lake.prefix, endpoint=recorder.endpoint)
                found, _ = await scanned(way, store, lake, scan)
                await store.close()
                heads = len(recorder.of_method("HEAD"))
                size = sum(map(_range_bytes, recorder.of_method("GET")))
                print(f"| {scan.name} | {way} | {len(recorder.requests)} | {heads} | {size:,} |", flush=True)
            assert expected is None or found == expected
            expected = found


async def timed(service: S3Service, lake: Lake, added_ms: int) -> None:
    """Seconds of each way, alternating sample by sample in one process, with the ratio to ours."""
    print(f"\n+{added_ms} ms on every answer; {_SAMPLES} samples, load {load_average()}\n")
    print("| scan | way | median s | min s | to ours | first batch s | CPU s |\n|---|---|---|---|---|---|---|")
    stores = {way: service.store(lake.prefix) for way in WAYS}
    for scan in SCANS:
        seconds: dict[str, list[tuple[float, float, float]]] = {way: [] for way in WAYS}
        for number in range(_SAMPLES + 1):
            for way, store in stores.items():
                began, began_cpu = time.perf_counter(), time.process_time()
                _, first_s = await scanned(way, store, lake, scan)
                if number:
                    cpu_s = time.process_time() - began_cpu
                    seconds[way].append((time.perf_counter() - began, first_s, cpu_s))
        ours = Spread.of([one for one, _, _ in seconds["ours"]]).median
        for way, samples in seconds.items():
            whole, first, cpu = (Spread.of(list(column)) for column in zip(*samples, strict=True))
            ratio = f"{whole.median / ours:.2f}"
            print(
                f"| {scan.name} | {way} | {whole.median:.3f} | {whole.minimum:.3f} | {ratio} | {first.median:.3f} "
                f"| {cpu.median:.3f} |",
                flush=True,
            )
    for store in stores.values():
        await store.close()


_CHILD: Final = """
import sys, pyarrow as pa, pyarrow.parquet as pq
file = pq.ParquetFile(sys.argv[1], pre_buffer=False)
with pa.ipc.new_stream(pa.PythonFile(sys.stdout.buffer, mode="w"), file.schema_arrow) as stream:
    for batch in file.iter_batches(65_536):
        stream.write_batch(batch)
"""
"""The rows of a file as an Arrow stream on standard output."""


def children(folder: Path) -> None:
    """What a process of its own for the files of others costs: one for each file, and the rows through a pipe."""
    draw = np.random.default_rng(7)
    path = folder / "file.parquet"
    rows = pa.table({f"c{at}": draw.integers(0, 1 << 40, 200_000) for at in range(_COLUMNS)})
    pq.write_table(rows, path, row_group_size=100_000, compression="zstd", use_dictionary=False)
    command = [sys.executable, "-c", _CHILD, str(path)]
    own: list[float] = []
    theirs: list[float] = []
    start: list[float] = []
    for _ in range(_SAMPLES):
        began = time.perf_counter()
        found = sum(len(batch) for batch in pq.ParquetFile(path, pre_buffer=False).iter_batches(65_536))
        own.append(time.perf_counter() - began)
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import pyarrow.parquet"], check=True)
        start.append(time.perf_counter() - began)
        began = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            assert sum(len(batch) for batch in pa.ipc.open_stream(child.stdout)) == found
        theirs.append(time.perf_counter() - began)
    inside, beside, imported = Spread.of(own), Spread.of(theirs), Spread.of(start)
    print(
        f"\none file of {path.stat().st_size:,} bytes: {inside.median:.3f} s in this process, {beside.median:.3f} s in "
        f"one of its own ({imported.median:.3f} s of it until Arrow is imported)"
    )


async def main(only: Sequence[str]) -> None:
    """Every part, or those named."""
    with tempfile.TemporaryDirectory(prefix="rootline-bench-") as name:
        folder = Path(name)
        if "footers" in only:
            footers()
        if "children" in only:
            children(folder)
        if not {"counts", "times", "memory", "faults"} & set(only):
            return
        (folder / "s3").mkdir()
        with running_s3(folder / "s3") as service, running_toxiproxy(folder) as toxiproxy:
            lake = await made(service)
            place = saved(service, lake, folder)
            if "counts" in only:
                await counted(service, lake)
            if "times" in only:
                await timed(service, lake, 0)
                with toxiproxy.proxy("far", service.address) as proxy:
                    proxy.add("latency", stream="downstream", latency=_LATE_MS)
                    far = S3Service(proxy.endpoint, service.access_key_id, service.secret_access_key, service.bucket)
                    await timed(far, lake, _LATE_MS)
            if "memory" in only:
                print()
                for number in (0, 2, 4):
                    for way in WAYS:
                        said = await asyncio.to_thread(said_by, "memory", place, way, str(number))
                        print(f"memory, {SCANS[number].name}, {way}: {said}", flush=True)
            if "faults" in only:
                print()
                for what in ("cancelled", "deadline", "dripping", "forked", "errors"):
                    for way in WAYS:
                        print(f"{what}, {way}: {await asyncio.to_thread(said_by, what, place, way)}", flush=True)


_PARTS: Final = ("counts", "times", "memory", "faults", "footers", "children")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=_PARTS, nargs="+", default=_PARTS)
    asyncio.run(main(parser.parse_args().only))
