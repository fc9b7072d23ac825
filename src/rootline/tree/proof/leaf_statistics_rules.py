"""Rules for the statistics in a leaf that a writer wrote: the vectorised form of `statistics_rules`.

Owns: the evaluation of the rules on columns.
Does not own: the same rules for one file (`statistics_rules`, `statistics_violations`), the shape and field ids of the
columns (`leaf_codec`), rules for other fields (`leaf_proof`).
Invariants: Statistics that pass here pass file by file (checked by `tests/tree/proof/test_leaf_proof.py`). There is no
loop over entries. The first fault names its entry.

Source: format page, "Absent and null" and "Partition values are statistics".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rootline.schemas.bytes.leaf_schema import COUNT_FIELDS, arrow_type_of_bound, physical_column
from rootline.schemas.content_entry import CROSSED_BOUNDS, GREATER_MEAN, MORE_NULLS
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.proof.statistics_rules import MORE_VALUES, NO_PARTITION_VALUE, UNEQUAL_BOUNDS

_INVALID: Final = "statistics-invalid"
_MISSING: Final = "statistics-missing"
_WIDENED: Final = ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))
"""The types of bounds that a writer may use if it did not know yet that a column was promoted."""
_COUNTS: Final = tuple(name for name, _, kind in COUNT_FIELDS if not pa.types.is_boolean(kind))


class Fault(NamedTuple):
    """A broken rule: its error code, the first entry that breaks it (`None` for the whole leaf), and the message."""

    code: str
    ordinal: int | None
    reason: str


def first_true(mask: pa.Array) -> int | None:
    """The first index at which `mask` is true, or `None`."""
    if not pc.any(mask).as_py():
        return None
    found: int = pc.index(mask, pa.scalar(True)).as_py()
    return found


def first_fault(mask: pa.Array, code: str, reason: str) -> Iterator[Fault]:
    """The fault of the first entry where `mask` is true, if there is one."""
    ordinal = first_true(mask)
    if ordinal is not None:
        yield Fault(code, ordinal, reason)


def statistics_fault(
    statistics: pa.StructArray | None, record_counts: pa.Array, definition: TableDefinition, spec_ids: tuple[int, ...]
) -> Fault | None:
    """The first fault of a leaf's statistics, or `None`.

    Args:
        statistics: the column `content_stats`, in one chunk, or `None` if the leaf has none.
        record_counts: the row counts of the same entries.
        definition: the definition of the table, with the known ids and their types.
        spec_ids: the members of the leaf's partition spec.
    """
    columns: dict[int, pa.StructArray] = {}
    if statistics is not None:
        for field, column in zip(statistics.type, statistics.flatten(), strict=True):
            columns[int(field.name[1:])] = column
        if len(columns) != statistics.type.num_fields:
            return Fault(_INVALID, None, "it has two columns of statistics for one id")
    for spec_id in spec_ids:
        if spec_id not in columns:
            return Fault(_MISSING, 0, f"id {spec_id}: {NO_PARTITION_VALUE}")
    for tracked_id, column in columns.items():
        fault = next(_faults(tracked_id, column, record_counts, definition, tracked_id in spec_ids), None)
        if fault is not None:
            return fault
    return None


def _faults(
    tracked_id: int, column: pa.StructArray, record_counts: pa.Array, definition: TableDefinition, is_member: bool
) -> Iterator[Fault]:
    tracked = definition.tracked_by_id.get(tracked_id)
    if tracked is None:
        yield Fault(_INVALID, None, f"it has statistics of id {tracked_id}, which the table does not have")
        return
    members: dict[str, pa.Array] = {
        field.name: child for field, child in zip(column.type, column.flatten(), strict=True)
    }
    expected = arrow_type_of_bound(tracked.type)
    found = members["lower_bound"].type if "lower_bound" in members else None
    if found != expected and (found, expected) not in _WIDENED and not _is_wider_decimal(found, expected):
        reason = f"bounds of id {tracked_id} are {found}, but the table's type {tracked.type} needs {expected}"
        yield Fault(_INVALID, None, f"{reason}: load the table again and write the leaf with its types")
        return
    counts = {name: members[name] for name in _COUNTS}
    yield from _of_counts(tracked_id, counts, record_counts)
    if expected is not None:
        lower, upper = physical_column(members["lower_bound"]), physical_column(members["upper_bound"])
        if is_member:
            yield from _of_member(tracked_id, column, lower, upper)
        elif pa.types.is_floating(lower.type):
            is_nan = pc.or_kleene(pc.is_nan(lower), pc.is_nan(upper))
            yield from first_fault(is_nan, _INVALID, f"id {tracked_id}: a bound is NaN")
        yield from first_fault(pc.greater(lower, upper), _INVALID, f"id {tracked_id}: {CROSSED_BOUNDS}")


def _is_wider_decimal(found: pa.DataType | None, expected: pa.DataType | None) -> bool:
    if found is None or expected is None or not (pa.types.is_decimal128(found) and pa.types.is_decimal128(expected)):
        return False
    return bool(found.scale == expected.scale and found.precision < expected.precision)


def _of_counts(tracked_id: int, counts: Mapping[str, pa.Array], record_counts: pa.Array) -> Iterator[Fault]:
    for name, column in counts.items():
        if column.null_count < len(column) and pc.min(column).as_py() < 0:
            yield from first_fault(pc.less(column, 0), _INVALID, f"id {tracked_id}: {name} is negative")
    values = counts["value_count"]
    yield from first_fault(pc.greater(values, record_counts), _INVALID, f"id {tracked_id}: {MORE_VALUES}")
    nulls, nans = pc.fill_null(counts["null_value_count"], 0), pc.fill_null(counts["nan_value_count"], 0)
    more = pc.or_(pc.greater(nulls, values), pc.greater(nans, pc.subtract(values, nulls)))  # a sum might overflow
    yield from first_fault(more, _INVALID, f"id {tracked_id}: {MORE_NULLS}")
    means, greatest = counts["avg_value_size_in_bytes"], counts["max_value_size_in_bytes"]
    yield from first_fault(pc.greater(means, greatest), _INVALID, f"id {tracked_id}: {GREATER_MEAN}")


def _of_member(tracked_id: int, column: pa.StructArray, lower: pa.Array, upper: pa.Array) -> Iterator[Fault]:
    """The faults of partition values."""
    absent = pc.or_(column.is_null(), pc.and_(lower.is_null(), upper.is_valid()))
    yield from first_fault(absent, _MISSING, f"id {tracked_id}: {NO_PARTITION_VALUE}")
    differ = pc.not_equal(lower, upper)
    if pa.types.is_floating(lower.type):
        differ = pc.and_not(differ, pc.and_(pc.is_nan(lower), pc.is_nan(upper)))
    yield from first_fault(differ, _INVALID, f"id {tracked_id}: {UNEQUAL_BOUNDS}")


__all__ = ["Fault", "first_fault", "first_true", "statistics_fault"]
