"""Rules for the step from one definition to the next.

Owns: the rules that need both definitions.
Does not own: the rules for one definition (`definition_rules`, and the schema model for identifier fields), making the
next definition (`next_definition`).
Invariants: A step that passes keeps every data file of the table readable, and keeps the meaning of every id.

Source: the table specification, "Schema Evolution" and "Default Values".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
)

from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import PartitionSpec, TableDefinition

_PROMOTIONS: Final = {(IntegerType, LongType), (FloatType, DoubleType)}
_TOP: Final = 0
"""The parent id of a top-level column."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A field of a schema with its place. `name` is the path, `parent` the id of the field that contains it (0 for a
    column), and `key_of` the id of the map whose key contains it.
    """

    field: NestedField
    name: str
    parent: int
    in_struct: bool = True
    key_of: int | None = None


def check_evolution(before: TableDefinition, after: TableDefinition) -> None:
    """Check that a table may change from `before` to `after`, both of which are valid definitions.

    Raises:
        Invalid: `evolution-illegal`, naming the column and the rule.

    """
    for fault in _faults(before, after):
        raise Invalid("evolution-illegal", f"definition: {fault}")


def placed_fields(schema: Schema) -> dict[int, Placed]:
    """The fields of a schema with their places, by field id."""
    found: dict[int, Placed] = {}
    pending = [Placed(field, field.name, _TOP) for field in reversed(schema.fields)]
    while pending:
        placed = pending.pop()
        found[placed.field.field_id] = placed
        pending.extend(_children(placed))
    return found


def known_fields(definition: TableDefinition) -> dict[int, Placed]:
    """The newest form of every field that any schema has, by field id."""
    ever: dict[int, Placed] = {}
    for schema in (*definition.schemas, definition.schema):
        ever.update(placed_fields(schema))
    return ever


def may_become(old: IcebergType, new: IcebergType) -> bool:
    """Whether a column of type `old` may have type `new`, by the specification's promotions."""
    if isinstance(old, DecimalType) and isinstance(new, DecimalType):
        return old.scale == new.scale and old.precision <= new.precision
    if isinstance(old, PrimitiveType) or isinstance(new, PrimitiveType):
        return old == new or (type(old), type(new)) in _PROMOTIONS
    return type(old) is type(new)


def _children(placed: Placed) -> Iterator[Placed]:
    field, name, key_of = placed.field, placed.name, placed.key_of
    own = field.field_id
    match field.field_type:
        case StructType() as struct:
            for child in reversed(struct.fields):
                yield Placed(child, f"{name}.{child.name}", own, True, key_of)
        case ListType() as of:
            yield Placed(of.element_field, f"{name}.element", own, False, key_of)
        case MapType() as of:
            yield Placed(of.value_field, f"{name}.value", own, False, key_of)
            yield Placed(of.key_field, f"{name}.key", own, False, own if key_of is None else key_of)


def _faults(before: TableDefinition, after: TableDefinition) -> Iterator[str]:
    yield from _of_identity(before, after)
    now = placed_fields(before.schema)
    ever = known_fields(before)
    known = {schema.schema_id for schema in before.schemas}
    is_emptied = after.oldest_schema_id > before.oldest_schema_id
    for schema in after.schemas:
        if schema.schema_id not in known or schema.schema_id == after.current_schema_id != before.current_schema_id:
            yield from _of_schema(schema, now, ever, before.last_column_id, has_rows=not is_emptied)
    if _layout(after) != _layout(before):
        yield from _of_uses(before, after)
    yield from _of_statistics(before, after)


def _of_identity(before: TableDefinition, after: TableDefinition) -> Iterator[str]:
    if after.table_uuid != before.table_uuid:
        yield f"the table's uuid {before.table_uuid} cannot change to {after.table_uuid}"
    if after.oldest_schema_id < before.oldest_schema_id:
        yield f"oldest-schema-id must not decrease from {before.oldest_schema_id} to {after.oldest_schema_id}"
    if after.last_column_id < before.last_column_id:
        yield f"last-column-id must not decrease from {before.last_column_id} to {after.last_column_id}"
    for what, old, new in (
        ("schemas", before.schemas, after.schemas),
        ("expressions", before.expressions, after.expressions),
        ("partition specs", before.partition_specs, after.partition_specs),
        ("sort orders", before.sort_orders, after.sort_orders),
    ):
        if new[: len(old)] != old:
            yield f"existing {what} are changed; {what} can only be added"


def _of_schema(
    schema: Schema, now: Mapping[int, Placed], ever: Mapping[int, Placed], last_column_id: int, *, has_rows: bool
) -> Iterator[str]:
    then = placed_fields(schema)
    for field_id, placed in then.items():
        name, known = f"column {placed.name!r} (id {field_id})", ever.get(field_id)
        if isinstance(placed.field.field_type, StructType) and not placed.field.field_type.fields:
            yield f"{name} is a struct without fields, and no file can have one: keep a field, or drop the struct"
        if known is None:
            yield from _of_new(name, placed, then, ever, last_column_id, has_rows=has_rows)
        else:
            is_added_alone = placed.parent == _TOP or placed.parent in now
            yield from _of_known(name, placed, known, is_back=field_id not in now and is_added_alone)
    for field_id, placed in now.items():
        if placed.key_of is not None and placed.key_of in then and field_id not in then:
            yield (
                f"column {placed.name!r} (id {field_id}) is part of a map's key, and keys cannot change: "
                "add a column with another map"
            )


def _of_new(
    name: str,
    placed: Placed,
    then: Mapping[int, Placed],
    ever: Mapping[int, Placed],
    last_column_id: int,
    *,
    has_rows: bool,
) -> Iterator[str]:
    field = placed.field
    if field.field_id <= last_column_id:
        yield f"{name}: ids up to {last_column_id} have been used; give a new column a greater one"
    if placed.key_of in ever:
        yield f"{name} is part of a map's key, and keys cannot change: add a column with another map"
    if placed.parent in ever and not placed.in_struct:
        yield (
            f"{name} cannot replace another field: lists and maps keep the ids of their element, key and value: "
            "add a column"
        )
    is_added_alone = placed.parent == _TOP or placed.parent in ever
    lacks_default = None in (field.initial_default, field.write_default)
    if has_rows and is_added_alone and placed.in_struct and field.required and lacks_default:
        yield (f"{name} is required, but existing rows do not have it: give it an initial-default and a write-default")


def _of_known(name: str, placed: Placed, known: Placed, *, is_back: bool) -> Iterator[str]:
    field, old = placed.field, known.field
    if placed.parent != known.parent:
        yield f"{name} cannot move from one struct to another, since its id belongs to the first: add a column there"
    if not may_become(old.field_type, field.field_type):
        yield (
            f"{name} cannot change from {_shown(old.field_type)} to {field.field_type}: add a column of the new type"
        )
    elif placed.key_of is not None and field.field_type != old.field_type and isinstance(old.field_type, PrimitiveType):
        yield f"{name} is part of a map's key, and keys cannot change: add a column with another map"
    if field.required and (is_back or not old.required):
        yield f"{name} cannot become required: files may have nulls, or lack the column: keep it optional"
    if field.initial_default != old.initial_default:
        yield (
            f"{name}: its initial-default cannot change, because existing rows have that value: set its write-default"
        )


def _layout(definition: TableDefinition) -> tuple[int, ...]:
    """The ids of the current schema, default spec and default order, and the number of specs and orders.

    Two definitions that differ in any of them write files in different ways.
    """
    of_specs = definition.default_spec_id, len(definition.partition_specs)
    return definition.current_schema_id, *of_specs, definition.default_sort_order_id, len(definition.sort_orders)


def _of_uses(before: TableDefinition, after: TableDefinition) -> Iterator[str]:
    """Check that the sources of default and added specs and orders are in the current schema."""
    there = placed_fields(after.schema)
    names = {each: placed.name for each, placed in known_fields(after).items()}
    for spec in after.partition_specs[len(before.partition_specs) :]:
        for source_id in _sources_of(after, spec):
            if source_id not in there:
                yield (
                    f"partition spec {spec.spec_id} uses column id {source_id}, which the current schema lacks: "
                    "name one that it has"
                )
    for source_id in _sources_of(after, after.spec_by_id(after.default_spec_id)):
        if source_id not in there:
            named = names.get(source_id, source_id)
            yield f"column {named!r} cannot be dropped: the table is partitioned by it; drop that field first"
    for order in after.sort_orders[len(before.sort_orders) :]:
        for item in order.fields:
            if item.source_id not in there:
                yield (
                    f"sort order {order.order_id} uses column id {item.source_id}, which the current schema lacks: "
                    "name one that it has"
                )
    for order in after.sort_orders:
        if order.order_id == after.default_sort_order_id:
            for item in order.fields:
                if item.source_id not in there:
                    named = names.get(item.source_id, item.source_id)
                    yield f"column {named!r} cannot be dropped: the table is sorted by it; set another order first"


def _sources_of(definition: TableDefinition, spec: PartitionSpec) -> Iterator[int]:
    """The source columns of a spec's members, except `void` ones."""
    for member in spec.expr_ids:
        expression = definition.expressions_by_id.get(member)
        if expression is None:
            yield member
        elif not isinstance(expression.parsed, VoidTransform):
            yield from expression.source_ids


def _of_statistics(before: TableDefinition, after: TableDefinition) -> Iterator[str]:
    """Check that the statistics of existing entries, also of dropped columns, fit the new types of statistics."""
    now = after.tracked_by_id
    for old in before.tracked_fields:
        new = now.get(old.tracked_id)
        if new is None or not may_become(old.type, new.type):
            fate = "would be lost" if new is None else f"would change to {new.type}"
            yield (
                f"statistics of {old.name!r} (id {old.tracked_id}) are {old.type} and {fate}: an added schema that is "
                "not the current one has another type for it; add a schema with the wider type first"
            )


def _shown(of_type: IcebergType) -> str:
    return str(of_type) if isinstance(of_type, PrimitiveType) else f"a {str(of_type).partition('<')[0]}"
