"""The definition of a table after it is restored to an earlier version.

Owns: the choice of the schema. Does not own: applying changes (`evolve`), restoring the content (`restore`).
Invariants: The step is legal like any other: schemas are added, and ids are never reused. Names, order, comments and
write defaults are the earlier ones. Types and required fields are the earlier ones too, unless files or active writers
may have wider values or nulls.

Theory. Every row that is live after a restore was live in the earlier version, so its schema would suffice for them.
But writers that do not know of the restore yet still add rows of the newer schema, and these are accepted. So a type
that was promoted stays promoted, and a field that became optional stays optional. Usually neither happened, and the
earlier schema becomes the current one. A schema from before a replace is added again under a new id
(`oldest_schema_id`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType

from rootline.schemas.table_definition import TableDefinition
from rootline.tree.evolution.changes import DefinitionChange, DefinitionChanges, SetCurrentSchema, schema_changes
from rootline.tree.evolution.evolution_rules import Placed, check_evolution, known_fields, placed_fields
from rootline.tree.evolution.evolve import evolved
from rootline.tree.proof.added_rules import check_added
from rootline.tree.proof.definition_rules import check_definition


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
    """The fields of `then` with the types and the optionality that they have had since.

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
