"""A table's first definition, and the next one: after changes, a replace, or a restore to an earlier version.

Owns: the ids of added schemas, the record of past statistics layouts, the definition of a replaced table, and the
choice of a restored table's schema.
Does not own: adding specs and sort orders (`specs_and_orders`), the rules for a step (`evolution_rules`), storing the
definition, restoring the content (`restore`).
Invariants:
* Schemas, specs, orders and expressions are added and never changed or removed. The greatest ids never decrease.
* A returned definition has passed the rules for a definition and the rules for the step.
* After a restore, names, order, comments and write defaults are the earlier ones. Types and required fields are the
  earlier ones too, unless files or active writers may have wider values or nulls.

Theory. Every row that is live after a restore was live in the earlier version, so that version's schema would be enough
for the rows. But writers that do not know of the restore yet still add rows of the newer schema, and their intents are
accepted. So a type that was promoted stays promoted, and a field that became optional stays optional. Usually there was
no such change, and the earlier schema becomes the current one unchanged. A schema from before a replace is added under
a new id (`oldest_schema_id`).

Source: docs/format.md, "Table definition", the table specification, "Schema Evolution", docs/decisions/0064.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType

from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import PartitionSpec, PastLayout, SortOrder, TableDefinition
from rootline.tree.evolution.changes import (
    LAST_ADDED,
    AddSchema,
    AddSortOrder,
    AddSpec,
    DefinitionChange,
    DefinitionChanges,
    RemoveProperties,
    RemoveSchemas,
    RemoveSpecs,
    SetCurrentSchema,
    SetDefaultSortOrder,
    SetDefaultSpec,
    SetProperties,
    schema_changes,
)
from rootline.tree.evolution.evolution_rules import Placed, check_evolution, known_fields, placed_fields
from rootline.tree.evolution.specs_and_orders import with_order, with_spec
from rootline.tree.proof.definition_rules import check_added, check_definition


def evolved(before: TableDefinition, changes: DefinitionChanges) -> TableDefinition:
    """Apply `changes`. Returns `before` itself if they change nothing.

    Raises:
        Invalid: `definition-invalid`, `property-invalid`, `column-untracked` or `evolution-illegal`, naming the
            fault.

    """
    after = _changed(before, changes)
    return before if after == before else _checked(before, after)


def first_definition(table_uuid: uuid.UUID, changes: DefinitionChanges) -> TableDefinition:
    """Apply `changes` to nothing: the definition of a new table. Ids of schemas and specs begin at 0.

    Raises:
        Invalid: the errors of `evolved`; `schema-unknown`, the changes add no schema.
    """
    nothing = TableDefinition(table_uuid, (), 0, (), (), 0, (SortOrder(0),), 0, 0, {})
    after = _changed(nothing, changes)
    if not after.partition_specs:
        after = replace(after, partition_specs=(PartitionSpec(0),))
    check_definition(after)
    check_added(None, after)
    return after


def replaced_definition(before: TableDefinition, changes: DefinitionChanges) -> TableDefinition:
    """Apply `changes` for a table that is replaced. The current schema always gets a new id.

    No earlier schema is reused. If `changes` add none, the current one is added again under another id.

    Raises:
        Invalid: the errors of `evolved`.
    """
    first = _next_schema_id(before)
    after = _changed(replace(before, oldest_schema_id=first), changes)
    if after.current_schema_id < first:
        after, current = _with_schema(after, after.schema)
        after = replace(after, current_schema_id=current)
    return _checked(before, after)


def _changed(definition: TableDefinition, changes: DefinitionChanges) -> TableDefinition:
    """Apply `changes` without checking the result."""
    columns = [change.schema.highest_field_id for change in changes.changes if isinstance(change, AddSchema)]
    added = _Added(max(columns, default=0))
    for change in changes.changes:
        definition, added = _after(definition, change, added)
    return definition


def _checked(before: TableDefinition, after: TableDefinition) -> TableDefinition:
    """Add the statistics layout of `before` to the past layouts of `after`, and check the result."""
    layout = PastLayout(len(before.schemas), before.current_schema_id, len(before.expressions))
    if after.tracked_fields != before.tracked_fields and layout not in before.past_layouts:
        after = replace(after, past_layouts=(*before.past_layouts, layout))
    check_definition(after)
    check_added(before, after)
    check_evolution(before, after)
    return after


@dataclass(frozen=True, slots=True)
class _Added:
    """The ids of the schema, spec and order that the list of changes added last. `columns` is the greatest column id in
    it.
    """

    columns: int
    schema: int | None = None
    spec: int | None = None
    order: int | None = None


def _after(definition: TableDefinition, change: DefinitionChange, added: _Added) -> tuple[TableDefinition, _Added]:
    """Apply one change."""
    match change:
        case AddSchema(schema):
            definition, schema_id = _with_schema(definition, schema)
            return definition, replace(added, schema=schema_id)
        case SetCurrentSchema(schema_id):
            current = _meant(schema_id, added.schema, "set-current-schema", "schema")
            return replace(definition, current_schema_id=current), added
        case AddSpec(fields):
            definition, spec_id = with_spec(definition, fields, ids_taken=added.columns)
            return definition, replace(added, spec=spec_id)
        case SetDefaultSpec(spec_id):
            default = _meant(spec_id, added.spec, "set-default-spec", "partition spec")
            return replace(definition, default_spec_id=default), added
        case AddSortOrder(order_fields):
            definition, order_id = with_order(definition, order_fields)
            return definition, replace(added, order=order_id)
        case SetDefaultSortOrder(order_id):
            default = _meant(order_id, added.order, "set-default-sort-order", "sort order")
            return replace(definition, default_sort_order_id=default), added
        case RemoveSchemas(ids):
            _refuse_removal("schema", ids, [schema.schema_id for schema in definition.schemas])
            return definition, added
        case RemoveSpecs(ids):
            _refuse_removal("partition spec", ids, [spec.spec_id for spec in definition.partition_specs])
            return definition, added
        case SetProperties(updates):
            return _with_properties(definition, {**definition.properties, **updates}), added
        case RemoveProperties(removals):
            removed = frozenset(removals)
            rest = {name: value for name, value in definition.properties.items() if name not in removed}
            return _with_properties(definition, rest), added


def _meant(given: int, added: int | None, action: str, what: str) -> int:
    if given != LAST_ADDED:
        return given
    if added is None:
        raise Invalid("definition-invalid", f"definition changes: {action} -1, but no {what} was added")
    return added


def _refuse_removal(what: str, ids: Sequence[int], known: Sequence[int]) -> None:
    """Raise `Invalid` (`evolution-illegal`) if the table has one of `ids`.

    A root cannot prove that no kept version, tag, export or writer needs a schema or spec, so none is removed.
    """
    for each in ids:
        if each in known:
            raise Invalid(
                "evolution-illegal",
                f"definition: {what} {each} cannot be removed: kept versions, tags, exports or active writers may need "
                "it. Keep it: new files use the current one",
            )


def _with_schema(definition: TableDefinition, schema: Schema) -> tuple[TableDefinition, int]:
    known = _equal_schema(definition, schema)
    if known is not None:
        return definition, known
    schema_id = _next_schema_id(definition)
    numbered = Schema(*schema.fields, schema_id=schema_id, identifier_field_ids=schema.identifier_field_ids)
    highest = max(definition.last_column_id, numbered.highest_field_id)
    return replace(definition, schemas=(*definition.schemas, numbered), last_column_id=highest), schema_id


def _next_schema_id(definition: TableDefinition) -> int:
    return max((found.schema_id for found in definition.schemas), default=-1) + 1


def _equal_schema(definition: TableDefinition, schema: Schema) -> int | None:
    """The id of an equal schema that was added since the last replace, or `None`."""
    wanted = schema.fields, frozenset(schema.identifier_field_ids)
    for known in definition.schemas:
        is_usable = known.schema_id >= definition.oldest_schema_id
        if is_usable and (known.fields, frozenset(known.identifier_field_ids)) == wanted:
            return known.schema_id
    return None


def _with_properties(definition: TableDefinition, properties: Mapping[str, str]) -> TableDefinition:
    return definition if properties == definition.properties else replace(definition, properties=properties)


def restored_definition(now: TableDefinition, then: TableDefinition) -> TableDefinition:
    """`now` with the schema of `then`, an earlier definition of the table. Returns `now` itself if nothing changes.

    The default spec and sort order of `then` become the defaults, if the table still has them. Properties keep their
    present values, since they describe maintenance and not content.

    Raises:
        Invalid: `evolution-illegal`, `definition-invalid`, naming the column.

    """
    schema = _restored_schema(now, then)
    changes: tuple[DefinitionChange, ...] = tuple(schema_changes(schema))
    if any(known is schema for known in now.schemas):
        changes = (SetCurrentSchema(schema.schema_id),)
    after = evolved(_with_defaults(now, then), DefinitionChanges(None, changes))
    if after == now:
        return now
    check_definition(after)
    check_added(now, after)
    check_evolution(now, after)
    return after


def _with_defaults(now: TableDefinition, then: TableDefinition) -> TableDefinition:
    """`now` with the default spec and sort order of `then`. The restored schema has all columns that they need."""
    spec_id, order_id = then.default_spec_id, then.default_sort_order_id
    if all(spec.spec_id != spec_id for spec in now.partition_specs):
        spec_id = now.default_spec_id
    if all(order.order_id != order_id for order in now.sort_orders):
        order_id = now.default_sort_order_id
    return replace(now, default_spec_id=spec_id, default_sort_order_id=order_id)


def _restored_schema(now: TableDefinition, then: TableDefinition) -> Schema:
    """The schema to restore: one that the table has if it fits, otherwise a new one."""
    made = _Fields(known_fields(now), placed_fields(now.schema)).struct(then.schema.as_struct(), 0)
    counting = [known for known in now.schemas if known.schema_id >= now.oldest_schema_id]
    for known in (now.schema, *counting):
        if known.fields == made.fields and set(known.identifier_field_ids) == set(then.schema.identifier_field_ids):
            return known
    required = _always_there(made)
    kept = [field_id for field_id in then.schema.identifier_field_ids if field_id in required]
    return Schema(*made.fields, schema_id=0, identifier_field_ids=kept)


@dataclass(frozen=True, slots=True)
class _Fields:
    """The fields of `then`, changed where a later schema has a wider type or made the field optional.

    `known` has the newest form of every field, `now` the fields of the current schema.
    """

    known: Mapping[int, Placed]
    now: Mapping[int, Placed]

    def struct(self, then: StructType, parent: int) -> StructType:
        return StructType(*(self._field(field, parent) for field in then.fields))

    def _field(self, then: NestedField, parent: int) -> NestedField:
        known = self.known[then.field_id].field
        stays = then.field_id in self.now or (parent != 0 and parent not in self.now)
        changed = {
            "field_type": self._type(then.field_type, known.field_type, then.field_id),
            "required": then.required and known.required and stays,
        }
        return then.model_copy(update=changed)

    def _type(self, then: IcebergType, known: IcebergType, field_id: int) -> IcebergType:
        if isinstance(then, PrimitiveType):
            return known
        if isinstance(then, StructType):
            return self.struct(then, field_id)
        if isinstance(then, ListType):
            element = self._field(then.element_field, field_id)
            return ListType(element.field_id, element.field_type, element_required=element.required)
        assert isinstance(then, MapType), "no other type has fields"
        value = self._field(then.value_field, field_id)
        return MapType(then.key_id, then.key_type, value.field_id, value.field_type, value_required=value.required)


def _always_there(struct: StructType) -> set[int]:
    """The ids of the fields that are never null: required fields in required structs."""
    found: set[int] = set()
    for field in struct.fields:
        if field.required:
            found.add(field.field_id)
            if isinstance(field.field_type, StructType):
                found |= _always_there(field.field_type)
    return found
