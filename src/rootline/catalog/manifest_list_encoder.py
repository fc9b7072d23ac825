"""Manifest lists of V2 and V3, and the record of one manifest in them.

Owns: the record, made from a manifest's entries, and records to the bytes of a list and back. Does not own: the
manifest's own bytes (`manifest_encoder`), the choice of a snapshot's manifests (`manifest_writer`).
Invariants: a record is computed from the entries. A summary covers every partition value of the entries. Readers get
row ids only if every live entry states its own. The same records make the same bytes.

Source: the Iceberg specification, "Manifest Lists" and "First Row ID Assignment".
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyiceberg.types import DoubleType, FloatType, PrimitiveType

from rootline.catalog.export_keys import FormatVersion
from rootline.catalog.manifest_schema import SYNC_BYTES, bound_bytes, encode_container, list_metadata
from rootline.schemas.bytes.avro_encoding import NULL, PRESENT, encode_bytes, encode_long, encode_string
from rootline.schemas.bytes.foreign_avro import Record, read_avro
from rootline.schemas.bytes.leaf import LeafContent
from rootline.schemas.content_entry import Status
from rootline.schemas.errors import Corrupt

__all__ = [
    "EntryFacts",
    "ManifestRecord",
    "PartitionSummary",
    "decode_manifest_list_records",
    "encode_manifest_list",
    "manifest_record",
    "partition_summary",
]


@dataclass(frozen=True, slots=True)
class PartitionSummary:
    """One partition field over all entries: single-value bounds, without NaN and null."""

    contains_null: bool
    contains_nan: bool | None
    lower_bound: bytes | None
    upper_bound: bytes | None


@dataclass(frozen=True, slots=True)
class ManifestRecord:
    """A row of a manifest list. `path` is absolute, and empty until the caller sets it."""

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
    """The values of one entry that the record needs."""

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

    It names the snapshot that deleted an entry, if there is one. Otherwise it names the one that added the newest
    entry.
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
    """The summary of a partition field's physical values. `values` may omit repeated values.

    A summary without bounds states that no value can be compared, so engines skip such a manifest.
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


_CONTENTS = (LeafContent.DATA, LeafContent.DELETE)


def encode_manifest_list(
    records: Sequence[ManifestRecord],
    *,
    snapshot_id: int,
    parent_id: int | None,
    sequence_number: int,
    format_version: FormatVersion,
) -> bytes:
    """The manifest list of a snapshot, with its manifests in the given order. Each record must have its path."""
    metadata = list_metadata(format_version, snapshot_id, parent_id, sequence_number)
    sync = hashlib.sha256(b"manifest list of %d" % snapshot_id).digest()[:SYNC_BYTES]
    return encode_container(metadata, (_row(record, format_version) for record in records), sync)


def decode_manifest_list_records(body: bytes, *, name: str) -> tuple[ManifestRecord, ...]:
    """The records of a list that Rootline wrote.

    Raises:
        Corrupt: `leaf-corrupt`, it is not a manifest list of V2 or V3. `name` is its name in the error.
    """
    try:
        return tuple(map(_record_of, read_avro(body, name=name).records))
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise Corrupt("leaf-corrupt", f"{name}: this is not a manifest list of V2 or V3: {error!s:.200}") from error


def _row(record: ManifestRecord, format_version: FormatVersion) -> bytes:
    numbers = (
        record.length, record.spec_id, _CONTENTS.index(record.content), record.sequence_number,
        record.min_sequence_number, record.added_snapshot_id, record.added_files_count, record.existing_files_count,
        record.deleted_files_count, record.added_rows_count, record.existing_rows_count, record.deleted_rows_count,
    )  # fmt: skip
    parts = [encode_string(record.path), *map(encode_long, numbers), _summaries(record.partitions), NULL]
    if format_version is FormatVersion.V3:
        parts.append(NULL if record.first_row_id is None else PRESENT + encode_long(record.first_row_id))
    return b"".join(parts)


def _summaries(summaries: Sequence[PartitionSummary]) -> bytes:
    if not summaries:
        return PRESENT + b"\x00"
    parts = [PRESENT, encode_long(len(summaries))]
    for summary in summaries:
        parts += [
            b"\x01" if summary.contains_null else b"\x00",
            NULL if summary.contains_nan is None else PRESENT + (b"\x01" if summary.contains_nan else b"\x00"),
            *(NULL if bound is None else PRESENT + encode_bytes(bound) for bound in _bounds(summary)),
        ]
    return b"".join((*parts, b"\x00"))


def _bounds(summary: PartitionSummary) -> tuple[bytes | None, bytes | None]:
    return summary.lower_bound, summary.upper_bound


def _record_of(row: Record) -> ManifestRecord:
    return ManifestRecord(
        path=row[500],
        length=row[501],
        spec_id=row[502],
        content=_CONTENTS[row[517]],
        sequence_number=row[515],
        min_sequence_number=row[516],
        added_snapshot_id=row[503],
        added_files_count=row[504],
        existing_files_count=row[505],
        deleted_files_count=row[506],
        added_rows_count=row[512],
        existing_rows_count=row[513],
        deleted_rows_count=row[514],
        partitions=tuple(
            PartitionSummary(summary[509], summary[518], summary[510], summary[511]) for summary in row[507] or ()
        ),
        first_row_id=row.get(520),
    )
