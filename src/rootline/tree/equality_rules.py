"""Which equality deletes may apply to which data files.

Owns: the rule, and refusing a scan because of it. Does not own: carrying equality deletes out (no version does yet).
Invariants: a scan is refused rather than answered with rows that a live equality delete may have removed.

Source: the Iceberg specification, "Scan Planning" (equality deletes apply to older data files of their partition, or
of every partition when their spec is unpartitioned).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rootline.schemas.content_entry import ContentEntry
from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.file_task import FileTask


def may_apply(delete: ContentEntry, data: ContentEntry, definition: TableDefinition) -> bool:
    """Whether equality delete `delete` may remove rows of `data`."""
    newer, older = delete.version_info.sequence_number, data.version_info.sequence_number
    if newer is not None and older is not None and newer <= older:
        return False
    members = definition.spec_by_id(delete.partition_spec_id).expr_ids
    if not members:
        return True
    if delete.partition_spec_id != data.partition_spec_id:
        return False
    for member in members:
        ours, theirs = delete.content_stats.get(member), data.content_stats.get(member)
        if ours is not None and theirs is not None and not _same(ours.lower_bound, theirs.lower_bound):
            return False
    return True


def _same(one: object, other: object) -> bool:
    return one == other or (one != one and other != other)  # NaN is a partition value like any other


def refuse_if_deletes_apply(
    deletes: Sequence[ContentEntry], tasks: Iterable[FileTask], definition: TableDefinition
) -> None:
    """Refuse a plan that an equality delete may touch.

    Raises:
        Invalid: `equality-delete-unread`, naming the delete and the data file.

    """
    if not deletes:
        return
    for task in tasks:
        for delete in deletes:
            if may_apply(delete, task.data, definition):
                raise Invalid(
                    "equality-delete-unread",
                    f"{delete.location}: this equality delete may remove rows of {task.location}; it is not carried "
                    "out by this version",
                )
