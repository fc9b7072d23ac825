"""The delete files that apply to a data file, by sequence number, partition and statistics.

Owns: the partition tuple of a file, the check of one equality delete against one data file, the index of all live
delete files of a plan, and the mask (one flag for each entry of a leaf) of the files that may have delete files.
Does not own: deletion vectors (`file_task`), computing partition values when writing
(`rootline.schemas.bytes.transform_values`), reading delete files (`rootline.storage.rows.row_deletes`).
Invariants:
* A delete file that may remove a row matching the scan's filter is never omitted. Missing statistics mean "may".
* If the partition of a file is unknown, the plan is refused, because neither applying nor omitting a delete would be
  safe.
* Two files are in the same partition if and only if their specs are the same and their tuples are equal. Null equals
  null, and NaN equals NaN.
* The mask excludes a file only if the index finds no delete for it (checked by `tests/tree/scan/test_delete_mask.py`).
  It is coarser than the index and shares no code with it.

Source: the Iceberg specification, "Scan Planning". A position delete file applies to data files of its partition that
are as old or older. An equality delete applies to strictly older data files of its partition, or of every partition if
its spec is unpartitioned. A delete file is ignored if its metrics prove that none of its rows match the filter. Format
page, "Partition values are statistics" and the Single File Commits proposal, "How do we remove partition tuple".
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.transforms import VoidTransform

from rootline.schemas.arrow_values import FALSE, numpy_from, scalar_from
from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.bytes.leaf_columns import Mask, mask_of
from rootline.schemas.bytes.leaf_schema import CONTENT_STATS
from rootline.schemas.content_entry import Bound, ContentEntry, ContentType, FieldStatistics
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.table_definition import PartitionSpec, TableDefinition
from rootline.tree.filter.conditions import scalar_of
from rootline.tree.filter.pruning import PruningFilter, may_match

PartitionTuple = tuple[Bound | None, ...]
_NAN: Final = math.nan
"""The single object for every NaN. Tuples compare their members by identity first, so NaN equals NaN."""


def partition_tuple(entry: ContentEntry, definition: TableDefinition) -> PartitionTuple | None:
    """The partition values of a file, in the order of its spec, or `None` if the statistics lack one.

    Raises:
        Invalid: `spec-unknown`.

    """
    found: list[Bound | None] = []
    for member in definition.spec_by_id(entry.partition_spec_id).expr_ids:
        if _is_void(member, definition):
            found.append(None)
            continue
        known = entry.content_stats.get(member)
        if known is None or (known.lower_bound is None and known.upper_bound is not None):
            return None
        value = known.lower_bound
        found.append(_NAN if value != value else value)
    return tuple(found)


def is_unpartitioned(spec: PartitionSpec, definition: TableDefinition) -> bool:
    """Whether `spec` has no members, or only `void` ones."""
    return all(_is_void(member, definition) for member in spec.expr_ids)


def _is_void(member: int, definition: TableDefinition) -> bool:
    return isinstance(definition.transform_of(member)[1], VoidTransform)


def may_apply(delete: ContentEntry, data: ContentEntry, definition: TableDefinition) -> bool:
    """Whether the equality delete `delete` applies to the data file `data`, by sequence numbers and partitions."""
    newer, older = delete.version_info.sequence_number, data.version_info.sequence_number
    if newer is not None and older is not None and newer <= older:
        return False
    if is_unpartitioned(definition.spec_by_id(delete.partition_spec_id), definition):
        return True
    if delete.partition_spec_id != data.partition_spec_id:
        return False
    ours, theirs = partition_tuple(delete, definition), partition_tuple(data, definition)
    return ours is None or theirs is None or ours == theirs


def may_delete_rows(equality: ContentEntry, data: ContentEntry, definition: TableDefinition) -> bool:
    """Whether the equality delete `equality` applies to `data` and, by the bounds of its columns, may delete rows of
    it.
    """
    return may_apply(equality, data, definition) and not columns_apart(equality, data)


def columns_apart(equality: ContentEntry, data: ContentEntry) -> bool:
    """Whether bounds prove that no row of `data` equals a row of `equality` in all equality columns."""
    return any(
        _values_apart(equality.content_stats.get(column_id), data.content_stats.get(column_id))
        for column_id in equality.equality_ids or ()
    )


def _values_apart(one: FieldStatistics | None, other: FieldStatistics | None) -> bool:
    """Whether no value described by `one` can equal a value described by `other`.

    For equality deletes null equals null, and NaN equals NaN.
    """
    if one is None or other is None:
        return False
    if one.null_value_count != 0 != other.null_value_count or _may_both_have_nan(one, other):
        return False
    return _below(one, other) or _below(other, one)


def _may_both_have_nan(one: FieldStatistics, other: FieldStatistics) -> bool:
    bounds = (one.lower_bound, one.upper_bound, other.lower_bound, other.upper_bound)
    is_float = any(isinstance(bound, float) for bound in bounds)
    return is_float and one.nan_value_count != 0 != other.nan_value_count


def _below(one: FieldStatistics, other: FieldStatistics) -> bool:
    upper, lower = one.upper_bound, other.lower_bound
    return upper is not None and lower is not None and upper < lower  # type: ignore[operator]


@dataclass(frozen=True, slots=True)
class FileDeletes:
    """The delete files of one data file, newest first, without deletion vectors."""

    equality: tuple[ContentEntry, ...] = ()
    positions: tuple[ContentEntry, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.equality or self.positions)


NO_DELETES = FileDeletes()


@dataclass(frozen=True)
class DeleteIndex:
    """The delete files of a plan. `everywhere` has the equality deletes of unpartitioned specs, newest first."""

    definition: TableDefinition
    everywhere: tuple[ContentEntry, ...]
    of_partition: dict[tuple[int, PartitionTuple], FileDeletes]

    @staticmethod
    def of(deletes: Iterable[ContentEntry], definition: TableDefinition, pruning: PruningFilter | None) -> DeleteIndex:
        """Build the index of live delete files.

        Args:
            deletes: equality deletes and position delete files, with their inherited sequence numbers.
            definition: the definition of their table.
            pruning: the scan's filter, or `None` if the deletes must be right for every row of the planned files.

        Raises:
            Invalid: `equality-delete-unread`, the statistics of a delete file lack its partition.
            Corrupt: `entry-invalid`, a delete file has no sequence number.

        """
        everywhere: list[ContentEntry] = []
        found: dict[tuple[int, PartitionTuple], tuple[list[ContentEntry], list[ContentEntry]]] = {}
        for entry in sorted(deletes, key=_sequence_number, reverse=True):
            if pruning is not None and not _may_delete_match(entry, definition, pruning):
                continue
            is_equality = entry.content_type is ContentType.EQUALITY_DELETE
            if is_equality and is_unpartitioned(definition.spec_by_id(entry.partition_spec_id), definition):
                everywhere.append(entry)
                continue
            equality, positions = found.setdefault(_partition(entry, definition), ([], []))
            (equality if is_equality else positions).append(entry)
        grouped = {
            partition: FileDeletes(tuple(equality), tuple(positions))
            for partition, (equality, positions) in found.items()
        }
        return DeleteIndex(definition, tuple(everywhere), grouped)

    def __bool__(self) -> bool:
        return bool(self.everywhere or self.of_partition)

    def reaching(self, spec_id: int) -> FileDeletes:
        """The deletes that may apply to data files of spec `spec_id`, in any partition and of any age."""
        here = [deletes for (of_spec, _), deletes in self.of_partition.items() if of_spec == spec_id]
        return FileDeletes(
            (*self.everywhere, *(entry for deletes in here for entry in deletes.equality)),
            tuple(entry for deletes in here for entry in deletes.positions),
        )

    def of_file(self, data: ContentEntry) -> FileDeletes:
        """The delete files of a data file.

        Raises:
            Invalid: `equality-delete-unread`, the statistics of the data file lack its partition.
            Corrupt: `entry-invalid`, the data file has no sequence number.

        """
        here = NO_DELETES
        if self.of_partition:
            here = self.of_partition.get(_partition(data, self.definition), NO_DELETES)
        age = _sequence_number(data)
        equality = [
            entry
            for entry in (*self.everywhere, *here.equality)
            if _sequence_number(entry) > age and not columns_apart(entry, data)
        ]
        positions = [
            entry
            for entry in here.positions
            if _sequence_number(entry) >= age and entry.referenced_file in (None, data.location)
        ]
        return FileDeletes(tuple(equality), tuple(positions)) if equality or positions else NO_DELETES


def _sequence_number(entry: ContentEntry) -> int:
    number = entry.version_info.sequence_number
    if number is None:
        raise Corrupt("entry-invalid", f"{entry.location}: the live entry has no data sequence number")
    return number


def _partition(entry: ContentEntry, definition: TableDefinition) -> tuple[int, PartitionTuple]:
    values = partition_tuple(entry, definition)
    if values is None:
        raise Invalid(
            "equality-delete-unread",
            f"{entry.location}: its statistics lack a partition value, so the deletes that apply to it are unknown: "
            "write the file again with the lower_bound of each partition value",
        )
    return entry.partition_spec_id, values


def _may_delete_match(entry: ContentEntry, definition: TableDefinition, pruning: PruningFilter) -> bool:
    """Whether `entry` may delete a row that matches the filter.

    The rows that an equality delete deletes are described only by its equality columns and its partition. Its other
    columns contain arbitrary values.
    """
    stats = entry.content_stats
    if entry.content_type is ContentType.EQUALITY_DELETE:
        usable = {*(entry.equality_ids or ()), *definition.spec_by_id(entry.partition_spec_id).expr_ids}
        usable |= {
            expression.expr_id for expression in definition.expressions if usable.issuperset(expression.source_ids)
        }
        stats = {tracked_id: stats[tracked_id] for tracked_id in stats if tracked_id in usable}
    return may_match(pruning, stats, entry.record_count, entry.partition_spec_id)


_ONE_BY_ONE: Final = 64
"""The most equality deletes whose statistics are compared. Beyond it, only sequence numbers are."""


def may_have_deletes(index: DeleteIndex, leaf: Leaf, leaf_row: ContentEntry) -> Mask:
    """One flag for each entry of a data leaf: whether the file may have delete files."""
    numbers = leaf.columns(["version_info.sequence_number"]).column(0).combine_chunks().field("sequence_number")
    inherited = leaf_row.version_info.sequence_number or 0
    ages = numpy_from(numbers.fill_null(scalar_from(inherited, numbers.type)))
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
            found |= is_older & ~_entries_apart(index, leaf, leaf_row, entry)
    return found


def _number(entry: ContentEntry) -> int:
    return entry.version_info.sequence_number or 0


def _entries_apart(index: DeleteIndex, leaf: Leaf, leaf_row: ContentEntry, delete: ContentEntry) -> Mask:
    """One flag for each entry: the delete cannot affect it, because it is in another partition, or has disjoint bounds
    of an equality column.
    """
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
    return mask_of(pc.or_(pc.fill_null(below, FALSE), pc.fill_null(above, FALSE)))


def _other_value(leaf: Leaf, member: int, value: Any) -> Mask:
    if value is None or value != value:
        return np.zeros(len(leaf), dtype=np.bool_)
    (lower,) = _statistics(leaf, member, ["lower_bound"])
    return mask_of(pc.fill_null(pc.not_equal(lower, scalar_of(value, lower.type)), FALSE))


def _statistics(leaf: Leaf, tracked_id: int, names: list[str]) -> list[pa.Array]:
    column = leaf.columns([f"{CONTENT_STATS}._{tracked_id}.{name}" for name in names]).column(0).combine_chunks()
    stats = pc.struct_field(column, 0)
    return [pc.struct_field(stats, name) for name in names]
