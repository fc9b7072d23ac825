"""One-row appends in a loop, as a small program makes them: do appends stay fast, and does metadata stay small?

`make bench-peers ARGS="--only one-row"` does the same in turn with other formats.

Owns: the loop through `rootline.connect` on a folder, and what the folder holds meanwhile. Does not own: expiry, flush
and compaction, which the embedded host carries out by itself.
Invariants: nothing is asked for by hand; beside each tenth append a bare durable put-if-absent is timed, because
absolute times of a shared machine drift.
"""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa

from benchmarks.measure import Result, Spread, load_average
from rootline import connect

APPENDS: Final = int(os.environ.get("ROOTLINE_BENCH_APPENDS", "10000"))
BYTES_MAX: Final = 15_000_000
_LOOK_EVERY: Final = 50
_YARDSTICK_EVERY: Final = 10
_REST_S: Final = 10.0
_SCHEMA: Final = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string())])


@dataclass(slots=True)
class _Seen:
    appends: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)
    peak: int = 0
    rest: int = 0
    data: int = 0
    objects: int = 0


def measure() -> list[Result]:
    """Append, look, and rest."""
    with tempfile.TemporaryDirectory(prefix="rootline-bench-", dir=".") as folder:
        seen = _appended(Path(folder).resolve())
    tenth = max(1, APPENDS // 10)
    first, last = Spread.of(seen.appends[:tenth]), Spread.of(seen.appends[-tenth:])
    share = max(1, len(seen.bare) // 10)
    drift = Spread.of(seen.bare[-share:]).median / Spread.of(seen.bare[:share]).median
    return [
        Result(
            "18",
            f"one-row append, the last tenth of {APPENDS:,}",
            last,
            first,
            "the first tenth",
            last.median / first.median,
            "≤ 1",
            load_average(),
            f"a bare durable put-if-absent took {drift:.2f} × as long in the last tenth as in the first",
        ),
        Result(
            "18",
            f"metadata at its peak, {APPENDS:,} one-row appends",
            None,
            None,
            f"{BYTES_MAX:,} bytes",
            seen.peak / BYTES_MAX,
            "≤ 1",
            load_average(),
            f"{seen.peak:,} bytes at its peak, {seen.rest:,} bytes in {seen.objects:,} objects {_REST_S:g} s after the "
            f"last append; data: {seen.data:,} bytes",
        ),
    ]


def _appended(folder: Path) -> _Seen:
    seen = _Seen()
    metadata, bare = folder / "lake" / "demo" / "rows" / "metadata", folder / "bare"
    bare.mkdir()
    with connect(str(folder / "lake")) as lake:
        table = lake.create_table("demo.rows", schema=_SCHEMA)
        for number in range(APPENDS):
            rows = pa.table({"id": [number], "name": [f"row {number}"]}, schema=_SCHEMA)
            began = time.perf_counter()
            table.append(rows)
            seen.appends.append(time.perf_counter() - began)
            if number % _YARDSTICK_EVERY == 0:
                seen.bare.append(_bare_put(bare, number))
            if number % _LOOK_EVERY == 0:
                seen.peak = max(seen.peak, _held(metadata)[0])
        time.sleep(_REST_S)
        seen.rest, seen.objects = _held(metadata)
        seen.peak = max(seen.peak, seen.rest)
        seen.data, _ = _held(folder / "lake" / "demo" / "rows" / "data")
    return seen


def _bare_put(folder: Path, number: int) -> float:
    """A file written, synced, linked under a name that must be free, and its folder synced."""
    body = os.urandom(8_192)
    began = time.perf_counter()
    descriptor = os.open(folder / "new", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    os.write(descriptor, body)
    os.fsync(descriptor)
    os.close(descriptor)
    os.link(folder / "new", folder / f"{number}")
    (folder / "new").unlink()
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    return time.perf_counter() - began


def _held(folder: Path) -> tuple[int, int]:
    """(bytes, objects) of a folder that others change meanwhile."""
    held = objects = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                held += (Path(parent) / name).stat().st_size
            except FileNotFoundError:
                continue
            objects += 1
    return held, objects
