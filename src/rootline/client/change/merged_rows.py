"""Rows that bring their columns with them: what they change of a definition, and their files under the result.

Owns: planning both on the definition that is current, again and again if need be, and the append that carries both.
Does not own: which columns are missing (`merged_schema`), ids (`alter_table`), overwriting (`overwrite_rows`).
Invariants: nothing is uploaded before the changes are known to be legal; columns and rows are one intent, so there is
never one without the other; of two who add a column at the same time the loser takes the winner's or adds its own
after it; files are written again only if the columns have become others than they were written for.

Source: docs/decisions/0066.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa
from pyiceberg.schema import Schema

from rootline.client.change.planned_change import commit_planned
from rootline.client.read.time_travel import read_head
from rootline.client.session.commit import Commit
from rootline.client.session.session import Session
from rootline.client.session.writer_stamp import WriterStamp
from rootline.client.write.append_files import write_and_store
from rootline.client.write.given_rows import GivenRows
from rootline.client.write.merged_schema import merged_schema
from rootline.client.write.new_files import for_intent
from rootline.schemas.errors import Internal, Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import DataFile, Intent, IntentKind
from rootline.schemas.root_header import RootHeader
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.root_reader import read_definition
from rootline.tree.evolution.changes import DefinitionChanges
from rootline.tree.evolution.evolve import evolved

CHANGES_CHARS_MAX: Final = 400_000
"""Of the changes of a definition: the files of the same intent need the rest of it."""


@dataclass(frozen=True, slots=True)
class MergePlan:
    """The definition that the rows are written under, and the changes that lead there, as an intent carries them."""

    definition: TableDefinition
    changes: str | None = None


def merge_plan(table: TableName, rows: GivenRows, definition: TableDefinition, digest: bytes) -> MergePlan:
    """What `rows` need of the table, whose `definition` has `digest`.

    Raises:
        Invalid: `rows-invalid`, `definition-invalid` or `evolution-illegal`, naming the column.

    """
    from rootline.client.change.alter_table import union_changes

    wanted = _wanted(rows, definition)
    if wanted is None:
        return MergePlan(definition)
    return plan_of_changes(definition, union_changes(table, wanted, definition, digest))


def is_lacking(rows: GivenRows, definition: TableDefinition) -> bool:
    """Whether `rows` have columns, or wider types, that the table has not. Raises as `merge_plan`."""
    return _wanted(rows, definition) is not None


def plan_of_changes(definition: TableDefinition, changes: DefinitionChanges | None) -> MergePlan:
    """Of `changes` that were made for `definition`."""
    if changes is None:
        return MergePlan(definition)
    text = changes.to_json()
    if len(text) > CHANGES_CHARS_MAX:
        raise Invalid(
            "intent-too-large",
            f"the table's columns and the new ones take {len(text):,} characters, of {CHANGES_CHARS_MAX:,} that an "
            "intent can hold beside its files: leave columns out, or put them into a map",
        )
    return MergePlan(evolved(definition, DefinitionChanges.from_json(text)), text)


def is_written_alike(one: TableDefinition, other: TableDefinition) -> bool:
    """Whether rows that were written under one of these definitions are as if written under the other."""
    same = one.schema.fields == other.schema.fields and one.tracked_fields == other.tracked_fields
    places = (one.default_spec_id, one.default_sort_order_id) == (other.default_spec_id, other.default_sort_order_id)
    return same and places and one.table_uuid == other.table_uuid and one.properties == other.properties


@dataclass(slots=True)
class StoredRows:
    """Rows, and the files that they were written into last."""

    session: Session
    table: TableName
    rows: GivenRows | pa.Table
    target_bytes: int
    _under: TableDefinition | None = None
    _files: list[DataFile] = field(default_factory=list)

    async def files(self, definition: TableDefinition) -> list[DataFile]:
        """The files of the rows under `definition`, in the store; a rejected intent leaves them to the next one."""
        if self._under is None or not is_written_alike(self._under, definition):
            self._files = await write_and_store(self.session, self.table, definition, self.rows, self.target_bytes)
            self._under = definition
        return self._files


async def append_merged(
    session: Session,
    stamp: WriterStamp,
    table: TableName,
    rows: GivenRows,
    target_bytes: int,
    *,
    timeout_s: float,
    summary: Mapping[str, str],
) -> Commit:
    """Append `rows` and the columns that the table lacks, in one intent; planned again when the definition changed.

    Raises:
        Invalid: a column cannot be added or made wider, a value does not fit, or the intent was rejected.
        OutcomeUnknown: `verdict-timeout`.

    """
    stored = StoredRows(session, table, rows, target_bytes)

    async def plan_intent() -> Intent:
        header = (await read_head(session.store, table)).header
        plan = await planned(session, table, rows, header)
        new = await for_intent(session, table, plan.definition, await stored.files(plan.definition))
        return Intent(
            intent_id=session.environment.fresh_id(),
            table=table,
            table_uuid=plan.definition.table_uuid,
            kind=IntentKind.APPEND,
            schema_id=plan.definition.current_schema_id,
            add_data_files=new.files,
            add_manifests=new.leaves,
            definition=plan.changes,
            summary=dict(summary),
        )

    commit = await commit_planned(session, stamp, plan_intent, timeout_s=timeout_s)
    if commit is None:
        raise Internal("invariant-broken", f"{table}: an append of rows was not published")
    return replace(commit, added_rows=rows.num_rows, deleted_rows=0)


def _wanted(rows: GivenRows, definition: TableDefinition) -> Schema | None:
    return merged_schema(definition.schema, rows.for_schema(definition.schema), rows.columns_of_values)


async def planned(session: Session, table: TableName, rows: GivenRows, header: RootHeader) -> MergePlan:
    """`merge_plan` on the definition of a root."""
    definition = await read_definition(session.store, header)
    return await asyncio.to_thread(merge_plan, table, rows, definition, header.definition.digest)
