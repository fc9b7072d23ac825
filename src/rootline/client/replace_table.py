"""Replacing a table's rows and columns: its intent, planned on the current definition, and creating a table that
does not exist.

Owns: the choice of columns that keep their ids, the new partitioning and sort order, and the order of steps if the
table may not exist. Does not own: the effect of a replace (`rootline.tree.intents.row_changes`), files
(`data_file_writer`).
Invariants: rows are in the store before the intent is published. Columns, rows and the removal of the old rows are one
intent. A column keeps its id only if older files can be read by its new type.

Source: docs/decisions/0074.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import count, cycle
from typing import Any, Final

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType

from rootline.client import checks
from rootline.client.create_drop import build_definition, create_table
from rootline.client.given_rows import GivenRows
from rootline.client.given_schema import given_schema
from rootline.client.layout_terms import Layout, SortBy, given_order, sort_fields
from rootline.client.merged_rows import CHANGES_CHARS_MAX, StoredRows
from rootline.client.new_files import append_files, for_intent, write_and_store
from rootline.client.planned_change import commit_planned
from rootline.client.session import Commit, Session, WriterStamp
from rootline.client.time_travel import read_head
from rootline.schemas.default_values import renumbered_default
from rootline.schemas.errors import Internal, Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import DataFile, Intent, IntentKind
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.root_reader import read_definition
from rootline.storage.replanning import Patience, drive_async, no_jitter
from rootline.tree.evolution.changes import (
    DefinitionChange,
    DefinitionChanges,
    SetCurrentSchema,
    SetProperties,
    order_changes,
    schema_changes,
    spec_changes,
)
from rootline.tree.evolution.evolution_rules import may_become
from rootline.tree.evolution.next_definition import replaced_definition

_NO_TABLE: Final = {"table-unknown", "table-dropped"}
_LOST_RACES: Final = {"table-exists", "table-replaced", "table-uuid-mismatch", "table-uuid-missing"}
_OTHER_WAYS_MAX: Final = 14
"""The maximum of switches between replacing and creating, while others create, drop and replace the same name."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """The new state of a table. A field that is `None` keeps the table's columns, partitioning or sort order."""

    schema: Schema | None = None
    partition_by: Sequence[str] | None = None
    sort_by: SortBy | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(schema: Any, partition_by: Any, sort_by: Any, properties: Any) -> Replacement:
        """A caller's arguments, checked. Raises `Invalid` (`setting-invalid`, `definition-invalid`)."""
        wanted = None if schema is None else given_schema(schema)
        if wanted is not None and not wanted.fields:
            raise Invalid("definition-invalid", "a table needs at least one column, and the schema has none")
        return Replacement(
            wanted,
            None if partition_by is None else checks.texts(partition_by, "partition_by"),
            None if sort_by is None else given_order(sort_by),
            checks.table_properties(properties),
        )

    def changes_of(self, definition: TableDefinition, digest: bytes) -> DefinitionChanges:
        """The changes from `definition` to this state. Raises `Invalid`, which names the column, term or property."""
        made: list[DefinitionChange] = [SetCurrentSchema(definition.current_schema_id)]
        layout = Layout.of(definition)
        if self.schema is not None:
            schema = renumbered(self.schema, definition)
            made, layout = list(schema_changes(schema)), replace(layout, schema=schema)
        if self.partition_by is not None:
            layout = replace(layout, spec=())
            for term in self.partition_by:
                layout = layout.with_field(term, None, None)
            made += spec_changes(layout.spec)
        if self.sort_by is not None:
            made += order_changes(sort_fields(self.sort_by, layout.schema))
        if self.properties:
            made.append(SetProperties(self.properties))
        return DefinitionChanges(digest, tuple(made))


def renumbered(schema: Schema, definition: TableDefinition) -> Schema:
    """`schema` with new field ids. A column gets the id of the table's column of the same name if older files can be
    read by its new type, and a fresh id otherwise.
    """
    numbers = _Numbers(count(definition.last_column_id + 1))
    struct = numbers.struct(schema.as_struct(), definition.schema.as_struct())
    identifiers = [numbers.became[field_id] for field_id in schema.identifier_field_ids]
    return Schema(*struct.fields, schema_id=0, identifier_field_ids=identifiers)


@dataclass(slots=True)
class _Numbers:
    """New ids of fields. `became`: the id in the given schema → the id in the table."""

    fresh: Iterator[int]
    became: dict[int, int] = field(default_factory=dict)

    def struct(self, wanted: StructType, known: StructType | None) -> StructType:
        names = {} if known is None else {one.name: one for one in known.fields}
        return StructType(*(self._field(one, names.get(one.name)) for one in wanted.fields))

    def _field(self, wanted: NestedField, known: NestedField | None) -> NestedField:
        if known is not None and not _may_keep_id(wanted, known):
            known = None
        own = next(self.fresh) if known is None else known.field_id
        self.became[wanted.field_id] = own
        of_type = self._type(wanted.field_type, None if known is None else known.field_type)
        changed: dict[str, object] = {"field_id": own, "field_type": of_type}
        for kind in ("initial_default", "write_default"):
            default = getattr(wanted, kind)
            if default is not None and not isinstance(of_type, PrimitiveType):
                changed[kind] = renumbered_default(wanted.field_type, default, self.became)
        return wanted.model_copy(update=changed)

    def _type(self, wanted: IcebergType, known: IcebergType | None) -> IcebergType:
        match wanted:
            case StructType():
                return self.struct(wanted, known if isinstance(known, StructType) else None)
            case ListType():
                of_list = known if isinstance(known, ListType) else None
                element = self._field(wanted.element_field, None if of_list is None else of_list.element_field)
                return ListType(element.field_id, element.field_type, element_required=element.required)
            case MapType():
                of_map = known if isinstance(known, MapType) else None
                key = self._field(wanted.key_field, None if of_map is None else of_map.key_field)
                value = self._field(wanted.value_field, None if of_map is None else of_map.value_field)
                return MapType(
                    key.field_id, key.field_type, value.field_id, value.field_type, value_required=value.required
                )
        return wanted


def _may_keep_id(wanted: NestedField, known: NestedField) -> bool:
    """Whether the column may keep its id: older files can be read by its new type, at every depth."""
    if wanted.required and not known.required:
        return False
    if wanted.initial_default != known.initial_default or not may_become(known.field_type, wanted.field_type):
        return False
    match known.field_type, wanted.field_type:
        case ListType() as old, ListType() as new:
            return _may_keep_id(new.element_field, old.element_field)
        case MapType() as old, MapType() as new:
            same_key = isinstance(old.key_type, PrimitiveType) and old.key_type == new.key_type
            return same_key and _may_keep_id(new.value_field, old.value_field)
    return True


async def replace_table(
    session: Session,
    stamp: WriterStamp,
    table: TableName,
    becomes: Replacement,
    rows: GivenRows | None,
    timeout_s: float,
    target_bytes: int,
    summary: Mapping[str, str],
) -> Commit:
    """Replace the table by `becomes` and `rows`. It is planned again if its definition changes meanwhile.

    Raises:
        Invalid: `table-unknown`, `table-dropped`, `name-is-view`; a column, a term or a row is invalid; or the intent
            was rejected.
        OutcomeUnknown: `verdict-timeout`.
    """
    given = rows if rows is not None and rows.num_rows else None
    stored = None if given is None else StoredRows(session, table, given, target_bytes)

    async def plan_intent() -> Intent:
        header = (await read_head(session.store, table)).header
        before = await read_definition(session.store, header)
        text = becomes.changes_of(before, header.definition.digest).to_json()
        if len(text) > CHANGES_CHARS_MAX:
            raise Invalid(
                "intent-too-large",
                f"{table}: the definitions of its new columns have {len(text):,} characters. An intent with files can "
                f"contain {CHANGES_CHARS_MAX:,}: replace it without rows, then append them",
            )
        after = replaced_definition(before, DefinitionChanges.from_json(text))
        files: list[DataFile] = [] if stored is None else await stored.files(after)
        new = await for_intent(session, table, after, files)
        return Intent(
            intent_id=session.environment.fresh_id(),
            table=table,
            table_uuid=header.table_uuid,
            kind=IntentKind.REPLACE,
            schema_id=after.current_schema_id,
            add_data_files=new.files,
            add_manifests=new.leaves,
            definition=text,
            summary=dict(summary),
        )

    commit = await commit_planned(session, stamp, plan_intent, timeout_s=timeout_s)
    if commit is None:
        raise Internal("invariant-broken", f"{table}: a replace was not published")
    return commit


async def create_or_replace(
    session: Session,
    stamp: WriterStamp,
    table: TableName,
    becomes: Replacement,
    rows: GivenRows | None,
    timeout_s: float,
    target_bytes: int,
    summary: Mapping[str, str],
) -> Commit:
    """Replace the table. If the table does not exist, create it and append `rows`.

    `becomes`: the definition of the new table, with a schema.

    Raises the errors of `replace_table` and `create_table`.
    """
    assert becomes.schema is not None, "a new table needs columns"
    schema, patience = becomes.schema, Patience.of(timeout_s, session.environment.monotonic_s, no_jitter)
    ways = cycle(_Way)

    async def choose_way() -> _Way:
        return next(ways)

    async def create() -> Commit:
        definition = build_definition(
            schema,
            partition_by=becomes.partition_by or (),
            sort_by=becomes.sort_by or (),
            properties=becomes.properties,
            table_uuid=uuid.uuid4(),
        )
        made = await create_table(session, stamp, table, definition, timeout_s=patience.verdict_wait_s)
        if rows is None or not rows.num_rows:
            return made
        files = await write_and_store(session, table, definition, rows, target_bytes)
        wait_s = patience.verdict_wait_s
        return await append_files(session, stamp, table, definition, files, timeout_s=wait_s, summary=summary)

    async def commit(way: _Way) -> _Lost | Commit:
        try:
            if way is _Way.CREATE:
                return await create()
            wait_s = patience.verdict_wait_s
            return await replace_table(session, stamp, table, becomes, rows, wait_s, target_bytes, summary)
        except Invalid as error:
            return _Lost(way, error)

    outcome = await drive_async(choose_way, commit, _other_way_delay)
    if isinstance(outcome, _Lost):
        raise outcome.error
    if outcome is None:
        raise Internal("invariant-broken", f"{table}: neither created nor replaced")
    return outcome


class _Way(Enum):
    """The ways to make the table: replace the existing one, or create it. They are tried alternately."""

    REPLACE = "replace"
    CREATE = "create"


@dataclass(frozen=True, slots=True)
class _Lost:
    """A replace or create that was rejected."""

    way: _Way
    error: Invalid


def _other_way_delay(outcome: _Lost | Commit, replans: int) -> float | None:
    """The delay before the other way is tried: 0 if the table was dropped or created meanwhile, `None` if the other way
    would not help.
    """
    if isinstance(outcome, Commit) or replans >= _OTHER_WAYS_MAX:
        return None
    codes = _NO_TABLE if outcome.way is _Way.REPLACE else _NO_TABLE | _LOST_RACES
    return 0.0 if outcome.error.code in codes else None
