"""How a task gathers rows for one file."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from rootline.client.lake import Lake
from rootline.spark.file_sink import parts_of, write_task
from rootline.spark.options import parse_options

ROWS = 1_000
TARGET = 50_000


def sizes(columns: Sequence[pa.Array]) -> list[int]:
    """How many batches go into each file."""
    return [len(part) for part in parts_of([pa.record_batch([column], ["value"]) for column in columns], TARGET)]


def test_rows_that_compress_are_gathered_for_a_file_of_the_target_size_or_to_twice_of_it_in_memory() -> None:
    random = [pa.array([os.urandom(10) for _ in range(ROWS)]) for _ in range(20)]
    assert sum(sizes(random)) == 20
    assert set(sizes(random)[:-1]) <= {4, 5, 6}, "14 kB a batch, of which 10 kB or more are in the file"
    alike = pa.array([7] * ROWS)
    assert sizes([alike] * 30) == [13, 13, 4], "8 kB a batch, of which almost nothing is in the file"
    assert sizes([alike] * 3) == [3]


def test_rows_that_are_in_files_are_not_in_memory_while_the_next_ones_are_collected(lake: Lake, folder: Path) -> None:
    table = lake.create_table("demo.flights", pa.schema([("value", pa.int64())]))
    options = parse_options({"path": "demo.flights", "warehouse": str(folder), "targetFileSizeBytes": f"{TARGET}"}, {})
    written: list[weakref.ref[pa.RecordBatch]] = []
    kept: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(30):
            yield pa.record_batch([pa.array(range(ROWS))], ["value"])
            kept.append(sum(batch() is not None for batch in written))

    def write(part: Sequence[pa.RecordBatch], *_: Any, **__: Any) -> list[Any]:
        written.extend(map(weakref.ref, part))
        return []

    write_task(batches(), table.definition(), options, write)
    assert len(written) == 30
    assert max(kept) <= 1, "the one that was read last"
