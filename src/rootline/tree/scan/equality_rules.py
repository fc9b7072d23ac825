"""The rule of sequence numbers and partitions for an equality delete and a data file.

Owns: the rule for one pair. Does not own: the comparison of bounds (`equality_reach`), the search among many deletes
(`delete_index`), applying deletes (`rootline.storage.rows.row_deletes`).
Invariants: "No" is certain. Missing statistics mean "yes".

Source: the Iceberg specification, "Scan Planning" (equality deletes apply to older data files of their partition, or
of every partition when their spec is unpartitioned).
"""

from __future__ import annotations

from rootline.schemas.content_entry import ContentEntry
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.scan.partition_tuple import is_unpartitioned, partition_tuple


def may_apply(delete: ContentEntry, data: ContentEntry, definition: TableDefinition) -> bool:
    """Whether the equality delete `delete` may remove rows of `data`."""
    newer, older = delete.version_info.sequence_number, data.version_info.sequence_number
    if newer is not None and older is not None and newer <= older:
        return False
    if is_unpartitioned(definition.spec_by_id(delete.partition_spec_id), definition):
        return True
    if delete.partition_spec_id != data.partition_spec_id:
        return False
    ours, theirs = partition_tuple(delete, definition), partition_tuple(data, definition)
    return ours is None or theirs is None or ours == theirs
