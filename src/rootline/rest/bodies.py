"""Bodies of writing requests: read within a limit, and parsed.

Owns: the limit, the models of requests about namespaces, names and views, errors that name the faulty member. Does not
own: requirements and updates of tables (`table_changes`).
Invariants: a body beyond the limit is refused before it is in memory. Members that a model does not name are ignored,
because newer clients send more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, Final, Literal, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Discriminator, FailFast, Field, ValidationError
from starlette.requests import ClientDisconnect, Request

from rootline.catalog.rest.responses import Refusal, bad_request
from rootline.schemas.client_commits import SNAPSHOTS_MAX
from rootline.schemas.identifiers import TableName
from rootline.schemas.model_faults import fault_of_model
from rootline.schemas.view_metadata import SqlRepresentation
from rootline.tree.evolution.changes import CHANGES_MAX

BODY_BYTES_MAX: Final = 2 * 1024 * 1024
"""Twice the size of an intent. A thread would not help with longer bodies: the library keeps the interpreter's lock
while it parses, for up to 0.1 s a MiB, and commits of the same process wait."""
_BODY_S: Final = 30.0
_Model = TypeVar("_Model", bound="Body")


class Body(BaseModel):
    """A request, in the specification's names."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=lambda name: name.replace("_", "-"),
        populate_by_name=True,
    )


class NamespaceToCreate(Body):
    """The specification's `CreateNamespaceRequest`."""

    namespace: Annotated[tuple[str, ...], Field(min_length=1)]
    properties: Mapping[str, str] = Field(default_factory=dict)


class NamespaceChange(Body):
    """The specification's `UpdateNamespacePropertiesRequest`."""

    removals: Annotated[tuple[str, ...], FailFast()] = ()
    updates: Mapping[str, str] = Field(default_factory=dict)


class TableToCreate(Body):
    """The specification's `CreateTableRequest`."""

    name: str
    location: str | None = None
    schema_: Annotated[dict[str, Any], Field(alias="schema")]
    partition_spec: dict[str, Any] | None = None
    write_order: dict[str, Any] | None = None
    stage_create: bool = False
    properties: Mapping[str, str] = Field(default_factory=dict)


class TableToRegister(Body):
    """The specification's `RegisterTableRequest`, and its `RegisterViewRequest`."""

    name: str
    metadata_location: str
    overwrite: bool = False


class VersionToAdd(Body):
    """The specification's `ViewVersion`, as a client describes it. Its id and its time are the client's own."""

    version_id: int = 1
    schema_id: int
    representations: Annotated[tuple[SqlRepresentation, ...], Field(min_length=1)]
    summary: Mapping[str, str] = Field(default_factory=dict)
    default_catalog: str | None = None
    default_namespace: tuple[str, ...] = ()


class ViewToCreate(Body):
    """The specification's `CreateViewRequest`."""

    name: str
    location: str | None = None
    schema_: Annotated[dict[str, Any], Field(alias="schema")]
    view_version: VersionToAdd
    properties: Mapping[str, str] = Field(default_factory=dict)


class ViewUuid(Body):
    """The requirement that the view has this uuid."""

    type: Literal["assert-view-uuid"]
    uuid: UUID


class AddSchema(Body):
    """A schema for the version of the same request."""

    action: Literal["add-schema"]
    schema_: Annotated[dict[str, Any], Field(alias="schema")]


class AddViewVersion(Body):
    """A version of a view."""

    action: Literal["add-view-version"]
    view_version: VersionToAdd


class SetCurrentViewVersion(Body):
    """The version that becomes the current one. `LAST_ADDED`: the one in the same request."""

    action: Literal["set-current-view-version"]
    view_version_id: int


class SetProperties(Body):
    """Properties to set."""

    action: Literal["set-properties"]
    updates: Mapping[str, str]


class RemoveProperties(Body):
    """Properties to remove."""

    action: Literal["remove-properties"]
    removals: Annotated[tuple[str, ...], FailFast()]


class SetLocation(Body):
    """A location."""

    action: Literal["set-location"]
    location: str


class UpgradeFormatVersion(Body):
    """A format version."""

    action: Literal["upgrade-format-version"]
    format_version: int


class AssignUuid(Body):
    """A uuid."""

    action: Literal["assign-uuid"]
    uuid: UUID


LAST_ADDED: Final = -1
"""In place of the id of a schema or a version: the one that the same request added last."""
ViewUpdate = Annotated[
    AddSchema
    | AddViewVersion
    | SetCurrentViewVersion
    | SetProperties
    | RemoveProperties
    | SetLocation
    | UpgradeFormatVersion
    | AssignUuid,
    Discriminator("action"),
]


class ViewUpdates(Body):
    """The specification's `CommitViewRequest`."""

    requirements: Annotated[tuple[ViewUuid, ...], FailFast(), Field(max_length=CHANGES_MAX)] = ()
    updates: Annotated[tuple[ViewUpdate, ...], FailFast(), Field(max_length=CHANGES_MAX)] = ()


class Updates(Body):
    """The specification's `CommitTableRequest`."""

    requirements: Annotated[tuple[dict[str, Any], ...], FailFast(), Field(max_length=CHANGES_MAX)] = ()
    updates: Annotated[tuple[dict[str, Any], ...], FailFast(), Field(max_length=CHANGES_MAX)] = ()


class AddedSnapshot(Body):
    """The specification's `Snapshot`, as a client adds it. Its numbers and its time are the client's own."""

    snapshot_id: Annotated[int, Field(ge=1, le=2**63 - 1)]
    parent_snapshot_id: int | None = None
    manifest_list: Annotated[str, Field(min_length=1, max_length=4_096)]
    summary: Mapping[str, str]
    schema_id: int | None = None

    @property
    def operation(self) -> str:
        """The operation, in Iceberg's words. `append` if the summary names none."""
        return self.summary.get("operation", "append")


class Name(Body):
    """A table or a view by name."""

    namespace: tuple[str, ...]
    name: str

    @property
    def parent(self) -> str:
        """The namespace with dots."""
        return ".".join(self.namespace)

    @property
    def dotted(self) -> str:
        """The whole name with dots."""
        return f"{self.parent}.{self.name}"


class Renaming(Body):
    """The specification's `RenameTableRequest`."""

    source: Name
    destination: Name


def added_snapshot(table: TableName, update: Mapping[str, object]) -> AddedSnapshot:
    """The snapshot in an update `add-snapshot`. Raises `Refusal`."""
    try:
        return AddedSnapshot.model_validate(update.get("snapshot"))
    except ValidationError as error:
        raise bad_request(f"{table}: add-snapshot: {fault_of_model(error)}") from None


def check_line(table: TableName, snapshots: Sequence[AddedSnapshot], main: int | None) -> None:
    """Check that the snapshots of a request follow each other, and that the last one becomes `main`.

    Raises `Refusal`.
    """
    if not snapshots:
        return
    if len(snapshots) > SNAPSHOTS_MAX:
        raise bad_request(
            f"{table}: add-snapshot: {len(snapshots)} snapshots, {SNAPSHOTS_MAX} are allowed: commit fewer"
        )
    if len({each.snapshot_id for each in snapshots}) < len(snapshots):
        raise bad_request(f"{table}: add-snapshot: two snapshots have the same id: give them different ids")
    if main != snapshots[-1].snapshot_id:
        raise bad_request(
            f"{table}: add-snapshot {snapshots[-1].snapshot_id}: staged snapshots are not supported: set main to the "
            "last snapshot in the same request"
        )
    for before, after in pairwise(snapshots):
        if after.parent_snapshot_id != before.snapshot_id:
            raise bad_request(
                f"{table}: add-snapshot {after.snapshot_id}: its parent is not {before.snapshot_id}, the snapshot that "
                "the request adds before it: send one line of snapshots"
            )


async def read_body(request: Request, kind: type[_Model]) -> _Model:
    """The body of a request. Raises `Refusal`: it is too large or too slow, or not what `kind` describes.

    The answer to a slow body is not a 4xx, because another copy of the request may be committed.
    """
    try:
        async with asyncio.timeout(_BODY_S):
            body = await _received(request)
    except (TimeoutError, ClientDisconnect):
        words = f"the body did not arrive within {_BODY_S:g} s, so nothing was published; send the request anew"
        raise Refusal(503, "ServiceUnavailableException", words) from None
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise bad_request(f"the body is not a valid request: {fault_of_model(error)}") from None


async def _received(request: Request) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > BODY_BYTES_MAX:
            raise bad_request(
                f"the body has more than {BODY_BYTES_MAX:,} bytes, so it was not read; write the change in smaller "
                "parts, or many files through rootline.connect"
            )
        parts.append(part)
    return b"".join(parts)
