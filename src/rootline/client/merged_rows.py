"""Appending rows that have new columns or wider types: the changes of the definition that the rows need, and their
files.

Owns: the comparison of given rows with a table's schema at every depth, planning the changes and the files on the
current definition, the append that contains both. Does not own: ids of new columns (`alter_table`), overwriting
(`row_changes`), casting rows (`row_projection`).
Invariants: nothing is uploaded before the changes are known to be legal. Columns and rows are one intent. If two
writers add a column at the same time, the second one uses the column of the first, or adds its own after it. Only
necessary changes are made: no column is dropped, reordered or made optional, and a type that is neither the table's nor
a legal promotion is refused later by the cast. New columns are optional. Keys of maps do not change. If the definition
changes before the commit, files are rewritten only if the columns differ from those that they were written for.

Theory. A declared type (Arrow, NumPy, a data frame) states the user's intention for the column. Python's own numbers
have only one width each, so they state no intention: their column is widened only if a value needs it.

Source: docs/decisions/0064.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType

from rootline.client import checks
from rootline.client.given_rows import GivenRows
from rootline.client.given_schema import iceberg_type
from rootline.client.new_files import appended, for_intent, write_and_store
from rootline.client.planned_change import verdict_on_planned
from rootline.client.session import Commit, Session, WriterStamp
from rootline.client.time_travel import read_head
from rootline.schemas.errors import Internal, Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import DataFile, Intent, IntentKind
from rootline.schemas.root_header import RootHeader
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.root_reader import read_definition
from rootline.storage.rows.arrow_types import arrow_type_of, exactly
from rootline.tree.evolution.changes import DefinitionChanges
from rootline.tree.evolution.evolution_rules import may_become
from rootline.tree.evolution.next_definition import evolved

_CODE: Final = "definition-invalid"
_MISFITS: Final = (pa.ArrowInvalid, pa.ArrowNotImplementedError)


def merged_schema(schema: Schema, rows: pa.Table, of_values: Collection[str] = ()) -> Schema | None:
    """The schema that a table of `schema` needs for `rows`, or `None` if it needs no change.

    Args:
        schema: the table's current schema.
        rows: the rows to write.
        of_values: columns of plain Python values, whose types the user did not choose.

    Raises:
        Invalid: `definition-invalid`, a new column has a type that no table has, or only nulls. The message names it.
    """
    known = {field.name: field.field_type for field in schema.fields}
    if all(field.name in known and field.type == _plain_of(known[field.name]) for field in rows.schema):
        return None
    merge = _Merge(count(schema.highest_field_id + 1))
    arrays = (_whole(rows.column(at)) if name in of_values else None for at, name in enumerate(rows.column_names))
    columns = [(given.name, given.type, array) for given, array in zip(rows.schema, arrays, strict=True)]
    struct = schema.as_struct()
    merged = merge.struct(struct, columns, "")
    return None if merged is struct else Schema(*merged.fields)


_Member = tuple[str, pa.DataType, pa.Array | None]
"""Name, type, and the values if the type was inferred from them."""


class _Merge:
    """A merge of a schema with given columns. New fields get placeholder ids from `ids`. The table assigns the final
    ones.
    """

    def __init__(self, ids: Iterator[int]) -> None:
        self._ids = ids

    def struct(self, wanted: StructType, members: Collection[_Member], path: str) -> StructType:
        """The merged struct, or `wanted` itself if it needs no change."""
        given = {name: (kind, values) for name, kind, values in members}
        found: list[NestedField] = []
        for member in wanted.fields:
            kind, values = given.pop(member.name, (None, None))
            merged = member.field_type
            if kind is not None:
                merged = self._type(member.field_type, kind, values, f"{path}{member.name}")
            found.append(member if merged is member.field_type else member.model_copy(update={"field_type": merged}))
        for name, (kind, _) in given.items():
            where = f"{path}{checks.column_name(name, _CODE)}"
            new = iceberg_type(kind, where, self._ids)
            found.append(NestedField(next(self._ids), name, new, required=False))
        is_same = len(found) == len(wanted.fields) and all(map(_is, found, wanted.fields))
        return wanted if is_same else StructType(*found)

    def _type(self, wanted: IcebergType, given: pa.DataType, values: pa.Array | None, where: str) -> IcebergType:
        types = pa.types
        if isinstance(wanted, PrimitiveType):
            return _primitive(wanted, given, values, where)
        if isinstance(wanted, StructType) and types.is_struct(given):
            parts = [None] * given.num_fields if values is None else values.flatten()
            members = [(field.name, field.type, part) for field, part in zip(given, parts, strict=True)]
            return self.struct(wanted, members, f"{where}.")
        if isinstance(wanted, ListType) and _is_list(given):
            inner = None if values is None else values.flatten()
            element = self._type(wanted.element_type, given.value_type, inner, f"{where}.element")
            if element is wanted.element_type:
                return wanted
            return ListType(wanted.element_id, element, element_required=wanted.element_required)
        if isinstance(wanted, MapType) and types.is_map(given):
            inner = None if values is None else values.items
            value = self._type(wanted.value_type, given.item_type, inner, f"{where}.value")
            if value is wanted.value_type:
                return wanted
            return MapType(wanted.key_id, wanted.key_type, wanted.value_id, value, value_required=wanted.value_required)
        return wanted


def _primitive(wanted: PrimitiveType, given: pa.DataType, values: pa.Array | None, where: str) -> PrimitiveType:
    try:
        found = iceberg_type(given, where, count(1))
    except Invalid:  # no column can have this type: the cast decides
        return wanted
    if found == wanted or not isinstance(found, PrimitiveType) or not may_become(wanted, found):
        return wanted
    return wanted if values is not None and _fit(values, wanted) else found


def _fit(values: pa.Array, wanted: PrimitiveType) -> bool:
    try:
        exactly(values, arrow_type_of(wanted))
    except _MISFITS:
        return False
    return True


def _is_list(given: pa.DataType) -> bool:
    return bool(pa.types.is_list(given) or pa.types.is_large_list(given) or pa.types.is_fixed_size_list(given))


def _plain_of(wanted: IcebergType) -> pa.DataType | None:
    """The Arrow type of a primitive type, or `None` for a nested type."""
    return arrow_type_of(wanted) if isinstance(wanted, PrimitiveType) else None


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _is(one: object, other: object) -> bool:
    return one is other


CHANGES_CHARS_MAX: Final = 400_000
"""The maximum size of a definition's changes, in characters. The intent's files need the rest of its size."""


@dataclass(frozen=True, slots=True)
class MergePlan:
    """The definition that the rows are written under, and the changes that lead to it, encoded as in an intent."""

    definition: TableDefinition
    changes: str | None = None


def merge_plan(table: TableName, rows: GivenRows, definition: TableDefinition, digest: bytes) -> MergePlan:
    """The changes that the table's `definition`, which has this `digest`, needs for `rows`.

    Raises:
        Invalid: `rows-invalid`, `definition-invalid` or `evolution-illegal`, naming the column.
    """
    from rootline.client.alter_table import union_changes

    wanted = _wanted(rows, definition)
    if wanted is None:
        return MergePlan(definition)
    return plan_of_changes(definition, union_changes(table, wanted, definition, digest))


def is_lacking(rows: GivenRows, definition: TableDefinition) -> bool:
    """Whether `rows` have columns, or wider types, that the table lacks. Raises the errors of `merge_plan`."""
    return _wanted(rows, definition) is not None


def plan_of_changes(definition: TableDefinition, changes: DefinitionChanges | None) -> MergePlan:
    """The plan of `changes` that were made for `definition`."""
    if changes is None:
        return MergePlan(definition)
    text = changes.to_json()
    if len(text) > CHANGES_CHARS_MAX:
        raise Invalid(
            "intent-too-large",
            f"the definitions of the table's columns and the new ones have {len(text):,} characters. An intent can "
            f"contain {CHANGES_CHARS_MAX:,} in addition to its files: remove columns, or put them into a map",
        )
    return MergePlan(evolved(definition, DefinitionChanges.from_json(text)), text)


def is_written_alike(one: TableDefinition, other: TableDefinition) -> bool:
    """Whether both definitions lead to the same data files for the same rows."""
    same = one.schema.fields == other.schema.fields and one.tracked_fields == other.tracked_fields
    places = (one.default_spec_id, one.default_sort_order_id) == (other.default_spec_id, other.default_sort_order_id)
    return same and places and one.table_uuid == other.table_uuid and one.properties == other.properties


@dataclass(slots=True)
class StoredRows:
    """Rows, and the files that they were last written into."""

    session: Session
    table: TableName
    rows: GivenRows | pa.Table
    target_bytes: int
    _under: TableDefinition | None = None
    _files: list[DataFile] = field(default_factory=list)

    async def files(self, definition: TableDefinition) -> list[DataFile]:
        """The files of the rows under `definition`, in the store. A rejected intent's files are reused."""
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
    """Append `rows` and the columns that the table lacks, in one intent. It is planned again if the definition changes.

    Raises:
        Invalid: a column cannot be added or widened, a value does not fit, or the intent was rejected.
        OutcomeUnknown: `verdict-timeout`.
    """
    stored = StoredRows(session, table, rows, target_bytes)
    intent: Intent | None = None

    async def plan_intent() -> Intent:
        nonlocal intent
        header = (await read_head(session.store, table)).header
        plan = await planned(session, table, rows, header)
        new = await for_intent(session, table, plan.definition, await stored.files(plan.definition))
        intent = Intent(
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
        return intent

    verdict = await verdict_on_planned(session, stamp, plan_intent, timeout_s=timeout_s)
    if verdict is None or intent is None:
        raise Internal("invariant-broken", f"{table}: an append of rows was not published")
    return await appended(session, stamp, intent, verdict, rows.num_rows)


def _wanted(rows: GivenRows, definition: TableDefinition) -> Schema | None:
    return merged_schema(definition.schema, rows.for_schema(definition.schema), rows.columns_of_values)


async def planned(session: Session, table: TableName, rows: GivenRows, header: RootHeader) -> MergePlan:
    """The plan for `rows` on the definition of a root."""
    definition = await read_definition(session.store, header)
    return await asyncio.to_thread(merge_plan, table, rows, definition, header.definition.digest)
