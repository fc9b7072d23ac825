"""The content entry as bytes, in two parts: `version_info`, and the tail (all other fields), which never changes.

Owns: encoding and decoding an entry in Avro, with the structs inside it. Does not own: the schema (`entry_schema`),
statistics (`statistics_codec`), which values and combinations of fields are allowed (`entry_rules`), blocks and files
(`root_codec`).
Invariants: The bytes equal those of any Avro library with the schema (a property test proves it). Changing ADDED to
EXISTING only changes `version_info`, so the tail is copied and not encoded again. Reads raise `Unreadable`, writes
`ValueError`. A list is never longer than its bytes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Final

from pyiceberg.types import DoubleType, FloatType

from rootline.schemas.bytes.avro_encoding import (
    NULL,
    PRESENT,
    Unreadable,
    encode_bytes,
    encode_int,
    encode_long,
    encode_optional_list,
    encode_optional_long,
    encode_string,
    read_int,
    read_long,
    read_optional_bytes,
    read_optional_int,
    read_optional_list,
    read_optional_long,
    read_optional_string,
    read_present,
    read_string,
)
from rootline.schemas.bytes.entry_schema import content_entry_schema, schema_bytes, tracked_of_schema
from rootline.schemas.bytes.root.statistics_codec import LazyStats, StatisticsCodec
from rootline.schemas.content_entry import (
    ContentEntry,
    ContentStats,
    ContentType,
    DeletionVector,
    FileFormat,
    ManifestStats,
    Status,
    VersionInfo,
    unchecked_entry,
    unchecked_version_info,
)
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.table_definition import TableDefinition, TrackedField

_STATUSES: Final = {int(status): status for status in Status}


@lru_cache(maxsize=4096)
def _status_and_snapshot(status: Status, snapshot_id: int | None) -> bytes:
    """The bytes of status and snapshot id. Cached, because all rows of a commit have the same."""
    return PRESENT + encode_long(status) + encode_optional_long(snapshot_id)


def read_version_info(data: bytes, position: int) -> tuple[VersionInfo, int]:
    """(version info, position after it). The schema allows null, but entries of this format never use it."""
    if not read_present(data, position):
        raise Unreadable("version_info is null")
    number, position = read_long(data, position + 1)
    status = _STATUSES.get(number)
    if status is None:
        raise Unreadable(f"status {number} does not exist")
    snapshot_id, position = read_optional_long(data, position)
    sequence_number, position = read_optional_long(data, position)
    file_sequence_number, position = read_optional_long(data, position)
    return unchecked_version_info(status, snapshot_id, sequence_number, file_sequence_number), position


def encode_optional_vector(vector: DeletionVector | None) -> bytes:
    """The bytes of Avro type `["null", deletion_vector]`."""
    if vector is None:
        return NULL
    inline = vector.inline_content
    return b"".join(
        (
            PRESENT,
            encode_optional_long(vector.offset),
            encode_optional_long(vector.size_in_bytes),
            NULL if inline is None else PRESENT + encode_bytes(inline),
        )
    )


def read_optional_vector(data: bytes, position: int) -> tuple[DeletionVector | None, int]:
    """(deletion vector or `None`, position after it)."""
    if not read_present(data, position):
        return None, position + 1
    offset, position = read_optional_long(data, position + 1)
    size_in_bytes, position = read_optional_long(data, position)
    inline, position = read_optional_bytes(data, position)
    return DeletionVector(offset, size_in_bytes, inline), position


def encode_optional_manifest_stats(stats: ManifestStats | None) -> bytes:
    """The bytes of Avro type `["null", manifest_stats]`."""
    if stats is None:
        return NULL
    return b"".join(
        (
            PRESENT,
            encode_int(stats.added_files_count),
            encode_int(stats.existing_files_count),
            encode_int(stats.deleted_files_count),
            encode_long(stats.added_rows_count),
            encode_long(stats.existing_rows_count),
            encode_long(stats.deleted_rows_count),
            encode_long(stats.min_sequence_number),
        )
    )


def read_optional_manifest_stats(data: bytes, position: int) -> tuple[ManifestStats | None, int]:
    """(manifest statistics or `None`, position after them)."""
    if not read_present(data, position):
        return None, position + 1
    position += 1
    numbers: list[int] = []
    for read in (read_int, read_int, read_int, read_long, read_long, read_long, read_long):
        number, position = read(data, position)
        numbers.append(number)
    return ManifestStats(*numbers), position


_CONTENT_TYPES: Final = {int(content_type): content_type for content_type in ContentType}
_FORMATS: Final = {file_format.value: file_format for file_format in FileFormat}
_TYPE_BYTES: Final = {content_type: encode_long(content_type) for content_type in ContentType}
_FORMAT_BYTES: Final = {file_format: encode_string(file_format) for file_format in FileFormat}


class EntryCodec:
    """The codec of one table's entries. Codecs are equal when their Avro schemas are.

    Args:
        tracked: columns and expressions with statistics.
        nan_bounds: ids whose bounds may be NaN: floating columns that a spec uses by identity.

    Attributes:
        schema_json: the Avro schema as stored in a root's header.
        layout: codecs with the same layout read and write the same bytes and can share blocks, even if their schemas
            differ (an int column that became long).
        statistics: the codec of `content_stats`.
    """

    __slots__ = ("layout", "nan_bounds", "schema_json", "statistics", "tracked")

    def __init__(self, tracked: Sequence[TrackedField], *, nan_bounds: Collection[int] = ()) -> None:
        self.tracked = tuple(tracked)
        self.nan_bounds = frozenset(nan_bounds)
        self.schema_json = schema_bytes(content_entry_schema(self.tracked, self.nan_bounds))
        self.statistics = StatisticsCodec(self.tracked, nan_bounds=self.nan_bounds)
        self.layout = self.statistics.layout

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EntryCodec) and self.schema_json == other.schema_json

    def __hash__(self) -> int:
        return hash(self.schema_json)

    @staticmethod
    def of_definition(definition: TableDefinition) -> EntryCodec:
        """The codec of a table with `definition`."""
        in_specs = {expr_id for spec in definition.partition_specs for expr_id in spec.expr_ids}
        floating = {
            field.tracked_id for field in definition.tracked_fields if isinstance(field.type, FloatType | DoubleType)
        }
        return _codec_of(definition.tracked_fields, frozenset(in_specs & floating))

    @staticmethod
    def of_avro_schema(schema_json: bytes) -> EntryCodec:
        """The codec for a root that has this schema in its header.

        Raises:
            ValueError: the schema is not one that this profile writes.
        """
        return _codec_of_schema(schema_json)

    def encode_tail(self, entry: ContentEntry) -> bytes:
        """The entry without its `version_info`.

        Raises:
            Invalid: `statistics-invalid`; `intent-malformed`, another value does not fit its type.
        """
        statistics = entry.content_stats
        encoded_statistics = NULL
        if isinstance(statistics, LazyStats) or statistics:
            encoded_statistics = PRESENT + self.statistics.encode(statistics)
        size, vector, order_id = entry.file_size_in_bytes, entry.deletion_vector, entry.sort_order_id
        manifest, referenced, key = entry.manifest_stats, entry.referenced_file, entry.key_metadata
        offsets, equality_ids, row_id = entry.split_offsets, entry.equality_ids, entry.first_row_id
        try:
            return b"".join(
                (
                    _TYPE_BYTES[entry.content_type],
                    encode_string(entry.location),
                    _FORMAT_BYTES[entry.file_format],
                    encode_int(entry.partition_spec_id),
                    encode_long(entry.record_count),
                    NULL if size is None else PRESENT + encode_long(size),
                    NULL if vector is None else encode_optional_vector(vector),
                    NULL if order_id is None else PRESENT + encode_int(order_id),
                    NULL if manifest is None else encode_optional_manifest_stats(manifest),
                    NULL if referenced is None else PRESENT + encode_string(referenced),
                    NULL if key is None else PRESENT + encode_bytes(key),
                    NULL if offsets is None else encode_optional_list(offsets, encode_long),
                    NULL if equality_ids is None else encode_optional_list(equality_ids, encode_int),
                    NULL if row_id is None else PRESENT + encode_long(row_id),
                    encoded_statistics,
                )
            )
        except ValueError as error:
            raise Invalid("intent-malformed", f"entry {entry.location!r:.200}: {error}") from error

    def decode_row(self, buffer: bytes, position: int = 0, *, name: str = "entry") -> tuple[ContentEntry, int, int]:
        """(entry, position of its tail, position of its end). `content_stats` is decoded lazily.

        Raises:
            Corrupt: `root-corrupt`, with `name` in the message.
        """
        try:
            version_info, tail_start = read_version_info(buffer, position)
            entry, end = self._read_tail(buffer, tail_start, version_info, name)
        except Unreadable as error:
            raise Corrupt("root-corrupt", f"{name}: {error}") from None
        except Invalid as error:
            raise Corrupt("root-corrupt", f"{name}: {error.message}") from None
        return entry, tail_start, end

    def _read_tail(self, data: bytes, position: int, version_info: VersionInfo, name: str) -> tuple[ContentEntry, int]:
        content_number, position = read_long(data, position)
        content_type = _CONTENT_TYPES.get(content_number)
        if content_type is None:
            raise Unreadable(f"content type {content_number} does not exist")
        location, position = read_string(data, position)
        format_name, position = read_string(data, position)
        file_format = _FORMATS.get(format_name)
        if file_format is None:
            raise Unreadable(f"file format {format_name[:20]!r} does not exist")
        partition_spec_id, position = read_int(data, position)
        record_count, position = read_long(data, position)
        file_size_in_bytes, position = read_optional_long(data, position)
        deletion_vector, position = read_optional_vector(data, position)
        sort_order_id, position = read_optional_int(data, position)
        manifest_stats, position = read_optional_manifest_stats(data, position)
        referenced_file, position = read_optional_string(data, position)
        key_metadata, position = read_optional_bytes(data, position)
        split_offsets, position = read_optional_list(data, position, read_long)
        equality_ids, position = read_optional_list(data, position, read_int)
        first_row_id, position = read_optional_long(data, position)
        content_stats: ContentStats = {}
        present, position = read_present(data, position), position + 1
        if present:
            end = self.statistics.skip(data, position)
            content_stats = LazyStats(self.statistics, data[position:end], name)
            position = end
        entry = unchecked_entry(
            content_type,
            location,
            file_format,
            version_info,
            partition_spec_id,
            record_count,
            file_size_in_bytes,
            deletion_vector,
            sort_order_id,
            manifest_stats,
            referenced_file,
            key_metadata,
            split_offsets,
            equality_ids,
            first_row_id,
            content_stats,
        )
        return entry, position


def encode_version_info(version_info: VersionInfo) -> bytes:
    """The first field of an entry's bytes, of Avro type `["null", version_info]`.

    Raises:
        Invalid: `intent-malformed`, a number does not fit 64 bits.
    """
    number, file_number = version_info.sequence_number, version_info.file_sequence_number
    try:
        encoded = NULL if number is None else PRESENT + encode_long(number)
        file_encoded = encoded if file_number == number else encode_optional_long(file_number)
        return _status_and_snapshot(version_info.status, version_info.snapshot_id) + encoded + file_encoded
    except ValueError as error:
        raise Invalid("intent-malformed", f"version info: {error}") from error


@lru_cache(maxsize=256)
def _codec_of(tracked: tuple[TrackedField, ...], nan_bounds: frozenset[int]) -> EntryCodec:
    return EntryCodec(tracked, nan_bounds=nan_bounds)


@lru_cache(maxsize=64)
def _codec_of_schema(schema_json: bytes) -> EntryCodec:
    try:
        schema = json.loads(schema_json)
    except RecursionError:
        raise ValueError("the schema nests too deeply") from None
    tracked, nan_bounds = tracked_of_schema(schema)
    return EntryCodec(tracked, nan_bounds=nan_bounds)
