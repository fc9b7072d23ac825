"""Rows that went and came alike cancel out, each as often as it is there."""

from __future__ import annotations

import math
import random
import uuid
from collections import Counter
from typing import Any

import pyarrow as pa

from rootline.spark.changed_rows import without_equal_rows

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("x", pa.float64()),
        ("name", pa.string()),
        ("tags", pa.list_(pa.struct([("a", pa.float64())]))),
        ("codes", pa.map_(pa.string(), pa.binary())),
        ("plane", pa.uuid()),
    ]
)
SOME: dict[str, list[Any]] = {
    "id": [1, None],
    "x": [0.0, -0.0, math.nan, None],
    "name": ["", "a", None],
    "tags": [None, [], [None], [{"a": None}], [{"a": math.nan}]],
    "codes": [None, [], [("a", None)], [("a", b"")]],
    "plane": [None, uuid.UUID(int=1).bytes],
}


def rows_of(rows: list[dict[str, Any]], chunks: int = 1) -> pa.Table:
    size = max(-(-len(rows) // chunks), 1)
    parts = [pa.RecordBatch.from_pylist(rows[at : at + size], SCHEMA) for at in range(0, len(rows), size)]
    return pa.Table.from_batches(parts, SCHEMA)


def counted(rows: pa.Table) -> Counter[str]:
    return Counter(map(repr, rows.to_pylist()))


def test_of_equal_rows_the_smaller_number_goes_from_both_sides() -> None:
    draw = random.Random(7)
    kinds = [{name: draw.choice(values) for name, values in SOME.items()} for _ in range(6)]
    kinds += [{**kinds[0], name: value} for name, values in SOME.items() for value in values]
    for chunks in (1, 3):
        ours, theirs = (rows_of(draw.choices(kinds, k=60), chunks) for _ in range(2))
        left, right = without_equal_rows(ours, theirs, range(len(SCHEMA)))
        assert counted(left) == counted(ours) - counted(theirs)
        assert counted(right) == counted(theirs) - counted(ours)


def test_rows_without_a_match_stay_in_their_order() -> None:
    ours = pa.table({"id": [3, 1, 2, 1]})
    for theirs, expected in (([1], [3, 2, 1]), ([], [3, 1, 2, 1]), ([1, 2, 3, 1], [])):
        left, right = without_equal_rows(ours, pa.table({"id": pa.array(theirs, pa.int64())}), [0])
        assert (left["id"].to_pylist(), right["id"].to_pylist()) == (expected, [])
