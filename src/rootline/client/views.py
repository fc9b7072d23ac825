"""Views: the intents that make, change and drop them.

Owns: the intents, made from what is given and from the name's newest root. Does not own: their rules
(`rootline.tree.intents.view`), the public methods (`view_handle`, `lake_names`).
Invariants: an intent names the view that was seen, so that one which was made meanwhile is never hit.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from rootline.client import checks
from rootline.client.session.commit import Commit
from rootline.client.session.session import Session
from rootline.client.session.writer_stamp import WriterStamp
from rootline.client.write.append_files import commit_intent
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import NamespaceName, TableName, namespace_of
from rootline.schemas.intent import Intent, IntentKind
from rootline.schemas.object_keys import table_prefix
from rootline.schemas.view_changes import AskedVersion, ViewChange, ViewToCreate, text_of
from rootline.schemas.view_metadata import SqlRepresentation
from rootline.storage.metadata.root_reader import find_head, list_views, view_root


@dataclass(frozen=True, slots=True)
class SqlGiven:
    """What a caller says of a version: the text in each dialect, the columns, and where names without a place are."""

    texts: Mapping[str, str]
    columns: dict[str, JsonValue] | None
    default_catalog: str | None
    default_namespace: NamespaceName | None

    @staticmethod
    def of(sql: object, dialect: object, schema: Any, default_catalog: object, default_namespace: object) -> SqlGiven:
        """Raises `Invalid`: `setting-invalid`, `definition-invalid`, `namespace-invalid`."""
        from rootline.client.write.given_schema import given_schema

        texts = checks.text_map(sql, "sql") if isinstance(sql, Mapping) else None
        if texts is None:
            texts = {checks.text(dialect, "dialect"): checks.text(sql, "sql")}
        if not texts or not all(key and value for key, value in texts.items()):
            raise Invalid("setting-invalid", "sql has no text: give one that is not empty, and name its dialect")
        found = None if schema is None else given_schema(schema)
        if found is not None and not found.fields:
            raise Invalid("definition-invalid", "the schema has no columns: give some, or leave the schema out")
        columns = None if found is None else json.loads(found.model_dump_json())
        return SqlGiven(
            texts,
            columns,
            None if default_catalog is None else checks.text(default_catalog, "default_catalog"),
            None if default_namespace is None else checks.namespace(default_namespace),
        )

    def version(self, view: TableName) -> AskedVersion:
        """As an intent asks for it; names without a namespace are in the view's own, unless it is said."""
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
    given: SqlGiven,
    properties: Mapping[str, str],
    *,
    timeout_s: float,
) -> Commit:
    """Create the view. Raises as `Lake.create_view`."""
    await find_head(session.store, name)  # a store that cannot tell this name from another one says so here
    view_uuid = uuid.UUID(session.environment.fresh_id())
    asked = ViewToCreate(
        view_uuid=view_uuid,
        location=f"{session.base_url.rstrip('/')}/{table_prefix(name).rstrip('/')}",
        version=given.version(name),
        properties=dict(properties),
    )
    return await _commit(session, stamp, name, IntentKind.CREATE_VIEW, view_uuid, text_of(asked), timeout_s)


async def change_view(
    session: Session, stamp: WriterStamp, name: TableName, change: ViewChange, *, timeout_s: float
) -> Commit:
    """Change the view that has the name now. Raises as the methods of `ViewHandle`."""
    root = await view_root(session.store, name)
    kind = IntentKind.REPLACE_VIEW
    return await _commit(session, stamp, name, kind, root.header.table_uuid, text_of(change), timeout_s)


async def drop_view(session: Session, stamp: WriterStamp, name: TableName, *, timeout_s: float) -> Commit:
    """Drop the view that has the name now. Raises as `ViewHandle.drop`."""
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
