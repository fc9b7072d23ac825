"""Iceberg partition fields: the id and the name of each member of each spec.

Owns: the id and name of a member for which the definition states none.
Does not own: the members of a spec (`table_definition`), omissions in an export (`exported_definition`).
Invariants: Ids follow from the definition. The same source and transform have the same id in every spec. Adding a spec
changes no id.

Source: the Iceberg specification, "Partition Specs" and "Partition Evolution".
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Final

from rootline.schemas.table_definition import PartitionSpec, TableDefinition

FIRST_PARTITION_FIELD: Final = 1000
IDENTITY: Final = "identity"

Derivation = tuple[tuple[int, ...], str]
"""The source column ids and the transform of a partition field."""


def derivation_of(definition: TableDefinition, member: int) -> Derivation:
    """The derivation of a spec's member, which is an expression or (by identity) a column."""
    expression = definition.expressions_by_id.get(member)
    return ((member,), IDENTITY) if expression is None else (expression.source_ids, expression.transform)


def member_of(definition: TableDefinition, derivation: Derivation) -> int | None:
    """The member with this derivation, or `None` if the table has no such expression."""
    sources, transform = derivation
    if transform == IDENTITY and len(sources) == 1:
        return sources[0]
    for expression in definition.expressions:
        if (expression.source_ids, expression.transform) == derivation:
            return expression.expr_id
    return None


def partition_field_ids(definition: TableDefinition) -> Mapping[tuple[int, int], int]:
    """The partition field ids by (spec id, position of the member in the spec).

    A spec that the table was created with fills gaps between adopted ids. A spec added later has its own names, and its
    new ids are above all others.
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
    """The names of a spec's members: those in the spec, or else the names of their expressions and columns."""
    if spec.names:
        return spec.names
    tracked = definition.tracked_by_id
    return tuple(tracked[member].name if member in tracked else str(member) for member in spec.expr_ids)
