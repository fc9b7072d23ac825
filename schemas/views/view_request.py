"""What an intent says of a view, as JSON: a view to make, or a change of one.

Owns: the value types, their JSON both ways. Does not own: what becomes of the view (`view_changes`), the intent that
carries the text.
Invariants: a text that says nothing, several things or something unknown is refused before a view is touched.

Source: intents page, "Views"; decision 0069.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Final, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from rootline.schemas.errors import Invalid
from rootline.schemas.model_faults import fault_of_model
from rootline.schemas.views.view_changes import (
    VersionDraft,
    new_view,
    replaced_view,
    rolled_back_view,
    view_with_properties,
)
from rootline.schemas.views.view_metadata import SqlRepresentation, VersionId, ViewMetadata, check_size

_NESTING_MAX: Final = 128
_Request = TypeVar("_Request", bound=BaseModel)


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
    """A version to make. `summary` goes without its `operation`; `schema` needs no id."""

    representations: Annotated[tuple[SqlRepresentation, ...], Field(min_length=1)]
    columns: Annotated[dict[str, JsonValue] | None, Field(alias="schema")] = None
    summary: Mapping[str, str] = Field(default_factory=dict)

    def draft(self) -> VersionDraft:
        """As the changes take it."""
        return VersionDraft(self.representations, self.columns, self.summary)


class ViewToCreate(_Asked):
    """A view to make; its uuid is also the intent's `table_uuid`."""

    view_uuid: UUID
    location: Annotated[str, Field(min_length=1)]
    version: AskedVersion
    properties: Mapping[str, str] = Field(default_factory=dict)


class ViewChange(_Asked):
    """A change of a view: another version, an earlier one again, or other properties; one of them.

    `replaces_version_id`: the version that must be current; absent: whichever is.
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
    """The view that a request makes.

    Raises:
        Invalid: `view-invalid`, `view-dialect-twice`, `view-too-large`.

    """
    asked = _read(ViewToCreate, text, name)
    _check_nesting(asked.version, name)
    return new_view(asked.view_uuid, asked.location, asked.version.draft(), asked.properties, now_ms, name=name)


def changed_view(view: ViewMetadata, text: str, now_ms: int, *, name: str) -> ViewMetadata:
    """`view` after the change that `text` asks for.

    Raises:
        Invalid: `view-changed`, another version is current than the change was made for; `view-invalid`,
            `view-dialect-twice`, `view-too-large`, `view-version-unknown`.

    """
    asked = _read(ViewChange, text, name)
    are_properties = asked.set_properties is not None or asked.remove_properties is not None
    if (asked.version is not None) + (asked.current_version_id is not None) + are_properties != 1:
        raise Invalid(
            "view-invalid",
            f"{name}: give one of version, current-version-id, and set-properties or remove-properties",
        )
    if asked.replaces_version_id not in (None, view.current_version_id):
        raise Invalid(
            "view-changed",
            f"{name}: the change was made for version {asked.replaces_version_id}, and {view.current_version_id} is "
            "current: load the view again, and decide again",
        )
    if asked.version is not None:
        _check_nesting(asked.version, name)
        return replaced_view(view, asked.version.draft(), now_ms, name=name)
    if asked.current_version_id is not None:
        return rolled_back_view(view, asked.current_version_id, now_ms, name=name)
    return view_with_properties(view, asked.set_properties or {}, asked.remove_properties or (), name=name)


def _read(kind: type[_Request], text: str, name: str) -> _Request:
    try:
        body = text.encode()
        check_size(body, name)
        return kind.model_validate_json(body)
    except UnicodeEncodeError as error:
        raise Invalid("view-invalid", f"{name}: it has half a character in a text: correct it") from error
    except ValidationError as error:
        raise Invalid("view-invalid", f"{name}: {fault_of_model(error)}: correct it") from error


def _check_nesting(version: AskedVersion, name: str) -> None:
    """A schema's parser goes down as deep as the schema does."""
    depth = deepest = 0
    for char in "" if version.columns is None else json.dumps(version.columns):
        depth += (char in "{[") - (char in "}]")
        deepest = max(deepest, depth)
    if deepest > _NESTING_MAX:
        raise Invalid("view-invalid", f"{name}: its schema has more than {_NESTING_MAX} brackets inside brackets")
