"""Avro manifests of Iceberg V1 to V3 as leaves: nothing is rewritten, the same `Leaf` as our own.

Owns: manifest entries → content entries. Does not own: Avro (`iceberg_avro`), bounds (`single_values`), what entries
inherit from their root row (`leaf_inheritance`), the manifest list (`manifest_list_codec`).
Invariants: an ordinal is the physical record index, DELETED records counted; partition values are read by the
manifest's own spec; what is not known has no statistics and never prunes.

Source: the Iceberg specification, "Manifests"; the Single File Commits proposal, "How existing manifest fields map to
Proposed V4 content entry fields"; docs/decisions/0029.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyiceberg.types import PrimitiveType

from rootline.schemas.bytes.iceberg.iceberg_avro import AvroFile, Record, read_avro
from rootline.schemas.bytes.leaf.leaf import Leaf, LeafContent
from rootline.schemas.bytes.leaf.leaf_codec import leaf_of_entries
from rootline.schemas.bytes.values.single_values import BoundReader, bound_of_avro, bound_reader
from rootline.schemas.content_entry import (
    ContentEntry,
    ContentType,
    DeletionVector,
    FileFormat,
    Status,
    VersionInfo,
)
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.statistics import FieldStatistics
from rootline.schemas.table_definition import Expression, TableDefinition

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
    """One field of the manifest's own spec: where its value is, and the id of its statistics here."""

    field_id: int
    tracked_id: int
    type: PrimitiveType


@dataclass(frozen=True, slots=True)
class _Decoding:
    """What reading the entries of one manifest takes. `readers`: column id → how its bounds are read."""

    file: AvroFile
    members: list[_Member]
    spec_id: int
    expr_ids: tuple[int, ...]
    readers: Mapping[int, BoundReader]

    @staticmethod
    def of(file: AvroFile, members: list[_Member], definition: TableDefinition, row: ContentEntry) -> _Decoding:
        columns = (field for field in definition.tracked_fields if not field.is_expression)
        return _Decoding(
            file,
            members,
            row.partition_spec_id,
            definition.spec_by_id(row.partition_spec_id).expr_ids,
            {column.tracked_id: bound_reader(column.type) for column in columns},
        )


def decode_manifest(body: bytes, definition: TableDefinition, row: ContentEntry, *, name: str) -> Leaf:
    """The leaf that an Avro manifest is, its entries inheriting from `row`.

    Args:
        body: the whole object.
        definition: the table's; it has an expression for each partition field of the manifest's spec.
        row: the DATA_MANIFEST or DELETE_MANIFEST row of the root that names the manifest.
        name: what an error calls it.

    Raises:
        Corrupt: `leaf-corrupt`, not a manifest, or not the one that its row describes.
        Invalid: `spec-unknown`.

    """
    file = read_avro(body, name=name)
    content = _CONTENTS.get(file.metadata.get("content", "data"))
    if content is None:
        raise _corrupt(name, f"content {file.metadata['content']!r:.40} is neither data nor deletes")
    definition.spec_by_id(row.partition_spec_id)
    stated = file.metadata.get("partition-spec-id", str(row.partition_spec_id))
    if stated != str(row.partition_spec_id):
        raise _corrupt(name, f"it is of partition spec {stated:.20}, its root row says {row.partition_spec_id}")
    try:
        members = _members_of(file.metadata, definition)
        decoding = _Decoding.of(file, members, definition, row)
        entries = [_entry_of(record, decoding) for record in file.records]
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise _corrupt(name, f"an entry cannot be read: {error!s:.200}") from error
    if any(_is_delete(entry) is (content is LeafContent.DATA) for entry in entries):
        raise _corrupt(name, f"it holds entries that do not belong in a manifest of {content}")
    try:
        leaf = leaf_of_entries(entries, definition, location=row.location, content=content, size_in_bytes=len(body))
    except Invalid as error:
        raise _corrupt(name, error.message) from error
    return leaf.of_row(row)


def files_named(body: bytes, *, name: str) -> list[str]:
    """The files that an Avro manifest names, deleted entries too, and the data files that they belong to.

    No definition is needed for that. Raises `Corrupt` (`leaf-corrupt`): `name` is not a manifest.
    """
    try:
        files = [record[_DATA_FILE] for record in read_avro(body, name=name).records]
        found = [str(file[_FILE_PATH]) for file in files]
        return found + [str(at) for file in files if (at := file.get(_REFERENCED_FILE)) is not None]
    except (KeyError, TypeError, AttributeError) as error:
        raise _corrupt(name, f"it is no manifest: {error!s:.200}") from error


def _members_of(metadata: Mapping[str, str], definition: TableDefinition) -> list[_Member]:
    """The fields of the spec that the manifest states, as far as the definition has them."""
    fields = json.loads(metadata.get("partition-spec", "[]"))
    found: list[_Member] = []
    for index, field in enumerate(fields["fields"] if isinstance(fields, dict) else fields):
        field_id = field.get("field-id", _FIRST_PARTITION_FIELD + index)
        source_ids = tuple(field.get("source-ids") or (field["source-id"],))
        tracked_id = _tracked_id_of(field_id, source_ids, field["transform"], definition)
        tracked = None if tracked_id is None else definition.tracked_by_id.get(tracked_id)
        if tracked is not None:
            found.append(_Member(field_id, tracked.tracked_id, tracked.type))
    return found


def _tracked_id_of(
    field_id: int, source_ids: tuple[int, ...], transform: str, definition: TableDefinition
) -> int | None:
    """The id of a partition field's values: the column's by identity, else that of the same expression."""
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
    """V1 has no sequence numbers: they are 0. An older V2 manifest has no file sequence number: it is taken to be the
    data's. What is null on an ADDED entry is inherited from the root row.
    """
    status = Status(record[_STATUS])
    if _SEQUENCE_NUMBER not in file.field_ids:
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
            continue  # without statistics its partition is unknown; two null bounds would say that it is null
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
            low = high = None  # what contradicts itself is not known
        if values is not None and (nulls or 0) + (nans or 0) > values:
            values = nulls = nans = None
        found[tracked_id] = FieldStatistics(low, high, None, values, nulls, nans)
    return found


def _is_delete(entry: ContentEntry) -> bool:
    return entry.content_type is not ContentType.DATA


def _corrupt(name: str, reason: str) -> Corrupt:
    return Corrupt("leaf-corrupt", f"{name}: {reason}")


__all__ = ["decode_manifest", "files_named"]
