"""Avro manifests of V2 and V3, entry by entry.

Owns: content entry to manifest entry, and the file. Does not own: schemas and values (`manifest_schema`), encoding many
entries of one leaf together (`leaf_chunk_encoder`, with the same bytes), the choice of entries.
Invariants: entries keep their status and numbers. An entry with an unknown partition value is refused, because null
would make an engine skip the file. The same entries make the same bytes.

Source: the Iceberg specification, "Manifests", and the Single File Commits proposal, "How existing manifest fields map
to Proposed V4 content entry fields", in the reverse direction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pyiceberg.types import PrimitiveType

from rootline.catalog.export_keys import FormatVersion
from rootline.catalog.exported_definition import ExportedDefinition, ExportedField
from rootline.catalog.manifest_list_encoder import EntryFacts, ManifestRecord, manifest_record, partition_summary
from rootline.catalog.manifest_schema import (
    bound_bytes,
    encode_container,
    has_bounds,
    manifest_metadata,
    partition_encoder,
)
from rootline.schemas.bytes.avro_encoding import NULL, PRESENT, encode_bytes, encode_long, encode_string
from rootline.schemas.bytes.leaf import LeafContent
from rootline.schemas.content_entry import ContentEntry, ContentStats, ContentType, FieldStatistics
from rootline.schemas.errors import Invalid
from rootline.schemas.field_ids import DELETE_FILE_PATH

__all__ = [
    "NO_COLUMN_SIZES",
    "Absolute",
    "Column",
    "EncodedManifest",
    "columns_of",
    "encode_manifest",
    "optional_long",
    "optional_longs",
    "unexported_vector",
    "unknown_partition",
]

NO_COLUMN_SIZES: Final = PRESENT + b"\x00"
"""An empty map, because PyIceberg's `inspect.entries` fails on null."""

Absolute = Callable[[str], str]
"""The location of an entry → the absolute location that engines read."""


@dataclass(frozen=True, slots=True)
class EncodedManifest:
    """A manifest to store. `record`: its row in manifest lists. The caller adds the path."""

    body: bytes
    record: ManifestRecord


class Column(NamedTuple):
    """A column with statistics in manifests: its encoded id, and the encoders of its bounds."""

    tracked_id: int
    key: bytes
    kind: PrimitiveType
    has_bounds: bool


def encode_manifest(
    entries: Sequence[ContentEntry],
    exported: ExportedDefinition,
    spec_id: int,
    content: LeafContent,
    *,
    absolute: Absolute,
    sync: bytes,
) -> EncodedManifest:
    """The manifest of `entries`, in their order.

    Args:
        entries: of types DATA, POSITION_DELETE (a vector, or a position delete file) and EQUALITY_DELETE.
        exported: the table's definition in the format of the manifest.
        spec_id: the partition spec of all of them.
        content: data files, or deletes.
        absolute: converts locations to absolute ones.
        sync: 16 bytes, the same for the same manifest.

    Raises:
        Invalid: `export-unsupported`, an entry has no partition value, or the format lacks its kind.
    """
    fields, columns = exported.fields(spec_id), columns_of(exported)
    members = frozenset(field.tracked_id for field in fields)
    rows: list[bytes] = []
    tuples: list[list[Any]] = []
    for entry in entries:
        values = [_partition_value(entry, field) for field in fields]
        partition = [partition_encoder(field.result_type)(value) for field, value in zip(fields, values, strict=True)]
        statistics = (
            _of_deletes(entry, absolute)
            if entry.content_type is ContentType.POSITION_DELETE
            else _of_columns(entry.content_stats, columns, members)
        )
        rows.append(_row(entry, exported, partition, statistics, absolute))
        tuples.append(values)
    body = encode_container(manifest_metadata(exported, spec_id, content), rows, sync)
    summaries = tuple(
        partition_summary(field.result_type, [values[place] for values in tuples]) for place, field in enumerate(fields)
    )
    facts, of_spec = (_facts(entry) for entry in entries), exported.exported_spec_id(spec_id)
    return EncodedManifest(body, manifest_record(facts, summaries, length=len(body), spec_id=of_spec, content=content))


def columns_of(exported: ExportedDefinition) -> tuple[Column, ...]:
    """The columns whose statistics are in manifests, by id."""
    return tuple(
        Column(field.tracked_id, encode_long(field.tracked_id), field.type, has_bounds(field.type))
        for field in exported.columns
    )


def unknown_partition(location: str, field: ExportedField) -> Invalid:
    """The error for an entry with an unknown partition."""
    return Invalid(
        "export-unsupported",
        f"{location!r}: its statistics lack the value of partition field {field.name!r} (id {field.field_id}), and a "
        "wrong one in an export could make engines skip the file: rewrite the file",
    )


def unexported_vector(location: str) -> Invalid:
    """The error for a deletion vector in a format without them."""
    return Invalid(
        "export-unsupported",
        f"{location!r}: a deletion vector, which format version 2 lacks: convert it first",
    )


def _facts(entry: ContentEntry) -> EntryFacts:
    info = entry.version_info
    return EntryFacts(
        info.status,
        info.snapshot_id,
        info.sequence_number,
        info.file_sequence_number,
        entry.record_count,
        entry.first_row_id,
    )


def _partition_value(entry: ContentEntry, field: ExportedField) -> Any:
    item = entry.content_stats.get(field.tracked_id)
    if item is None:
        raise unknown_partition(entry.location, field)
    return item.lower_bound


def _row(
    entry: ContentEntry,
    exported: ExportedDefinition,
    partition: Sequence[bytes],
    statistics: Sequence[bytes],
    absolute: Absolute,
) -> bytes:
    info, vector = entry.version_info, entry.deletion_vector
    is_v3 = exported.format_version is FormatVersion.V3
    if vector is not None and not is_v3:
        raise unexported_vector(entry.location)
    referenced = None if entry.referenced_file is None else absolute(entry.referenced_file)
    parts = [
        encode_long(info.status),
        optional_long(info.snapshot_id),
        optional_long(info.sequence_number),
        optional_long(info.file_sequence_number),
        encode_long(entry.content_type),
        encode_string(absolute(entry.location)),
        encode_string(entry.file_format.upper()),
        *partition,
        encode_long(entry.record_count),
        encode_long(entry.file_size_in_bytes or 0),
        NO_COLUMN_SIZES,
        *statistics,
        NULL if entry.key_metadata is None else PRESENT + encode_bytes(entry.key_metadata),
        optional_longs(entry.split_offsets),
        optional_longs(entry.equality_ids),
        optional_long(exported.sort_order_id(entry.sort_order_id)),
        optional_long(entry.first_row_id) if is_v3 else b"",
        NULL if referenced is None else PRESENT + encode_string(referenced),
    ]
    if is_v3:
        place = (None, None) if vector is None else (vector.offset, vector.size_in_bytes)
        parts += map(optional_long, place)
    return b"".join(parts)


def _of_columns(stats: ContentStats, columns: Sequence[Column], members: frozenset[int]) -> list[bytes]:
    """Five maps: value, null and NaN counts, lower and upper bounds."""
    found = [(column, stats.get(column.tracked_id)) for column in columns]
    known = [(column, item) for column, item in found if item is not None]
    bounds = [(column, _bounds(column, item, column.tracked_id in members)) for column, item in known]
    return [
        _map([(column, _count(item.value_count)) for column, item in known]),
        _map([(column, _count(item.null_value_count)) for column, item in known]),
        _map([(column, _count(item.nan_value_count)) for column, item in known]),
        _map([(column, low) for column, (low, _) in bounds]),
        _map([(column, high) for column, (_, high) in bounds]),
    ]


def _count(value: int | None) -> bytes | None:
    return None if value is None else encode_long(value)


def _bounds(column: Column, item: FieldStatistics, is_partition_value: bool) -> tuple[bytes | None, bytes | None]:
    low, high = item.lower_bound, item.upper_bound
    if high is None and is_partition_value:
        high = low  # a partition value's upper bound may be omitted
    if not column.has_bounds:
        return None, None
    encode = bound_bytes(column.kind)
    return _bound(encode.lower, low), _bound(encode.upper, high)


def _bound(encode: Callable[[Any], bytes | None], value: Any) -> bytes | None:
    found = None if value is None else encode(value)
    return None if found is None else encode_bytes(found)


def _map(items: Sequence[tuple[Column, bytes | None]]) -> bytes:
    pairs = [column.key + value for column, value in items if value is not None]
    return b"".join((PRESENT, encode_long(len(pairs)), *pairs, b"\x00")) if pairs else NULL


def _of_deletes(entry: ContentEntry, absolute: Absolute) -> list[bytes]:
    """Five maps without counts. If a delete refers to a single data file, its name is both bounds of `file_path`,
    because some readers match deletes to files by them.
    """
    if entry.referenced_file is None:
        return [NULL] * 5
    path = encode_string(absolute(entry.referenced_file))
    bounds = b"".join((PRESENT, encode_long(1), encode_long(DELETE_FILE_PATH), path, b"\x00"))
    return [NULL, NULL, NULL, bounds, bounds]


def optional_long(value: int | None) -> bytes:
    """`value` encoded as Avro's `["null", "long"]`, which is also an optional int."""
    return NULL if value is None else PRESENT + encode_long(value)


def optional_longs(values: Sequence[int] | None) -> bytes:
    """`values` encoded as Avro's `["null", array of long]`, which is also an optional array of ints."""
    if values is None:
        return NULL
    if not values:
        return PRESENT + b"\x00"
    return b"".join((PRESENT, encode_long(len(values)), *map(encode_long, values), b"\x00"))
