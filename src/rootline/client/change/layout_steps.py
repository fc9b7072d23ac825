"""Steps that change how new files are laid out: the fields of the partition spec, and the sort order.

Owns: finding the field that a step means, and the names of new ones. Does not own: ids (`rootline.tree.evolution`),
the block that steps are part of (`alter_table`).
Invariants: pure; a step sees the columns and fields that the steps before it made; a field that the table once had is
found again under the name that it had.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.transforms import Transform

from rootline.client.write.definition_terms import Term, parsed_term
from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import SortField, TableDefinition
from rootline.tree.evolution.changes import PartitionField
from rootline.tree.evolution.partition_fields import (
    IDENTITY,
    Derivation,
    derivation_of,
    member_of,
    partition_field_names,
)

PartitionTransform = str | Transform[Any, Any]


@dataclass(frozen=True, slots=True)
class Layout:
    """What steps work on: the columns as they are by then, the fields of the spec, and those of the sort order."""

    definition: TableDefinition
    schema: Schema
    spec: tuple[PartitionField, ...]
    order: tuple[SortField, ...]

    @staticmethod
    def of(definition: TableDefinition) -> Layout:
        """Of a table as it is."""
        spec = definition.spec_by_id(definition.default_spec_id)
        names = partition_field_names(definition, spec)
        fields = tuple(
            PartitionField(*derivation_of(definition, member), name)
            for member, name in zip(spec.expr_ids, names, strict=True)
        )
        orders = {order.order_id: order.fields for order in definition.sort_orders}
        return Layout(definition, definition.schema, fields, orders.get(definition.default_sort_order_id, ()))

    def with_field(self, term: str, transform: PartitionTransform | None, name: str | None) -> Layout:
        """With one more partition field.

        Raises:
            Invalid: `definition-invalid`, naming the term.

        """
        parsed = self._term(term, transform)
        derivation = parsed.source_ids, parsed.transform
        if any((field.source_ids, field.transform) == derivation for field in self.spec):
            raise Invalid("definition-invalid", f"partition field {term!r}: the table is partitioned by it already")
        found = name or (parsed.name if parsed.is_named else self._known_name(derivation) or self._free_name(parsed))
        if any(field.name == found for field in self.spec):
            raise Invalid(
                "definition-invalid", f"partition field {term!r}: there is one named {found!r}; give another name"
            )
        return replace(self, spec=(*self.spec, PartitionField(*derivation, found)))

    def without_field(self, name: str) -> Layout:
        """Without the partition field called `name`, or that is the term `name`.

        Raises:
            Invalid: `definition-invalid`, there is none.

        """
        place = self._place_of(name)
        return replace(self, spec=(*self.spec[:place], *self.spec[place + 1 :]))

    def with_name(self, name: str, new: str) -> Layout:
        """With another name for a partition field. Raises as `without_field`; also if the new one is taken."""
        place = self._place_of(name)
        if any(field.name == new for field in self.spec):
            raise Invalid("definition-invalid", f"partition field {name!r}: there is one named {new!r} already")
        renamed = replace(self.spec[place], name=new)
        return replace(self, spec=(*self.spec[:place], renamed, *self.spec[place + 1 :]))

    def _place_of(self, name: str) -> int:
        for place, field in enumerate(self.spec):
            if field.name == name:
                return place
        try:
            parsed = parsed_term("partition_by", name, self.schema)
        except Invalid:
            parsed = None
        for place, field in enumerate(self.spec):
            if parsed is not None and (field.source_ids, field.transform) == (parsed.source_ids, parsed.transform):
                return place
        known = ", ".join(field.name for field in self.spec) or "none"
        raise Invalid("definition-invalid", f"there is no partition field {name!r}; the table has: {known}")

    def _term(self, term: str, transform: PartitionTransform | None) -> Term:
        if transform is None:
            return parsed_term("partition_by", term, self.schema)
        function, _, width = str(transform).strip().removesuffix("]").removesuffix(")").replace("(", "[").partition("[")
        column = f'"{term}"' if '"' not in term else term
        return parsed_term("partition_by", f"{function}({f'{width}, ' if width else ''}{column})", self.schema)

    def _known_name(self, derivation: Derivation) -> str | None:
        """What the newest spec that has this field calls it."""
        member = member_of(self.definition, derivation)
        for spec in reversed(self.definition.partition_specs):
            if member in spec.expr_ids:
                name = partition_field_names(self.definition, spec)[spec.expr_ids.index(member)]
                owner = self.schema.find_field(name).field_id if name in self.schema.column_names else None
                is_free = owner is None or (derivation[1] == IDENTITY and derivation[0] == (owner,))
                return name if is_free and all(field.name != name for field in self.spec) else None
        return None

    def _free_name(self, parsed: Term) -> str:
        if parsed.transform == IDENTITY:
            return self.schema.find_column_name(parsed.source_ids[0]) or parsed.name
        taken = {field.name for field in self.spec} | set(self.schema.column_names)
        wider = parsed.transform.replace("[", "_").removesuffix("]")
        return parsed.name if parsed.name not in taken else f"{parsed.name.rpartition('_')[0]}_{wider}"
