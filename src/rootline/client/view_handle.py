"""A view, for a client program, and the intents that create, change and drop one.

Owns: the public methods of a view, and its intents, made from the caller's values and the name's newest root. Does not
own: the rules of these intents (`rootline.tree`), a view's metadata (`view_metadata`).
Invariants: a handle has no connection, only a reference to its lake, so it may be pickled and shared between threads.
Every change waits for its verdict. An intent names the view's UUID, so a view that got the name meanwhile is never
changed. The result of `metadata` never changes.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from rootline.client import checks
from rootline.client.checks import DEFAULT_TIMEOUT_S
from rootline.client.new_files import commit_intent
from rootline.client.session import Commit, OpenLake, Session, WriterStamp
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import NamespaceName, TableName, namespace_of
from rootline.schemas.intent import Intent, IntentKind
from rootline.schemas.object_keys import table_prefix
from rootline.schemas.view_changes import AskedVersion, ViewChange, ViewToCreate, text_of
from rootline.schemas.view_metadata import SqlRepresentation, VersionLogEntry, ViewMetadata
from rootline.storage.metadata.root_reader import find_head, list_views, view_of, view_root


@dataclass(frozen=True, slots=True)
class SqlGiven:
    """A caller's description of a view version: the text in each dialect, the columns, and the default catalog and
    namespace.
    """

    texts: Mapping[str, str]
    columns: dict[str, JsonValue] | None
    default_catalog: str | None
    default_namespace: NamespaceName | None

    @staticmethod
    def of(sql: object, dialect: object, schema: Any, default_catalog: object, default_namespace: object) -> SqlGiven:
        """The checked values of a caller. Raises `Invalid`: `setting-invalid`, `definition-invalid`,
        `namespace-invalid`.
        """
        from rootline.client.given_schema import given_schema

        texts = checks.text_map(sql, "sql") if isinstance(sql, Mapping) else None
        if texts is None:
            texts = {checks.text(dialect, "dialect"): checks.text(sql, "sql")}
        if not texts or not all(key and value for key, value in texts.items()):
            raise Invalid("setting-invalid", "sql has no text: give one that is not empty, and name its dialect")
        found = None if schema is None else given_schema(schema)
        if found is not None and not found.fields:
            raise Invalid("definition-invalid", "the schema has no columns: give some, or leave the schema out")
        columns = None if found is None else json.loads(found.model_dump_json(exclude={"schema_id"}))
        return SqlGiven(
            texts,
            columns,
            None if default_catalog is None else checks.text(default_catalog, "default_catalog"),
            None if default_namespace is None else checks.namespace(default_namespace),
        )

    def version(self, view: TableName) -> AskedVersion:
        """The version in the form of an intent. The default namespace of names in the SQL is the view's own unless
        given.
        """
        places: dict[str, Any] = {"default_namespace": tuple((self.default_namespace or namespace_of(view)).split("."))}
        if self.default_catalog is not None:
            places["default_catalog"] = self.default_catalog
        texts = tuple(
            SqlRepresentation(type="sql", sql=text, dialect=dialect, **places) for dialect, text in self.texts.items()
        )
        if self.columns is None:
            return AskedVersion(representations=texts)
        return AskedVersion(representations=texts, columns=self.columns)


async def create_view(
    session: Session,
    stamp: WriterStamp,
    name: TableName,
    version: AskedVersion,
    properties: Mapping[str, str],
    *,
    timeout_s: float,
) -> Commit:
    """Create the view. Raises the errors of `Lake.create_view`."""
    await find_head(session.store, name)  # fails if the store ignores case and has this name in another case
    view_uuid = uuid.UUID(session.environment.fresh_id())
    asked = ViewToCreate(
        view_uuid=view_uuid,
        location=f"{session.base_url.rstrip('/')}/{table_prefix(name).rstrip('/')}",
        version=version,
        properties=dict(properties),
    )
    return await _commit(session, stamp, name, IntentKind.CREATE_VIEW, view_uuid, text_of(asked), timeout_s)


async def change_view(
    session: Session,
    stamp: WriterStamp,
    name: TableName,
    change: ViewChange,
    *,
    view_uuid: uuid.UUID | None = None,
    timeout_s: float,
) -> Commit:
    """Change the view with this uuid, or without one the view that has the name now.

    Raises the errors of the methods of `ViewHandle`.
    """
    known = view_uuid or (await view_root(session.store, name)).header.table_uuid
    return await _commit(session, stamp, name, IntentKind.REPLACE_VIEW, known, text_of(change), timeout_s)


async def drop_view(session: Session, stamp: WriterStamp, name: TableName, *, timeout_s: float) -> Commit:
    """Drop the view that has the name now. Raises the errors of `ViewHandle.drop`."""
    root = await view_root(session.store, name)
    return await _commit(session, stamp, name, IntentKind.DROP_VIEW, root.header.table_uuid, None, timeout_s)


async def view_names(session: Session, namespace: NamespaceName | None) -> list[str]:
    """The names of all views, or of those of a namespace, ascending."""
    found = await list_views(session.store)
    return sorted(name for name in found if namespace is None or namespace_of(name) == namespace)


async def _commit(
    session: Session,
    stamp: WriterStamp,
    name: TableName,
    kind: IntentKind,
    view_uuid: uuid.UUID,
    text: str | None,
    timeout_s: float,
) -> Commit:
    intent = Intent(
        intent_id=session.environment.fresh_id(), table=name, table_uuid=view_uuid, kind=kind, definition=text
    )
    return await commit_intent(session, stamp, intent, timeout_s=timeout_s)


_VERSION_MAX = 2**31 - 1


class ViewHandle:
    """A view, made by `lake.view` and `lake.create_view`.

    It may be shared between threads and pickled. Changes wait for their verdict. Each method raises `Invalid`:
    `view-unknown` once the view was dropped, and `name-is-table` if a table has its name meanwhile.
    """

    def __init__(self, lake: OpenLake, name: TableName) -> None:
        self._lake = lake
        self.name = name

    def metadata(self) -> ViewMetadata:
        """The current state of the view: its versions, schemas, properties and version log."""
        return view_of(self._lake.holder.run(lambda session: view_root(session.store, self.name)).header)

    def sql(self, dialect: str | None = None) -> str:
        """The SQL of the current version in a dialect. `None`: the first dialect of the version.

        Raises:
            Invalid: `view-invalid`, the version has no SQL in this dialect.
        """
        wanted = None if dialect is None else checks.text(dialect, "dialect").lower()
        texts = self.metadata().current_version.sql_texts
        found = [text.sql for text in texts if wanted in (None, text.dialect.lower())]
        if not found:
            known = ", ".join(text.dialect for text in texts) or "none"
            raise Invalid("view-invalid", f"{self.name}: it has no SQL in dialect {dialect!r:.80}; it has {known}")
        return found[0]

    def history(self) -> list[VersionLogEntry]:
        """The version log: each version with the time it became current, newest last."""
        return list(self.metadata().version_log)

    def replace(
        self,
        sql: str | Mapping[str, str],
        *,
        dialect: str = "spark",
        schema: Any = None,
        default_catalog: str | None = None,
        default_namespace: str | None = None,
        replaces_version: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Commit:
        """Add a version to the view and make it current. An existing version with the same content is reused.

        Args:
            sql: as in `lake.create_view`, like the arguments after it. If one of them is omitted, the new version does
                not have it.
            dialect: the dialect of `sql`, if it is one text.
            schema: the columns of the view's rows.
            default_catalog: the catalog of names without one.
            default_namespace: the namespace of names without one.
            replaces_version: the version that must be current, or `None` for any version.
            timeout_s: the waiting time for the verdict, in seconds.

        Raises:
            Invalid: `view-changed`, another version is current; `view-invalid`, `view-dialect-twice`, `view-too-large`,
                `intent-too-large`, `definition-invalid`.
            OutcomeUnknown: `verdict-timeout`.
        """
        given = SqlGiven.of(sql, dialect, schema, default_catalog, default_namespace)
        seen = _version(replaces_version, "replaces_version")
        version = given.version(self.name)
        if seen is None:
            return self._change(ViewChange(version=version), timeout_s)
        return self._change(ViewChange(version=version, replaces_version_id=seen), timeout_s)

    def rollback(self, version: int, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Commit:
        """Make an earlier version current again. Raises `Invalid`: `view-version-unknown`."""
        return self._change(
            ViewChange(current_version_id=checks.whole(_version(version, "version"), "version")), timeout_s
        )

    def set_properties(self, properties: Mapping[str, str], *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Commit:
        """Set these properties. The others are kept. Raises `Invalid`: `view-invalid`, `view-too-large`."""
        return self._change(ViewChange(set_properties=checks.text_map(properties, "properties")), timeout_s)

    def remove_properties(self, keys: Sequence[str], *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Commit:
        """Remove these properties, if set."""
        return self._change(ViewChange(remove_properties=checks.texts(keys, "keys")), timeout_s)

    def drop(self, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Commit:
        """Drop the view. Its name is free then, and the view cannot be restored."""
        wait_s = checks.seconds(timeout_s)
        return self._lake.holder.run(lambda session: drop_view(session, self._lake.stamp, self.name, timeout_s=wait_s))

    def _change(self, change: ViewChange, timeout_s: float) -> Commit:
        wait_s = checks.seconds(timeout_s)
        return self._lake.holder.run(
            lambda session: change_view(session, self._lake.stamp, self.name, change, timeout_s=wait_s)
        )

    def __repr__(self) -> str:
        return f"<ViewHandle {self.name}>"


def _version(given: object, name: str) -> int | None:
    found = checks.whole_or_none(given, name, least=1)
    if found is not None and found > _VERSION_MAX:
        raise Invalid("setting-invalid", f"{name} is {found}, and the greatest is {_VERSION_MAX}; give an existing one")
    return found
