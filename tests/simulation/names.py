"""What simulated writers do to a name that is a view now, or nothing; and to one whose table is replaced.

They make a table or a view of it, change the view, end it, or bring the table back.

Owns: which of these, and what such intents say. Does not own: what becomes of them, intents for tables that are there
(`writers`).
Invariants: the writer knows what the name was when it looked, and says which table or view it means.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rootline.schemas.intent import Intent, IntentKind, VersionReference
from rootline.schemas.parts.name import NameState
from rootline.schemas.root_header import RootHeader
from rootline.schemas.table_definition import TableDefinition
from rootline.schemas.view_changes import AskedVersion, ViewChange, ViewToCreate, text_of
from rootline.schemas.view_metadata import SqlRepresentation, ViewMetadata
from rootline.tree.evolution.changes import DefinitionChanges, SetCurrentSchema
from rootline.tree.state.table_state import TableState
from tests.simulation.evolving import column_more

SeenVersions = dict[tuple[uuid.UUID, int], str]
"""View and version id → its SQL, of the versions that a writer went back to."""


def new_view(intent: Intent, rng: random.Random) -> Intent:
    """In place of `intent`: the name is to be a view."""
    view_uuid = uuid.UUID(int=rng.getrandbits(128))
    asked = ViewToCreate(view_uuid=view_uuid, location=f"views/{intent.table}", version=_version(intent.intent_id))
    return _instead(intent, IntentKind.CREATE_VIEW, view_uuid, text_of(asked))


def for_a_view(intent: Intent, header: RootHeader, rng: random.Random, seen: SeenVersions) -> Intent:
    """In place of `intent`: another version, an earlier one again, other properties, or the end of the view."""
    view = ViewMetadata.from_json(header.name.view or b"")
    roll, view_uuid = rng.random(), header.table_uuid
    current = view.current_version_id if rng.random() < 0.5 else None
    if roll < 0.45:
        return _instead(intent, IntentKind.DROP_VIEW, view_uuid)
    if roll < 0.55:
        return intent.model_copy(update={"table_uuid": view_uuid})  # which is for a table
    if roll < 0.62:
        change = ViewChange(set_properties={"owner": intent.intent_id}, replaces_version_id=current)
    elif roll < 0.75:
        version = rng.choice(view.versions)
        seen[view_uuid, version.version_id] = sql_of(view, version.version_id)
        change = ViewChange(current_version_id=version.version_id, replaces_version_id=current)
    else:
        says = sql_of(view) if roll > 0.95 else f"SELECT '{intent.intent_id}'"
        change = ViewChange(version=_version(says, is_whole=True), replaces_version_id=current)
    return _instead(intent, IntentKind.REPLACE_VIEW, view_uuid, text_of(change))


def for_nothing(intent: Intent, header: RootHeader, first: TableDefinition, rng: random.Random) -> Intent:
    """In place of `intent`: the table that was dropped, a new one, or a view."""
    roll = rng.random()
    if roll < 0.4:
        ref = VersionReference(version=header.name.drops[-1].version)
        return _instead(intent, IntentKind.RESTORE, header.table_uuid, ref=ref)
    if roll < 0.7:
        return new_view(intent, rng)
    again = replace(first, table_uuid=uuid.UUID(int=rng.getrandbits(128)))
    made = _instead(intent, IntentKind.CREATE, None, again.to_json().decode())
    is_of_first = intent.kind is IntentKind.APPEND and (intent.schema_id or 0) == first.current_schema_id
    return made.model_copy(update={"add_data_files": intent.add_data_files}) if is_of_first else made


def replacing(intent: Intent, view: TableState, rng: random.Random) -> Intent:
    """In place of `intent`: the table goes on with its files alone; now and then with a column more."""
    changes = column_more(view.definition, view.header, f"column-{intent.intent_id}")
    if rng.random() < 0.5:
        changes = DefinitionChanges(changes.replaces, (SetCurrentSchema(view.definition.current_schema_id),))
    text = changes.to_json()
    made = _instead(intent, IntentKind.REPLACE, view.header.table_uuid, text)
    files = intent.add_data_files if intent.kind in (IntentKind.APPEND, IntentKind.OVERWRITE) else ()
    return made.model_copy(update={"add_data_files": files, "schema_id": intent.schema_id})


def sql_of(view: ViewMetadata, version_id: int | None = None) -> str:
    """What the view says, or said in a version."""
    version = view.version_by_id(view.current_version_id if version_id is None else version_id)
    [text] = version.representations
    assert isinstance(text, SqlRepresentation)
    return text.sql


def _version(says: str, *, is_whole: bool = False) -> AskedVersion:
    sql = says if is_whole else f"SELECT '{says}'"
    return AskedVersion(representations=(SqlRepresentation(type="sql", sql=sql, dialect="spark"),))


def _instead(
    intent: Intent,
    kind: IntentKind,
    which: uuid.UUID | None,
    definition: str | None = None,
    *,
    ref: VersionReference | None = None,
) -> Intent:
    return Intent(
        intent_id=intent.intent_id,
        table=intent.table,
        table_uuid=which,
        kind=kind,
        writer_id=intent.writer_id,
        writer_sequence=intent.writer_sequence,
        definition=definition,
        ref=ref,
    )


@dataclass(slots=True)
class ReferenceView:
    """A view is its SQL and its properties."""

    sql: str
    properties: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def of(intent: Intent) -> ReferenceView:
        """What a `create_view` makes."""
        return ReferenceView(_asked_sql(json.loads(intent.definition or "")["version"]))

    def change(self, intent: Intent, seen: Mapping[tuple[uuid.UUID, int], str]) -> None:
        """What a `replace_view` does."""
        asked = json.loads(intent.definition or "")
        self.properties |= asked.get("set-properties", {})
        if "version" in asked:
            self.sql = _asked_sql(asked["version"])
        if "current-version-id" in asked:
            assert intent.table_uuid is not None
            self.sql = seen[intent.table_uuid, asked["current-version-id"]]


def _asked_sql(version: Mapping[str, list[Mapping[str, str]]]) -> str:
    return version["representations"][0]["sql"]


def check_name(header: RootHeader, view: ReferenceView | None, *, is_dropped: bool) -> None:
    """Raise `AssertionError` unless the newest root of a name says what the accepted intents made of it."""
    wanted = NameState.TOMBSTONE if is_dropped else NameState.TABLE if view is None else NameState.VIEW
    assert header.name.state is wanted, (
        f"{header.table} is a {header.name.state}, its accepted intents make it a {wanted}"
    )
    if view is not None:
        found = ViewMetadata.from_json(header.name.view or b"")
        says = sql_of(found), dict(found.properties or {})
        assert says == (view.sql, view.properties), f"{header.table}: the view is not that of the accepted intents"
