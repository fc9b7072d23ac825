"""The index that finds the delete files of a data file.

Owns: the search among all live delete files of a plan, by sequence number, partition and statistics.
Does not own: deletion vectors (`file_task`), the vectorised form over a leaf (`delete_mask`), reading delete files
(`rootline.storage.rows.row_deletes`).
Invariants: A delete file that may remove a row matching the scan's filter is never omitted. If the partition of a file
is unknown, the plan is refused, because neither applying nor omitting a delete would be safe.

Source: the Iceberg specification, "Scan Planning". A position delete file applies to data files of its partition that
are as old or older. An equality delete applies to strictly older data files of its partition, or of every partition if
its spec is unpartitioned. A delete file is ignored if its metrics prove that none of its rows match the filter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rootline.schemas.content_entry import ContentEntry, ContentType
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.filter.pruning import PruningFilter, may_match
from rootline.tree.scan.equality_reach import columns_apart
from rootline.tree.scan.partition_tuple import PartitionTuple, is_unpartitioned, partition_tuple


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

    Only the equality columns and the partition of an equality delete describe the rows that it deletes. Its other
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
