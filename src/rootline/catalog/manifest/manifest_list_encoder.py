"""Manifest lists of V2 and V3.

Owns: records of manifests ↔ the bytes of a list. Does not own: the records (`manifest_record`), which manifests a
snapshot has, where the list is stored.
Invariants: the same records make the same bytes; what is read is what was written.

Source: the Iceberg specification, "Manifest Lists".
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from rootline.catalog.manifest.avro_container import SYNC_BYTES, encode_container
from rootline.catalog.manifest.format_version import FormatVersion
from rootline.catalog.manifest.manifest_record import ManifestRecord, PartitionSummary
from rootline.catalog.manifest.manifest_schema import list_metadata
from rootline.schemas.bytes.avro_encoding import NULL, PRESENT, encode_bytes, encode_long, encode_string
from rootline.schemas.bytes.foreign_avro import Record, read_avro
from rootline.schemas.bytes.leaf import LeafContent
from rootline.schemas.errors import Corrupt

_CONTENTS = (LeafContent.DATA, LeafContent.DELETE)


def encode_manifest_list(
    records: Sequence[ManifestRecord],
    *,
    snapshot_id: int,
    parent_id: int | None,
    sequence_number: int,
    format_version: FormatVersion,
) -> bytes:
    """The manifest list of a snapshot, its manifests in the order given, each with its path."""
    metadata = list_metadata(format_version, snapshot_id, parent_id, sequence_number)
    sync = hashlib.sha256(b"manifest list of %d" % snapshot_id).digest()[:SYNC_BYTES]
    return encode_container(metadata, (_row(record, format_version) for record in records), sync)


def decode_manifest_list_records(body: bytes, *, name: str) -> tuple[ManifestRecord, ...]:
    """The records of a list of ours.

    Raises:
        Corrupt: `leaf-corrupt`, it is not a manifest list of V2 or V3; the error calls it `name`.

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


__all__ = ["ManifestRecord", "PartitionSummary", "decode_manifest_list_records", "encode_manifest_list"]
