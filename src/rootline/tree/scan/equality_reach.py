"""A check by statistics whether an equality delete may delete rows of a data file.

Owns: the comparison of bounds. Does not own: sequence numbers and partitions (`equality_rules`), the coarser form over
a leaf's columns (`delete_mask`, checked against this one by `tests/tree/scan/test_delete_mask.py`), reading rows.
Invariants: "No" is certain, "yes" is a possibility. Missing statistics mean "yes".
"""

from __future__ import annotations

from rootline.schemas.content_entry import ContentEntry, FieldStatistics
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.scan.equality_rules import may_apply


def may_delete_rows(equality: ContentEntry, data: ContentEntry, definition: TableDefinition) -> bool:
    """Whether `equality` may delete rows of `data`."""
    return may_apply(equality, data, definition) and not columns_apart(equality, data)


def columns_apart(equality: ContentEntry, data: ContentEntry) -> bool:
    """Whether bounds prove that no row of `data` equals a row of `equality` in all equality columns."""
    return any(
        _apart(equality.content_stats.get(column_id), data.content_stats.get(column_id))
        for column_id in equality.equality_ids or ()
    )


def _apart(one: FieldStatistics | None, other: FieldStatistics | None) -> bool:
    """Whether no value of one column can equal one of the other.

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
