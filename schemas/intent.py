"""An intent: one atomic change to one table, as writers publish it to the log.

Owns: the model, its shape rules (types, signs). Does not own: the content and size of each kind (`intent_rules`),
framing (`intent_codec`), the check against the table (`rootline.tree`).
Invariants: immutable. The writer makes `intent_id` once, and it never changes. An intent names locations, never
endpoints or credentials.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from rootline.schemas.client_commits import REFUSED
from rootline.schemas.content_entry import ContentType, FileFormat
from rootline.schemas.intent_rules import CARGO, MAINTENANCE_KINDS, SHAPES, IntentKind, Isolation, Names
from rootline.schemas.model_faults import invalid_model

__all__ = [
    "MAINTENANCE_KINDS",
    "AddedManifest",
    "AddedVector",
    "AdoptedRoot",
    "DataFile",
    "EqualityDeleteFile",
    "GenericStatistics",
    "Intent",
    "IntentKind",
    "Isolation",
    "Reaffiliation",
    "RemovedFile",
    "StoredPage",
    "VectorReference",
    "VersionReference",
]

Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
Int32 = Annotated[int, Field(ge=0, le=2**31 - 1)]

_new: Final = object.__new__
_set_values, _set_fields, _set_extra, _set_private = (
    BaseModel.__dict__[slot].__set__
    for slot in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)


class _FieldsByModel(dict[type[BaseModel], set[str]]):
    def __missing__(self, model: type[BaseModel]) -> set[str]:
        return self.setdefault(model, set(model.model_fields))


_FIELDS: Final = _FieldsByModel()


class WireModel(BaseModel):
    """The base of everything that crosses the log: immutable, without unknown fields."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", arbitrary_types_allowed=False, val_json_bytes="base64", ser_json_bytes="base64"
    )

    if not TYPE_CHECKING:  # type checkers derive the arguments from the fields

        def __init__(self, /, **values: Any) -> None:
            """Validate the values. Raises `Invalid` (`intent-malformed`), naming the fields and their faults."""
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise invalid_model(type(self).__name__, error) from None

        __init__.__pydantic_base_init__ = True  # not called when a record is decoded

    @classmethod
    def proven(cls, values: dict[str, Any]) -> Self:
        """A model of `values`, without validation. `values` must contain every field, each of exactly its type.

        This is pydantic's own `model_construct` without its search for aliases, defaults and missing fields.
        """
        made = _new(cls)
        _set_values(made, values)
        _set_fields(made, _FIELDS[cls])
        _set_extra(made, None)
        _set_private(made, None)
        return made


class GenericStatistics(WireModel):
    """Statistics of one column or expression in a form that any client can write.

    A bound is either `*_bound`, Iceberg's binary single-value serialization, or `*_value`, its JSON single value.
    """

    field_id: Annotated[int, Field(ge=1, le=10_000_000)]
    lower_bound: bytes | None = None
    upper_bound: bytes | None = None
    lower_value: bool | int | float | str | None = None
    upper_value: bool | int | float | str | None = None
    tight_bounds: bool | None = None
    value_count: Count | None = None
    null_value_count: Count | None = None
    nan_value_count: Count | None = None
    avg_value_size_in_bytes: Int32 | None = None
    max_value_size_in_bytes: Int32 | None = None


class VectorReference(WireModel):
    """The reference to a deletion vector: the Puffin file and the blob's offset in it (bytes)."""

    location: str
    offset: Count


class DataFile(WireModel):
    """A file to add. Statistics are encoded (`content_stats` with `stats_schema`) or generic, never both."""

    location: str
    file_format: FileFormat = FileFormat.PARQUET
    partition_spec_id: Int32 = 0
    record_count: Count
    file_size_in_bytes: Count
    content_stats: bytes | None = None
    stats_schema: Annotated[bytes, Field(min_length=8, max_length=8)] | None = None
    statistics: Annotated[tuple[GenericStatistics, ...], Field(fail_fast=True)] = ()
    sort_order_id: Int32 | None = None
    split_offsets: Annotated[tuple[Count, ...], Field(fail_fast=True)] | None = None
    key_metadata: bytes | None = None

    @model_validator(mode="after")
    def _one_form_of_statistics(self) -> DataFile:
        if self.content_stats is not None and self.statistics:
            raise ValueError("content_stats and statistics exclude each other: send one of them")
        if (self.content_stats is None) != (self.stats_schema is None):
            raise ValueError("content_stats needs stats_schema, the fingerprint of the schema it was encoded with")
        if len({item.field_id for item in self.statistics}) != len(self.statistics):
            raise ValueError("statistics name a field_id twice: send one entry for each column or expression")
        if self.split_offsets is not None and list(self.split_offsets) != sorted(self.split_offsets):
            raise ValueError("split_offsets must ascend")
        return self


class EqualityDeleteFile(DataFile):
    """An equality delete file to add."""

    equality_ids: Annotated[tuple[Int32, ...], Field(min_length=1, fail_fast=True)]


class AddedVector(WireModel):
    """A deletion vector to add: *all* deleted positions of one data file, including those of `replaces_vector`."""

    location: str
    offset: Count
    size_in_bytes: Count
    file_size_in_bytes: Count
    cardinality: Annotated[int, Field(ge=1, le=2**63 - 1)]
    referenced_file: str
    replaces_vector: VectorReference | None = None


class RemovedFile(WireModel):
    """A file to remove, with the vector that the writer saw on it (`None` if there was none)."""

    location: str
    content_type: ContentType = ContentType.DATA
    vector: VectorReference | None = None


class AddedManifest(WireModel):
    """A leaf that is already stored. In maintenance, each of its entries names the row or entry that it replaces."""

    location: str
    content_type: ContentType
    file_format: FileFormat = FileFormat.PARQUET
    file_size_in_bytes: Count
    record_count: Count
    partition_spec_id: Int32
    referenced_file: str | None = None


class Reaffiliation(WireModel):
    """A change of a delete leaf that stays in the table: the data leaf whose files it will apply to
    (`referenced_file`), or `None`.
    """

    location: str
    referenced_file: str | None = None


class VersionReference(WireModel):
    """A version of the table, to be tagged, restored, or kept as the oldest one, depending on the kind.

    `tag` and `seen_version` are for kind tag only: the tag's name, and the version at which the writer saw it (`None`
    if it did not exist). `version` is `None` to delete a tag.
    """

    version: Count | None = None
    tag: str | None = None
    seen_version: Count | None = None


class AdoptedRoot(WireModel):
    """A stored root that describes an Iceberg table of V1 to V3. `digest` is the digest in its header."""

    location: str
    file_size_in_bytes: Count
    digest: Annotated[bytes, Field(min_length=32, max_length=32)]


class StoredPage(WireModel):
    """A page that is already stored below `metadata/pages/`. `digest` is the SHA-256 of all its bytes."""

    location: str
    file_size_in_bytes: Count
    digest: Annotated[bytes, Field(min_length=32, max_length=32)]


class Intent(WireModel):
    """One atomic change. `writer_id` and `writer_sequence` are both set or both absent."""

    intent_id: Annotated[str, Field(min_length=1, max_length=128)]
    table: str
    table_uuid: uuid.UUID | None = None
    kind: IntentKind
    writer_id: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    writer_sequence: Count | None = None
    schema_id: Int32 | None = None
    read_version: Count | None = None
    read_sequence_number: Count | None = None
    isolation: Isolation = Isolation.SNAPSHOT
    filter: str | None = None
    add_data_files: Annotated[tuple[DataFile, ...], Field(fail_fast=True)] = ()
    add_equality_deletes: Annotated[tuple[EqualityDeleteFile, ...], Field(fail_fast=True)] = ()
    add_vectors: Annotated[tuple[AddedVector, ...], Field(fail_fast=True)] = ()
    add_manifests: Annotated[tuple[AddedManifest, ...], Field(fail_fast=True)] = ()
    remove_files: Annotated[tuple[RemovedFile, ...], Field(fail_fast=True)] = ()
    made_from_version: Count | None = None
    definition: str | None = None
    summary: dict[str, str] = Field(default_factory=dict)
    replaces: Annotated[tuple[str, ...], Field(fail_fast=True)] = ()
    reaffiliate: Annotated[tuple[Reaffiliation, ...], Field(fail_fast=True)] = ()
    ref: VersionReference | None = None
    adopt: AdoptedRoot | None = None
    page: StoredPage | None = None

    @model_validator(mode="after")
    def _shape_of_kind(self) -> Intent:
        if (self.writer_id is None) != (self.writer_sequence is None):
            raise ValueError("writer_id and writer_sequence belong together: send both or neither")
        shape = SHAPES[self.kind]
        carried = {name for name in CARGO if getattr(self, name) not in ((), None)}
        extra = carried - shape.may_carry
        if extra:
            raise ValueError(f"kind {self.kind} cannot carry {', '.join(sorted(extra))}")
        if shape.must_carry_one_of and not carried & shape.must_carry_one_of and REFUSED not in self.summary:
            raise ValueError(f"kind {self.kind} must carry {' or '.join(sorted(shape.must_carry_one_of))}")
        for name, reason in shape.must_name.items():
            if getattr(self, name) is None:
                raise ValueError(f"kind {self.kind} must name {name}: {reason}")
        if self.ref is not None:
            _check_reference(self.kind, shape.ref, self.ref)
        if self.isolation is Isolation.SERIALIZABLE and (self.read_sequence_number is None or self.filter is None):
            raise ValueError("isolation serializable needs read_sequence_number and filter")
        return self


def _check_reference(kind: IntentKind, names: Names, ref: VersionReference) -> None:
    if names is Names.A_TAG:
        if ref.tag is None:
            raise ValueError(f"kind {kind} must name the tag in ref")
        if ref.version is None and ref.seen_version is None:
            raise ValueError(f"kind {kind} must name the version to tag, or where the tag to delete was seen")
    elif ref.version is None or ref.tag is not None or ref.seen_version is not None:
        raise ValueError(f"kind {kind} must name a version in ref, and nothing else")
