"""Which equality deletes may apply to which data files.

Owns: the rule of sequence numbers and partitions for one pair. Does not own: what bounds say (`equality_reach`),
finding the deletes of a file among many (`delete_index`), carrying them out (`rootline.storage.rows.row_deletes`).
Invariants: "no" is certain; what the statistics do not say is a "yes".

Source: the Iceberg specification, "Scan Planning" (equality deletes apply to older data files of their partition, or
of every partition when their spec is unpartitioned).
"""

from __future__ import annotations

from rootline.schemas.content_entry import ContentEntry
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.scan.partition_tuple import is_unpartitioned, partition_tuple


def may_apply(delete: ContentEntry, data: ContentEntry, definition: TableDefinition) -> bool:
    """Whether equality delete `delete` may remove rows of `data`."""
    newer, older = delete.version_info.sequence_number, data.version_info.sequence_number
    if newer is not None and older is not None and newer <= older:
        return False
    if is_unpartitioned(definition.spec_by_id(delete.partition_spec_id), definition):
        return True
    if delete.partition_spec_id != data.partition_spec_id:
        return False
    ours, theirs = partition_tuple(delete, definition), partition_tuple(data, definition)
    return ours is None or theirs is None or ours == theirs
