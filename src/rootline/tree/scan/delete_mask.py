"""A mask of the files in a leaf that may have delete files.

Owns: the vectorised form of `delete_index` and `equality_reach`, over columns of the leaf. It is coarser than these
two, so they share no code.
Does not own: the deletes of a file. The index finds them for the files that the mask selects.
Invariants: A file is excluded only if the index finds no delete for it (checked by
`tests/tree/scan/test_delete_mask.py`). Only sequence numbers and the statistics of equality columns and partition
values are read.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.bytes.leaf_columns import Mask, mask_of
from rootline.schemas.bytes.leaf_schema import CONTENT_STATS
from rootline.schemas.content_entry import ContentEntry, FieldStatistics
from rootline.tree.filter.conditions import scalar_of
from rootline.tree.scan.delete_index import DeleteIndex

_ONE_BY_ONE: Final = 64
"""The most equality deletes whose statistics are compared. Beyond it, only sequence numbers are."""


def may_have_deletes(index: DeleteIndex, leaf: Leaf, leaf_row: ContentEntry) -> Mask:
    """One flag for each entry of a data leaf: whether the file may have delete files."""
    numbers = leaf.columns(["version_info.sequence_number"]).column(0).combine_chunks().field("sequence_number")
    inherited = leaf_row.version_info.sequence_number or 0
    ages = numbers.fill_null(inherited).to_numpy(zero_copy_only=False)
    deletes = index.reaching(leaf_row.partition_spec_id)
    found: Mask = np.zeros(len(leaf), dtype=np.bool_)
    if deletes.positions:
        found |= ages <= max(map(_number, deletes.positions))
    if len(deletes.equality) > _ONE_BY_ONE:
        found |= ages < max(map(_number, deletes.equality))
        return found
    for entry in deletes.equality:
        is_older: Mask = ages < _number(entry)
        if is_older.any():
            found |= is_older & ~_apart(index, leaf, leaf_row, entry)
    return found


def _number(entry: ContentEntry) -> int:
    return entry.version_info.sequence_number or 0


def _apart(index: DeleteIndex, leaf: Leaf, leaf_row: ContentEntry, delete: ContentEntry) -> Mask:
    """The entries that the delete cannot affect: in other partitions, or with disjoint bounds of an equality column."""
    predicates = [
        _beyond_bounds(leaf, column_id, known)
        for column_id in delete.equality_ids or ()
        if (known := delete.content_stats.get(column_id)) is not None and column_id in leaf.tracked_ids
    ]
    if not any(entry is delete for entry in index.everywhere):
        predicates += [
            _other_value(leaf, member, known.lower_bound)
            for member in index.definition.spec_by_id(leaf_row.partition_spec_id).expr_ids
            if (known := delete.content_stats.get(member)) is not None and member in leaf.tracked_ids
        ]
    return reduce(np.logical_or, predicates, np.zeros(len(leaf), dtype=np.bool_))


def _beyond_bounds(leaf: Leaf, column_id: int, delete: FieldStatistics) -> Mask:
    lower, upper = delete.lower_bound, delete.upper_bound
    if delete.null_value_count != 0 or lower is None or upper is None or isinstance(lower, float):
        return np.zeros(len(leaf), dtype=np.bool_)
    stats = _statistics(leaf, column_id, ["lower_bound", "upper_bound"])
    try:
        below = pc.less(stats[1], scalar_of(lower, stats[1].type))
        above = pc.greater(stats[0], scalar_of(upper, stats[0].type))
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError):  # a type that Arrow does not order
        return np.zeros(len(leaf), dtype=np.bool_)
    return mask_of(pc.or_(pc.fill_null(below, False), pc.fill_null(above, False)))


def _other_value(leaf: Leaf, member: int, value: Any) -> Mask:
    if value is None or value != value:
        return np.zeros(len(leaf), dtype=np.bool_)
    (lower,) = _statistics(leaf, member, ["lower_bound"])
    return mask_of(pc.fill_null(pc.not_equal(lower, scalar_of(value, lower.type)), False))


def _statistics(leaf: Leaf, tracked_id: int, names: list[str]) -> list[pa.Array]:
    column = leaf.columns([f"{CONTENT_STATS}._{tracked_id}.{name}" for name in names]).column(0).combine_chunks()
    stats = pc.struct_field(column, 0)
    return [pc.struct_field(stats, name) for name in names]
