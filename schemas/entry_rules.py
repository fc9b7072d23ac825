"""Which fields an entry must have and must not have, by what it describes and where it stands.

Owns: the predicates on one entry: those of its *shape*, refused when a root is written and when it is read, and the
others, which only `check` reports. Does not own: the same shape over a leaf's columns (`leaf_rules`), rules that need
other entries, the definition or the bytes (`rootline.tree`, `rootline.storage`).
Invariants: pure; an entry that our writers make breaks none; every sentence names the field.

Source: the Single File Commits proposal, "V4 content entry structure"; format page, "Root manifest".
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from itertools import pairwise
from typing import Final

from rootline.schemas.content_entry import ContentEntry, ContentType, FileFormat, Status
from rootline.schemas.errors import Corrupt
from rootline.schemas.statistics import FieldStatistics


class ManifestKind(Enum):
    """Where an entry stands."""

    ROOT = "root"
    LEAF = "leaf"
    ADOPTED_LEAF = "adopted leaf"
    """A manifest of Iceberg V1 to V3: its position delete files have no vector, what is DELETED may have no numbers."""


_FILES: Final = frozenset({ContentType.DATA, ContentType.POSITION_DELETE, ContentType.EQUALITY_DELETE})
_MANIFESTS: Final = frozenset({ContentType.DATA_MANIFEST, ContentType.DELETE_MANIFEST})
_VECTORS: Final = frozenset({ContentType.POSITION_DELETE, ContentType.MANIFEST_DV})
_READABLE: Final = frozenset({FileFormat.PARQUET, FileFormat.AVRO, FileFormat.ORC})
_FORMATS: Final = {
    ContentType.DATA: _READABLE,
    ContentType.POSITION_DELETE: frozenset({FileFormat.PUFFIN}),
    ContentType.EQUALITY_DELETE: _READABLE,
    ContentType.DATA_MANIFEST: frozenset({FileFormat.AVRO, FileFormat.PARQUET}),
    ContentType.DELETE_MANIFEST: frozenset({FileFormat.AVRO, FileFormat.PARQUET}),
    ContentType.MANIFEST_DV: frozenset({FileFormat.PUFFIN}),
}
_MANIFEST_VECTOR_CARDINALITY_MAX: Final = 2**32


def entry_violations(entry: ContentEntry, kind: ManifestKind) -> list[str]:
    """The rules that `entry` breaks as an entry of a root or of a leaf, each a sentence; empty when it is sound."""
    return [*shape_rules(entry, kind), *_beyond_shape(entry)]


def shape_rules(entry: ContentEntry, kind: ManifestKind) -> Iterator[str]:
    """The rules of shape that `entry` breaks: fields that its type needs, has not, or may not have there."""
    yield from _version_info(entry, kind)
    yield from _file(entry, kind)
    if not (kind is ManifestKind.ADOPTED_LEAF and _is_position_delete_file(entry)):
        yield from _vector(entry)
        yield from _references(entry)
    yield from _content_specific(entry)


def _is_position_delete_file(entry: ContentEntry) -> bool:
    is_file = entry.file_format is not FileFormat.PUFFIN and entry.deletion_vector is None
    return entry.content_type is ContentType.POSITION_DELETE and is_file


def fault_of_row(entry: ContentEntry) -> str | None:
    """The first rule of shape that a row of a root breaks; `None` when it is sound. Quick for data files."""
    info = entry.version_info
    number, file_number = info.sequence_number, info.file_sequence_number
    if (
        entry.content_type is ContentType.DATA
        and entry.deletion_vector is None
        and entry.manifest_stats is None
        and entry.equality_ids is None
        and entry.referenced_file is None
        and entry.file_format in _READABLE
        and entry.location
        and entry.record_count >= 0
        and entry.partition_spec_id >= 0
        and (entry.file_size_in_bytes or 0) >= 0
        and entry.file_size_in_bytes is not None
        and info.snapshot_id is not None
        and info.snapshot_id >= 0
        and number is not None
        and file_number is not None
        and number >= 0
        and file_number >= 0
        and (entry.first_row_id is None or entry.first_row_id >= 0)
        and (entry.split_offsets is None or len(entry.split_offsets) < 2)
    ):
        return None
    return next(shape_rules(entry, ManifestKind.ROOT), None)


def _version_info(entry: ContentEntry, kind: ManifestKind) -> Iterator[str]:
    info = entry.version_info
    numbers = {
        "snapshot_id": info.snapshot_id,
        "sequence_number": info.sequence_number,
        "file_sequence_number": info.file_sequence_number,
    }
    inherits = kind is not ManifestKind.ROOT and info.status is Status.ADDED
    inherits = inherits or (kind is ManifestKind.ADOPTED_LEAF and info.status is Status.DELETED)
    for name, number in numbers.items():
        if number is None and not inherits:
            yield f"{name} is null: only an ADDED entry of a leaf may inherit it"
        if number is not None and number < 0:
            yield f"{name} {number} is negative"
    if entry.content_type in _MANIFESTS and info.sequence_number != info.file_sequence_number:
        yield "sequence_number and file_sequence_number of a leaf differ"


def _beyond_shape(entry: ContentEntry) -> Iterator[str]:
    info, stats = entry.version_info, entry.manifest_stats
    if info.status is Status.DELETED and entry.content_type not in _FILES:
        yield f"status is DELETED, which an entry of type {entry.content_type.name} never is"
    if (
        info.sequence_number is not None
        and info.file_sequence_number is not None
        and info.sequence_number > info.file_sequence_number
    ):
        yield "sequence_number is greater than file_sequence_number"
    vector = entry.deletion_vector
    if vector is not None and (vector.offset or 0) + (vector.size_in_bytes or 0) > (entry.file_size_in_bytes or 0):
        yield "a vector ends after its Puffin file"
    if stats is not None:
        files = stats.added_files_count + stats.existing_files_count + stats.deleted_files_count
        if files != entry.record_count:
            yield f"manifest_stats counts {files} files, record_count is {entry.record_count}"
    yield from _statistics(entry)


def _file(entry: ContentEntry, kind: ManifestKind) -> Iterator[str]:
    if kind is not ManifestKind.ROOT and entry.content_type not in _FILES:
        yield f"content_type {entry.content_type.name} occurs in roots only"
    if not entry.location:
        yield "location is empty"
    is_old = kind is ManifestKind.ADOPTED_LEAF and _is_position_delete_file(entry)
    if entry.file_format not in (_READABLE if is_old else _FORMATS[entry.content_type]):
        yield f"file_format {entry.file_format.value} does not go with content_type {entry.content_type.name}"
    if entry.partition_spec_id < 0:
        yield "partition_spec_id is negative"
    if entry.record_count < 0:
        yield "record_count is negative"
    inline = entry.deletion_vector is not None and entry.deletion_vector.inline_content is not None
    if inline:
        if entry.file_size_in_bytes is not None:
            yield "file_size_in_bytes is set although the vector is inline"
    elif entry.file_size_in_bytes is None:
        yield "file_size_in_bytes is null"
    elif entry.file_size_in_bytes < 0:
        yield "file_size_in_bytes is negative"


def _vector(entry: ContentEntry) -> Iterator[str]:
    vector = entry.deletion_vector
    if entry.content_type not in _VECTORS:
        if vector is not None:
            yield f"deletion_vector is set on content_type {entry.content_type.name}"
        return
    if vector is None:
        yield "deletion_vector is null"
        return
    if entry.record_count < 1:
        yield "record_count, the vector's cardinality, is not positive"
    if vector.inline_content is not None:
        if entry.content_type is ContentType.POSITION_DELETE:
            yield "the vector of a data file is inline"
        if vector.offset is not None or vector.size_in_bytes is not None:
            yield "an inline vector has an offset or a size"
    elif vector.offset is None or vector.size_in_bytes is None:
        yield "a vector in a Puffin file lacks its offset or size"
    elif vector.offset < 0 or vector.size_in_bytes <= 0:
        yield "a vector's offset is negative or its size not positive"
    if entry.content_type is ContentType.MANIFEST_DV and entry.record_count > _MANIFEST_VECTOR_CARDINALITY_MAX:
        yield "a manifest vector has more than 2^32 positions"


def _references(entry: ContentEntry) -> Iterator[str]:
    referenced = entry.referenced_file
    if entry.content_type in _VECTORS and not referenced:
        yield "referenced_file is null on a vector"
    if entry.content_type not in _VECTORS | {ContentType.DELETE_MANIFEST} and referenced is not None:
        yield f"referenced_file is set on content_type {entry.content_type.name}"
    inline = entry.deletion_vector is not None and entry.deletion_vector.inline_content is not None
    if entry.content_type is ContentType.MANIFEST_DV and inline and entry.location != referenced:
        yield "location and referenced_file of an inline manifest vector differ"


def _content_specific(entry: ContentEntry) -> Iterator[str]:
    content_type = entry.content_type
    stats = entry.manifest_stats
    if (stats is not None) != (content_type in _MANIFESTS):
        yield f"manifest_stats is {'null' if stats is None else 'set'} on content_type {content_type.name}"
    if stats is not None:
        counts = (stats.added_files_count, stats.existing_files_count, stats.deleted_files_count)
        rows = (stats.added_rows_count, stats.existing_rows_count, stats.deleted_rows_count)
        if min(*counts, *rows, stats.min_sequence_number) < 0:
            yield "manifest_stats has a negative count"
    if (entry.equality_ids is not None) != (content_type is ContentType.EQUALITY_DELETE):
        yield f"equality_ids is {'null' if entry.equality_ids is None else 'set'} on content_type {content_type.name}"
    if entry.equality_ids is not None and not entry.equality_ids:
        yield "equality_ids is empty"
    if entry.sort_order_id is not None and content_type is not ContentType.DATA:
        yield f"sort_order_id is set on content_type {content_type.name}"
    if entry.first_row_id is not None:
        if content_type not in (ContentType.DATA, ContentType.DATA_MANIFEST):
            yield f"first_row_id is set on content_type {content_type.name}"
        if entry.first_row_id < 0:
            yield "first_row_id is negative"
    offsets = entry.split_offsets
    if offsets is not None and any(late < early for early, late in pairwise(offsets)):
        yield "split_offsets do not ascend"


def _statistics(entry: ContentEntry) -> Iterator[str]:
    statistics = entry.content_stats
    try:
        present = bool(statistics)
    except Corrupt as error:  # bytes that nobody has looked at before
        yield f"content_stats cannot be read: {error.message}"
        return
    if present and entry.content_type is ContentType.MANIFEST_DV:
        yield "content_stats are set on a manifest vector"
    for tracked_id, field in statistics.items():
        for sentence in _field_statistics(field):
            yield f"content_stats of id {tracked_id}: {sentence}"


def _field_statistics(field: FieldStatistics) -> Iterator[str]:
    values, nulls, nans = field.value_count, field.null_value_count, field.nan_value_count
    if values is not None and (nulls or 0) + (nans or 0) > values:
        yield "more nulls and NaNs than values"
    lower, upper = field.lower_bound, field.upper_bound
    if lower is not None and upper is not None and lower > upper:  # type: ignore[operator]
        yield "the lower bound is above the upper bound"
    average, greatest = field.avg_value_size_in_bytes, field.max_value_size_in_bytes
    if average is not None and greatest is not None and average > greatest:
        yield "avg_value_size_in_bytes is greater than max_value_size_in_bytes"
