"""Which equality deletes may delete rows of which data files.

Owns: the reach of one equality delete. Does not own: reading its rows.
Invariants: "no" is certain, "yes" is a possibility; missing statistics mean "yes".

Source: the Iceberg specification, "Scan planning": a strictly greater sequence number, and the same partition of the
same spec or an unpartitioned spec.
"""

from __future__ import annotations

from rootline.schemas.content_entry import ContentEntry
from rootline.schemas.statistics import FieldStatistics
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.statistics_rules import partition_tuple


def may_delete_rows(equality: ContentEntry, data: ContentEntry, definition: TableDefinition) -> bool:
    """Whether `equality` may delete rows of `data`."""
    if (equality.version_info.sequence_number or 0) <= (data.version_info.sequence_number or 0):
        return False
    spec_ids = definition.spec_by_id(equality.partition_spec_id).expr_ids
    if spec_ids:
        if equality.partition_spec_id != data.partition_spec_id:
            return False
        ours, theirs = partition_tuple(equality.content_stats, spec_ids), partition_tuple(data.content_stats, spec_ids)
        if ours is not None and theirs is not None and ours != theirs and not _has_nan(ours):
            return False
    return not any(
        _apart(equality.content_stats.get(column_id), data.content_stats.get(column_id))
        for column_id in equality.equality_ids or ()
    )


def _apart(one: FieldStatistics | None, other: FieldStatistics | None) -> bool:
    """Whether no value of one column can equal one of the other. Nulls equal each other in equality deletes."""
    if one is None or other is None or one.null_value_count != 0 != other.null_value_count:
        return False
    return _below(one, other) or _below(other, one)


def _below(one: FieldStatistics, other: FieldStatistics) -> bool:
    upper, lower = one.upper_bound, other.lower_bound
    return upper is not None and lower is not None and upper < lower  # type: ignore[operator]


def _has_nan(values: tuple[object, ...]) -> bool:
    return any(value != value for value in values)  # NaN, whatever the type
