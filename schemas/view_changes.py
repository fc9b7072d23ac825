"""Changes of a view: the request in an intent, and the metadata that it makes.

Owns: the JSON of a request, ids of versions and schemas, the version log, trimming of versions. Does not own: the
rules inside one view (`view_metadata`), times and uuids (the caller's), the intent that contains the request.
Invariants: a request without a change, with two current versions or with an unknown change is refused before a view is
changed. A version id is never reused. The current version is never trimmed. A change without effect returns the same
view.

Source: the Iceberg view specification, format version 1, intents page, "Views", decision 0067.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Final, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from rootline.schemas.errors import Invalid
from rootline.schemas.model_faults import fault_of_model
from rootline.schemas.schema_rules import given_schema_of_json, schema_fault
from rootline.schemas.table_definition import schema_of_json
from rootline.schemas.view_metadata import (
    SqlRepresentation,
    VersionId,
    VersionLogEntry,
    ViewMetadata,
    ViewVersion,
    check_dialects,
    check_size,
)

HISTORY_PROPERTY: Final = "version.history.num-entries"
HISTORY_ENTRIES: Final = 10
"""The default number of versions that a view keeps."""
LOG_ENTRIES_MAX: Final = 1_000
"""The most entries of the version log. A rollback adds an entry without adding a version."""
_FIRST_SCHEMA_ID: Final = 1
"""The id of a new view's schema, unless the request names one. Iceberg's clients expect 0."""
_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class VersionDraft:
    """The content of a new version, as its writer described it.

    `representations` name no schema. `schema` is a schema's JSON, whose id only counts in a new view. `summary` has no
    `operation`.
    """

    representations: tuple[SqlRepresentation, ...]
    schema: Mapping[str, JsonValue] | None = None
    summary: Mapping[str, str] = field(default_factory=dict)


def new_view(
    view_uuid: UUID, location: str, draft: VersionDraft, properties: Mapping[str, str], now_ms: int, *, name: str
) -> ViewMetadata:
    """A view with one version.

    Raises:
        Invalid: `view-invalid`, `view-dialect-twice`, `view-too-large`.

    """
    kept_versions(properties, name)
    schema_id = _first_schema_id(draft)
    schema = {} if draft.schema is None else _with_id(draft.schema, schema_id, name)
    version = _version(draft, 1, -1, now_ms, "create", schema_id if schema else None, name)
    body: dict[str, object] = {
        "view-uuid": str(view_uuid),
        "format-version": 1,
        "location": location,
        "current-version-id": 1,
        "properties": dict(properties),
        "versions": [version],
        "version-log": [{"timestamp-ms": now_ms, "version-id": 1}],
    }
    if schema:
        body |= {"schemas": [schema], "current-schema-id": schema_id}
    return _trimmed(body, name)


def replaced_view(view: ViewMetadata, draft: VersionDraft, now_ms: int, *, name: str) -> ViewMetadata:
    """`view` with another current version. An existing version with the same content becomes current again.

    Raises:
        Invalid: `view-invalid`, `view-dialect-twice`, `view-too-large`.
    """
    schemas = list(view.schemas or ())
    schema_id = None
    if draft.schema is not None:
        schema_id = _same_schema(schemas, draft.schema, name)
        if schema_id is None:
            schema_id = max((schema_of_json(dict(body)).schema_id for body in schemas), default=0) + 1
            schemas.append(_with_id(draft.schema, schema_id, name))
    next_id = max([*(each.version_id for each in view.versions), *(each.version_id for each in view.version_log)]) + 1
    made = _version(draft, next_id, view.current_version_id, now_ms, "replace", schema_id, name)
    identical = _identical(view, _checked(ViewVersion, made, name))
    if identical is not None:
        return rolled_back_view(view, identical.version_id, now_ms, name=name)
    before = _json_of(view)
    body = before | {"versions": [*_items(before["versions"]), made]}
    if schemas:
        body["schemas"] = schemas
    return _made_current(body, next_id, schema_id, now_ms, name)


def rolled_back_view(view: ViewMetadata, version_id: int, now_ms: int, *, name: str) -> ViewMetadata:
    """`view` with its version `version_id` as the current one.

    Raises:
        Invalid: `view-version-unknown`.
    """
    if version_id == view.current_version_id:
        return view
    try:
        version = view.version_by_id(version_id)
    except Invalid as error:
        raise Invalid(error.code, f"{name}: {error.message}") from error
    return _made_current(_json_of(view), version_id, version.named_schema_id, now_ms, name)


def view_with_properties(
    view: ViewMetadata, properties: Mapping[str, str], removed: Iterable[str], *, name: str
) -> ViewMetadata:
    """`view` with these properties set and those removed. Removing an absent property has no effect.

    Raises:
        Invalid: `view-invalid`, `view-too-large`.
    """
    kept = {key: value for key, value in (view.properties or {}).items() if key not in frozenset(removed)}
    after = {**kept, **properties}
    if after == (view.properties or {}):
        return view
    kept_versions(after, name)
    return _trimmed(_json_of(view) | {"properties": after}, name)


def kept_versions(properties: Mapping[str, str], name: str) -> int:
    """The number of versions that a view with these properties keeps. Raises `Invalid` (`view-invalid`): not a
    number.
    """
    text = properties.get(HISTORY_PROPERTY)
    if text is None:
        return HISTORY_ENTRIES
    if not (text.isascii() and text.isdecimal() and len(text) <= 9 and int(text) > 0):
        raise Invalid(
            "view-invalid", f"{name}: {HISTORY_PROPERTY} is {text!r:.40}: give a whole number from 1 to 999999999"
        )
    return int(text)


def _version(
    draft: VersionDraft, version_id: int, parent: int, now_ms: int, operation: str, schema_id: int | None, name: str
) -> dict[str, object]:
    check_dialects(draft.representations, name)
    named = {} if schema_id is None else {"schema-id": schema_id}
    return {
        "version-id": version_id,
        "parent-version-id": parent,
        "timestamp-ms": now_ms,
        "summary": {**draft.summary, "operation": operation},
        "representations": [
            {**each.model_dump(mode="json", by_alias=True, exclude_none=True), **named, **_docs(each)}
            for each in draft.representations
        ],
    }


def _docs(text: SqlRepresentation) -> dict[str, object]:
    """The comments of columns, some of which may be null."""
    return {} if text.field_docs is None else {"field-docs": list(text.field_docs)}


def _identical(view: ViewMetadata, made: ViewVersion) -> ViewVersion | None:
    """The version with the same content: the current one, or else the newest."""
    content = _content_of(made)
    newest_first = sorted(view.versions, key=lambda version: version.version_id, reverse=True)
    same = [version for version in newest_first if _content_of(version) == content]
    return next(
        (version for version in same if version.version_id == view.current_version_id), same[0] if same else None
    )


def _content_of(version: ViewVersion) -> tuple[object, ...]:
    summary = {key: value for key, value in version.summary.items() if key != "operation"}
    return (
        summary,
        [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in version.representations],
        version.named_schema_id,
        version.default_catalog,
        version.default_namespace,
        dict(version.properties or {}),
    )


def _same_schema(schemas: Iterable[Mapping[str, JsonValue]], given: Mapping[str, JsonValue], name: str) -> int | None:
    wanted = schema_of_json(_with_id(given, 0, name))
    for body in schemas:
        schema = schema_of_json(dict(body))
        if schema.fields == wanted.fields and schema.identifier_field_ids == wanted.identifier_field_ids:
            return schema.schema_id
    return None


def _first_schema_id(draft: VersionDraft) -> int:
    given = (draft.schema or {}).get("schema-id")
    return given if type(given) is int and given >= 0 else _FIRST_SCHEMA_ID


def _with_id(schema: Mapping[str, JsonValue], schema_id: int, name: str) -> dict[str, JsonValue]:
    body = {**schema, "schema-id": schema_id}
    try:
        fault = schema_fault(given_schema_of_json(dict(body)), least_id=0)
    except ValueError as error:
        fault = f"{error!s:.300}: correct the schema"
    if fault is not None:
        raise Invalid("view-invalid", f"{name}: its schema cannot be used: {fault}")
    return body


def _made_current(
    body: dict[str, object], version_id: int, schema_id: int | None, now_ms: int, name: str
) -> ViewMetadata:
    """Make a version current. Times in the log never decrease, whatever the clock, because they are searched by
    bisection.
    """
    log = [_checked(VersionLogEntry, each, name) for each in _items(body["version-log"])]
    at_ms = max([now_ms, *(each.timestamp_ms for each in log[-1:])])
    entry = {"timestamp-ms": at_ms, "version-id": version_id}
    changed = body | {"current-version-id": version_id, "version-log": [*_items(body["version-log"]), entry]}
    changed.pop("current-schema-id", None)  # the previous version's id, which this one may not share
    if schema_id is not None:
        changed["current-schema-id"] = schema_id
    return _trimmed(changed, name)


def _trimmed(body: dict[str, object], name: str) -> ViewMetadata:
    """Drop the oldest versions beyond the limit, and the entries of the version log up to the last one of a dropped
    version.

    The newest version stays, so that its id is not reused, and so does the current one.
    """
    view = _checked(ViewMetadata, body, name)
    spared = {view.current_version_id, max(version.version_id for version in view.versions)}
    wanted = kept_versions(view.properties or {}, name)
    others = sorted({version.version_id for version in view.versions} - spared, reverse=True)
    kept = spared | set(others[: max(0, wanted - len(spared))])
    log: list[VersionLogEntry] = []
    for entry in view.version_log:
        log = [*log, entry] if entry.version_id in kept else []
    log = log[-LOG_ENTRIES_MAX:]
    if len(kept) < len(view.versions) or len(log) < len(view.version_log):
        versions = tuple(version for version in view.versions if version.version_id in kept)
        view = view.model_copy(update={"versions": versions, "version_log": tuple(log)})
    text = view.to_json()
    check_size(text, name)
    if ViewMetadata.from_json(text, name=name).to_json() != text:
        raise Invalid("view-invalid", f"{name}: it would be read as another view: write its values in plain JSON")
    return view


@contextmanager
def _invalid_view(name: str) -> Iterator[None]:
    try:
        yield
    except UnicodeEncodeError as error:
        raise Invalid("view-invalid", f"{name}: it has half a character in a text: correct it") from error
    except ValidationError as error:
        raise Invalid("view-invalid", f"{name}: {fault_of_model(error)}: correct it") from error
    except ValueError as error:  # 1e400 is read as infinity, which JSON cannot represent
        raise Invalid(
            "view-invalid", f"{name}: it has a number that is too large ({error!s:.200}): correct it"
        ) from error


def _checked(kind: type[_Model], body: object, name: str) -> _Model:
    with _invalid_view(name):
        return kind.model_validate_json(json.dumps(body, ensure_ascii=False, allow_nan=False).encode())


def _json_of(view: ViewMetadata) -> dict[str, object]:
    return dict(view.model_dump(mode="json", by_alias=True, exclude_unset=True))


def _items(found: object) -> list[object]:
    return list(found) if isinstance(found, list) else []


_NESTING_MAX: Final = 128


class _Asked(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        alias_generator=lambda name: name.replace("_", "-"),
        populate_by_name=True,
    )


class AskedVersion(_Asked):
    """A version to create. `summary` has no `operation`. `schema` needs no id, which only counts in a new view."""

    representations: Annotated[tuple[SqlRepresentation, ...], Field(min_length=1)]
    columns: Annotated[dict[str, JsonValue] | None, Field(alias="schema")] = None
    summary: Mapping[str, str] = Field(default_factory=dict)

    def draft(self) -> VersionDraft:
        """The version as a `VersionDraft`."""
        return VersionDraft(self.representations, self.columns, self.summary)


class ViewToCreate(_Asked):
    """A view to create. Its uuid is also the intent's `table_uuid`."""

    view_uuid: UUID
    location: Annotated[str, Field(min_length=1)]
    version: AskedVersion
    properties: Mapping[str, str] = Field(default_factory=dict)


class ViewChange(_Asked):
    """A change of a view: a new or an earlier version as the current one, other properties, or both at once.

    Older coordinators refuse both at once (`view-invalid`).

    `replaces_version_id`: the version that must be current. If absent, any version may be current.
    """

    version: AskedVersion | None = None
    current_version_id: VersionId | None = None
    set_properties: Mapping[str, str] | None = None
    remove_properties: tuple[str, ...] | None = None
    replaces_version_id: VersionId | None = None


def text_of(request: ViewToCreate | ViewChange) -> str:
    """The JSON of a request."""
    return request.model_dump_json(by_alias=True, exclude_none=True, exclude_unset=True)


def view_of_request(text: str, now_ms: int, *, name: str) -> ViewMetadata:
    """The view that a request creates.

    Raises:
        Invalid: `view-invalid`, `view-dialect-twice`, `view-too-large`.
    """
    asked = _read(ViewToCreate, text, name)
    _check_nesting(asked.version, name)
    return new_view(asked.view_uuid, asked.location, asked.version.draft(), asked.properties, now_ms, name=name)


def changed_view(view: ViewMetadata, text: str, now_ms: int, *, name: str) -> ViewMetadata:
    """`view` after the change in `text`.

    Raises:
        Invalid: `view-changed`, the current version is not the one for which the change was made; `view-invalid`,
            `view-dialect-twice`, `view-too-large`, `view-version-unknown`.
    """
    asked = _read(ViewChange, text, name)
    are_properties = asked.set_properties is not None or asked.remove_properties is not None
    versions = (asked.version is not None) + (asked.current_version_id is not None)
    if versions > 1 or not (versions or are_properties):
        raise Invalid(
            "view-invalid",
            f"{name}: give a version or a current-version-id, or set-properties or remove-properties, or one of the "
            "former with the latter",
        )
    if asked.replaces_version_id not in (None, view.current_version_id):
        raise Invalid(
            "view-changed",
            f"{name}: the change was made for version {asked.replaces_version_id}, and {view.current_version_id} is "
            "current: load the view again, and decide again",
        )
    if are_properties:  # first, because they may limit the number of versions
        view = view_with_properties(view, asked.set_properties or {}, asked.remove_properties or (), name=name)
    if asked.version is not None:
        _check_nesting(asked.version, name)
        return replaced_view(view, asked.version.draft(), now_ms, name=name)
    if asked.current_version_id is not None:
        return rolled_back_view(view, asked.current_version_id, now_ms, name=name)
    return view


def _read(kind: type[_Model], text: str, name: str) -> _Model:
    with _invalid_view(name):
        body = text.encode()
        check_size(body, name)
        return kind.model_validate_json(body)


def _check_nesting(version: AskedVersion, name: str) -> None:
    """Limit the depth of a schema, because its parser is recursive."""
    depth = deepest = 0
    for char in "" if version.columns is None else json.dumps(version.columns):
        depth += (char in "{[") - (char in "}]")
        deepest = max(deepest, depth)
    if deepest > _NESTING_MAX:
        raise Invalid("view-invalid", f"{name}: its schema has more than {_NESTING_MAX} brackets inside brackets")
