"""Creating, dropping and restoring tables through the log.

Owns: a new table's definition from the user's schema, partitions, expressions and properties, the ids of expressions,
the intents that create, drop and restore, the check for an existing table. Does not own: the grammar of terms
(`layout_terms`), types (`given_schema`), the rules of these intents and a table's first root (`rootline.tree`).
Invariants: the caller gets a table only after the store confirmed its first root. Expression ids follow the schema's
ids and stay below 10,000,000. A plain column in a partition spec is an identity partition and needs no expression. An
intent to drop or restore names the table's UUID, so a table created meanwhile is never changed.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyiceberg.schema import Schema

from rootline.client.given_schema import iceberg_schema
from rootline.client.layout_terms import SortBy, parsed_term, sort_fields
from rootline.client.new_files import commit_intent
from rootline.client.session import Commit, Session, WriterStamp
from rootline.maintenance.limits import EXPIRE, SWEEP_PROPERTY
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import AdoptedRoot, Intent, IntentKind, VersionReference
from rootline.schemas.root_header import RootHeader
from rootline.schemas.table_definition import Expression, PartitionSpec, SortOrder, TableDefinition, first_expression_id
from rootline.schemas.table_properties import check_set
from rootline.storage.metadata.root_reader import find_head, newest_root, read_definition, table_root
from rootline.tree.state.addressable import check_is_table


async def is_there(session: Session, table: TableName, wanted: TableDefinition) -> bool:
    """Whether `table` exists. An existing table must have every column of `wanted`.

    Raises:
        Invalid: `table-exists`, it lacks columns, which the message names; `name-is-view`.
    """
    root = await newest_root(session.store, table)
    if root is None or root.header.is_tombstone:
        return False
    check_is_table(root.header)
    there = {field.name for field in (await read_definition(session.store, root.header)).schema.fields}
    missing = [field.name for field in wanted.schema.fields if field.name not in there]
    if missing:
        raise Invalid(
            "table-exists",
            f"{table} exists and lacks the columns {', '.join(map(repr, missing[:20]))}: open it with lake.table and "
            "add them (table.alter().union_by_name), or choose another name",
        )
    return True


async def create_table(
    session: Session,
    stamp: WriterStamp,
    table: TableName,
    definition: TableDefinition,
    *,
    timeout_s: float,
    adopt: AdoptedRoot | None = None,
) -> Commit:
    """Publish the `create` intent and wait for its verdict. `adopt` names the stored root of an adopted Iceberg table.

    Raises:
        Invalid: `table-exists`, `definition-invalid`, or any other code that rejects the intent;
            `name-differs-in-case`.
        OutcomeUnknown: `verdict-timeout`.
    """
    await find_head(session.store, table)  # fails if the store ignores case and has this name in another case
    intent = Intent(
        intent_id=session.environment.fresh_id(),
        table=table,
        kind=IntentKind.CREATE,
        definition=definition.to_json().decode(),
        adopt=adopt,
    )
    return await commit_intent(session, stamp, intent, timeout_s=timeout_s)


def build_definition(
    schema: pa.Schema | Schema,
    *,
    partition_by: Sequence[str] = (),
    expressions: Sequence[str] = (),
    sort_by: SortBy = (),
    identifier_fields: Sequence[str] | None = None,
    properties: Mapping[str, str] | None = None,
    table_uuid: uuid.UUID,
) -> TableDefinition:
    """The definition of a new table.

    Args:
        schema: Arrow (ids are assigned) or Iceberg (its ids are kept).
        partition_by: `column`, `identity(column)`, `year|month|day|hour|void(column)`, `bucket(n, column)`, `bucket(n,
            column, another)` or `truncate(width, column)`, each with an optional `as name`. A column whose name is not
            a plain word is put in double quotes, as in filters.
        expressions: derived values for which files have statistics, but which do not partition the table: the same
            terms, and `lower(column)`.
        sort_by: the order of rows inside files: the same terms, `-column` for descending, each with an optional `nulls
            first` or `nulls last` at its end. Or PyIceberg's `SortOrder`.
        identifier_fields: paths of the columns that identify a row, or `None`: the schema states them.
        properties: the table's properties, text to text. Old versions expire unless `rootline.expire` is `false`, and
            unused objects are deleted unless `rootline.sweep` is `false`.
        table_uuid: the new table's UUID, not used before.

    Raises:
        Invalid: `definition-invalid`, naming the column or the term; `property-invalid`, naming the property.
    """
    check_set({}, properties or {})
    iceberg = iceberg_schema(schema) if isinstance(schema, pa.Schema) else schema
    if identifier_fields is not None:
        iceberg = _identified(iceberg, identifier_fields)
    if not iceberg.fields:
        raise Invalid("definition-invalid", "a table needs at least one column, and the schema has none")
    highest_id = iceberg.highest_field_id
    last_id = first_expression_id(iceberg.field_ids, highest_id) - 1
    derived: list[Expression] = []
    members: list[int] = []
    for term in partition_by:
        parsed = parsed_term("partition_by", term, iceberg)
        if parsed.transform == "identity":
            members.append(parsed.source_ids[0])
        else:
            last_id += 1
            derived.append(Expression(last_id, parsed.source_ids, parsed.transform, parsed.name))
            members.append(last_id)
    for term in expressions:
        parsed = parsed_term("expressions", term, iceberg)
        if parsed.transform == "identity":
            raise Invalid("definition-invalid", f"expressions {term!r}: every column has statistics; leave it out")
        last_id += 1
        derived.append(Expression(last_id, parsed.source_ids, parsed.transform, parsed.name))
    _check_distinct(derived, members, partition_by, iceberg)
    orders = [SortOrder(0)]
    order = sort_fields(sort_by, iceberg)
    if order:
        orders.append(SortOrder(1, order))
    return TableDefinition(
        table_uuid=table_uuid,
        schemas=(iceberg,),
        current_schema_id=iceberg.schema_id,
        expressions=tuple(derived),
        partition_specs=(PartitionSpec(0, tuple(members)),),
        default_spec_id=0,
        sort_orders=tuple(orders),
        default_sort_order_id=orders[-1].order_id,
        last_column_id=max(highest_id, last_id),
        properties={EXPIRE: "true", SWEEP_PROPERTY: "true"} | dict(properties or {}),
    )


def _identified(schema: Schema, paths: Sequence[str]) -> Schema:
    names = {schema.find_column_name(field_id): field_id for field_id in schema.field_ids}
    for path in paths:
        if path not in names:
            known = ", ".join(field.name for field in schema.fields[:40])
            raise Invalid("definition-invalid", f"identifier_fields: there is no column {path!r}; there is {known}")
    ids = [names[path] for path in dict.fromkeys(paths)]
    try:
        return Schema(*schema.fields, schema_id=schema.schema_id, identifier_field_ids=ids)
    except ValueError as error:
        raise Invalid(
            "definition-invalid",
            f"identifier_fields {', '.join(paths)}: each must be required, as in 'long not null', of one value that is "
            "not a float or double, and inside required structs only",
        ) from error


def _check_distinct(
    expressions: Sequence[Expression], members: Sequence[int], partition_by: Sequence[str], schema: Schema
) -> None:
    if len(set(members)) != len(members):
        raise Invalid("definition-invalid", f"partition_by {list(partition_by)} names a column twice; name each once")
    names = [expression.name for expression in expressions]
    taken = {field.name for field in schema.fields}
    for name in names:
        if names.count(name) > 1 or name in taken:
            raise Invalid(
                "definition-invalid", f"partition_by and expressions: the name {name!r} is taken; add `as another_name`"
            )


async def drop_table(
    session: Session, stamp: WriterStamp, table: TableName, *, is_purge: bool, timeout_s: float
) -> Commit:
    """Drop the table that has this name now. A purge also applies to a table that was dropped before.

    Raises:
        Invalid: `table-unknown`, `table-dropped`; `table-uuid-mismatch`, another table took the name meanwhile.
        OutcomeUnknown: `verdict-timeout`.
    """
    root = await newest_root(session.store, table) if is_purge else None
    if root is None or not root.header.is_tombstone:
        root = await table_root(session.store, table)
    kind = IntentKind.PURGE if is_purge else IntentKind.DROP
    return await commit_intent(session, stamp, _intent(session, root.header, kind), timeout_s=timeout_s)


async def restore_table(session: Session, stamp: WriterStamp, table: TableName, *, timeout_s: float) -> Commit:
    """Restore the table that was dropped last, unchanged.

    Raises:
        Invalid: `table-unknown`; `table-exists`, a table has the name; `name-is-view`; `table-dropped`, it was purged.
        OutcomeUnknown: `verdict-timeout`.
    """
    root = await newest_root(session.store, table)
    if root is None:
        root = await table_root(session.store, table)
    header = root.header
    if not header.is_tombstone:
        check_is_table(header)
        raise Invalid("table-exists", f"{table} exists: `rootline restore {table}` restores an earlier version of it")
    ref = VersionReference(version=header.name.drops[-1].version)
    return await commit_intent(session, stamp, _intent(session, header, IntentKind.RESTORE, ref), timeout_s=timeout_s)


def _intent(session: Session, head: RootHeader, kind: IntentKind, ref: VersionReference | None = None) -> Intent:
    return Intent(
        intent_id=session.environment.fresh_id(), table=head.table, table_uuid=head.table_uuid, kind=kind, ref=ref
    )
