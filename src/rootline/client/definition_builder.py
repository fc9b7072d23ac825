"""A new table's definition from what a user says: a schema, `partition_by` strings, properties.

Owns: the grammar of `partition_by`, ids of expressions. Does not own: Arrow types (`arrow_schema`), whether the
coordinator accepts the definition (`rootline.tree`).
Invariants: expression ids continue after the schema's own ids; a plain column in a spec is the column itself, by
identity, and makes no expression.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.transforms import UnknownTransform, parse_transform
from pyiceberg.types import NestedField, PrimitiveType

from rootline.client.arrow_schema import iceberg_schema
from rootline.maintenance.flush_limits import FlushLimits
from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import Expression, PartitionSpec, SortOrder, TableDefinition

_COLUMN: Final = r"[^\W\d][\w.]*"
_SOURCE: Final = rf'{_COLUMN}|"[^"]+"'
_TERM: Final = re.compile(
    rf"\s*(?:(?P<plain>{_SOURCE})|(?P<function>[a-z]+)\(\s*(?:(?P<width>[0-9]+)\s*,\s*)?(?P<column>{_SOURCE})\s*\))"
    rf"(?:\s+as\s+(?P<alias>{_COLUMN}))?\s*\Z"
)
_PLURALS: Final = {"years": "year", "months": "month", "days": "day", "hours": "hour"}
_WITH_WIDTH: Final = {"bucket", "truncate"}


def build_definition(
    schema: pa.Schema | Schema,
    *,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    table_uuid: uuid.UUID,
) -> TableDefinition:
    """The definition of a new table.

    Args:
        schema: Arrow (ids are made) or Iceberg (its ids are kept).
        partition_by: `column`, `identity(column)`, `year|month|day|hour(column)`, `bucket(n, column)` or
            `truncate(width, column)`, each with an optional `as name`; a column whose name is no word stands in double
            quotes, as it does in filters.
        properties: the table's properties, text to text.
        table_uuid: fresh; the edge mints it.

    Raises:
        Invalid: `definition-invalid`, naming the column or the term; `setting-invalid`, naming the property.

    """
    FlushLimits.of_properties(properties or {})  # refused now, not by a worker's log line tonight
    iceberg = iceberg_schema(schema) if isinstance(schema, pa.Schema) else schema
    if not iceberg.fields:
        raise Invalid("definition-invalid", "a table needs at least one column")
    last_id = iceberg.highest_field_id
    expressions: list[Expression] = []
    members: list[int] = []
    for term in partition_by:
        source, transform, name = _parsed(term, iceberg)
        if transform == "identity":
            members.append(source.field_id)
        else:
            last_id += 1
            expressions.append(Expression(last_id, (source.field_id,), transform, name))
            members.append(last_id)
    _check_distinct(expressions, members, partition_by, iceberg)
    return TableDefinition(
        table_uuid=table_uuid,
        schemas=(iceberg,),
        current_schema_id=iceberg.schema_id,
        expressions=tuple(expressions),
        partition_specs=(PartitionSpec(0, tuple(members)),),
        default_spec_id=0,
        sort_orders=(SortOrder(0),),
        default_sort_order_id=0,
        last_column_id=last_id,
        properties=dict(properties or {}),
    )


def _parsed(term: str, schema: Schema) -> tuple[NestedField, str, str]:
    match = _TERM.match(term)
    if match is None:
        raise Invalid("definition-invalid", f"partition_by {term!r}: write column, month(column) or bucket(8, column)")
    column = (match["plain"] or match["column"]).strip('"')
    function = _PLURALS.get(match["function"] or "identity", match["function"] or "identity")
    if (match["width"] is not None) != (function in _WITH_WIDTH):
        needs = "needs a width first, as in bucket(8, column)" if function in _WITH_WIDTH else "takes a column only"
        raise Invalid("definition-invalid", f"partition_by {term!r}: {function} {needs}")
    text = f"{function}[{match['width']}]" if match["width"] else function
    source = _column(term, column, schema)
    _check_transform(term, text, source)
    if function == "identity" and match["alias"]:
        raise Invalid("definition-invalid", f"partition_by {term!r}: a plain column keeps its own name")
    return source, text, match["alias"] or f"{column.replace('.', '_')}_{function}"


def _column(term: str, column: str, schema: Schema) -> NestedField:
    try:
        return schema.find_field(column)
    except ValueError as error:
        known = ", ".join(field.name for field in schema.fields)
        raise Invalid("definition-invalid", f"partition_by {term!r}: no column {column!r} among {known}") from error


def _check_transform(term: str, text: str, source: NestedField) -> None:
    try:
        transform = parse_transform(text)
    except ValueError as error:
        raise Invalid("definition-invalid", f"partition_by {term!r}: {error}") from error
    if isinstance(transform, UnknownTransform):
        raise Invalid("definition-invalid", f"partition_by {term!r}: no transform {text!r}")
    if not isinstance(source.field_type, PrimitiveType) or not transform.can_transform(source.field_type):
        raise Invalid("definition-invalid", f"partition_by {term!r}: {text} does not take {source.field_type}")


def _check_distinct(
    expressions: Sequence[Expression], members: Sequence[int], partition_by: Sequence[str], schema: Schema
) -> None:
    if len(set(members)) != len(members):
        raise Invalid("definition-invalid", f"partition_by {list(partition_by)} names a column twice")
    names = [expression.name for expression in expressions]
    taken = {field.name for field in schema.fields}
    for name in names:
        if names.count(name) > 1 or name in taken:
            raise Invalid("definition-invalid", f"partition_by: the name {name!r} is taken; add `as another_name`")
