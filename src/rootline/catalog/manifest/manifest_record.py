"""What a manifest list says of one manifest.

Owns: the record, and making it from what a manifest holds. Does not own: the bytes of the list
(`manifest_list_encoder`), the manifest's own (`manifest_encoder`).
Invariants: deterministic from the entries; a summary never leaves out a partition value that an entry has; readers
get row ids only if every live entry states its own.

Source: the Iceberg specification, "Manifest Lists" and "First Row ID Assignment".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyiceberg.types import DoubleType, FloatType, PrimitiveType

from rootline.catalog.manifest.manifest_values import bound_bytes
from rootline.schemas.bytes.leaf import LeafContent
from rootline.schemas.content_entry import Status


@dataclass(frozen=True, slots=True)
class PartitionSummary:
    """One partition field over all entries: single-value bounds, which leave out NaN and null."""

    contains_null: bool
    contains_nan: bool | None
    lower_bound: bytes | None
    upper_bound: bytes | None


@dataclass(frozen=True, slots=True)
class ManifestRecord:
    """A row of a manifest list. `path` is absolute, and empty until the caller names the manifest."""

    path: str
    length: int
    spec_id: int
    content: LeafContent
    sequence_number: int
    min_sequence_number: int
    added_snapshot_id: int
    added_files_count: int
    existing_files_count: int
    deleted_files_count: int
    added_rows_count: int
    existing_rows_count: int
    deleted_rows_count: int
    partitions: tuple[PartitionSummary, ...] = ()
    first_row_id: int | None = None


class EntryFacts(NamedTuple):
    """What the record needs of one entry."""

    status: int
    snapshot_id: int | None
    sequence_number: int | None
    file_sequence_number: int | None
    record_count: int
    first_row_id: int | None


def manifest_record(
    facts: Iterable[EntryFacts],
    partitions: tuple[PartitionSummary, ...],
    *,
    length: int,
    spec_id: int,
    content: LeafContent,
) -> ManifestRecord:
    """The record of a manifest of `length` bytes.

    Its snapshot is the deleting one if an entry is DELETED, else the one that added the newest entry.
    """
    files, rows = [0, 0, 0], [0, 0, 0]
    youngest, snapshot_id, deleting = -1, 0, None
    oldest: int | None = None
    first_row_id: int | None = None
    has_row_ids = True
    for status, entry_snapshot_id, number, file_number, count, row_id in facts:
        files[status] += 1
        rows[status] += count
        if file_number is not None and file_number > youngest:
            youngest, snapshot_id = file_number, entry_snapshot_id or 0
        if status == Status.DELETED:
            deleting = entry_snapshot_id
            continue
        if number is not None and (oldest is None or number < oldest):
            oldest = number
        if row_id is None:
            has_row_ids = False
        elif first_row_id is None or row_id < first_row_id:
            first_row_id = row_id
    return ManifestRecord(
        "",
        length,
        spec_id,
        content,
        sequence_number=max(youngest, 0),
        min_sequence_number=max(youngest, 0) if oldest is None else oldest,
        added_snapshot_id=snapshot_id if deleting is None else deleting,
        added_files_count=files[Status.ADDED],
        existing_files_count=files[Status.EXISTING],
        deleted_files_count=files[Status.DELETED],
        added_rows_count=rows[Status.ADDED],
        existing_rows_count=rows[Status.EXISTING],
        deleted_rows_count=rows[Status.DELETED],
        partitions=partitions,
        first_row_id=first_row_id if has_row_ids and content is LeafContent.DATA else None,
    )


def partition_summary(kind: PrimitiveType, values: Sequence[Any]) -> PartitionSummary:
    """The summary of a partition field's physical values; each distinct value is enough once.

    A summary without bounds says that no value can be compared: engines skip such a manifest.
    """
    is_float = isinstance(kind, FloatType | DoubleType)
    ordered = [value for value in values if value is not None and value == value]
    encode = bound_bytes(kind)
    return PartitionSummary(
        contains_null=any(value is None for value in values),
        contains_nan=any(value != value for value in values) if is_float else None,
        lower_bound=encode.lower(min(ordered)) if ordered else None,
        upper_bound=encode.upper(max(ordered)) if ordered else None,
    )


__all__ = ["EntryFacts", "ManifestRecord", "PartitionSummary", "manifest_record", "partition_summary"]
