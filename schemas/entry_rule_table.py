"""The rules of shape, as data: which fields an entry of each type has, and how small a number may be.

Owns: the rules that hold for one entry and for a leaf's columns alike, and their sentences. Does not own: the two
evaluators (`entry_rules` reads one entry, `leaf_rules` reads columns), rules that only one of them can tell.
Invariants: values only; a field that a row of the table names neither as required nor as null may be there or not.

Source: the Single File Commits proposal, "V4 content entry structure"; format page, "Root manifest".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from rootline.schemas.content_entry import ContentType, FileFormat, Status


class ManifestKind(Enum):
    """Which manifest an entry is in."""

    ROOT = "root"
    LEAF = "leaf"
    ADOPTED_LEAF = "adopted leaf"
    """A manifest of Iceberg V1 to V3: its position delete files have no vector, what is DELETED may have no numbers."""


@dataclass(frozen=True, slots=True)
class Least:
    """A number that is at least `value` where it is set; `sentence` says so when it is not."""

    field: str
    value: int
    sentence: str


@dataclass(frozen=True, slots=True)
class VectorRules:
    """The members of `deletion_vector`, where an entry has one."""

    required: tuple[str, ...] = ()
    null: tuple[str, ...] = ()
    least: tuple[Least, ...] = ()


NO_VECTOR_RULES: Final = VectorRules()


@dataclass(frozen=True, slots=True)
class FieldRules:
    """The fields of the entries that `name` describes. `not_empty`: texts and lists."""

    name: str
    formats: frozenset[FileFormat]
    required: tuple[str, ...]
    null: tuple[str, ...]
    not_empty: tuple[str, ...] = ()
    least: tuple[Least, ...] = ()
    vector: VectorRules = NO_VECTOR_RULES

    def required_sentence(self, field: str) -> str:
        """Says that a required field is null."""
        return f"{field} is null on {self.name}"

    def null_sentence(self, field: str) -> str:
        """Says that a field is set which must be null."""
        return f"{field} is set on {self.name}"

    def format_sentence(self, file_format: str) -> str:
        """Says that entries of this type have other formats."""
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

IN_LEAVES: Final = frozenset({ContentType.DATA, ContentType.POSITION_DELETE, ContentType.EQUALITY_DELETE})
ROOTS_ONLY: Final = "occurs in roots only"

LEAST: Final = tuple(
    Least(field, 0, f"{field} is negative")
    for field in ("partition_spec_id", "record_count", "file_size_in_bytes", "first_row_id")
)
"""Of every type."""
NUMBERS: Final = ("snapshot_id", "sequence_number", "file_sequence_number")
"""Members of `version_info` that an entry of a leaf may inherit; none is negative."""
INHERITING: Final[Mapping[ManifestKind, frozenset[Status]]] = {
    ManifestKind.ROOT: frozenset(),
    ManifestKind.LEAF: frozenset({Status.ADDED}),
    ManifestKind.ADOPTED_LEAF: frozenset({Status.ADDED, Status.DELETED}),
}
"""The statuses of the entries whose numbers may be null."""
NO_NUMBER: Final = "is null: only an ADDED entry of a leaf may inherit it"
DESCENDING: Final = "split_offsets do not ascend"


def negative_number(name: str, number: int) -> str:
    """Says that a member of `version_info` is negative."""
    return f"{name} {number} is negative"
