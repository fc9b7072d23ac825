"""Manifest lists of Iceberg V1 to V3 as rows of a root.

Owns: manifest-list entries → content entries of types 3 and 4. Does not own: the manifests themselves
(`manifest_codec`), the root around the rows, where the objects are stored, the command that adopts a table.
Invariants: one row for each entry, all EXISTING, because a migration changes no data; a summary becomes the statistics
of its spec's member; the next free row id only grows.

Source: the Single File Commits proposal, "How existing manifest list fields map to Proposed V4 content entry fields"
and "Upgrade"; the Iceberg specification, "Manifest Lists" and "First Row ID Assignment"; docs/decisions/0029.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyiceberg.types import DoubleType, FloatType

from rootline.schemas.bytes.iceberg.iceberg_avro import Record, read_avro
from rootline.schemas.bytes.values.single_values import bound_of_bytes
from rootline.schemas.content_entry import (
    ContentEntry,
    ContentType,
    FileFormat,
    ManifestStats,
    Status,
    VersionInfo,
)
from rootline.schemas.errors import Corrupt
from rootline.schemas.statistics import FieldStatistics
from rootline.schemas.table_definition import TableDefinition

_PATH, _LENGTH, _SPEC_ID, _ADDED_SNAPSHOT_ID = 500, 501, 502, 503
_CONTENT, _SEQUENCE_NUMBER, _MIN_SEQUENCE_NUMBER = 517, 515, 516
_FILE_COUNTS, _ROW_COUNTS = (504, 505, 506), (512, 513, 514)
_PARTITIONS, _KEY_METADATA, _FIRST_ROW_ID = 507, 519, 520
_CONTAINS_NULL, _CONTAINS_NAN, _LOWER_BOUND, _UPPER_BOUND = 509, 518, 510, 511

_TYPES = (ContentType.DATA_MANIFEST, ContentType.DELETE_MANIFEST)


@dataclass(frozen=True, slots=True)
class MigratedList:
    """Rows of a root, in the list's order, and the next free row id after them."""

    rows: tuple[ContentEntry, ...]
    next_row_id: int


@dataclass(frozen=True, slots=True)
class ListedManifest:
    """What a manifest list says of one manifest whose files and rows it does not count (V1)."""

    location: str
    length: int
    partition_spec_id: int
    added_snapshot_id: int


def uncounted_manifests(body: bytes, *, name: str) -> tuple[ListedManifest, ...]:
    """The manifests whose files and rows the list does not count. Raises `Corrupt`: `leaf-corrupt`."""
    try:
        return tuple(
            ListedManifest(record[_PATH], record[_LENGTH], record[_SPEC_ID], record[_ADDED_SNAPSHOT_ID])
            for record in read_avro(body, name=name).records
            if any(record.get(field_id) is None for field_id in (*_FILE_COUNTS, *_ROW_COUNTS))
        )
    except KeyError as error:
        raise Corrupt("leaf-corrupt", f"{name}: its entries lack field {error}") from error


def decode_manifest_list(
    body: bytes,
    definition: TableDefinition,
    *,
    name: str,
    next_row_id: int = 0,
    counted: Mapping[str, ManifestStats] | None = None,
) -> MigratedList:
    """The rows that a manifest list's entries are in a root.

    Args:
        body: the whole object.
        definition: the table's, with all its partition specs; a member of a spec is found by its place.
        name: what an error calls the list.
        next_row_id: data manifests without a `first_row_id` (V1, V2) get ids from here on.
        counted: what is in the manifests that the list does not count.

    Raises:
        Corrupt: `leaf-corrupt`, not a manifest list, or one that does not count its manifests' files and rows.
        Invalid: `spec-unknown`.

    """
    rows: list[ContentEntry] = []
    for index, record in enumerate(read_avro(body, name=name).records):
        try:
            row = _row_of(record, definition, counted or {})
        except (KeyError, ValueError, TypeError, IndexError) as error:
            raise Corrupt("leaf-corrupt", f"{name}: entry {index} cannot be read: {error!s:.200}") from error
        counts = row.manifest_stats
        if row.content_type is ContentType.DATA_MANIFEST and counts is not None:
            wanted = counts.added_rows_count + counts.existing_rows_count
            if row.first_row_id is None:
                row, next_row_id = replace(row, first_row_id=next_row_id), next_row_id + wanted
            else:
                next_row_id = max(next_row_id, row.first_row_id + wanted)
        rows.append(row)
    return MigratedList(tuple(rows), next_row_id)


def _row_of(record: Record, definition: TableDefinition, counted: Mapping[str, ManifestStats]) -> ContentEntry:
    content_type = _TYPES[record.get(_CONTENT) or 0]
    number = record.get(_SEQUENCE_NUMBER) or 0  # V1 has none
    stats = counted.get(record[_PATH])
    if stats is None:
        files, rows = (_counts(record, ids) for ids in (_FILE_COUNTS, _ROW_COUNTS))
        stats = ManifestStats(*files, *rows, record.get(_MIN_SEQUENCE_NUMBER) or 0)
    return ContentEntry(
        content_type=content_type,
        location=record[_PATH],
        file_format=FileFormat.AVRO,
        version_info=VersionInfo(Status.EXISTING, record[_ADDED_SNAPSHOT_ID], number, number),
        partition_spec_id=record[_SPEC_ID],
        record_count=stats.added_files_count + stats.existing_files_count + stats.deleted_files_count,
        file_size_in_bytes=record[_LENGTH],
        manifest_stats=stats,
        key_metadata=record.get(_KEY_METADATA),
        first_row_id=record.get(_FIRST_ROW_ID) if content_type is ContentType.DATA_MANIFEST else None,
        content_stats=_statistics_of(record.get(_PARTITIONS) or (), record[_SPEC_ID], definition),
    )


def _counts(record: Record, field_ids: Sequence[int]) -> tuple[int, int, int]:
    added, existing, deleted = (record.get(field_id) for field_id in field_ids)
    if added is None or existing is None or deleted is None:
        raise ValueError("it does not count its manifest's files and rows: rewrite it with a later version first")
    return added, existing, deleted


def _statistics_of(
    summaries: Sequence[Record], spec_id: int, definition: TableDefinition
) -> dict[int, FieldStatistics]:
    """By member of the spec. A summary says whether there are nulls and NaNs, not how many."""
    members = definition.spec_by_id(spec_id).expr_ids
    if summaries and len(summaries) != len(members):
        raise ValueError(f"{len(summaries)} partition summaries, spec {spec_id} has {len(members)} members")
    found: dict[int, FieldStatistics] = {}
    for member, summary in zip(members, summaries, strict=False):
        tracked = definition.tracked_by_id.get(member)
        if tracked is None:
            continue
        is_float = isinstance(tracked.type, FloatType | DoubleType)
        found[member] = FieldStatistics(
            lower_bound=bound_of_bytes(tracked.type, summary.get(_LOWER_BOUND)),
            upper_bound=bound_of_bytes(tracked.type, summary.get(_UPPER_BOUND)),
            null_value_count=None if summary[_CONTAINS_NULL] else 0,
            nan_value_count=0 if is_float and summary.get(_CONTAINS_NAN) is False else None,
        )
    return found


__all__ = ["ListedManifest", "MigratedList", "decode_manifest_list", "uncounted_manifests"]
