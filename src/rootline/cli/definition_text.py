"""A table definition in words: its columns, and what its partition specs are made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rootline.schemas.table_definition import PartitionSpec, SortField, TableDefinition


def column_lines(definition: TableDefinition) -> Iterator[str]:
    """A line for each column of the current schema: field id, name, type."""
    for field in definition.schema.fields:
        yield f"  {field.field_id:>4}  {field.name}  {field.field_type}{' not null' if field.required else ''}"


def layout_lines(definition: TableDefinition) -> Iterator[str]:
    """The sort order, and, where the table has several, every partition spec and sort order by id."""
    from rootline.tree.evolution.partition_fields import partition_field_names

    orders = {order.order_id: order.fields for order in definition.sort_orders}
    yield f"sorted by: {_order_text(definition, orders.get(definition.default_sort_order_id, ())) or 'nothing'}"
    if len(definition.partition_specs) > 1:
        for spec in definition.partition_specs:
            mark = ", of new files" if spec.spec_id == definition.default_spec_id else ""
            names = ", ".join(partition_field_names(definition, spec))
            said = f"{members_text(definition, spec)} (named {names})" if names else "nothing"
            yield f"  partition spec {spec.spec_id}{mark}: {said}"
    if len(orders) > 2:
        for order_id, fields in orders.items():
            mark = ", of new files" if order_id == definition.default_sort_order_id else ""
            yield f"  sort order {order_id}{mark}: {_order_text(definition, fields) or 'nothing'}"


def _order_text(definition: TableDefinition, fields: Sequence[SortField]) -> str:
    from rootline.client.write.sort_terms import sort_term

    tracked = definition.tracked_by_id
    return ", ".join(sort_term(field, tracked[field.source_id].name) for field in fields)


def members_text(definition: TableDefinition, spec: PartitionSpec, *, with_ids: bool = False) -> str:
    """What a spec partitions by, such as `carrier, month of time_hour`; empty for none."""
    names = {field.tracked_id: field.name for field in definition.tracked_fields}
    said = []
    for member in spec.expr_ids:
        expression = definition.expressions_by_id.get(member)
        if expression is None:
            said.append(names[member])
            continue
        sources = ", ".join(names[source_id] for source_id in expression.source_ids)
        said.append(f"{expression.transform} of {sources}" + (f" (expression {member})" if with_ids else ""))
    return ", ".join(said)
