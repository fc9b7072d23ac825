"""`python -m benchmarks.filter_evaluators`: rows of a root evaluated as columns, and PyIceberg's parser and evaluators.

Owns: both comparisons, as decisions 0118 and 0119 show them. Does not own: the evaluators.
Invariants: both sides of a comparison give the same answers, take turns in one process, and start from entries whose
statistics are encoded, unless a line says decoded.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import bind, residual_evaluator_of
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from benchmarks.measure import Spread, load_average
from benchmarks.sample_table import data_file, definition
from rootline.schemas.bytes.leaf_schema import CONTENT_STATS, arrow_type_of_bound
from rootline.schemas.bytes.root.statistics_codec import LazyStats, StatisticsCodec
from rootline.schemas.content_entry import ContentEntry, ContentType, FileFormat, Status, VersionInfo
from rootline.tree.filter.filters import bind_filter
from rootline.tree.filter.prune import PruningFilter, entry_may_match, entry_must_match
from rootline.tree.filter.residuals import residual_of
from rootline.tree.scan.leaf_pruning import prune_leaf

_SIZES: Final = {1: 200, 10: 150, 30: 100, 100: 50, 500: 20, 2_000: 9}
_FILTERS: Final = {
    "one column": "c0 >= 1000 and c0 < 3000",
    "three columns": "c0 > 5 and (c8 < 90000 or c13 like 'key-0000%')",
    "50 values": f"c0 in ({', '.join(str(1000 * number) for number in range(50))})",
}
_MEMBERS: Final = ("lower_bound", "upper_bound", "value_count", "null_value_count", "nan_value_count")
_DEFINITION: Final = definition()
_CODEC: Final = StatisticsCodec(_DEFINITION.tracked_fields)
_FILES: Final = [data_file(number, _CODEC) for number in range(max(_SIZES))]

Entries = Sequence[ContentEntry]


class _RowsAsLeaf:
    """Rows of a root with the three members of a leaf that `prune_leaf` asks for."""

    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self.tracked_ids = tuple(_DEFINITION.tracked_by_id)

    def __len__(self) -> int:
        return len(self._entries)

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Statistics as columns, made of the entries' own."""
        ids = dict.fromkeys(int(name.split(".")[1][1:]) for name in names if name.startswith(CONTENT_STATS))
        arrays = [self._statistics(field_id) for field_id in ids]
        table = {"record_count": pa.array([entry.record_count for entry in self._entries], pa.int64())}
        if arrays:
            table[CONTENT_STATS] = pa.StructArray.from_arrays(arrays, names=[f"_{field_id}" for field_id in ids])
        return pa.table(table)

    def _statistics(self, field_id: int) -> pa.StructArray:
        found = [entry.content_stats[field_id] for entry in self._entries]
        bounds = arrow_type_of_bound(_DEFINITION.tracked_by_id[field_id].type)
        kinds = dict.fromkeys(_MEMBERS[:2], bounds) | dict.fromkeys(_MEMBERS[2:], pa.int64())
        members = [pa.array([getattr(item, name) for item in found], kind) for name, kind in kinds.items()]
        return pa.StructArray.from_arrays(members, names=list(kinds))


def _entries(count: int) -> Entries:
    return [
        ContentEntry(
            content_type=ContentType.DATA,
            location=file.location,
            file_format=FileFormat.PARQUET,
            version_info=VersionInfo(Status.ADDED, 1, 1, 1),
            partition_spec_id=0,
            record_count=file.record_count,
            file_size_in_bytes=file.file_size_in_bytes,
            content_stats=LazyStats(_CODEC, file.content_stats or b"", file.location),
        )
        for file in _FILES[:count]
    ]


def _one_by_one(pruning: PruningFilter, entries: Entries) -> list[tuple[bool, bool]]:
    return [(entry_may_match(pruning, entry), entry_must_match(pruning, entry)) for entry in entries]


def _as_columns(pruning: PruningFilter, entries: Entries) -> list[tuple[bool, bool]]:
    masks = prune_leaf(pruning, _RowsAsLeaf(entries), 0)  # type: ignore[arg-type]
    return list(zip(masks.may.tolist(), masks.must.tolist(), strict=True))


def _compare(
    what: str, ours: Callable[[Any], object], other: Callable[[Any], object], given: Any, samples: int
) -> None:
    """Print the medians and the ratio of two ways that take turns; `given` makes the argument of each sample."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for number in range(samples + 2):
        for which in (0, 1) if number % 2 else (1, 0):
            argument = given()
            gc.disable()
            began = time.perf_counter()
            (ours, other)[which](argument)
            taken = time.perf_counter() - began
            gc.enable()
            if number >= 2:
                seconds[which].append(taken)
    first, second = map(Spread.of, seconds)
    ratios = np.array(seconds[1]) / np.array(seconds[0])
    quartiles = np.quantile(ratios, [0.25, 0.75])
    print(
        f"{what:48} {first.median * 1e6:10.0f} µs {second.median * 1e6:10.0f} µs   "
        f"ratio {second.median / first.median:6.2f} ({quartiles[0]:.2f} to {quartiles[1]:.2f})",
        flush=True,
    )


def rows_of_roots() -> None:
    """Decision 0118: first the evaluator of one entry, then the one of columns."""
    for name, where in _FILTERS.items():
        pruning = PruningFilter.of(where, _DEFINITION)
        ways = (partial(_one_by_one, pruning), partial(_as_columns, pruning))
        for count, samples in _SIZES.items():
            decoded = _entries(count)
            assert ways[0](decoded) == ways[1](decoded)
            _compare(f"{count} rows, {name}", *ways, partial(_entries, count), samples)
            _compare(f"{count} rows, {name}, decoded", *ways, partial(list, decoded), samples)


def filters_of_pyiceberg() -> None:
    """Decision 0119: first ours, then PyIceberg's."""
    schema = _DEFINITION.schema
    texts = _FILTERS | {
        "1,000 values": f"c0 in ({', '.join(map(str, range(1000)))})",
        "20 parentheses": "(" * 20 + "c0 = 1" + ")" * 20,
        "100 tests": " or ".join(f"c0 = {number}" for number in range(100)),
    }
    for name, text in texts.items():
        _compare(
            f"parse and bind, {name}",
            lambda text: bind_filter(text, schema),
            lambda text: bind(schema, parse(text), True),
            partial(str, text),
            20,
        )
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "c0"), spec_id=0)
    for name, text in _FILTERS.items():
        ours = partial(residual_of, PruningFilter.of(text, _DEFINITION))
        theirs = residual_evaluator_of(spec, bind(schema, parse(text), True), True, schema).residual_for
        what = f"residuals of 200 files, {name}"
        _compare(what, partial(_of_entries, ours), partial(_of_partitions, theirs), partial(_entries, 200), 9)


def _of_entries(residual: Callable[[ContentEntry], object], entries: Entries) -> list[object]:
    return [residual(entry) for entry in entries]


def _of_partitions(residual: Callable[[Record], object], entries: Entries) -> list[object]:
    return [residual(Record(1000 * number)) for number in range(len(entries))]


if __name__ == "__main__":
    rows_of_roots()
    filters_of_pyiceberg()
    print(f"load {load_average()}")
