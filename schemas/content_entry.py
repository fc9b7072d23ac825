"""The content entry: one row of a root or leaf manifest, whatever it describes.

Owns: the value types and enums of the entry. Does not own: which combinations are allowed (`entry_rules`), bytes
(`entry_codec`, `leaf_codec`).
Invariants: values only, immutable; `None` means absent exactly where the specification says optional.

Source: the Single File Commits proposal, "V4 content entry structure".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

from rootline.schemas.quick_values import quick
from rootline.schemas.statistics import ContentStats


class ContentType(IntEnum):
    """What an entry describes. 3, 4 and 5 occur in roots only."""

    DATA = 0
    POSITION_DELETE = 1
    EQUALITY_DELETE = 2
    DATA_MANIFEST = 3
    DELETE_MANIFEST = 4
    MANIFEST_DV = 5


LEAF_TYPES: Final = (ContentType.DATA_MANIFEST, ContentType.DELETE_MANIFEST)


class Status(IntEnum):
    """What the entry's snapshot did with it."""

    EXISTING = 0
    ADDED = 1
    DELETED = 2


class FileFormat(StrEnum):
    """The format of the file at an entry's location."""

    PARQUET = "parquet"
    AVRO = "avro"
    ORC = "orc"
    PUFFIN = "puffin"


@dataclass(frozen=True, slots=True)
class VersionInfo:
    """Status and sequence numbers; `None` inherits from the leaf's root row (ADDED leaf entries only)."""

    status: Status
    snapshot_id: int | None = None
    sequence_number: int | None = None
    file_sequence_number: int | None = None


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """Where a vector's bytes are: a range of a Puffin file (bytes), or inline (portable 32-bit Roaring)."""

    offset: int | None = None
    size_in_bytes: int | None = None
    inline_content: bytes | None = None


@dataclass(frozen=True, slots=True)
class ManifestStats:
    """Counts over a leaf's entries as written; a manifest vector changes none of them."""

    added_files_count: int
    existing_files_count: int
    deleted_files_count: int
    added_rows_count: int
    existing_rows_count: int
    deleted_rows_count: int
    min_sequence_number: int


@dataclass(frozen=True, slots=True)
class ContentEntry:
    """One row of a manifest. `location` and `referenced_file` are relative to the table's prefix, or absolute."""

    content_type: ContentType
    location: str
    file_format: FileFormat
    version_info: VersionInfo
    partition_spec_id: int
    record_count: int
    file_size_in_bytes: int | None = None
    deletion_vector: DeletionVector | None = None
    sort_order_id: int | None = None
    manifest_stats: ManifestStats | None = None
    referenced_file: str | None = None
    key_metadata: bytes | None = None
    split_offsets: tuple[int, ...] | None = None
    equality_ids: tuple[int, ...] | None = None
    first_row_id: int | None = None
    content_stats: ContentStats = field(default_factory=dict)

    def with_version_info(self, version_info: VersionInfo) -> ContentEntry:
        """The same entry under another status and other numbers. `dataclasses.replace` takes three times as long."""
        return unchecked_entry(
            self.content_type,
            self.location,
            self.file_format,
            version_info,
            self.partition_spec_id,
            self.record_count,
            self.file_size_in_bytes,
            self.deletion_vector,
            self.sort_order_id,
            self.manifest_stats,
            self.referenced_file,
            self.key_metadata,
            self.split_offsets,
            self.equality_ids,
            self.first_row_id,
            self.content_stats,
        )

    @property
    def place(self) -> EntryPlace:
        """What names this entry among the live ones: content type, location and, in a Puffin file, the offset."""
        vector = self.deletion_vector
        return _place((self.content_type, self.location, None if vector is None else vector.offset))


class EntryPlace(NamedTuple):
    """The identity of a live entry: several vectors may share one Puffin file, so the offset belongs to it."""

    content_type: ContentType
    location: str
    content_offset: int | None = None


_place: Final = EntryPlace._make
unchecked_entry: Final = quick(ContentEntry)
unchecked_version_info: Final = quick(VersionInfo)
