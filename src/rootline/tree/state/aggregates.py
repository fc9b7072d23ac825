"""The sums over the columns of a leaf: the aggregates in its root row, and the tally of its live entries.

Owns: the aggregation of columns: counts, the least sequence number, statistics. Does not own: the leaf's bytes, pruning
by aggregates (`pruning`), running totals (`totals`), which entries are live (`leaf_lookup`).
Invariants: Aggregates describe the entries as written, so a manifest vector changes none of them. Bounds contain those
of every entry. If any entry lacks statistics of a column, the aggregate has none of it. `tight_bounds` is the AND. A
tally equals counting entry by entry.

Source: format page, "Aggregates".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from rootline.schemas.bytes.leaf import TYPES_OF, Leaf, LeafContent
from rootline.schemas.bytes.leaf_columns import one_chunk
from rootline.schemas.bytes.leaf_schema import CONTENT_STATS, physical_column
from rootline.schemas.content_entry import Bound, ContentStats, FieldStatistics, ManifestStats, Status
from rootline.tree.state.leaf_lookup import live_mask
from rootline.tree.state.totals import SIZE_OF, Tally

_COUNTS: Final = ("value_count", "null_value_count", "nan_value_count")
_LONG_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LeafAggregates:
    """The members of a leaf's root row that are computed from its entries."""

    manifest_stats: ManifestStats
    content_stats: ContentStats


def aggregates_of(leaf: Leaf, spec_ids: tuple[int, ...]) -> LeafAggregates:
    """The aggregates of a leaf whose partition spec has the members `spec_ids`."""
    return aggregates_in(leaf.columns(["version_info", "record_count", CONTENT_STATS]), spec_ids)


def aggregates_in(table: pa.Table, spec_ids: tuple[int, ...]) -> LeafAggregates:
    """The aggregates of columns that have been read: `version_info`, `record_count`, and `content_stats` if any."""
    info = one_chunk(table.column("version_info"))
    status = _child(info, "status")
    not_deleted = pc.not_equal(status, pa.scalar(int(Status.DELETED), status.type))
    statistics: dict[int, FieldStatistics] = {}
    if CONTENT_STATS in table.column_names:
        live = one_chunk(table.column(CONTENT_STATS))
        live = live if pc.all(not_deleted).as_py() else live.filter(not_deleted)
        for field, column in zip(live.type, live.flatten(), strict=True):
            tracked_id = int(field.name[1:])
            item = _aggregate(column, is_partition_value=tracked_id in spec_ids)
            if item is not None:
                statistics[tracked_id] = item
    records = one_chunk(table.column("record_count"))
    sequence_numbers = _child(info, "sequence_number").filter(not_deleted)
    return LeafAggregates(_manifest_stats(status, records, sequence_numbers), statistics)


def _manifest_stats(status: pa.Array, records: pa.Array, sequence_numbers: pa.Array) -> ManifestStats:
    files: dict[Status, int] = {}
    rows: dict[Status, int] = {}
    for wanted in Status:
        chosen = records.filter(pc.equal(status, pa.scalar(int(wanted), status.type)))
        files[wanted] = len(chosen)
        rows[wanted] = exact_sum(chosen)
    return ManifestStats(
        added_files_count=files[Status.ADDED],
        existing_files_count=files[Status.EXISTING],
        deleted_files_count=files[Status.DELETED],
        added_rows_count=rows[Status.ADDED],
        existing_rows_count=rows[Status.EXISTING],
        deleted_rows_count=rows[Status.DELETED],
        min_sequence_number=pc.min(sequence_numbers).as_py() or 0,
    )


def _aggregate(column: pa.StructArray, *, is_partition_value: bool) -> FieldStatistics | None:
    if len(column) == 0 or column.null_count:
        return None
    members: Mapping[str, pa.Array] = {
        field.name: child for field, child in zip(column.type, column.flatten(), strict=True)
    }
    counts = _counts(members)
    if "lower_bound" not in members:
        return counts
    lower, upper = physical_column(members["lower_bound"]), physical_column(members["upper_bound"])
    if is_partition_value:
        upper = pc.coalesce(upper, lower)
    if lower.null_count and upper.null_count:  # otherwise every entry has values
        has_values = pc.invert(_all_null(members, lower, upper, is_partition_value))
        if not pc.any(has_values).as_py():
            return replace(counts, tight_bounds=_and(members["tight_bounds"]))
        if not pc.all(has_values).as_py():
            lower, upper = lower.filter(has_values), upper.filter(has_values)
    least, greatest = _whole(lower, "min"), _whole(upper, "max")
    if is_partition_value and (least is None or greatest is None):
        return None  # two null bounds would mean that the partition value is null
    tight = _and(members["tight_bounds"]) if least is not None and greatest is not None else False
    return replace(counts, lower_bound=_signed(least, -0.0), upper_bound=_signed(greatest, 0.0), tight_bounds=tight)


def _counts(members: Mapping[str, pa.Array]) -> FieldStatistics:
    """The aggregates other than bounds. The average size has none, since a mean of means is not the mean."""
    values, nulls, nans = (_sum(members.get(name)) for name in _COUNTS)
    return FieldStatistics(
        value_count=values,
        null_value_count=nulls,
        nan_value_count=nans,
        max_value_size_in_bytes=_whole(members.get("max_value_size_in_bytes"), "max"),
    )


def _all_null(members: Mapping[str, pa.Array], lower: pa.Array, upper: pa.Array, is_partition_value: bool) -> pa.Array:
    """A flag for each entry: the column has only nulls, so the absent bounds are not unknown."""
    unbounded = pc.and_(pc.is_null(lower), pc.is_null(upper))
    if is_partition_value:
        return unbounded
    counted = pc.equal(members["value_count"], members["null_value_count"])
    return pc.and_(unbounded, pc.fill_null(counted, False))


def _whole(values: pa.Array | None, which: str) -> Any:
    """The `min` or `max` of `values`, or `None` if one of them is null (unknown) or NaN."""
    if values is None or len(values) == 0 or values.null_count:
        return None
    if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
        return None
    return pc.min_max(values)[which].as_py()


def _sum(values: pa.Array | None) -> int | None:
    if values is None or values.null_count:
        return None
    total = exact_sum(values)
    return total if total <= _LONG_MAX else None


def exact_sum(values: pa.Array) -> int:
    """The exact sum of integers without the nulls. The sum of Arrow overflows silently."""
    if len(values) == values.null_count:
        return 0
    extremes = pc.min_max(values)
    if max(abs(extremes["min"].as_py()), abs(extremes["max"].as_py())) <= _LONG_MAX // len(values):
        return int(pc.sum(values).as_py())
    return sum(value for value in values.to_pylist() if value is not None)


def _and(tight: pa.Array) -> bool | None:
    """False if any value is False, otherwise `None` if any is null, otherwise True."""
    if pc.all(tight).as_py() is False:
        return False
    return None if tight.null_count else True


def _signed(bound: Bound | None, zero: float) -> Bound | None:
    """`bound`, with the sign of `zero` if it is 0.0. So -0.0 is a lower bound and +0.0 an upper one."""
    return math.copysign(0.0, zero) if isinstance(bound, float) and bound == 0.0 else bound


def _child(column: pa.StructArray, name: str) -> pa.Array:
    return column.flatten()[column.type.get_field_index(name)]


def tally_of_leaf(leaf: Leaf, dead: BitMap | None = None) -> Tally:
    """The tally of a leaf's entries that are neither DELETED nor `dead`, without the leaf itself.

    It equals counting entry by entry (checked by `tests/tree/state/test_leaf_tally.py`).
    """
    sizes = sorted({SIZE_OF[kind] for kind in TYPES_OF[leaf.content]})
    return tally_in(leaf.columns(["content_type", "version_info.status", "record_count", *sizes]), leaf.content, dead)


def tally_in(table: pa.Table, content: LeafContent, dead: BitMap | None = None) -> Tally:
    """The tally of columns that have been read from a leaf of this content: the status, type, rows and size of every
    entry.
    """
    live = live_mask(table, dead)
    tally = Tally()
    for content_type in TYPES_OF[content]:
        is_data = content is LeafContent.DATA
        chosen = live if is_data else pc.and_(live, pc.equal(_column(table, "content_type"), int(content_type)))
        records, sizes = (_column(table, name).filter(chosen) for name in ("record_count", SIZE_OF[content_type]))
        tally.add(content_type, len(records), exact_sum(one_chunk(records)), exact_sum(one_chunk(sizes)))
    return tally


def _column(table: pa.Table, path: str) -> pa.ChunkedArray:
    name, _, member = path.partition(".")
    return pc.struct_field(table.column(name), member) if member else table.column(name)
