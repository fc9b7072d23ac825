"""The partition specs and sort orders of a definition: ids and names of partition fields, and adding specs and orders.

Owns: the ids and names of partition fields for which the definition states none, the ids of added specs, orders and
their expressions, and the reuse of equal ones.
Does not own: the rules for partition fields (`definition_rules`, `evolution_rules`), the parts that an export omits
(`exported_definition`).
Invariants:
* Partition field ids follow from the definition. The same source and transform have the same id in every spec, so
  values mean the same in every spec. Adding a spec changes no id.
* Specs, orders and expressions are added and never changed.

Source: the Iceberg specification, "Partition Specs", "Partition Evolution" and "Sort Orders", docs/decisions/0064.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Final

from pyiceberg.transforms import UnknownTransform

from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import (
    Expression,
    PartitionSpec,
    SortField,
    SortOrder,
    TableDefinition,
    first_expression_id,
    transform_of_text,
)
from rootline.tree.evolution.changes import PartitionField

FIRST_PARTITION_FIELD: Final = 1000
IDENTITY: Final = "identity"

Derivation = tuple[tuple[int, ...], str]
"""The source column ids and the transform of a partition field."""


def derivation_of(definition: TableDefinition, member: int) -> Derivation:
    """The source columns and transform of a spec's member, which is the id of an expression or (by identity) of a
    column.
    """
    expression = definition.expressions_by_id.get(member)
    return ((member,), IDENTITY) if expression is None else (expression.source_ids, expression.transform)


def member_of(definition: TableDefinition, derivation: Derivation) -> int | None:
    """The id of the column or expression with this derivation (source columns and transform), or `None` without one."""
    sources, transform = derivation
    if transform == IDENTITY and len(sources) == 1:
        return sources[0]
    for expression in definition.expressions:
        if (expression.source_ids, expression.transform) == derivation:
            return expression.expr_id
    return None


def partition_field_ids(definition: TableDefinition) -> Mapping[tuple[int, int], int]:
    """The partition field ids by (spec id, position of the member in the spec).

    A field without a stated id gets the id of an equal field in an earlier spec. Otherwise it gets a new one: the first
    free id in a spec that the table was created with, and an id above all others in a spec that was added later.
    """
    used = {field_id for spec in definition.partition_specs for field_id in spec.field_ids}
    used |= {one.partition_field_id for one in definition.expressions if one.partition_field_id is not None}
    by_derivation: dict[Derivation, int] = {}
    found: dict[tuple[int, int], int] = {}
    for spec in sorted(definition.partition_specs, key=lambda one: one.spec_id):
        for place, member in enumerate(spec.expr_ids):
            derivation, expression = derivation_of(definition, member), definition.expressions_by_id.get(member)
            field_id = spec.field_ids[place] if spec.field_ids else None
            if field_id is None and expression is not None:
                field_id = expression.partition_field_id
            if field_id is None:
                field_id = by_derivation.get(derivation)
            if field_id is None:
                start = max(used, default=FIRST_PARTITION_FIELD - 1) + 1 if spec.names else FIRST_PARTITION_FIELD
                field_id = next(number for number in count(start) if number not in used)
            by_derivation.setdefault(derivation, field_id)
            used.add(field_id)
            found[spec.spec_id, place] = field_id
    return found


def partition_field_names(definition: TableDefinition, spec: PartitionSpec) -> tuple[str, ...]:
    """The names of a spec's partition fields: those stated in the spec, or else the names of their expressions and
    columns.
    """
    if spec.names:
        return spec.names
    tracked = definition.tracked_by_id
    return tuple(tracked[member].name if member in tracked else str(member) for member in spec.expr_ids)


_NAMED_AS_COLUMN = (IDENTITY, "void")
"""The transforms whose partition field may have the name of its column."""


def with_spec(
    definition: TableDefinition, fields: Sequence[PartitionField], *, ids_taken: int
) -> tuple[TableDefinition, int]:
    """Add a spec of `fields`, or find an equal one. Returns the definition and the spec's id.

    Args:
        definition: the definition without the spec.
        fields: the partition fields in the order of the spec.
        ids_taken: the greatest id of a column that the same list of changes adds.

    Raises:
        Invalid: `definition-invalid`, a name is the name of another column; `evolution-illegal`, a field id belongs to
            another partition field.
    """
    _check_field_ids(definition, fields)
    members: list[int] = []
    known = {derivation_of(definition, one.expr_id): one.expr_id for one in reversed(definition.expressions)}
    for field in fields:
        _check_name(definition, field)
        derivation = _derivation(field)
        if derivation[1] == IDENTITY and len(derivation[0]) == 1:
            members.append(derivation[0][0])
            continue
        if derivation not in known:
            definition = _with_expression(definition, derivation, field.name, ids_taken)
            known[derivation] = definition.expressions[-1].expr_id
        members.append(known[derivation])
    expr_ids, names = tuple(members), tuple(field.name for field in fields)
    for spec in definition.partition_specs:
        if spec.expr_ids == expr_ids and partition_field_names(definition, spec) == names:
            return definition, spec.spec_id
    spec_id = max((spec.spec_id for spec in definition.partition_specs), default=-1) + 1
    added = PartitionSpec(spec_id, expr_ids, (), names)
    return replace(definition, partition_specs=(*definition.partition_specs, added)), spec_id


def with_order(definition: TableDefinition, fields: Sequence[SortField]) -> tuple[TableDefinition, int]:
    """Add a sort order of `fields`, or find an equal one. Returns the definition and the order's id.

    Without fields the id is 0, for unsorted.
    """
    wanted = tuple(replace(field, transform=_plain(field.transform)) for field in fields)
    for order in definition.sort_orders:
        if order.fields == wanted:
            return definition, order.order_id
    order_id = max((order.order_id for order in definition.sort_orders), default=0) + 1 if wanted else 0
    return replace(definition, sort_orders=(*definition.sort_orders, SortOrder(order_id, wanted))), order_id


def _with_expression(definition: TableDefinition, derivation: Derivation, name: str, ids_taken: int) -> TableDefinition:
    used = {field_id for schema in definition.schemas for field_id in schema.field_ids}
    used |= definition.expressions_by_id.keys()
    last = max(definition.last_column_id, ids_taken)
    expr_id = first_expression_id(used, last)
    taken = {one.name for one in definition.expressions} | set(definition.schema.column_names)
    made = Expression(expr_id, *derivation, f"{name}_{expr_id}" if name in taken else name)
    return replace(definition, expressions=(*definition.expressions, made), last_column_id=max(last, expr_id))


def _derivation(field: PartitionField) -> Derivation:
    return field.source_ids, _plain(field.transform)


def _plain(transform: str) -> str:
    """The canonical text of a transform, so that equal ones compare equal."""
    parsed = transform_of_text(transform)
    return transform if isinstance(parsed, UnknownTransform) else str(parsed)


def _check_name(definition: TableDefinition, field: PartitionField) -> None:
    columns = definition.schema.column_names
    if field.name not in columns:
        return
    own = definition.schema.find_field(field.name).field_id
    if _plain(field.transform) not in _NAMED_AS_COLUMN or field.source_ids != (own,):
        raise Invalid(
            "definition-invalid",
            f"definition: partition field {field.name!r} has the name of another column: choose another name",
        )


def _check_field_ids(definition: TableDefinition, fields: Sequence[PartitionField]) -> None:
    """Check that field ids from a writer, if given, have the same source and transform in the table."""
    if all(field.field_id is None for field in fields):
        return
    specs = {spec.spec_id: spec for spec in definition.partition_specs}
    known: dict[int, set[Derivation]] = {}
    for (spec_id, place), field_id in partition_field_ids(definition).items():
        derivation = derivation_of(definition, specs[spec_id].expr_ids[place])
        known.setdefault(field_id, set()).add(derivation)
    for field in fields:
        meant = known.get(field.field_id) if field.field_id is not None else None
        if meant is not None and _derivation(field) not in meant:
            raise Invalid(
                "evolution-illegal",
                f"definition: partition field {field.name!r} has field-id {field.field_id}, which belongs to another "
                "source and transform: omit the id, or load the table again",
            )
