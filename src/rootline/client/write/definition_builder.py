"""A new table's definition from what a user gives: a schema, partitions, expressions, properties.

Owns: the grammar of `partition_by` and `expressions`, ids of expressions. Does not own: Arrow types (`arrow_schema`),
whether the coordinator accepts the definition (`rootline.tree`).
Invariants: expression ids continue after the schema's own ids, but stay below 10,000,000; a plain column in a spec is
the column itself, by identity, and makes no expression.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.transforms import UnknownTransform, parse_transform
from pyiceberg.types import NestedField, PrimitiveType

from rootline.client.write.arrow_schema import iceberg_schema
from rootline.client.write.table_properties import check_properties
from rootline.maintenance.expiry_limits import EXPIRE
from rootline.maintenance.sweep_limits import SWEEP_PROPERTY
from rootline.schemas.errors import Invalid
from rootline.schemas.expression_types import LOWER, Function, function_of
from rootline.schemas.table_definition import Expression, PartitionSpec, SortOrder, TableDefinition, first_expression_id

_COLUMN: Final = r"[^\W\d][\w.]*"
_SOURCE: Final = rf'{_COLUMN}|"[^"]+"'
_TERM: Final = re.compile(
    rf"\s*(?:(?P<plain>{_SOURCE})|(?P<function>[a-z]+)\(\s*(?:(?P<width>[0-9]+)\s*,\s*)?"
    rf"(?P<columns>(?:{_SOURCE})(?:\s*,\s*(?:{_SOURCE}))*)\s*\))"
    rf"(?:\s+as\s+(?P<alias>{_COLUMN}))?\s*\Z"
)
_SOURCES: Final = re.compile(_SOURCE)
_PLURALS: Final = {"years": "year", "months": "month", "days": "day", "hours": "hour"}
_WITH_WIDTH: Final = {"bucket", "truncate"}


def build_definition(
    schema: pa.Schema | Schema,
    *,
    partition_by: Sequence[str] = (),
    expressions: Sequence[str] = (),
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
        properties: the table's properties, text to text. Old versions expire unless `rootline.expire` is
            `false`, and what nothing needs any more is deleted in time unless `rootline.sweep` is.
        table_uuid: a fresh one.

    Raises:
        Invalid: `definition-invalid`, naming the column or the term; `setting-invalid`, naming the property.

    """
    check_properties(properties or {})
    iceberg = iceberg_schema(schema) if isinstance(schema, pa.Schema) else schema
    if not iceberg.fields:
        raise Invalid("definition-invalid", "a table needs at least one column, and the schema has none")
    highest_id = iceberg.highest_field_id
    last_id = first_expression_id(iceberg.field_ids, highest_id) - 1
    derived: list[Expression] = []
    members: list[int] = []
    for term in partition_by:
        parsed = _parsed("partition_by", term, iceberg)
        if parsed.transform == "identity":
            members.append(parsed.source_ids[0])
        else:
            last_id += 1
            derived.append(Expression(last_id, parsed.source_ids, parsed.transform, parsed.name))
            members.append(last_id)
    for term in expressions:
        parsed = _parsed("expressions", term, iceberg)
        if parsed.transform == "identity":
            raise Invalid("definition-invalid", f"expressions {term!r}: a column has statistics anyway; leave it out")
        last_id += 1
        derived.append(Expression(last_id, parsed.source_ids, parsed.transform, parsed.name))
    _check_distinct(derived, members, partition_by, iceberg)
    return TableDefinition(
        table_uuid=table_uuid,
        schemas=(iceberg,),
        current_schema_id=iceberg.schema_id,
        expressions=tuple(derived),
        partition_specs=(PartitionSpec(0, tuple(members)),),
        default_spec_id=0,
        sort_orders=(SortOrder(0),),
        default_sort_order_id=0,
        last_column_id=max(highest_id, last_id),
        properties={EXPIRE: "true", SWEEP_PROPERTY: "true"} | dict(properties or {}),
    )


@dataclass(frozen=True, slots=True)
class _Term:
    source_ids: tuple[int, ...]
    transform: str
    name: str


def _parsed(argument: str, term: str, schema: Schema) -> _Term:
    where = f"{argument} {term!r}"
    match = _TERM.match(term)
    if match is None:
        raise Invalid("definition-invalid", f"{where}: write column, month(column) or bucket(8, column)")
    columns = [column.strip('"') for column in _SOURCES.findall(match["plain"] or match["columns"])]
    function = _PLURALS.get(match["function"] or "identity", match["function"] or "identity")
    if (match["width"] is not None) != (function in _WITH_WIDTH):
        needs = "needs a width first, as in bucket(8, column)" if function in _WITH_WIDTH else "takes a column only"
        raise Invalid("definition-invalid", f"{where}: {function} {needs}")
    text = f"{function}[{match['width']}]" if match["width"] else function
    sources = [_column(where, column, schema) for column in columns]
    _check_transform(where, text, sources, is_partition=argument == "partition_by")
    if function == "identity" and match["alias"]:
        raise Invalid(
            "definition-invalid", f"{where}: a plain column keeps its own name; leave out `as {match['alias']}`"
        )
    names = "_".join(column.replace(".", "_") for column in columns)
    return _Term(tuple(source.field_id for source in sources), text, match["alias"] or f"{names}_{function}")


def _column(where: str, column: str, schema: Schema) -> NestedField:
    try:
        return schema.find_field(column)
    except ValueError as error:
        known = ", ".join(field.name for field in schema.fields)
        raise Invalid(
            "definition-invalid", f"{where}: there is no column {column!r}; the columns are {known}"
        ) from error


def _check_transform(where: str, text: str, sources: Sequence[NestedField], *, is_partition: bool) -> None:
    try:
        transform = parse_transform(text)
    except ValueError as error:
        raise Invalid("definition-invalid", f"{where}: {error}") from error
    if isinstance(transform, UnknownTransform) and text != LOWER:
        raise Invalid("definition-invalid", f"{where}: there is no transform {text!r}")
    if text == LOWER and is_partition:
        raise Invalid("definition-invalid", f"{where}: lower cannot partition; it can be one of `expressions`")
    if len({source.field_id for source in sources}) != len(sources):
        raise Invalid("definition-invalid", f"{where}: {text} names a column twice; name each once")
    types = [source.field_type if isinstance(source.field_type, PrimitiveType) else None for source in sources]
    if function_of(text, transform, types) is Function.UNKNOWN:
        taken = ", ".join(str(source.field_type) for source in sources)
        raise Invalid("definition-invalid", f"{where}: {text} does not take {taken}")


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
