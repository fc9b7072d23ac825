"""A table definition in words: its columns, and what its partition specs are made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rootline.schemas.table_definition import PartitionSpec, TableDefinition


def column_lines(definition: TableDefinition) -> Iterator[str]:
    """A line for each column of the current schema: field id, name, type."""
    for field in definition.schema.fields:
        yield f"  {field.field_id:>4}  {field.name}  {field.field_type}{' not null' if field.required else ''}"


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
