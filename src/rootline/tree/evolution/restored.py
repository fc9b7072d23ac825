"""The definition that a table goes on with when it goes back to an earlier one.

Owns: which schema that is. Does not own: what changes make of a definition (`evolve`), the content (`restore`).
Invariants: pure; a legal step like any other: schemas are added, ids never used again; names, order, comments and write
defaults are those of then, and so are types and what is required, unless files or writers under way may hold more.

Theory. Every row that is live afterwards was live then, so the schema of then would do for those. But writers who have
not heard of the restore still bring rows of the schema before it, and these are taken. So a type that has become wider
since stays wide, and what may be null since stays so. In most cases none of this happened, and the very schema of then
is current again. A schema of before a replace is added once more, with an id that counts (`oldest_schema_id`).
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
    """`now` with the schema of `then`, an earlier definition of the table; `now` itself if it has that.

    The default spec and sort order of then are the defaults again, if the table still has them. Properties stay as they
    are now: they say how the table is kept, not what is in it.

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
    """`now` writing by the spec and in the order of `then`: they are made of columns that are there again."""
    spec_id, order_id = then.default_spec_id, then.default_sort_order_id
    if all(spec.spec_id != spec_id for spec in now.partition_specs):
        spec_id = now.default_spec_id
    if all(order.order_id != order_id for order in now.sort_orders):
        order_id = now.default_sort_order_id
    return replace(now, default_spec_id=spec_id, default_sort_order_id=order_id)


def _restored_schema(now: TableDefinition, then: TableDefinition) -> Schema:
    """One of the table's own schemas where that will do."""
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
    """Fields of then, as wide and as optional as they have become. `now`: those that the table has now."""

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
    """Ids of the fields that are never null: required, in structs that are."""
    found: set[int] = set()
    for field in struct.fields:
        if field.required:
            found.add(field.field_id)
            if isinstance(field.field_type, StructType):
                found |= _always_there(field.field_type)
    return found
