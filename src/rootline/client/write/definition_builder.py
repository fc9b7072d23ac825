"""A new table's definition from what a user gives: a schema, partitions, expressions, properties.

Owns: ids of expressions. Does not own: the grammar of terms (`definition_terms`), Arrow types (`arrow_schema`), whether
the coordinator accepts the definition (`rootline.tree`).
Invariants: expression ids continue after the schema's own ids, but stay below 10,000,000; a plain column in a spec is
the column itself, by identity, and makes no expression.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyiceberg.schema import Schema

from rootline.client.write.arrow_schema import iceberg_schema
from rootline.client.write.definition_terms import parsed_term
from rootline.client.write.sort_terms import SortBy, sort_fields
from rootline.maintenance.limits import EXPIRE, SWEEP_PROPERTY
from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import Expression, PartitionSpec, SortOrder, TableDefinition, first_expression_id
from rootline.schemas.table_properties import check_set


def build_definition(
    schema: pa.Schema | Schema,
    *,
    partition_by: Sequence[str] = (),
    expressions: Sequence[str] = (),
    sort_by: SortBy = (),
    properties: Mapping[str, str] | None = None,
    table_uuid: uuid.UUID,
) -> TableDefinition:
    """The definition of a new table.

    Args:
        schema: Arrow (ids are made) or Iceberg (its ids are kept).
        partition_by: `column`, `identity(column)`, `year|month|day|hour|void(column)`, `bucket(n, column)`,
            `bucket(n, column, another)` or `truncate(width, column)`, each with an optional `as name`; a column whose
            name is no word is put in double quotes, as in filters.
        expressions: derived columns that files have statistics of, without being partitioned by them: the same terms,
            and `lower(column)`.
        sort_by: how rows are sorted inside files: the same terms, `-column` for descending, with an optional `nulls
            first` or `nulls last` behind; or PyIceberg's `SortOrder`.
        properties: the table's properties, text to text. Old versions expire unless `rootline.expire` is
            `false`, and what nothing needs any more is deleted in time unless `rootline.sweep` is.
        table_uuid: a fresh one.

    Raises:
        Invalid: `definition-invalid`, naming the column or the term; `property-invalid`, naming the property.

    """
    check_set({}, properties or {})
    iceberg = iceberg_schema(schema) if isinstance(schema, pa.Schema) else schema
    if not iceberg.fields:
        raise Invalid("definition-invalid", "a table needs at least one column, and the schema has none")
    highest_id = iceberg.highest_field_id
    last_id = first_expression_id(iceberg.field_ids, highest_id) - 1
    derived: list[Expression] = []
    members: list[int] = []
    for term in partition_by:
        parsed = parsed_term("partition_by", term, iceberg)
        if parsed.transform == "identity":
            members.append(parsed.source_ids[0])
        else:
            last_id += 1
            derived.append(Expression(last_id, parsed.source_ids, parsed.transform, parsed.name))
            members.append(last_id)
    for term in expressions:
        parsed = parsed_term("expressions", term, iceberg)
        if parsed.transform == "identity":
            raise Invalid("definition-invalid", f"expressions {term!r}: a column has statistics anyway; leave it out")
        last_id += 1
        derived.append(Expression(last_id, parsed.source_ids, parsed.transform, parsed.name))
    _check_distinct(derived, members, partition_by, iceberg)
    orders = [SortOrder(0)]
    order = sort_fields(sort_by, iceberg)
    if order:
        orders.append(SortOrder(1, order))
    return TableDefinition(
        table_uuid=table_uuid,
        schemas=(iceberg,),
        current_schema_id=iceberg.schema_id,
        expressions=tuple(derived),
        partition_specs=(PartitionSpec(0, tuple(members)),),
        default_spec_id=0,
        sort_orders=tuple(orders),
        default_sort_order_id=orders[-1].order_id,
        last_column_id=max(highest_id, last_id),
        properties={EXPIRE: "true", SWEEP_PROPERTY: "true"} | dict(properties or {}),
    )


def _check_distinct(
    expressions: Sequence[Expression], members: Sequence[int], partition_by: Sequence[str], schema: Schema
) -> None:
    if len(set(members)) != len(members):
        raise Invalid("definition-invalid", f"partition_by {list(partition_by)} names a column twice; name each once")
    names = [expression.name for expression in expressions]
    taken = {field.name for field in schema.fields}
    for name in names:
        if names.count(name) > 1 or name in taken:
            raise Invalid(
                "definition-invalid", f"partition_by and expressions: the name {name!r} is taken; add `as another_name`"
            )
