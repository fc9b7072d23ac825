"""Rules for the root row of a leaf that is an Avro manifest of Iceberg V1 to V3.

Owns: the comparison of such a row with the aggregates of its entries.
Does not own: reading the manifest and making the row (`rootline.schemas.bytes.manifest_codec`), rows of leaves that
Rootline wrote, which equal their recomputation.
Invariants: Counts are equal. Stated bounds contain those of every live entry. Absent bounds are not a fault, because a
manifest list has bounds for partitions only.

Source: format page, "Aggregates" and docs/decisions/0038.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from rootline.schemas.content_entry import ContentEntry, ContentType, FileFormat
from rootline.tree.state.aggregates import LeafAggregates


def is_adopted(row: ContentEntry) -> bool:
    """Whether a leaf's root row names an Avro manifest of Iceberg V1 to V3."""
    return row.file_format is FileFormat.AVRO


def has_older_deletes(leaf_rows: Iterable[ContentEntry]) -> bool:
    """Whether a leaf of these rows may contain position delete files, which must be read to count deleted rows."""
    return any(row.content_type is ContentType.DELETE_MANIFEST and is_adopted(row) for row in leaf_rows)


def faults_of_adopted(row: ContentEntry, recomputed: LeafAggregates) -> Iterator[str]:
    """The rules that the row breaks, as ends of error messages."""
    stated, found = row.manifest_stats, recomputed.manifest_stats
    if stated is not None and replace(stated, min_sequence_number=0) != replace(found, min_sequence_number=0):
        yield f"its row says {stated}, its entries add up to {found}"
    if stated is not None and stated.min_sequence_number > found.min_sequence_number and found.existing_files_count:
        yield f"its least sequence number is {found.min_sequence_number}, but its row has {stated.min_sequence_number}"
    for tracked_id, outer in row.content_stats.items():
        inner = recomputed.content_stats.get(tracked_id)
        if inner is None:
            continue
        low, high = inner.lower_bound, inner.upper_bound
        if outer.lower_bound is not None and low is not None and low < outer.lower_bound:  # type: ignore[operator]
            yield f"its row has lower bound {outer.lower_bound!r} for id {tracked_id}, but an entry has {low!r}"
        if outer.upper_bound is not None and high is not None and high > outer.upper_bound:  # type: ignore[operator]
            yield f"its row has upper bound {outer.upper_bound!r} for id {tracked_id}, but an entry has {high!r}"
