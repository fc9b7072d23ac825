"""A view's metadata: schemas, versions, and the log of current versions.

Owns: the value types, their JSON, the rules inside one view. Does not own: changes (`view_changes`), the storage of a
view.
Invariants: everything that was read is written again, including fields that the specification does not list. The
current version exists. A version has at most one SQL text in a dialect. Every named schema exists.

Source: the Iceberg view specification, format version 1. `view-uuid` is of its later text.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Final, Literal, NoReturn
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Discriminator, Field, JsonValue, Tag, ValidationError, model_validator
from pyiceberg.schema import Schema

from rootline.schemas.errors import Invalid
from rootline.schemas.model_faults import fault_of_model
from rootline.schemas.table_definition import schema_of_json

FORMAT_VERSION: Final = 1
VIEW_BYTES_MAX: Final = 8 * 2**20
"""The largest size of a view's metadata as JSON, with all of its versions."""
_ID_MAX: Final = 2**31 - 1
_MS_MAX: Final = 2**63 - 1

VersionId = Annotated[int, Field(ge=1, le=_ID_MAX)]
SchemaId = Annotated[int, Field(ge=0, le=_ID_MAX)]
Milliseconds = Annotated[int, Field(ge=0, le=_MS_MAX)]
Name = Annotated[str, Field(min_length=1)]


class _Part(BaseModel):
    """An object of the JSON. Unknown fields are preserved."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="allow",
        allow_inf_nan=False,
        alias_generator=lambda name: name.replace("_", "-"),
        populate_by_name=True,
    )
    __pydantic_extra__: dict[str, JsonValue] = Field(init=False)


class SqlRepresentation(_Part):
    """The view as SQL in one dialect. `field_aliases` and `field_docs` are for the schema's top-level fields."""

    type: Literal["sql"]
    sql: Name
    dialect: Name
    schema_id: SchemaId | None = None
    default_catalog: str | None = None
    default_namespace: tuple[str, ...] | None = None
    field_aliases: tuple[str, ...] | None = None
    field_docs: tuple[str | None, ...] | None = None


class OtherRepresentation(_Part):
    """A representation of an unknown type, which is preserved and never used."""

    type: Name


def _kind_of(found: object) -> str:
    kind = found.get("type") if isinstance(found, Mapping) else getattr(found, "type", None)
    return "other" if isinstance(kind, str) and kind != "sql" else "sql"


Representation = Annotated[
    Annotated[SqlRepresentation, Tag("sql")] | Annotated[OtherRepresentation, Tag("other")], Discriminator(_kind_of)
]


class ViewVersion(_Part):
    """One version of a view. `parent_version_id` is -1 for the first. `timestamp_ms`: the time of its creation."""

    version_id: VersionId
    timestamp_ms: Milliseconds
    summary: Mapping[str, str]
    representations: Annotated[tuple[Representation, ...], Field(min_length=1)]
    parent_version_id: Annotated[int, Field(ge=-1, le=_ID_MAX)] | None = None
    properties: Mapping[str, str] | None = None
    schema_id: SchemaId | None = None
    default_catalog: str | None = None
    default_namespace: tuple[str, ...] | None = None

    @property
    def sql_texts(self) -> tuple[SqlRepresentation, ...]:
        """The SQL representations, in order."""
        return tuple(found for found in self.representations if isinstance(found, SqlRepresentation))

    @property
    def named_schema_id(self) -> int | None:
        """The schema's id, from the version or from its representations."""
        named = [found.schema_id for found in self.sql_texts if found.schema_id is not None]
        return self.schema_id if self.schema_id is not None else (named[0] if named else None)


class VersionLogEntry(_Part):
    """From `timestamp_ms` on, `version_id` was the current version."""

    timestamp_ms: Milliseconds
    version_id: VersionId


class ViewMetadata(_Part):
    """The metadata of a view. `schemas` contains the original JSON of each."""

    view_uuid: UUID | None = None
    format_version: Annotated[int, Field(ge=1, le=FORMAT_VERSION)]
    location: Name
    current_version_id: VersionId
    versions: Annotated[tuple[ViewVersion, ...], Field(min_length=1)]
    version_log: tuple[VersionLogEntry, ...]
    properties: Mapping[str, str] | None = None
    schemas: tuple[dict[str, JsonValue], ...] | None = None
    current_schema_id: SchemaId | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> ViewMetadata:
        for fault in (_fault_of_ids(self), _fault_of_schemas(self)):
            if fault is not None:
                raise ValueError(fault)
        return self

    @property
    def current_version(self) -> ViewVersion:
        """The version that a reader uses."""
        return self.version_by_id(self.current_version_id)

    def version_by_id(self, version_id: int) -> ViewVersion:
        """The version with this id. Raises `Invalid` (`view-version-unknown`) if the view does not have it, or no
        longer.
        """
        for version in self.versions:
            if version.version_id == version_id:
                return version
        known = ", ".join(str(version.version_id) for version in self.versions)
        raise Invalid("view-version-unknown", f"the view has no version {version_id}; it has {known}: choose one")

    def schema_by_id(self, schema_id: int) -> Schema | None:
        """The schema with this id, or `None` if the view does not have it."""
        schemas = (schema_of_json(dict(body)) for body in self.schemas or ())
        return next((schema for schema in schemas if schema.schema_id == schema_id), None)

    def to_json(self) -> bytes:
        """The canonical JSON: sorted keys, no white space, UTF-8."""
        body = self.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()

    @staticmethod
    def from_json(text: bytes, *, name: str = "the view") -> ViewMetadata:
        """The view in `text`. `name`: its name in errors.

        Raises:
            Invalid: `view-too-large`, `view-format-unsupported`, `view-dialect-twice`, `view-invalid`.
        """
        check_size(text, name)
        body = _json_of(text, name)
        version = body.get("format-version")
        if isinstance(version, int) and version > FORMAT_VERSION:
            raise Invalid(
                "view-format-unsupported",
                f"{name}: it is of format-version {version!s:.20}, and this software reads up to {FORMAT_VERSION}: "
                "use newer software, or have the view written in format-version 1",
            )
        if "format-version" not in body:
            raise Invalid("view-invalid", f"{name}: format-version is missing: correct the view's metadata")
        try:
            found = ViewMetadata.model_validate_json(text)
        except ValidationError as error:
            raise Invalid("view-invalid", f"{name}: {fault_of_model(error)}: correct the view's metadata") from error
        for each in found.versions:
            check_dialects(each.sql_texts, f"{name}: version {each.version_id}")
        return found


def check_size(text: bytes, name: str) -> None:
    """Check the size of a view's JSON. Raises `Invalid` (`view-too-large`)."""
    if len(text) > VIEW_BYTES_MAX:
        raise Invalid(
            "view-too-large",
            f"{name}: its metadata has {len(text)} bytes, and at most {VIEW_BYTES_MAX} are kept: shorten its SQL, or "
            "keep fewer versions (version.history.num-entries)",
        )


def check_dialects(texts: tuple[SqlRepresentation, ...], name: str) -> None:
    """Check that dialects are unique, case-insensitive. Raises `Invalid` (`view-dialect-twice`)."""
    twice = [found for found, times in Counter(text.dialect.lower() for text in texts).items() if times > 1]
    if twice:
        raise Invalid(
            "view-dialect-twice", f"{name}: it has several SQL texts in the dialect {twice[0]!r:.80}: keep one of them"
        )


def _json_of(text: bytes, name: str) -> dict[str, object]:
    try:
        body = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise Invalid("view-invalid", f"{name}: it is not JSON ({error!s:.200}): correct its metadata") from error
    if not isinstance(body, dict):
        raise Invalid("view-invalid", f"{name}: a view's metadata is a JSON object: correct it")
    return body


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON number")


def _fault_of_ids(view: ViewMetadata) -> str | None:
    ids = [version.version_id for version in view.versions]
    if len(set(ids)) < len(ids):
        return f"version-id {Counter(ids).most_common(1)[0][0]} is in versions twice"
    if view.current_version_id not in ids:
        return f"current-version-id {view.current_version_id} is not in versions"
    for version in view.versions:
        if version.summary.get("operation") not in ("create", "replace"):
            return f"version {version.version_id} has a summary whose operation is neither create nor replace"
    return None


def _fault_of_schemas(view: ViewMetadata) -> str | None:
    widths: dict[int, int] = {}
    for body in view.schemas or ():
        schema = schema_of_json(dict(body))  # raises a ValueError that names the fault
        if schema.schema_id in widths:
            return f"schema-id {schema.schema_id} is in schemas twice"
        widths[schema.schema_id] = len(schema.fields)
    if view.current_schema_id is not None and view.current_schema_id not in widths:
        return f"current-schema-id {view.current_schema_id} is not in schemas"
    for version in view.versions:
        if version.schema_id is not None and version.schema_id not in widths:
            return f"version {version.version_id} names schema-id {version.schema_id}, which is not in schemas"
        for text in version.sql_texts:
            fault = _fault_of_columns(text, version.schema_id, widths)
            if fault is not None:
                return f"version {version.version_id}, dialect {text.dialect!r:.80}: {fault}"
    return None


def _fault_of_columns(text: SqlRepresentation, of_version: int | None, widths: Mapping[int, int]) -> str | None:
    schema_id = of_version if text.schema_id is None else text.schema_id
    if schema_id is None:
        return None
    if schema_id not in widths:
        return f"schema-id {schema_id} is not in schemas"
    for name, given in (("field-aliases", text.field_aliases), ("field-docs", text.field_docs)):
        if given is not None and len(given) != widths[schema_id]:
            return f"{name} has {len(given)} items, and the schema has {widths[schema_id]} top-level fields"
    return None
