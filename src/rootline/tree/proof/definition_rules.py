"""What must hold for a table definition: it can be stored, encoded, and partitioned by.

Owns: the rules of a definition by itself. Does not own: its JSON (`table_definition`), where it is stored (`create`).
Invariants: a definition that passes can be written and read again, and every spec of it gives each file a tuple.

Source: format page, "Table definition".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from fastavro.schema import SchemaParseException
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, TruncateTransform, UnknownTransform
from pyiceberg.types import (
    DecimalType,
    GeographyType,
    GeometryType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
    UnknownType,
)

from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.errors import Invalid, RootlineError
from rootline.schemas.expression_types import Function
from rootline.schemas.field_ids import MAX_COLUMN_ID, MAX_TRACKED_ID
from rootline.schemas.table_definition import (
    NAME_MAPPING_PROPERTY,
    Expression,
    SortField,
    TableDefinition,
    transform_of_text,
)
from rootline.tree.proof.default_rules import default_fault
from rootline.tree.proof.file_verification import check_verification
from rootline.tree.proof.name_mapping_rules import name_mapping_fault
from rootline.tree.proof.row_limits import row_limits

_NOT_STORED: Final = (GeometryType, GeographyType, UnknownType)
NESTING_MAX: Final = 64
_WITH_WIDTH: Final = ("bucket", "truncate")
_WIDTH_MAX: Final = 2**31 - 1
_DIRECTIONS: Final = ("asc", "desc")
_NULL_ORDERS: Final = ("nulls-first", "nulls-last")


def check_definition(definition: TableDefinition) -> None:
    """Raises `Invalid` unless the definition can be a table's.

    Raises:
        Invalid: `definition-invalid` or `column-untracked`, naming the field.

    """
    try:
        for check in (_check_ids, _check_schemas, _check_expressions, _check_specs, _check_orders, _check_encodable):
            check(definition)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise _invalid(f"a member is of the wrong type: {error!s:.300}") from error


def check_nesting(text: str) -> None:
    """Raises `Invalid` (`definition-invalid`) when a definition's JSON is nested so deep that it cannot be one.

    Brackets in texts count too, which only makes it stricter.
    """
    depth = 0
    for char in text:
        if char in "{[":
            depth += 1
            if depth > 4 * NESTING_MAX:
                raise _invalid(f"more than {NESTING_MAX} levels of nesting")
        elif char in "}]":
            depth -= 1


def _check_ids(definition: TableDefinition) -> None:
    schema_ids = [schema.schema_id for schema in definition.schemas]
    _unique("schema id", schema_ids)
    _unique("expression id", [expression.expr_id for expression in definition.expressions])
    _unique("partition spec id", [spec.spec_id for spec in definition.partition_specs])
    _unique("sort order id", [order.order_id for order in definition.sort_orders])
    if definition.current_schema_id not in schema_ids:
        raise _invalid(f"current-schema-id {definition.current_schema_id} is no schema's")
    oldest = definition.oldest_schema_id
    if oldest and oldest not in schema_ids:
        raise _invalid(f"oldest-schema-id {oldest} is no schema's")
    if definition.current_schema_id < oldest:
        raise _invalid(
            f"schema {definition.current_schema_id} is of before the table was replaced, with schema {oldest}: add its "
            "columns in a new schema"
        )
    if definition.default_spec_id not in {spec.spec_id for spec in definition.partition_specs}:
        raise _invalid(f"default-spec-id {definition.default_spec_id} is no spec's")
    if not all(isinstance(key, str) and isinstance(value, str) for key, value in dict(definition.properties).items()):
        raise _invalid("properties must map strings to strings")
    mapping = definition.properties.get(NAME_MAPPING_PROPERTY)
    fault = None if mapping is None else name_mapping_fault(mapping)
    if fault is not None:
        raise _invalid(f"property {NAME_MAPPING_PROPERTY} {fault}")
    try:
        row_limits(definition.properties)
        check_verification(definition.properties)
    except Invalid as error:
        raise _invalid(error.message) from error


def _check_schemas(definition: TableDefinition) -> None:
    columns: set[int] = set()
    for schema in definition.schemas:
        where = f"schema {schema.schema_id}"
        found = list(_fields_of(schema, where))
        was_dropped = partial(_was_dropped, {field.field_id for _, field in found}, definition.last_column_id)
        _unique(f"field id in {where}", [field.field_id for _, field in found])
        for name, field in found:
            if not 0 < field.field_id <= MAX_COLUMN_ID:
                raise _invalid(f"{where}: field {name!r} has id {field.field_id}, outside 1..{MAX_COLUMN_ID}")
            if isinstance(field.field_type, _NOT_STORED):
                raise _invalid(f"{where}: field {name!r} is of type {field.field_type}, which cannot be stored")
            fault = _decimal_fault(field.field_type) or default_fault(field, was_dropped)
            if fault is not None:
                raise _invalid(f"{where}: field {name!r} {fault}")
        columns.update(field.field_id for _, field in found)
    shared = columns & {expression.expr_id for expression in definition.expressions}
    if shared:
        raise _invalid(f"ids {sorted(shared)[:8]} are a column's and an expression's: they come from one space")
    greatest = max(columns | {expression.expr_id for expression in definition.expressions}, default=0)
    if definition.last_column_id < greatest:
        raise _invalid(f"last-column-id is {definition.last_column_id}, id {greatest} is in use")


def _was_dropped(own: set[int], last_column_id: int, text: str) -> bool:
    """Whether a column that is not among a schema's `own` may have had this id."""
    if len(text) > len(str(MAX_COLUMN_ID)) or not (text.isascii() and text.isdigit()) or text.startswith("0"):
        return False
    return int(text) <= last_column_id and int(text) not in own


def _decimal_fault(found: IcebergType) -> str | None:
    if not isinstance(found, DecimalType) or 0 <= found.scale <= found.precision:
        return None
    return f"is of type {found}: its scale must be from 0 up to its precision"


def _fields_of(schema: Schema, where: str) -> Iterator[tuple[str, NestedField]]:
    pending: list[tuple[str, IcebergType, int]] = [("", schema.as_struct(), 0)]
    while pending:
        prefix, found, depth = pending.pop()
        if depth > NESTING_MAX:
            raise _invalid(f"{where}: more than {NESTING_MAX} levels of nesting")
        children: list[NestedField] = []
        if isinstance(found, StructType):
            _unique(f"name in {where} {prefix}", [field.name for field in found.fields])
            children = list(found.fields)
        elif isinstance(found, ListType):
            children = [found.element_field]
        elif isinstance(found, MapType):
            children = [found.key_field, found.value_field]
        for field in children:
            name = f"{prefix}{field.name}"
            yield name, field
            if not isinstance(field.field_type, PrimitiveType):
                pending.append((f"{name}.", field.field_type, depth + 1))


def _check_expressions(definition: TableDefinition) -> None:
    for expression in definition.expressions:
        _check_transform(f"expression {expression.name!r}", expression.transform)
    columns = {field.tracked_id for field in definition.tracked_fields if not field.is_expression}
    for expression in definition.expressions:
        if not 0 < expression.expr_id <= MAX_TRACKED_ID:
            raise _invalid(f"expression {expression.name!r} has id {expression.expr_id}, outside 1..{MAX_TRACKED_ID}")
        missing = set(expression.source_ids) - columns
        _check_tracked(f"expression {expression.name!r}", missing)
        if missing or not expression.source_ids:
            raise _invalid(f"expression {expression.name!r} reads {sorted(missing)}, which are no primitive columns")
        _unique(f"source id in expression {expression.name!r}", expression.source_ids)


def _check_tracked(where: str, column_ids: Iterable[int]) -> None:
    for column_id in column_ids:
        if column_id > MAX_TRACKED_ID:
            reason = f"reads column id {column_id}; columns above {MAX_TRACKED_ID} have no statistics"
            raise Invalid("column-untracked", f"definition: {where} {reason}")


def _check_transform(where: str, text: object) -> None:
    """An unknown one may be a later version's; one that is known must be complete."""
    parsed = transform_of_text(text) if isinstance(text, str) else None
    unread = parsed is None or (isinstance(parsed, UnknownTransform) and str(text).startswith(_WITH_WIDTH))
    if unread or (isinstance(parsed, BucketTransform) and not 0 < parsed.num_buckets <= _WIDTH_MAX):
        raise _invalid(f"{where}: transform {text!r} cannot be read; write it as in bucket[16]")
    if isinstance(parsed, TruncateTransform) and not 0 < parsed.width <= _WIDTH_MAX:
        raise _invalid(f"{where}: transform {text!r} cannot be read; write it as in truncate[4]")


def _check_specs(definition: TableDefinition) -> None:
    tracked = definition.tracked_by_id
    for spec in definition.partition_specs:
        _unique(f"id in partition spec {spec.spec_id}", spec.expr_ids)
        _unique(f"partition-field-id in partition spec {spec.spec_id}", spec.field_ids)
        _unique(f"name in partition spec {spec.spec_id}", spec.names)
        if not all(type(field_id) is int and 0 < field_id < 2**31 for field_id in spec.field_ids):
            raise _invalid(f"partition spec {spec.spec_id}: a partition-field-id is no positive 32-bit number")
        if not all(isinstance(name, str) for name in spec.names):
            raise _invalid(f"partition spec {spec.spec_id}: a name is no string")
        for expr_id in spec.expr_ids:
            expression = definition.expressions_by_id.get(expr_id)
            if expression is not None:
                _check_partitionable(definition, expression)
            elif expr_id not in tracked:
                _check_tracked(f"partition spec {spec.spec_id}", (expr_id,))
                raise _invalid(f"partition spec {spec.spec_id}: id {expr_id} is neither a column nor an expression")


def _check_partitionable(definition: TableDefinition, expression: Expression) -> None:
    if isinstance(expression.parsed, UnknownTransform):
        raise _invalid(f"expression {expression.name!r}: transform {expression.transform!r} cannot partition")
    if definition.function_of(expression) is Function.UNKNOWN or definition.result_type(expression) is None:
        types = ", ".join(str(kind) for kind in definition.source_types(expression))
        raise _invalid(f"expression {expression.name!r}: {expression.transform} does not apply to {types}")


def _check_orders(definition: TableDefinition) -> None:
    known = {order.order_id for order in definition.sort_orders} | {0}
    if definition.default_sort_order_id not in known:
        raise _invalid(f"default-sort-order-id {definition.default_sort_order_id} is no sort order's")
    for order in definition.sort_orders:
        where = f"sort order {order.order_id}"
        if order.order_id == 0 and order.fields:
            raise _invalid(f"{where} has fields, but order 0 means unsorted; give the order another id")
        if order.order_id != 0 and not order.fields:
            raise _invalid(f"{where} has no fields; only order 0, which means unsorted, has none")
        for field in order.fields:
            _check_sort_field(definition, where, field)


def _check_sort_field(definition: TableDefinition, where: str, field: SortField) -> None:
    source = definition.tracked_by_id.get(field.source_id)
    if source is None:
        _check_tracked(where, (field.source_id,))
        raise _invalid(f"{where}: source-id {field.source_id} is no primitive column")
    for name, word, words in (
        ("direction", field.direction, _DIRECTIONS),
        ("null-order", field.null_order, _NULL_ORDERS),
    ):
        if word not in words:
            raise _invalid(f"{where}: {name} {word!r} is neither {words[0]} nor {words[1]}")
    _check_transform(where, field.transform)
    if isinstance(field.parsed, UnknownTransform):
        raise _invalid(f"{where}: nothing can be sorted by transform {field.transform!r}")
    if not field.parsed.can_transform(source.type):
        raise _invalid(f"{where}: {field.transform} does not apply to {source.type}, column {source.name!r}")


def _check_encodable(definition: TableDefinition) -> None:
    """What the codecs refuse cannot be stored, whatever the rules above let pass."""
    try:
        EntryCodec.of_definition(definition)
        definition.to_json().decode()
    except (RootlineError, ValueError, KeyError, TypeError, RecursionError, SchemaParseException) as error:
        raise _invalid(f"cannot be encoded: {error!s:.300}") from error


def _unique(what: str, values: Iterable[object]) -> None:
    seen: set[object] = set()
    for value in values:
        if value in seen:
            raise _invalid(f"{what} {value!r} occurs twice")
        seen.add(value)


def _invalid(reason: str) -> Invalid:
    return Invalid("definition-invalid", f"definition: {reason}")
