"""A table definition as text: the columns of `--schema FILE`, and a definition in words.

Owns: the two forms of the file, the words for columns, specs and sort orders. Does not own: the words for types
(`given_schema`), partitioning (`create_drop`).
Invariants: the simple form needs no ids and has no structs. For those there is Iceberg's own schema JSON.

Simple form: `{"carrier": "string not null", "flight": "int", "time_hour": "timestamptz"}`. Types are Iceberg's names,
or Arrow's for the same thing (`int32`, `int64`, `float64`, `utf8`, `bool`, `timestamp[us]`, `timestamp[us, tz=UTC]`).
In `list<T>` and `map<K, V>`, the parts are of these types, too.
Iceberg's form: `{"type": "struct", "fields": [{"id": 1, "name": "carrier", "type": "string", "required": true}, …]}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from rootline.client.given_schema import type_of_words
from rootline.client.layout_terms import sort_term, term_text
from rootline.schemas.errors import Invalid
from rootline.tree.evolution.specs_and_orders import IDENTITY, partition_field_names

if TYPE_CHECKING:
    from rootline.schemas.table_definition import PartitionSpec, SortField, TableDefinition


def read_schema(path: Path) -> Schema:
    """The schema in the file at `path`.

    Raises:
        Invalid: `definition-invalid`: it has neither form, or a type has an unknown name.
        OSError: it cannot be read.

    """
    text = path.read_text(encoding="utf-8")
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid("definition-invalid", f"{path}: is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise Invalid(
            "definition-invalid", f"{path}: expected an object with a column for each key, or an Iceberg schema"
        )
    if not body:
        raise Invalid("definition-invalid", f"{path}: has no column; a table needs at least one")
    if isinstance(body.get("fields"), list):
        return _iceberg(body, path)
    inner = count(len(body) + 1)
    return Schema(*(_column(path, at, name, kind, inner) for at, (name, kind) in enumerate(body.items(), start=1)))


def _iceberg(body: dict[str, Any], path: Path) -> Schema:
    try:
        return Schema.model_validate({"type": "struct", "schema-id": 0, **body})
    except (ValidationError, ValueError) as error:
        reason = _first_fault(error) if isinstance(error, ValidationError) else error
        raise Invalid("definition-invalid", f"{path}: is not an Iceberg schema: {reason}") from error


def _first_fault(error: ValidationError) -> str:
    fault = error.errors(include_input=False, include_url=False)[0]
    return ".".join(map(str, fault["loc"])) + f": {fault['msg']}"


def _column(path: Path, field_id: int, name: str, kind: object, ids: Iterator[int]) -> NestedField:
    if not isinstance(kind, str):
        raise Invalid(
            "definition-invalid", f"{path}: column {name!r}: its type is not a string; write long, struct<x: double>, …"
        )
    try:
        found, required = type_of_words(kind, ids)
    except ValueError as error:
        raise Invalid(
            "definition-invalid",
            f"{path}: column {name!r}: there is no type {kind!r}; write string, long, double, timestamptz, …",
        ) from error
    return NestedField(field_id, name, found, required=required)


def column_lines(definition: TableDefinition) -> Iterator[str]:
    """A line for each column of the current schema: field id, name, type."""
    for field in definition.schema.fields:
        yield f"  {field.field_id:>4}  {field.name}  {field.field_type}{' not null' if field.required else ''}"


def layout_lines(definition: TableDefinition) -> Iterator[str]:
    """A line with the sort order, then a line for each partition spec or sort order, if the table has several."""
    orders = {order.order_id: order.fields for order in definition.sort_orders}
    yield f"sorted by: {_order_text(definition, orders.get(definition.default_sort_order_id, ())) or 'nothing'}"
    if len(definition.partition_specs) > 1:
        for spec in definition.partition_specs:
            mark = ", of new files" if spec.spec_id == definition.default_spec_id else ""
            names = ", ".join(partition_field_names(definition, spec))
            text = f"{members_text(definition, spec)} (named {names})" if names else "nothing"
            yield f"  partition spec {spec.spec_id}{mark}: {text}"
    if len(orders) > 2:
        for order_id, fields in orders.items():
            mark = ", of new files" if order_id == definition.default_sort_order_id else ""
            yield f"  sort order {order_id}{mark}: {_order_text(definition, fields) or 'nothing'}"


def _order_text(definition: TableDefinition, fields: Sequence[SortField]) -> str:
    tracked = definition.tracked_by_id
    return ", ".join(sort_term(field, tracked[field.source_id].name) for field in fields)


def members_text(definition: TableDefinition, spec: PartitionSpec, *, with_ids: bool = False) -> str:
    """The members of a spec as terms, such as `carrier, month(time_hour)`. Empty for an unpartitioned spec."""
    names = {field.tracked_id: field.name for field in definition.tracked_fields}
    texts = []
    for member in spec.expr_ids:
        expression = definition.expressions_by_id.get(member)
        if expression is None:
            texts.append(term_text(IDENTITY, [names[member]]))
            continue
        term = term_text(expression.transform, [names[source_id] for source_id in expression.source_ids])
        texts.append(term + (f" (expression {member})" if with_ids else ""))
    return ", ".join(texts)
