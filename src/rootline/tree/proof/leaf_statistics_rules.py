"""What must hold for the statistics in a leaf that a writer wrote: `statistics_rules` over whole columns.

Owns: the vectorised rules, one column or expression after the other. Does not own: the same rules for one file
(`statistics_rules`), the columns' shape and field ids (`leaf_codec`), rules about other fields (`leaf_proof`).
Invariants: whatever passes would pass file by file; no loop over entries; the first fault names its entry.

Source: format page, "Absent and null" and "Partition values are statistics".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rootline.schemas.bytes.leaf.leaf_schema import COUNT_FIELDS, arrow_type_of_bound, physical_column
from rootline.schemas.table_definition import TableDefinition

_INVALID: Final = "statistics-invalid"
_MISSING: Final = "statistics-missing"
_COUNTS: Final = tuple(name for name, _, kind in COUNT_FIELDS if not pa.types.is_boolean(kind))


class Fault(NamedTuple):
    """A broken rule: its error code, the first entry that breaks it (`None`: the leaf as a whole), what to say."""

    code: str
    ordinal: int | None
    reason: str


def first_true(mask: pa.Array) -> int | None:
    """The first place where `mask` is true; null is not."""
    if not pc.any(mask).as_py():
        return None
    found: int = pc.index(mask, pa.scalar(True)).as_py()
    return found


def statistics_fault(
    statistics: pa.StructArray | None, record_counts: pa.Array, definition: TableDefinition, spec_ids: tuple[int, ...]
) -> Fault | None:
    """The first fault of a leaf's statistics.

    Args:
        statistics: the column `content_stats`, one chunk; `None` when the leaf has none.
        record_counts: of the same entries.
        definition: says which ids there are, and of which types.
        spec_ids: of the leaf's partition spec.

    """
    columns: dict[int, pa.StructArray] = {}
    if statistics is not None:
        for field, column in zip(statistics.type, statistics.flatten(), strict=True):
            columns[int(field.name[1:])] = column
        if len(columns) != statistics.type.num_fields:
            return Fault(_INVALID, None, "statistics of one id stand in it twice")
    for spec_id in spec_ids:
        if spec_id not in columns:
            return Fault(_MISSING, 0, f"no partition value of id {spec_id}: write its lower_bound")
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
        yield Fault(_INVALID, None, f"it has statistics of id {tracked_id}, which the table does not know")
        return
    members: dict[str, pa.Array] = {
        field.name: child for field, child in zip(column.type, column.flatten(), strict=True)
    }
    expected = arrow_type_of_bound(tracked.type)
    found = members["lower_bound"].type if "lower_bound" in members else None
    if found != expected:
        reason = f"bounds of id {tracked_id} are {found}, the table's type {tracked.type} needs {expected}"
        yield Fault(_INVALID, None, f"{reason}: load the table again and write the leaf with its types")
        return
    yield from _of_counts(tracked_id, members, record_counts)
    if expected is not None:
        lower, upper = physical_column(members["lower_bound"]), physical_column(members["upper_bound"])
        if is_member:
            yield from _of_member(tracked_id, column, lower, upper)
        yield from _of_bounds(tracked_id, lower, upper, is_member)


def _of_counts(tracked_id: int, members: Mapping[str, pa.Array], record_counts: pa.Array) -> Iterator[Fault]:
    for name in _COUNTS:
        column = members[name]
        if column.null_count < len(column) and pc.min(column).as_py() < 0:
            yield from _fault(pc.less(column, 0), _INVALID, f"{name} of id {tracked_id} is negative")
    values = members["value_count"]
    nulls, nans = pc.fill_null(members["null_value_count"], 0), pc.fill_null(members["nan_value_count"], 0)
    yield from _fault(
        pc.greater(values, record_counts), _INVALID, f"id {tracked_id} has more values than the file has rows"
    )
    hollow = pc.or_(pc.greater(nulls, values), pc.greater(nans, pc.subtract(values, nulls)))
    yield from _fault(hollow, _INVALID, f"id {tracked_id} has more nulls and NaNs than values")
    means, greatest = members["avg_value_size_in_bytes"], members["max_value_size_in_bytes"]
    yield from _fault(pc.greater(means, greatest), _INVALID, f"id {tracked_id} has a mean size above its greatest size")


def _of_member(tracked_id: int, column: pa.StructArray, lower: pa.Array, upper: pa.Array) -> Iterator[Fault]:
    """The rules of partition values."""
    absent = pc.or_(column.is_null(), pc.and_(lower.is_null(), upper.is_valid()))
    yield from _fault(
        absent, _MISSING, f"no partition value of id {tracked_id}: write its lower_bound (both bounds null for null)"
    )
    differ = pc.not_equal(lower, upper)
    if pa.types.is_floating(lower.type):
        differ = pc.and_not(differ, pc.and_(pc.is_nan(lower), pc.is_nan(upper)))
    yield from _fault(
        differ, _INVALID, f"id {tracked_id} is a partition value, so its bounds must be equal (or the upper one null)"
    )


def _of_bounds(tracked_id: int, lower: pa.Array, upper: pa.Array, is_member: bool) -> Iterator[Fault]:
    if pa.types.is_floating(lower.type) and not is_member:
        is_nan = pc.or_kleene(pc.is_nan(lower), pc.is_nan(upper))
        yield from _fault(is_nan, _INVALID, f"id {tracked_id} has a bound that is NaN")
    yield from _fault(pc.greater(lower, upper), _INVALID, f"id {tracked_id} has a lower bound above its upper bound")


def _fault(mask: pa.Array, code: str, reason: str) -> Iterator[Fault]:
    ordinal = first_true(mask)
    if ordinal is not None:
        yield Fault(code, ordinal, reason)


__all__ = ["Fault", "first_true", "statistics_fault"]
