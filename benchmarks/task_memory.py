"""Goal 13: the memory of one Spark task that writes, describes, rewrites or reads through Python, without Spark.

Owns: the shapes of rows, and a process for each that does what a task does. Does not own: the work itself (`file_sink`,
`row_change_tasks`, `batch_reader`, `data_file`).
Invariants: memory is the largest resident set of a fresh process, as the kernel accounts for it, its imports included.
Rows arrive as from Spark: a stream of Arrow batches of at most 64 MB or 10,000 rows. The process makes no rows itself.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from benchmarks.measure import Result, load_average
from rootline.client.create_drop import build_definition
from rootline.client.data_file import DataFile
from rootline.client.new_files import entry_of
from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.table_definition import TableDefinition
from rootline.spark.batch_reader import BatchReader, ScanPartition
from rootline.spark.file_sink import write_task
from rootline.spark.options import SourceOptions, parse_options
from rootline.spark.row_change_tasks import messages, rewrite_order, rewrite_without
from rootline.spark.spark_types import spark_schema_of
from rootline.tree.scan.file_task import FileTask

LIMIT_MIB: Final = 512
_BATCH_ROWS: Final = 10_000
_BATCH_BYTES: Final = 64_000_000
_TASK_BYTES: Final = int(os.environ.get("ROOTLINE_BENCH_TASK_BYTES", "1000000000"))
_PART: Final = 130_000_000
"""The bytes of a task that writes thousands of files: twice as much as may wait."""
_TABLE: Final = "demo.wide"
_random = np.random.default_rng(7)


def _texts(rows: int, chars: int, different: int | None = None) -> pa.Array:
    """Random texts. `different`: the number of different ones."""
    count = rows if different is None else min(rows, different)
    body = _random.integers(97, 123, count * chars, dtype=np.uint8).tobytes()
    offsets = np.arange(0, (count + 1) * chars, chars, dtype=np.int32)
    found = pa.StringArray.from_buffers(count, pa.py_buffer(offsets.tobytes()), pa.py_buffer(body))
    return found if different is None else found.take(pa.array(np.arange(rows) % count))


def _numbers(rows: int, below: int = 2**40) -> pa.Array:
    return pa.array(_random.integers(0, below, rows))


def _lists(rows: int, length: int) -> pa.Array:
    return pa.ListArray.from_arrays(np.arange(0, (rows + 1) * length, length, dtype=np.int32), _numbers(rows * length))


@dataclass(frozen=True, slots=True)
class Shape:
    """Rows of a table, and its layout. `row_bytes`: about the size of a row in memory. `bytes_max`: of all rows."""

    row_bytes: int
    columns: Callable[[int], dict[str, pa.Array]]
    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    bytes_max: int = _TASK_BYTES

    @property
    def batch_rows(self) -> int:
        return max(1, min(_BATCH_ROWS, _BATCH_BYTES // self.row_bytes))

    def batch(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict(self.columns(self.batch_rows))


def _wide(rows: int, numbers: int, texts: int, below: int = 1) -> dict[str, pa.Array]:
    names = {f"n{at}": _numbers(rows) for at in range(numbers)} | {f"t{at}": _texts(rows, 20) for at in range(texts)}
    return {"part": _numbers(rows, below), **names}


SHAPES: Final = {
    "10 columns": Shape(150, lambda rows: _wide(rows, 5, 4)),
    "1,000 columns": Shape(14_000, lambda rows: _wide(rows, 600, 400)),
    "1,000 columns, sorted": Shape(14_000, lambda rows: _wide(rows, 600, 400), sort_by=("n0",)),
    "20 kB of text": Shape(20_000, lambda rows: {"part": _numbers(rows), "body": _texts(rows, 20_000)}),
    "20 kB of text, sorted": Shape(
        20_000, lambda rows: {"part": _numbers(rows), "body": _texts(rows, 20_000)}, sort_by=("part",)
    ),
    "1 MB of text": Shape(1_000_000, lambda rows: {"part": _numbers(rows), "body": _texts(rows, 1_000_000)}),
    "8 kB, one of 100 texts": Shape(8_000, lambda rows: {"part": _numbers(rows), "body": _texts(rows, 8_000, 100)}),
    "lists of 2,000 numbers": Shape(16_000, lambda rows: {"part": _numbers(rows), "body": _lists(rows, 2_000)}),
    "10 columns, 300 partitions": Shape(150, lambda rows: _wide(rows, 5, 4, 300), ("part",)),
    "100 columns, 1,000 partitions": Shape(
        1_400, lambda rows: _wide(rows, 60, 40, 1_000), ("part",), bytes_max=2 * _PART
    ),
    "1,000 columns, 300 partitions": Shape(14_000, lambda rows: _wide(rows, 600, 400, 300), ("part",), bytes_max=_PART),
    "20 kB of text, 3,000 partitions": Shape(
        20_000,
        lambda rows: {"part": _numbers(rows, 3_000), "body": _texts(rows, 20_000)},
        ("part",),
        bytes_max=2 * _PART,
    ),
}


def _few(rows: int, nulls: int = 0) -> pa.Array:
    """Nulls, then a hundred texts of 8 kB in turn, each once in memory."""
    numbers = pa.array(np.arange(rows) % 100, pa.int8(), mask=np.arange(rows) < nulls)
    return pa.DictionaryArray.from_arrays(numbers, _texts(100, 8_000))


_FILES: Final[dict[str, Callable[[], dict[str, Any]]]] = {
    "a file of few texts of 8 kB": lambda: {"part": _numbers(120_000), "body": _few(120_000)},
    "a file of nulls, then few texts of 8 kB": lambda: {"part": _numbers(120_000), "body": _few(120_000, 60_000)},
    "a file of lists of 2,000 equal numbers": lambda: {
        "part": _numbers(20_000),
        "body": pa.ListArray.from_arrays(
            np.arange(0, 20_001 * 2_000, 2_000, dtype=np.int32), pa.array(np.full(20_000 * 2_000, 7))
        ),
    },
}
"""Files of one row group, a hundredth as large as their rows are in memory."""


class _Socket(io.RawIOBase):
    """A stream of one batch, many times, as Spark's worker reads it from its socket. The file is read, not mapped."""

    def __init__(self, path: Path, start: int, times: int) -> None:
        super().__init__()
        self._file, self._start, self._times = os.open(path, os.O_RDONLY), start, times
        self._end, self._at = path.stat().st_size, 0

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        if self._at == self._end and self._times > 1:
            self._times, self._at = self._times - 1, self._start
        found = os.preadv(self._file, [into[: self._end - self._at]], self._at)
        self._at += found
        return found


def _sent(path: Path, batch: pa.RecordBatch) -> int:
    """Write a stream of one batch, without its end. Returns where the batch begins."""
    schema = batch.schema.serialize().to_pybytes()
    path.write_bytes(schema + batch.serialize().to_pybytes())
    return len(schema)


def _arriving(path: Path, start: int, times: int) -> Iterator[pa.RecordBatch]:
    with io.BufferedReader(_Socket(path, start, times)) as socket, pa.ipc.open_stream(socket) as reader:
        yield from reader


def peak_mib() -> float:
    """The largest resident set of this process until now."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1_024


def _options(folder: Path) -> SourceOptions:
    return parse_options({"path": _TABLE, "warehouse": str(folder)}, {})


def write(folder: Path, table: TableDefinition, name: str) -> str:
    """Write rows as a task of `format("rootline")` does."""
    shape, path = SHAPES[name], folder / "stream"
    times = max(2, min(_TASK_BYTES, shape.bytes_max) // (shape.row_bytes * shape.batch_rows))
    written = write_task(_arriving(path, int(path.with_suffix(".start").read_text()), times), table, _options(folder))
    assert sum(file.record_count for file in written.files) == times * shape.batch_rows
    return f"{times * shape.batch_rows:,} rows, {len(written.files):,} files"


def describe(folder: Path, table: TableDefinition, _: str) -> str:
    """Describe a file, as `append` and `add_folder` do with each."""
    return _stated(DataFile.from_parquet(_FILE, table, source=folder / _KEY))


def rewrite(folder: Path, table: TableDefinition, _: str) -> str:
    """Rewrite a file without a row, as a task of a change with `copy-on-write` does."""
    order = rewrite_order(_task(folder, table), BitMap64([0]))
    orders = pa.record_batch({"order": pa.array([order], pa.binary())})
    [message] = rewrite_without(table.to_json(), _options(folder))([orders])
    [changes] = messages(message.column(0).to_pylist())
    return f"{len(changes.written.files)} files"


def read(folder: Path, table: TableDefinition, _: str) -> str:
    """Read a file, as a task of `spark.read` does."""
    reader = BatchReader(_options(folder), 1, table.to_json(), spark_schema_of(table.schema))
    sizes = [batch.nbytes for batch in reader.read(ScanPartition((_task(folder, table),), table.to_json()))]
    return f"{sum(sizes) / 1e6:,.0f} MB of rows, {max(sizes) / 1e6:,.0f} MB at once"


def _task(folder: Path, table: TableDefinition) -> FileTask:
    described = DataFile.model_validate_json((folder / "described.json").read_text())
    return FileTask(entry_of(described, table, EntryCodec.of_definition(table)))


def _stated(file: DataFile) -> str:
    return f"a file of {file.file_size_in_bytes / 1e6:,.1f} MB"


_FILE: Final = "data/x.parquet"
_KEY: Final = f"demo/wide/{_FILE}"
_WORKS: Final = {"write": write, "describe": describe, "rewrite": rewrite, "read": read}


def _prepared(folder: Path, work: str, name: str) -> None:
    """What the process of a task finds in its folder."""
    shape = SHAPES.get(name)
    rows = pa.table(_FILES[name]()) if shape is None else shape.batch()
    plain = pa.schema(
        [(each.name, each.type.value_type if pa.types.is_dictionary(each.type) else each.type) for each in rows.schema]
    )
    layout = {} if shape is None else {"partition_by": shape.partition_by, "sort_by": shape.sort_by}
    table = build_definition(plain, table_uuid=uuid.UUID(int=7), **layout)
    (folder / "definition.json").write_bytes(table.to_json())
    if shape is not None:
        (folder / "stream.start").write_text(str(_sent(folder / "stream", rows)))
        return
    (folder / _KEY).parent.mkdir(parents=True)
    pq.write_table(rows, folder / _KEY, row_group_size=len(rows), store_schema=False)
    if work != "describe":
        (folder / "described.json").write_text(
            DataFile.from_parquet(_FILE, table, source=folder / _KEY).model_dump_json()
        )


def measured(work: str, name: str) -> tuple[float, str]:
    """Prepare the rows, do the work in a process, and return its peak in MiB and a summary."""
    with tempfile.TemporaryDirectory(prefix="rootline-bench-", dir=os.environ.get("ROOTLINE_BENCH_DIR", ".")) as place:
        folder = Path(place).resolve()
        _prepared(folder, work, name)
        command = [sys.executable, "-m", "benchmarks.task_memory", work, name, str(folder)]
        peak, text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split("\t")
        return float(peak), text.strip()


def measure() -> list[Result]:
    """The peak of a task of each kind, against the limit on the page."""
    cases = [("write", name) for name in SHAPES] + [
        (work, name) for name in _FILES for work in ("describe", "rewrite", "read")
    ]
    results = []
    for work, name in cases:
        peak, text = measured(work, name)
        print(f"  {work}: {name}: {peak:.0f} MiB, {text}", flush=True)
        what = f"memory of a Spark task, {work}: {name}"
        limit = f"{LIMIT_MIB} MiB"
        results.append(
            Result("13", what, None, None, limit, peak / LIMIT_MIB, "< 1", load_average(), f"{peak:.0f} MiB, {text}")
        )
    return results


def _do(work: str, name: str, place: str) -> None:
    folder, before, began = Path(place), peak_mib(), time.monotonic()
    text = _WORKS[work](folder, TableDefinition.from_json((folder / "definition.json").read_bytes()), name)
    print(f"{peak_mib():.0f}\t{text}, {before:.0f} MiB before, {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(sys.argv[1], sys.argv[2], *measured(*sys.argv[1:]), sep=": ")
    else:
        _do(*sys.argv[1:])
