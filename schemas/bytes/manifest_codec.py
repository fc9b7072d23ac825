"""Reading manifests of Iceberg V1 to V3 as leaves, and manifest lists as rows of a root, without rewriting them.

Owns: the conversion of manifest entries to content entries, and of manifest-list entries to content entries of types 3
and 4. Does not own: Avro (`foreign_avro`), bounds (`single_values`), values that entries inherit from their root row
(`leaf_columns`), the root around the rows, adoption itself.
Invariants: an ordinal is the physical record index, including DELETED records. Partition values are read by the
manifest's own spec. An unknown value has no statistics and never prunes. A list yields one row for each entry, all
EXISTING, because a migration changes no data. A partition summary becomes the statistics of its partition field. The
next free row id only grows.

Source: the Iceberg specification, "Manifests", "Manifest Lists" and "First Row ID Assignment", the Single File Commits
proposal, "How existing manifest fields map to Proposed V4 content entry fields", "How existing manifest list fields
map to Proposed V4 content entry fields" and "Upgrade", docs/decisions/0038.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyiceberg.types import DoubleType, FloatType, PrimitiveType

from rootline.schemas.bytes.foreign_avro import (
    BROKEN,
    MANIFEST_LIMITS,
    AvroFile,
    AvroLimits,
    Record,
    parsable,
    read_avro,
)
from rootline.schemas.bytes.leaf import Leaf, LeafContent
from rootline.schemas.bytes.leaf_codec import leaf_of_entries
from rootline.schemas.bytes.single_values import BoundReader, bound_of_avro, bound_of_bytes, bound_reader
from rootline.schemas.content_entry import (
    ContentEntry,
    ContentType,
    DeletionVector,
    FieldStatistics,
    FileFormat,
    ManifestStats,
    Status,
    VersionInfo,
)
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.table_definition import Expression, TableDefinition

__all__ = [
    "ListedManifest",
    "MigratedList",
    "decode_manifest",
    "decode_manifest_list",
    "files_named",
    "listed_manifests",
    "manifest_entries",
    "uncounted_manifests",
]

# manifest_entry
_STATUS, _SNAPSHOT_ID, _DATA_FILE, _SEQUENCE_NUMBER, _FILE_SEQUENCE_NUMBER = 0, 1, 2, 3, 4
# data_file
_FILE_PATH, _FILE_FORMAT, _PARTITION, _RECORD_COUNT, _FILE_SIZE = 100, 101, 102, 103, 104
_STATISTICS: Final = (109, 110, 137, 125, 128)  # counts of values, nulls and NaNs; lower and upper bounds
_KEY_METADATA, _SPLIT_OFFSETS, _CONTENT, _EQUALITY_IDS, _SORT_ORDER_ID = 131, 132, 134, 135, 140
_FIRST_ROW_ID, _REFERENCED_FILE, _CONTENT_OFFSET, _CONTENT_SIZE = 142, 143, 144, 145

_FIRST_PARTITION_FIELD: Final = 1000
_ABSENT: Final = object()
_CONTENTS: Final = {"data": LeafContent.DATA, "deletes": LeafContent.DELETE}


@dataclass(frozen=True, slots=True)
class _Member:
    """One field of the manifest's own spec: its field id, the id of its statistics here, and its type."""

    field_id: int
    tracked_id: int
    type: PrimitiveType


@dataclass(frozen=True, slots=True)
class _Decoding:
    """The inputs for decoding the entries of one manifest. `readers`: column id → reader of its bounds."""

    file: AvroFile
    members: list[_Member]
    spec_id: int
    expr_ids: tuple[int, ...]
    readers: Mapping[int, BoundReader]

    @staticmethod
    def of(file: AvroFile, members: list[_Member], definition: TableDefinition, spec_id: int) -> _Decoding:
        columns = (field for field in definition.tracked_fields if not field.is_expression)
        return _Decoding(
            file,
            members,
            spec_id,
            definition.spec_by_id(spec_id).expr_ids,
            {column.tracked_id: bound_reader(column.type) for column in columns},
        )


def decode_manifest(
    body: bytes, definition: TableDefinition, row: ContentEntry, *, name: str, limits: AvroLimits = MANIFEST_LIMITS
) -> Leaf:
    """An Avro manifest as a leaf whose entries inherit from `row`.

    Args:
        body: the whole object.
        definition: the table's, with an expression for each partition field of the manifest's spec.
        row: the row of the root (DATA_MANIFEST or DELETE_MANIFEST) that names the manifest.
        name: the manifest's name in errors.
        limits: the most that is read of it.

    Raises:
        Corrupt: `leaf-corrupt`, `body` is not a manifest, not the one that `row` describes, or exceeds `limits`.
        Invalid: `spec-unknown`.
    """
    file = read_avro(body, name=name, limits=limits)
    content, entries = _entries_of(file, definition, row.partition_spec_id, name, limits)
    try:
        leaf = leaf_of_entries(entries, definition, location=row.location, content=content, size_in_bytes=len(body))
    except Invalid as error:
        raise _corrupt(name, error.message) from error
    except BROKEN as error:
        raise _corrupt(name, f"a value of its entries is of another type: {error!s:.200}") from error
    return leaf.of_row(row)


def manifest_entries(
    body: bytes, definition: TableDefinition, listed: ListedManifest, *, limits: AvroLimits
) -> tuple[list[ContentEntry], AvroLimits]:
    """The entries of an Avro manifest, including deleted ones, and the limits for the manifests that are read next.

    Raises:
        Corrupt: `leaf-corrupt`, `body` is not the manifest that `listed` describes, or exceeds `limits`.
        Invalid: `spec-unknown`.
    """
    file = read_avro(body, name=listed.location, limits=limits)
    content, entries = _entries_of(file, definition, listed.partition_spec_id, listed.location, limits)
    if (content is LeafContent.DATA) is not listed.is_data:
        raise _corrupt(listed.location, f"it is a manifest of {content}, and its list states another content")
    return entries, limits.after(file)


def _entries_of(
    file: AvroFile, definition: TableDefinition, spec_id: int, name: str, limits: AvroLimits
) -> tuple[LeafContent, list[ContentEntry]]:
    content = _CONTENTS.get(file.metadata.get("content", "data"))
    if content is None:
        raise _corrupt(name, f"content {file.metadata['content']!r:.40} is neither data nor deletes")
    definition.spec_by_id(spec_id)
    stated = file.metadata.get("partition-spec-id", str(spec_id))
    if stated != str(spec_id):
        raise _corrupt(name, f"it is of partition spec {stated:.20}, its root row says {spec_id}")
    try:
        members = _members_of(file, definition, limits)
        decoding = _Decoding.of(file, members, definition, spec_id)
        entries = [_entry_of(record, decoding) for record in file.records]
    except BROKEN as error:
        raise _corrupt(name, f"an entry cannot be read: {error!s:.200}") from error
    if any(_is_delete(entry) is (content is LeafContent.DATA) for entry in entries):
        raise _corrupt(name, f"it has entries that do not belong in a manifest of {content}")
    return content, entries


def files_named(body: bytes, *, name: str) -> list[str]:
    """The files that an Avro manifest names, including deleted entries, and the data files to which deletes refer.

    This needs no definition. Raises `Corrupt` (`leaf-corrupt`): `name` is not a manifest.
    """
    try:
        files = [record[_DATA_FILE] for record in read_avro(body, name=name).records]
        found = [str(file[_FILE_PATH]) for file in files]
        return found + [str(at) for file in files if (at := file.get(_REFERENCED_FILE)) is not None]
    except BROKEN as error:
        raise _corrupt(name, f"it is not a manifest: {error!s:.200}") from error


def _members_of(file: AvroFile, definition: TableDefinition, limits: AvroLimits) -> list[_Member]:
    """The fields of the manifest's spec that its entries have and the definition knows."""
    fields = json.loads(parsable(file.metadata.get("partition-spec", "[]"), limits))
    there = set(next((partition for record in file.records if (partition := record[_DATA_FILE].get(_PARTITION))), ()))
    found: dict[int, _Member] = {}
    for index, field in enumerate(fields["fields"] if isinstance(fields, dict) else fields):
        field_id = field.get("field-id", _FIRST_PARTITION_FIELD + index)
        source_ids = tuple(field.get("source-ids") or (field["source-id"],))
        tracked_id = _tracked_id_of(field_id, source_ids, field["transform"], definition)
        tracked = None if tracked_id is None else definition.tracked_by_id.get(tracked_id)
        if tracked is not None and field_id in there:
            found[field_id] = _Member(field_id, tracked.tracked_id, tracked.type)
    return [*found.values()]


def _tracked_id_of(
    field_id: int, source_ids: tuple[int, ...], transform: str, definition: TableDefinition
) -> int | None:
    """The id under which a partition field has statistics: its column's id for identity, else the id of the expression
    with the same transform and columns.
    """
    if transform == "identity":
        return source_ids[0]
    same = [one for one in definition.expressions if (one.source_ids, one.transform) == (source_ids, transform)]
    named: list[Expression] = [one for one in same if one.partition_field_id == field_id]
    return next((one.expr_id for one in (*named, *same)), None)


def _entry_of(record: Record, decoding: _Decoding) -> ContentEntry:
    data_file: Record = record[_DATA_FILE]
    content_type = ContentType(data_file.get(_CONTENT) or 0)
    offset = data_file.get(_CONTENT_OFFSET)
    is_vector = content_type is ContentType.POSITION_DELETE and offset is not None
    offsets, equality_ids = data_file.get(_SPLIT_OFFSETS), data_file.get(_EQUALITY_IDS)
    return ContentEntry(
        content_type=content_type,
        location=data_file[_FILE_PATH],
        file_format=FileFormat(data_file[_FILE_FORMAT].lower()),
        version_info=_version_info_of(record, decoding.file),
        partition_spec_id=decoding.spec_id,
        record_count=data_file[_RECORD_COUNT],
        file_size_in_bytes=data_file[_FILE_SIZE],
        deletion_vector=DeletionVector(offset, data_file[_CONTENT_SIZE]) if is_vector else None,
        sort_order_id=data_file.get(_SORT_ORDER_ID) if content_type is ContentType.DATA else None,
        referenced_file=data_file.get(_REFERENCED_FILE),
        key_metadata=data_file.get(_KEY_METADATA),
        split_offsets=tuple(offsets) if offsets and offsets == sorted(offsets) else None,
        equality_ids=tuple(equality_ids) if content_type is ContentType.EQUALITY_DELETE and equality_ids else None,
        first_row_id=data_file.get(_FIRST_ROW_ID),
        content_stats=_statistics_of(data_file, decoding),
    )


def _version_info_of(record: Record, file: AvroFile) -> VersionInfo:
    """The status and numbers of an entry. V1 has no sequence numbers, so they are 0. An older V2 manifest has no
    file sequence number, so the data's is used. Null on an ADDED entry is inherited from the root row.
    """
    status = Status(record[_STATUS])
    if _SEQUENCE_NUMBER not in file.kinds:
        return VersionInfo(status, record.get(_SNAPSHOT_ID), 0, 0)
    number, file_number = record.get(_SEQUENCE_NUMBER), record.get(_FILE_SEQUENCE_NUMBER)
    if status is Status.EXISTING and number is None:
        raise ValueError("an EXISTING entry has no sequence number")
    if status is not Status.ADDED and file_number is None:
        file_number = number
    return VersionInfo(status, record.get(_SNAPSHOT_ID), number, file_number)


def _statistics_of(data_file: Record, decoding: _Decoding) -> dict[int, FieldStatistics]:
    found = _of_columns(data_file, decoding.readers)
    known = {expr_id: found.pop(expr_id, None) for expr_id in decoding.expr_ids}
    partition: Record = data_file.get(_PARTITION) or {}
    for member in decoding.members:
        stored = partition.get(member.field_id, _ABSENT)
        value = None if stored is _ABSENT else bound_of_avro(member.type, stored)
        if stored is _ABSENT or (value is None and stored is not None):
            continue  # without statistics its partition is unknown, while two null bounds would mean that it is null
        counts = known.get(member.tracked_id) or FieldStatistics()
        found[member.tracked_id] = FieldStatistics(
            value, value, None, counts.value_count, counts.null_value_count, counts.nan_value_count
        )
    return found


def _of_columns(data_file: Record, readers: Mapping[int, BoundReader]) -> dict[int, FieldStatistics]:
    value_counts, null_counts, nan_counts, lower, upper = [data_file.get(field_id) or {} for field_id in _STATISTICS]
    found: dict[int, FieldStatistics] = {}
    for tracked_id in {**value_counts, **null_counts, **nan_counts, **lower, **upper}:
        read = readers.get(tracked_id)
        if read is None:
            continue
        values, nulls, nans = value_counts.get(tracked_id), null_counts.get(tracked_id), nan_counts.get(tracked_id)
        lowest, highest = lower.get(tracked_id), upper.get(tracked_id)
        low = None if lowest is None else read(lowest)
        high = None if highest is None else read(highest)
        if low is not None and high is not None and low > high:  # type: ignore[operator]
            low = high = None  # contradictory bounds count as unknown
        if values is not None and (nulls or 0) + (nans or 0) > values:
            values = nulls = nans = None
        found[tracked_id] = FieldStatistics(low, high, None, values, nulls, nans)
    return found


def _is_delete(entry: ContentEntry) -> bool:
    return entry.content_type is not ContentType.DATA


def _corrupt(name: str, reason: str) -> Corrupt:
    return Corrupt("leaf-corrupt", f"{name}: {reason}")


_PATH, _LENGTH, _SPEC_ID, _ADDED_SNAPSHOT_ID = 500, 501, 502, 503
_LIST_CONTENT, _LIST_SEQUENCE_NUMBER, _MIN_SEQUENCE_NUMBER = 517, 515, 516
_FILE_COUNTS, _ROW_COUNTS = (504, 505, 506), (512, 513, 514)
_PARTITIONS, _LIST_KEY_METADATA, _LIST_FIRST_ROW_ID = 507, 519, 520
_CONTAINS_NULL, _CONTAINS_NAN, _LOWER_BOUND, _UPPER_BOUND = 509, 518, 510, 511

_TYPES: Final = {0: ContentType.DATA_MANIFEST, 1: ContentType.DELETE_MANIFEST}
_WHOLE: Final = (_LENGTH, _SPEC_ID, _ADDED_SNAPSHOT_ID, _LIST_CONTENT, _LIST_SEQUENCE_NUMBER, _MIN_SEQUENCE_NUMBER,
                 *_FILE_COUNTS, *_ROW_COUNTS, _LIST_FIRST_ROW_ID)  # fmt: skip
_NEVER_NULL: Final = (_PATH, _LENGTH, _SPEC_ID)
_KINDS: Final[Mapping[int, tuple[str, ...]]] = {
    _PATH: ("string",),
    _PARTITIONS: ("array",),
    _LIST_KEY_METADATA: ("bytes",),
    **dict.fromkeys(_WHOLE, ("int", "long")),
}


@dataclass(frozen=True, slots=True)
class MigratedList:
    """Rows of a root, in the list's order, and the next free row id after them."""

    rows: tuple[ContentEntry, ...]
    next_row_id: int


@dataclass(frozen=True, slots=True)
class ListedManifest:
    """A manifest as its list describes it. `live_files`: the files that it states, 0 if it counts none."""

    location: str
    length: int
    partition_spec_id: int
    added_snapshot_id: int
    is_data: bool = True
    is_encrypted: bool = False
    live_files: int = 0


def _records_of_list(body: bytes, name: str, limits: AvroLimits) -> tuple[Record, ...]:
    file = read_avro(body, name=name, limits=limits)
    for field_id, kind in file.kinds.items():
        if kind not in _KINDS.get(field_id, (kind,)):
            raise _corrupt(name, f"its field {field_id} is of type {kind:.40}, not {_KINDS[field_id][0]}")
    if any(record.get(field_id, 0) is None for record in file.records for field_id in _NEVER_NULL):
        raise _corrupt(name, "a manifest in it has no path, length or partition spec")
    return file.records


def listed_manifests(body: bytes, *, name: str, limits: AvroLimits = MANIFEST_LIMITS) -> tuple[ListedManifest, ...]:
    """The manifests in the list, whether it counts their files or not. Raises `Corrupt`: `leaf-corrupt`."""
    try:
        return tuple(
            ListedManifest(
                record[_PATH],
                record[_LENGTH],
                record[_SPEC_ID],
                record.get(_ADDED_SNAPSHOT_ID) or 0,
                _TYPES[record.get(_LIST_CONTENT) or 0] is ContentType.DATA_MANIFEST,
                record.get(_LIST_KEY_METADATA) is not None,
                sum(record.get(field_id) or 0 for field_id in _FILE_COUNTS[:2]),
            )
            for record in _records_of_list(body, name, limits)
        )
    except KeyError as error:
        raise Corrupt("leaf-corrupt", f"{name}: an entry lacks field {error}, or has another content") from error


def uncounted_manifests(body: bytes, *, name: str, limits: AvroLimits = MANIFEST_LIMITS) -> tuple[ListedManifest, ...]:
    """The manifests without counts of files and rows in the list. Raises `Corrupt`: `leaf-corrupt`."""
    try:
        return tuple(
            ListedManifest(record[_PATH], record[_LENGTH], record[_SPEC_ID], record[_ADDED_SNAPSHOT_ID])
            for record in _records_of_list(body, name, limits)
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
    limits: AvroLimits = MANIFEST_LIMITS,
) -> MigratedList:
    """The entries of a manifest list as rows of a root.

    Args:
        body: the whole object.
        definition: the table's, with all its partition specs. A member of a spec is found by its position.
        name: the list's name in errors.
        next_row_id: data manifests without a `first_row_id` (V1, V2) get ids from here on.
        counted: location → counts, for manifests whose counts are not in the list.
        limits: the most that is read of the list.

    Raises:
        Corrupt: `leaf-corrupt`, not a manifest list, one without counts of its manifests' files and rows, or one that
            exceeds `limits`.
        Invalid: `spec-unknown`.
    """
    rows: list[ContentEntry] = []
    for index, record in enumerate(_records_of_list(body, name, limits)):
        try:
            row = _row_of(record, definition, counted or {})
        except BROKEN as error:
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
    content_type = _TYPES[record.get(_LIST_CONTENT) or 0]
    number = record.get(_LIST_SEQUENCE_NUMBER) or 0  # V1 has none
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
        key_metadata=record.get(_LIST_KEY_METADATA),
        first_row_id=record.get(_LIST_FIRST_ROW_ID) if content_type is ContentType.DATA_MANIFEST else None,
        content_stats=_partition_statistics_of(record.get(_PARTITIONS) or (), record[_SPEC_ID], definition),
    )


def _counts(record: Record, field_ids: Sequence[int]) -> tuple[int, int, int]:
    added, existing, deleted = (record.get(field_id) for field_id in field_ids)
    if added is None or existing is None or deleted is None:
        raise ValueError("it does not count its manifest's files and rows: rewrite it with a later version first")
    return added, existing, deleted


def _partition_statistics_of(
    summaries: Sequence[Record], spec_id: int, definition: TableDefinition
) -> dict[int, FieldStatistics]:
    """The statistics of each partition field of the spec. A summary states only whether there are nulls and NaNs, so
    their counts stay unknown unless they are 0.
    """
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
