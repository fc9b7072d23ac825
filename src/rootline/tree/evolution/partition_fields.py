"""Partition fields as Iceberg knows them: the id and the name of each member of each spec.

Owns: which id and name a member has that carries none of its own. Does not own: what a spec is made of
(`table_definition`), what an export leaves out of it (`exported_definition`).
Invariants: pure; ids follow from the definition, the same source and transform have one id in every spec, and specs
that are added change no id; the next id is above all of them.

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
"""What a partition field is of: the ids of its columns, and the transform."""


def derivation_of(definition: TableDefinition, member: int) -> Derivation:
    """Of a member of a spec: an expression, or a column by identity."""
    expression = definition.expressions_by_id.get(member)
    return ((member,), IDENTITY) if expression is None else (expression.source_ids, expression.transform)


def member_of(definition: TableDefinition, derivation: Derivation) -> int | None:
    """The member that is `derivation`; `None` while the table has no such expression."""
    sources, transform = derivation
    if transform == IDENTITY and len(sources) == 1:
        return sources[0]
    for expression in definition.expressions:
        if (expression.source_ids, expression.transform) == derivation:
            return expression.expr_id
    return None


def partition_field_ids(definition: TableDefinition) -> Mapping[tuple[int, int], int]:
    """(spec id, position of the member in it) → partition field id.

    A spec that a table was created with fills gaps between ids that were adopted; one that was added since, which has
    names of its own, goes on above all of them.
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
    """What the members of a spec are called: by the spec, else as their expression or column."""
    if spec.names:
        return spec.names
    tracked = definition.tracked_by_id
    return tuple(tracked[member].name if member in tracked else str(member) for member in spec.expr_ids)
