"""Columns, partitions and orders that simulated writers change, and files of every partition spec.

Owns: what such changes say, and what a definition comes to by them. Does not own: when a writer changes something
(`writers`).
Invariants: a change is made for the definition that the writer has seen; what a table comes to is read from its
definition and from nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from struct import pack
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from rootline.schemas.intent import GenericStatistics
from rootline.schemas.root_header import RootHeader
from rootline.schemas.table_definition import SortField, TableDefinition
from rootline.tree.evolution.changes import (
    AddSchema,
    AddSortOrder,
    AddSpec,
    DefinitionChange,
    DefinitionChanges,
    PartitionField,
    order_changes,
    schema_changes,
    spec_changes,
)
from rootline.tree.evolution.specs_and_orders import derivation_of

_BY_K: Final = PartitionField((2,), "identity", "k")
_BY_ID: Final = PartitionField((1,), "bucket[4]", "id_bucket")
_SPECS: Final[Sequence[tuple[PartitionField, ...]]] = ((), (_BY_K,), (_BY_ID,), (_BY_K, _BY_ID))
_ORDERS: Final[Sequence[tuple[SortField, ...]]] = ((), (SortField(1),), (SortField(2, direction="desc"), SortField(1)))
_FIRST_COLUMNS: Final = 2


@dataclass(frozen=True, slots=True)
class Shape:
    """What writers go by: the columns, and what the partitions and the order are made of."""

    columns: tuple[NestedField, ...]
    partitions: tuple[tuple[tuple[int, ...], str], ...]
    order: tuple[SortField, ...]

    @staticmethod
    def of(definition: TableDefinition) -> Shape:
        """What a definition says."""
        spec = definition.spec_by_id(definition.default_spec_id)
        [order] = [one for one in definition.sort_orders if one.order_id == definition.default_sort_order_id]
        members = tuple(derivation_of(definition, member) for member in spec.expr_ids)
        return Shape(tuple(definition.schema.fields), members, tuple(order.fields))

    def after(self, text: str) -> Shape:
        """What accepted changes make of it."""
        columns, partitions, order = self.columns, self.partitions, self.order
        for change in DefinitionChanges.from_json(text).changes:
            match change:
                case AddSchema(schema):
                    columns = tuple(schema.fields)
                case AddSpec(fields):
                    partitions = tuple((one.source_ids, one.transform) for one in fields)
                case AddSortOrder(fields):
                    order = tuple(fields)
                case _:
                    pass
        return Shape(columns, partitions, order)


def column_more(definition: TableDefinition, header: RootHeader, name: str) -> DefinitionChanges:
    """A column more."""
    more = NestedField(definition.last_column_id + 1, name, LongType(), required=False)
    schema = Schema(*definition.schema.fields, more, schema_id=0)
    return DefinitionChanges(header.definition.digest, tuple(schema_changes(schema)))


def some_changes(definition: TableDefinition, header: RootHeader, name: str, rng: random.Random) -> DefinitionChanges:
    """A column more, less or renamed, other partitions, another order, or some of it at once."""
    changes: list[DefinitionChange] = []
    first, added = definition.schema.fields[:_FIRST_COLUMNS], list(definition.schema.fields[_FIRST_COLUMNS:])
    roll = rng.random()
    if added and roll < 0.2:
        added.pop(rng.randrange(len(added)))
        changes += schema_changes(Schema(*first, *added, schema_id=0))
    elif added and roll < 0.4:
        at = rng.randrange(len(added))
        added[at] = added[at].model_copy(update={"name": name})
        changes += schema_changes(Schema(*first, *added, schema_id=0))
    elif roll < 0.6:
        changes += column_more(definition, header, name).changes
    if roll > 0.5:
        changes += spec_changes(rng.choice(_SPECS))
    if 0.3 < roll < 0.7 or not changes:
        changes += order_changes(rng.choice(_ORDERS))
    return DefinitionChanges(header.definition.digest, tuple(changes))


def partition_statistics(definition: TableDefinition, rng: random.Random) -> tuple[GenericStatistics, ...]:
    """What a file of the default spec says of its partition."""
    members = definition.spec_by_id(definition.default_spec_id).expr_ids
    return tuple(GenericStatistics(field_id=member, lower_bound=pack("<i", rng.randint(0, 3))) for member in members)
