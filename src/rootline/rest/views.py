"""Creating, changing and dropping views for engines.

Owns: the specification's requests about views, translated into one intent each. Does not own: the rules of views
(`rootline.schemas.view_changes`), their publication (`rootline.client.view_handle`).
Invariants: ids of versions are given by the coordinator, and the location is always the catalog's own. Nothing is
published before the whole request was checked. A change that must lose no dialect is published for the version that it
was checked against. After a commit, no error states that it failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from pydantic import JsonValue

from rootline.catalog.rest.catalog import known_name
from rootline.catalog.rest.responses import Refusal, bad_request, no_such_view, view_for_engines
from rootline.client import view_handle
from rootline.rest.bodies import (
    LAST_ADDED,
    AddSchema,
    AddViewVersion,
    AssignUuid,
    Body,
    RemoveProperties,
    Renaming,
    SetCurrentViewVersion,
    SetProperties,
    TableToRegister,
    UpgradeFormatVersion,
    VersionToAdd,
    ViewToCreate,
    ViewUpdates,
)
from rootline.rest.refusals import about, after_commit, requirement_failed
from rootline.rest.writing import Writing
from rootline.schemas.errors import Invalid, RootlineError
from rootline.schemas.identifiers import TableName, name_in_namespace, namespace_of, table_name
from rootline.schemas.view_changes import AskedVersion, ViewChange
from rootline.schemas.view_metadata import FORMAT_VERSION, SqlRepresentation, ViewMetadata
from rootline.storage.metadata.root_reader import view_of, view_root

_MAY_DROP_DIALECTS: Final = "replace.drop-dialect.allowed"
_NO_VIEW: Final = frozenset(("view-unknown", "name-is-table", "table-dropped"))
"""Codes for a name without a view."""


async def create(writing: Writing, namespace: str, asked: ViewToCreate) -> bytes:
    """Create a view. Raises `Refusal`: there is no such namespace, the name is taken, or the view cannot be used."""
    name = table_name(f"{namespace}.{asked.name}")
    if namespace_of(name) != namespace:
        raise bad_request(f"{asked.name[:80]!r} is not a view's name: write it without dots")
    await writing.catalog.namespace(namespace)
    version = _version(asked.view_version, {**asked.schema_, "schema-id": 0})
    try:
        with about(name):
            await view_handle.create_view(
                writing.session, writing.stamp, name, version, asked.properties, timeout_s=writing.timeout_s
            )
    except Refusal as refusal:
        if _code(refusal) == "table-exists":
            words = f"Table with same name already exists: {name}; choose another name"
            raise Refusal(409, "AlreadyExistsException", words) from refusal
        raise
    return await _answer(writing, name)


async def commit(writing: Writing, namespace: str, name: str, asked: ViewUpdates) -> bytes:
    """Commit an engine's updates of a view as one intent.

    The last of two concurrent changes wins, as in Iceberg's own catalogs. One that lost such a race is checked and
    published anew, until the deadline.

    Raises:
        Refusal: there is no such view, a requirement fails, or the updates cannot be made.
    """
    session, known = writing.session, known_name(namespace, name, no_such_view)
    deadline_s = session.environment.monotonic_s() + writing.timeout_s
    with _about_view(namespace, name):
        while True:
            root = await view_root(session.store, known)
            view_uuid = root.header.table_uuid
            for required in asked.requirements:
                if required.uuid != view_uuid:
                    raise requirement_failed(f"view UUID does not match: expected {required.uuid} != {view_uuid}")
            change = change_of(view_of(root.header), asked, known)
            if change is None:
                return await writing.catalog.view(namespace, name)
            rest_s = deadline_s - session.environment.monotonic_s()
            try:
                await view_handle.change_view(
                    session, writing.stamp, known, change, view_uuid=view_uuid, timeout_s=rest_s
                )
                break
            except Invalid as error:
                if error.code != "view-changed" or rest_s <= 0:
                    raise
    return await _answer(writing, known)


async def drop(writing: Writing, namespace: str, name: str) -> None:
    """Drop a view. Raises `Refusal`: there is no such view."""
    known = known_name(namespace, name, no_such_view)
    with _about_view(namespace, name):
        await view_handle.drop_view(writing.session, writing.stamp, known, timeout_s=writing.timeout_s)


async def rename(writing: Writing, asked: Renaming) -> None:
    """Refuse to rename a view, with the reason that an engine expects."""
    catalog, (source, destination) = writing.catalog, (asked.source, asked.destination)
    await catalog.view_exists(source.parent, source.name)
    await catalog.namespace(destination.parent)
    words = f"Cannot rename {source.dotted} to {destination.dotted}."
    await _check_free(
        writing,
        destination.parent,
        destination.name,
        of_view=f"{words} View already exists",
        of_table=f"{words} Table already exists",
    )
    raise Refusal(
        406,
        "UnsupportedOperationException",
        f"{words} A view's name is the name of its folder; create a view with the new name, and drop this one",
    )


async def register(writing: Writing, namespace: str, asked: TableToRegister) -> None:
    """Refuse to register a view, with the reason that an engine expects."""
    name = f"{namespace}.{asked.name}"
    await writing.catalog.namespace(namespace)
    await _check_free(
        writing,
        namespace,
        asked.name,
        of_view=f"View already exists: {name}",
        of_table=f"Table with same name already exists: {name}",
    )
    raise Refusal(
        406,
        "UnsupportedOperationException",
        f"{name}: a view is stored in Rootline's own metadata, so that no file can be registered as one; create it",
    )


def change_of(view: ViewMetadata, asked: ViewUpdates, name: TableName) -> ViewChange | None:
    """The change of `view` that a request describes, or `None` if it describes none.

    A new location is no change: a view has no files, and the location stays the catalog's own, as in `create`.

    Raises:
        Refusal: the change cannot be made.
    """
    for update in asked.updates:
        match update:
            case UpgradeFormatVersion() if update.format_version != FORMAT_VERSION:
                raise bad_request(f"{name}: format-version {update.format_version} is not one of views; use 1")
            case AssignUuid() if update.uuid != view.view_uuid:
                raise bad_request(f"{name}: its uuid is {view.view_uuid}, which never changes; reload the view")
    properties, removed = _changed_properties(asked, name)
    change: dict[str, Any] = {}
    if properties:
        change["set_properties"] = properties
    if removed:
        change["remove_properties"] = removed
    made = _changed_version(view, asked, name)
    if made is not None:
        kept = {key: text for key, text in (view.properties or {}).items() if key not in removed} | properties
        if kept.get(_MAY_DROP_DIALECTS, "").lower() != "true":
            _check_dialects(view, made, name)
            change["replaces_version_id"] = view.current_version_id
        change["version" if isinstance(made, AskedVersion) else "current_version_id"] = made
    return ViewChange(**change) if change else None


def _changed_properties(asked: ViewUpdates, name: TableName) -> tuple[dict[str, str], tuple[str, ...]]:
    properties = {key: text for each in _all(SetProperties, asked) for key, text in each.updates.items()}
    removed = tuple(dict.fromkeys(key for each in _all(RemoveProperties, asked) for key in each.removals))
    both = [key for key in removed if key in properties]
    if both:
        raise bad_request(f"{name}: the request sets and removes {both[0]!r:.80}; name a property in one of them")
    return properties, removed


def _changed_version(view: ViewMetadata, asked: ViewUpdates, name: TableName) -> AskedVersion | int | None:
    """The version that becomes the current one: a new one, the id of an earlier one, or `None` for no change."""
    added, schema = _one(AddViewVersion, asked, name), _one(AddSchema, asked, name)
    current = _one(SetCurrentViewVersion, asked, name)
    current_id = None if current is None else current.view_version_id
    if added is not None:
        if current_id not in (LAST_ADDED, added.view_version.version_id):
            raise bad_request(f"{name}: a new version becomes the current one; send set-current-view-version with it")
        return _version(added.view_version, _schema(view, added.view_version.schema_id, schema, name))
    if schema is not None or current_id == LAST_ADDED:
        raise bad_request(f"{name}: the request adds no version; send add-view-version with it")
    return None if current_id == view.current_version_id else current_id


def _schema(view: ViewMetadata, schema_id: int, added: AddSchema | None, name: TableName) -> dict[str, JsonValue]:
    """The schema that a new version names, from the request or from the view."""
    if added is not None and schema_id in (LAST_ADDED, added.schema_.get("schema-id", 0)):
        return added.schema_
    for schema in view_for_engines(view)["schemas"]:
        if schema.get("schema-id", 0) == schema_id:
            return dict(schema)
    raise bad_request(f"{name}: neither the view nor the request has a schema {schema_id}; send add-schema with it")


def _version(given: VersionToAdd, schema: dict[str, JsonValue]) -> AskedVersion:
    """The version in the form of an intent. A schema without columns is dropped.

    Raises:
        Refusal: it has two texts in one dialect. Iceberg's clients expect this type.
    """
    places: dict[str, Any] = {"default_namespace": given.default_namespace}
    if given.default_catalog is not None:
        places["default_catalog"] = given.default_catalog
    texts = tuple(each.model_copy(update=places) for each in given.representations)
    twice = [text for text, times in Counter(text.dialect.lower() for text in texts).items() if times > 1]
    if twice:
        words = f"Invalid view version: Cannot add multiple queries for dialect {twice[0]:.80}; give one"
        raise Refusal(400, "IllegalArgumentException", words)
    summary = {key: text for key, text in given.summary.items() if key != "operation"}
    if not schema.get("fields"):
        return AskedVersion(representations=texts, summary=summary)
    return AskedVersion(representations=texts, columns=schema, summary=summary)


def _check_dialects(view: ViewMetadata, made: AskedVersion | int, name: TableName) -> None:
    """Raises `Refusal` if the new current version has no text in a dialect of the one before, as Iceberg does."""
    with about(name):
        texts = made.representations if isinstance(made, AskedVersion) else view.version_by_id(made).sql_texts
    lost = _dialects(view.current_version.sql_texts) - _dialects(texts)
    if lost:
        raise bad_request(
            f"Cannot replace view due to loss of view dialects ({_MAY_DROP_DIALECTS}=false): {name} would have no SQL "
            f"in {', '.join(sorted(lost))}; give it, or set this property to true"
        )


def _dialects(texts: Iterable[SqlRepresentation]) -> set[str]:
    return {text.dialect.lower() for text in texts}


_Update = TypeVar("_Update", bound=Body)


def _all(kind: type[_Update], asked: ViewUpdates) -> list[_Update]:
    return [update for update in asked.updates if isinstance(update, kind)]


def _one(kind: type[_Update], asked: ViewUpdates, name: TableName) -> _Update | None:
    found = _all(kind, asked)
    if len(found) > 1:
        raise bad_request(f"{name}: the request has several updates of one kind ({kind.__name__}); send one at a time")
    return found[0] if found else None


async def _answer(writing: Writing, name: TableName) -> bytes:
    """The view after a commit."""
    with after_commit(name):
        return await writing.catalog.view(namespace_of(name), name_in_namespace(name))


@contextmanager
def _about_view(namespace: str, name: str) -> Iterator[None]:
    """Turn the errors of a block into refusals about a view."""
    try:
        with about(f"{namespace}.{name}"):
            yield
    except Refusal as refusal:
        if _code(refusal) in _NO_VIEW:
            raise no_such_view(namespace, name) from refusal
        raise


def _code(refusal: Refusal) -> str:
    cause = refusal.__cause__
    return cause.code if isinstance(cause, RootlineError) else ""


async def _check_free(writing: Writing, namespace: str, name: str, *, of_view: str, of_table: str) -> None:
    """Raises `Refusal` in these words if a view or a table has the name."""
    for words, look_up in ((of_view, writing.catalog.view_exists), (of_table, writing.catalog.table_exists)):
        try:
            await look_up(namespace, name)
        except Refusal as refusal:
            if refusal.status != 404:
                raise
        else:
            raise Refusal(409, "AlreadyExistsException", f"{words}; choose another name")
