"""The rules of one entry: the table of its fields, and their evaluation for a single entry.

Owns: the rules as data, for one entry and for a leaf's columns alike, their sentences, the rules of *shape* (fields
that must be present or absent, checked when a root is written or read), and further rules that only `check` reports.
Does not own: the evaluation over a leaf's columns (`leaf_columns`; `tests/schemas/test_rule_twins.py` proves both
equal), rules that need other entries, the definition or the bytes (`rootline.tree`, `rootline.storage`).
Invariants: pure. Entries of our writers break no rule. Every sentence names the field. A field that the table lists
neither as required nor as null is optional.

Source: the Single File Commits proposal, "V4 content entry structure", and format page, "Root manifest".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Final

from rootline.schemas.content_entry import (
    FILE_TYPES,
    ContentEntry,
    ContentType,
    DeletionVector,
    FileFormat,
    Status,
    statistics_violations,
)
from rootline.schemas.errors import Corrupt

__all__ = ["ManifestKind", "entry_violations", "fault_of_row", "shape_rules"]


class ManifestKind(Enum):
    """The kind of manifest that contains an entry."""

    ROOT = "root"
    LEAF = "leaf"
    ADOPTED_LEAF = "adopted leaf"
    """A manifest of Iceberg V1 to V3. Its position delete files have no vector, DELETED entries may have no numbers."""


@dataclass(frozen=True, slots=True)
class Least:
    """The least `value` of a field that is a number, with the sentence for a smaller one. A field that is null has no
    least value.
    """

    field: str
    value: int
    sentence: str


@dataclass(frozen=True, slots=True)
class VectorRules:
    """The rules for the members of `deletion_vector`."""

    required: tuple[str, ...] = ()
    null: tuple[str, ...] = ()
    least: tuple[Least, ...] = ()


NO_VECTOR_RULES: Final = VectorRules()


@dataclass(frozen=True, slots=True)
class FieldRules:
    """The rules for the fields of one type of entry, which `name` describes. `not_empty`: texts and lists that must not
    be empty.
    """

    name: str
    formats: frozenset[FileFormat]
    required: tuple[str, ...]
    null: tuple[str, ...]
    not_empty: tuple[str, ...] = ()
    least: tuple[Least, ...] = ()
    vector: VectorRules = NO_VECTOR_RULES

    def required_sentence(self, field: str) -> str:
        """The sentence for a required field that is null."""
        return f"{field} is null on {self.name}"

    def null_sentence(self, field: str) -> str:
        """The sentence for a field that must be null and is set."""
        return f"{field} is set on {self.name}"

    def format_sentence(self, file_format: str) -> str:
        """The sentence for a file format that entries of this type cannot have."""
        return f"file_format {file_format[:20]} does not go with {self.name}"


_READABLE: Final = frozenset({FileFormat.PARQUET, FileFormat.AVRO, FileFormat.ORC})
_MANIFEST: Final = frozenset({FileFormat.PARQUET, FileFormat.AVRO})
_PUFFIN: Final = frozenset({FileFormat.PUFFIN})
_PLACE: Final = ("offset", "size_in_bytes")
_PLACE_LEAST: Final = (
    Least("offset", 0, "deletion_vector.offset is negative"),
    Least("size_in_bytes", 1, "deletion_vector.size_in_bytes is not positive"),
)
_CARDINALITY: Final = (Least("record_count", 1, "record_count, the vector's cardinality, is not positive"),)
_NOT_OF_A_VECTOR: Final = ("sort_order_id", "manifest_stats", "equality_ids", "first_row_id")

FIELD_RULES: Final[Mapping[ContentType, FieldRules]] = {
    ContentType.DATA: FieldRules(
        "content_type DATA",
        _READABLE,
        required=("file_size_in_bytes",),
        null=("deletion_vector", "referenced_file", "equality_ids", "manifest_stats"),
    ),
    ContentType.POSITION_DELETE: FieldRules(
        "content_type POSITION_DELETE",
        _PUFFIN,
        required=("file_size_in_bytes", "deletion_vector", "referenced_file"),
        null=_NOT_OF_A_VECTOR,
        not_empty=("referenced_file",),
        least=_CARDINALITY,
        vector=VectorRules(required=_PLACE, null=("inline_content",), least=_PLACE_LEAST),
    ),
    ContentType.EQUALITY_DELETE: FieldRules(
        "content_type EQUALITY_DELETE",
        _READABLE,
        required=("file_size_in_bytes", "equality_ids"),
        null=("deletion_vector", "referenced_file", "manifest_stats", "sort_order_id", "first_row_id"),
        not_empty=("equality_ids",),
    ),
    ContentType.DATA_MANIFEST: FieldRules(
        "content_type DATA_MANIFEST",
        _MANIFEST,
        required=("file_size_in_bytes", "manifest_stats"),
        null=("deletion_vector", "referenced_file", "equality_ids", "sort_order_id"),
    ),
    ContentType.DELETE_MANIFEST: FieldRules(
        "content_type DELETE_MANIFEST",
        _MANIFEST,
        required=("file_size_in_bytes", "manifest_stats"),
        null=("deletion_vector", "equality_ids", "sort_order_id", "first_row_id"),
    ),
    ContentType.MANIFEST_DV: FieldRules(
        "content_type MANIFEST_DV",
        _PUFFIN,
        required=("file_size_in_bytes", "deletion_vector", "referenced_file"),
        null=_NOT_OF_A_VECTOR,
        not_empty=("referenced_file",),
        least=_CARDINALITY,
        vector=VectorRules(required=_PLACE, least=_PLACE_LEAST),
    ),
}
INLINE_MANIFEST_VECTOR: Final = FieldRules(
    "content_type MANIFEST_DV with an inline vector",
    _PUFFIN,
    required=("referenced_file",),
    null=_NOT_OF_A_VECTOR,
    not_empty=("referenced_file",),
    least=_CARDINALITY,
    vector=VectorRules(null=_PLACE),
)
POSITION_DELETE_FILE: Final = FieldRules(
    "content_type POSITION_DELETE in an adopted manifest",
    _READABLE,
    required=("file_size_in_bytes",),
    null=_NOT_OF_A_VECTOR,
)
"""A position delete file of Iceberg V2, which only an adopted leaf may list."""

ROOTS_ONLY: Final = "occurs in roots only"

LEAST: Final = tuple(
    Least(field, 0, f"{field} is negative")
    for field in ("partition_spec_id", "record_count", "file_size_in_bytes", "first_row_id")
)
"""Least values for every type of entry."""
NUMBERS: Final = ("snapshot_id", "sequence_number", "file_sequence_number")
"""Members of `version_info` that an entry of a leaf may inherit. They are never negative."""
INHERITING: Final[Mapping[ManifestKind, frozenset[Status]]] = {
    ManifestKind.ROOT: frozenset(),
    ManifestKind.LEAF: frozenset({Status.ADDED}),
    ManifestKind.ADOPTED_LEAF: frozenset({Status.ADDED, Status.DELETED}),
}
"""The statuses of the entries whose numbers may be null."""
NO_NUMBER: Final = "is null: only an ADDED entry of a leaf may inherit it"
DESCENDING: Final = "split_offsets do not ascend"


def negative_number(name: str, number: int) -> str:
    """The sentence for a negative member of `version_info`."""
    return f"{name} {number} is negative"


_MANIFESTS: Final = frozenset({ContentType.DATA_MANIFEST, ContentType.DELETE_MANIFEST})
_MANIFEST_VECTOR_CARDINALITY_MAX: Final = 2**32
_EMPTY: Final = ("", ())
_DATA_FORMATS: Final = FIELD_RULES[ContentType.DATA].formats


def entry_violations(entry: ContentEntry, kind: ManifestKind) -> list[str]:
    """The rules that `entry` breaks in a manifest of this kind, each as a sentence. Empty when it is valid."""
    return [*shape_rules(entry, kind), *_beyond_shape(entry)]


def shape_rules(entry: ContentEntry, kind: ManifestKind) -> Iterator[str]:
    """The rules of shape that `entry` breaks: fields that are missing, or that its type must not have."""
    rules = _rules_of(entry, kind)
    if kind is not ManifestKind.ROOT and entry.content_type not in FILE_TYPES:
        yield f"content_type {entry.content_type.name} {ROOTS_ONLY}"
    if not entry.location:
        yield "location is empty"
    yield from _version_info(entry, kind)
    yield from _fields(entry, rules)
    if entry.split_offsets is not None and any(late < early for early, late in pairwise(entry.split_offsets)):
        yield DESCENDING
    if entry.content_type in _MANIFESTS:
        yield from _of_a_manifest(entry)
    elif entry.content_type is ContentType.MANIFEST_DV:
        if entry.record_count > _MANIFEST_VECTOR_CARDINALITY_MAX:
            yield "a manifest vector has more than 2^32 positions"
        if rules is INLINE_MANIFEST_VECTOR and entry.location != entry.referenced_file:
            yield "location and referenced_file of an inline manifest vector differ"


def _rules_of(entry: ContentEntry, kind: ManifestKind) -> FieldRules:
    vector = entry.deletion_vector
    if entry.content_type is ContentType.MANIFEST_DV and vector is not None and vector.inline_content is not None:
        return INLINE_MANIFEST_VECTOR
    if kind is ManifestKind.ADOPTED_LEAF and entry.content_type is ContentType.POSITION_DELETE:
        is_file = entry.file_format is not FileFormat.PUFFIN and vector is None
        return POSITION_DELETE_FILE if is_file else FIELD_RULES[ContentType.POSITION_DELETE]
    return FIELD_RULES[entry.content_type]


def _fields(entry: ContentEntry, rules: FieldRules) -> Iterator[str]:
    if entry.file_format not in rules.formats:
        yield rules.format_sentence(entry.file_format.value)
    for name in rules.required:
        if getattr(entry, name) is None:
            yield rules.required_sentence(name)
    for name in rules.null:
        if getattr(entry, name) is not None:
            yield rules.null_sentence(name)
    for name in rules.not_empty:
        if getattr(entry, name) in _EMPTY:
            yield f"{name} is empty"
    yield from _too_small(entry, LEAST)
    if rules.least:
        yield from _too_small(entry, rules.least)
    vector = entry.deletion_vector
    if vector is not None:
        for name in rules.vector.required:
            if getattr(vector, name) is None:
                yield rules.required_sentence(f"deletion_vector.{name}")
        for name in rules.vector.null:
            if getattr(vector, name) is not None:
                yield rules.null_sentence(f"deletion_vector.{name}")
        yield from _too_small(vector, rules.vector.least)


def _too_small(item: ContentEntry | DeletionVector, rules: tuple[Least, ...]) -> Iterator[str]:
    for rule in rules:
        number = getattr(item, rule.field)
        if number is not None and number < rule.value:
            yield rule.sentence


def fault_of_row(entry: ContentEntry) -> str | None:
    """The first rule of shape that a row of a root breaks, or `None` when it is valid. Fast for data files."""
    info = entry.version_info
    number, file_number = info.sequence_number, info.file_sequence_number
    if (
        entry.content_type is ContentType.DATA
        and entry.deletion_vector is None
        and entry.manifest_stats is None
        and entry.equality_ids is None
        and entry.referenced_file is None
        and entry.file_format in _DATA_FORMATS
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
    inherits = info.status in INHERITING[kind]
    for name in NUMBERS:
        number: int | None = getattr(info, name)
        if number is None:
            if not inherits:
                yield f"{name} {NO_NUMBER}"
        elif number < 0:
            yield negative_number(name, number)


def _beyond_shape(entry: ContentEntry) -> Iterator[str]:
    info, stats = entry.version_info, entry.manifest_stats
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


def _of_a_manifest(entry: ContentEntry) -> Iterator[str]:
    info, stats = entry.version_info, entry.manifest_stats
    if info.sequence_number != info.file_sequence_number:
        yield "sequence_number and file_sequence_number of a leaf differ"
    if stats is not None:
        counts = (stats.added_files_count, stats.existing_files_count, stats.deleted_files_count)
        rows = (stats.added_rows_count, stats.existing_rows_count, stats.deleted_rows_count)
        if min(*counts, *rows, stats.min_sequence_number) < 0:
            yield "manifest_stats has a negative count"


def _statistics(entry: ContentEntry) -> Iterator[str]:
    statistics = entry.content_stats
    try:
        present = bool(statistics)
    except Corrupt as error:  # these bytes are decoded here for the first time
        yield f"content_stats cannot be read: {error.message}"
        return
    if present and entry.content_type is ContentType.MANIFEST_DV:
        yield "content_stats are set on a manifest vector"
    for tracked_id, field in statistics.items():
        for sentence in statistics_violations(field):
            yield f"content_stats of id {tracked_id}: {sentence}"
