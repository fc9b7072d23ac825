"""How a task gathers rows for one file."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pyarrow as pa

from rootline.spark.file_sink import parts_of

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
