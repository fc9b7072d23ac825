"""Rules for a table definition, and for what a change adds to it.

Owns: the rules for one definition, and the rules for the names, defaults and properties that a change adds, so that
every engine can use them.
Does not own: its JSON (`table_definition`), the default of a column (`default_rules`), the step between two schemas
(`rootline.tree.evolution`), storing it (`definition`).
Invariants:
* A definition that passes can be written and read back. Each of its specs gives every file a partition tuple.
* The rules for additions are checked on additions only, so a table that already breaks one can still be altered,
  restored and replaced. Clients call the same functions before they publish.

Source: format page, "Table definition", docs/decisions/0010, 0115 and the Iceberg specification, "Default values".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from decimal import Context, Decimal
from functools import partial
from typing import Final

from fastavro.schema import SchemaParseException
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, TruncateTransform, UnknownTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeographyType,
    GeometryType,
    IcebergType,
    NestedField,
    PrimitiveType,
    StringType,
    UnknownType,
    UUIDType,
)

from rootline.schemas.bytes.entry_schema import COUNTS_ONLY, FIXED_LENGTH_MAX, kind_of
from rootline.schemas.bytes.root.entry_codec import EntryCodec, encode_version_info
from rootline.schemas.content_entry import (
    Bound,
    ContentEntry,
    ContentType,
    FieldStatistics,
    FileFormat,
    Status,
    VersionInfo,
)
from rootline.schemas.errors import Corrupt, Invalid, RootlineError
from rootline.schemas.field_ids import MAX_COLUMN_ID, MAX_TRACKED_ID
from rootline.schemas.schema_rules import FIXED_BYTES_MAX, NESTING_MAX, fields_of, given_fault, name_fault, schema_fault
from rootline.schemas.table_definition import (
    Expression,
    Function,
    SortField,
    TableDefinition,
    TrackedField,
    transform_of_text,
)
from rootline.schemas.table_properties import CASE_PROPERTY, check_set, usable
from rootline.tree.proof.default_rules import default_fault

_NOT_STORED: Final = (GeometryType, GeographyType, UnknownType)
_BOUND_BYTES_MAX: Final = 65_536
"""The longest bound that the read-back check makes up."""
_ALL_DIGITS: Final = Context(prec=80)
_WITH_WIDTH: Final = ("bucket", "truncate")
_WIDTH_MAX: Final = 2**31 - 1
_DIRECTIONS: Final = ("asc", "desc")
_NULL_ORDERS: Final = ("nulls-first", "nulls-last")


def check_definition(definition: TableDefinition) -> None:
    """Check that a table can have this definition.

    Raises:
        Invalid: `definition-invalid` or `column-untracked`, naming the field.

    """
    try:
        for check in (_check_ids, _check_schemas, _check_expressions, _check_specs, _check_orders, _check_read_back):
            check(definition)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise _invalid(f"a member is of the wrong type ({error!s:.300}): write it as docs/format.md shows") from error


def check_nesting(text: str) -> None:
    """Raise `Invalid` (`definition-invalid`) if the JSON text is nested deeper than any definition.

    Brackets in strings count too, which only makes the check stricter.
    """
    depth = 0
    for char in text:
        if char in "{[":
            depth += 1
            if depth > 4 * NESTING_MAX:
                raise _invalid(f"more than {NESTING_MAX} levels of nesting: flatten the type")
        elif char in "}]":
            depth -= 1


def given_definition(text: str) -> TableDefinition:
    """Parse the definition that a writer gives as JSON. Its rules are checked by `check_definition`.

    Raises:
        Invalid: `definition-invalid`, the text is not a definition.
    """
    check_nesting(text)
    try:
        encoded = text.encode()
        body = json.loads(encoded)
        for schema in body["schemas"] if isinstance(body, dict) and isinstance(body.get("schemas"), list) else ():
            fault = given_fault(schema)
            if fault is not None:
                raise _invalid(fault)
        return TableDefinition.from_json(encoded)
    except UnicodeEncodeError:
        raise _invalid("a string has half of a surrogate pair, which UTF-8 cannot encode: correct the string") from None
    except ValueError as error:
        raise _invalid(f"it is not JSON: {error!s:.300}: correct it") from error
    except Corrupt as error:
        raise Invalid("definition-invalid", f"{error.message[:400]}: correct it, as docs/format.md shows it") from error


def _check_ids(definition: TableDefinition) -> None:
    for name, number in (
        ("last-column-id", definition.last_column_id),
        ("current-schema-id", definition.current_schema_id),
        ("default-spec-id", definition.default_spec_id),
        ("default-sort-order-id", definition.default_sort_order_id),
        *(("spec-id", spec.spec_id) for spec in definition.partition_specs),
        *(("order-id", order.order_id) for order in definition.sort_orders),
        *(("expr-id", expression.expr_id) for expression in definition.expressions),
    ):
        if type(number) is not int:
            raise _invalid(f"{name} is {number!r:.40}: give a whole number")
    schema_ids = [schema.schema_id for schema in definition.schemas]
    _unique("schema id", schema_ids)
    _unique("expression id", [expression.expr_id for expression in definition.expressions])
    _unique("partition spec id", [spec.spec_id for spec in definition.partition_specs])
    _unique("sort order id", [order.order_id for order in definition.sort_orders])
    if definition.current_schema_id not in schema_ids:
        raise _invalid(
            f"current-schema-id {definition.current_schema_id} is not the id of a schema: name one of {schema_ids[:20]}"
        )
    oldest = definition.oldest_schema_id
    if oldest and oldest not in schema_ids:
        raise _invalid(f"oldest-schema-id {oldest} is not the id of a schema: name one of {schema_ids[:20]}")
    if definition.current_schema_id < oldest:
        raise _invalid(
            f"schema {definition.current_schema_id} is older than schema {oldest}, with which the table was replaced: "
            "add its columns in a new schema"
        )
    if definition.default_spec_id not in {spec.spec_id for spec in definition.partition_specs}:
        raise _invalid(
            f"default-spec-id {definition.default_spec_id} is not the id of a spec: name a spec-id of the table"
        )
    if not all(isinstance(key, str) and isinstance(value, str) for key, value in dict(definition.properties).items()):
        raise _invalid("properties must map strings to strings: write each value as a string")


def _check_schemas(definition: TableDefinition) -> None:
    columns: set[int] = set()
    for schema in definition.schemas:
        where = f"schema {schema.schema_id}"
        fault = schema_fault(schema)
        if fault is not None:
            raise _invalid(f"{where}: {fault}")
        found = list(fields_of(schema))
        was_dropped = partial(_was_dropped, {field.field_id for _, field in found}, definition.last_column_id)
        for path, field in found:
            fault = _type_fault(field.field_type) or default_fault(field, was_dropped)
            if fault is not None:
                raise _invalid(f"{where}: field {path!r} {fault}")
        columns.update(field.field_id for _, field in found)
    shared = columns & {expression.expr_id for expression in definition.expressions}
    if shared:
        raise _invalid(
            f"ids {sorted(shared)[:8]} are used by both a column and an expression: give the expression an id above "
            "last-column-id"
        )
    greatest = max(columns | {expression.expr_id for expression in definition.expressions}, default=0)
    if definition.last_column_id < greatest:
        raise _invalid(
            f"last-column-id is {definition.last_column_id}, and id {greatest} is in use: set it to the greatest id"
        )


def _was_dropped(own: set[int], last_column_id: int, text: str) -> bool:
    """Whether `text` is the id of a column that may have existed and is not among a schema's `own` ids."""
    if len(text) > len(str(MAX_COLUMN_ID)) or not (text.isascii() and text.isdigit()) or text.startswith("0"):
        return False
    return int(text) <= last_column_id and int(text) not in own


def _type_fault(found: IcebergType) -> str | None:
    if isinstance(found, _NOT_STORED):
        return f"is of type {found}, which cannot be stored: choose another type"
    if isinstance(found, DecimalType) and not 0 <= found.scale <= found.precision:
        return f"is of type {found}: its scale must be from 0 up to its precision: lower it"
    if isinstance(found, FixedType) and not 0 < found.root <= FIXED_LENGTH_MAX:
        return f"is of type {found}: give it a length from 1 to {FIXED_BYTES_MAX}, or make it binary"
    return None


def _check_expressions(definition: TableDefinition) -> None:
    for expression in definition.expressions:
        _check_transform(f"expression {expression.name!r}", expression.transform)
    columns = {field.tracked_id for field in definition.tracked_fields if not field.is_expression}
    for expression in definition.expressions:
        if not 0 < expression.expr_id <= MAX_TRACKED_ID:
            raise _invalid(
                f"expression {expression.name!r} has id {expression.expr_id}, outside 1..{MAX_TRACKED_ID}: "
                "choose another"
            )
        missing = set(expression.source_ids) - columns
        _check_tracked(f"expression {expression.name!r}", missing)
        if missing or not expression.source_ids:
            raise _invalid(f"expression {expression.name!r} reads {sorted(missing)}: name the ids of primitive columns")
        _unique(f"source id in expression {expression.name!r}", expression.source_ids)


def _check_tracked(where: str, column_ids: Iterable[int]) -> None:
    for column_id in column_ids:
        if column_id > MAX_TRACKED_ID:
            reason = f"reads column id {column_id}; columns above {MAX_TRACKED_ID} have no statistics: use another"
            raise Invalid("column-untracked", f"definition: {where} {reason}")


def _check_transform(where: str, text: object) -> None:
    """Check the text of a transform. An unknown one is allowed, since a later version may define it."""
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
            raise _invalid(
                f"partition spec {spec.spec_id}: a partition-field-id is not a positive 32-bit integer: correct it"
            )
        if not all(isinstance(name, str) for name in spec.names):
            raise _invalid(f"partition spec {spec.spec_id}: a name is not a string: write it in quotes")
        for expr_id in spec.expr_ids:
            expression = definition.expressions_by_id.get(expr_id)
            if expression is not None:
                _check_partitionable(definition, expression)
            elif expr_id not in tracked:
                _check_tracked(f"partition spec {spec.spec_id}", (expr_id,))
                raise _invalid(
                    f"partition spec {spec.spec_id}: id {expr_id} is neither a column nor an expression: name one"
                )


def _check_partitionable(definition: TableDefinition, expression: Expression) -> None:
    if isinstance(expression.parsed, UnknownTransform):
        raise _invalid(
            f"expression {expression.name!r}: transform {expression.transform!r} cannot partition: use another"
        )
    if definition.function_of(expression) is Function.UNKNOWN or definition.result_type(expression) is None:
        types = ", ".join(str(kind) for kind in definition.source_types(expression))
        raise _invalid(f"expression {expression.name!r}: {expression.transform} does not apply to {types}: use another")


def _check_orders(definition: TableDefinition) -> None:
    known = {order.order_id for order in definition.sort_orders} | {0}
    if definition.default_sort_order_id not in known:
        raise _invalid(
            f"default-sort-order-id {definition.default_sort_order_id} is not the id of a sort order: name one, or 0"
        )
    for order in definition.sort_orders:
        where = f"sort order {order.order_id}"
        if order.order_id == 0 and order.fields:
            raise _invalid(f"{where} has fields, but order 0 means unsorted; give the order another id")
        if order.order_id != 0 and not order.fields:
            raise _invalid(f"{where} has no fields; only order 0, which means unsorted, has none: give it some")
        for field in order.fields:
            _check_sort_field(definition, where, field)


def _check_sort_field(definition: TableDefinition, where: str, field: SortField) -> None:
    source = definition.tracked_by_id.get(field.source_id)
    if source is None:
        _check_tracked(where, (field.source_id,))
        raise _invalid(f"{where}: source-id {field.source_id} is not a primitive column: name one")
    for name, word, words in (
        ("direction", field.direction, _DIRECTIONS),
        ("null-order", field.null_order, _NULL_ORDERS),
    ):
        if word not in words:
            raise _invalid(f"{where}: {name} {word!r} is neither {words[0]} nor {words[1]}: write one of them")
    _check_transform(where, field.transform)
    if isinstance(field.parsed, UnknownTransform):
        raise _invalid(f"{where}: transform {field.transform!r} cannot be used for sorting: use another")
    if not field.parsed.can_transform(source.type):
        raise _invalid(
            f"{where}: {field.transform} does not apply to {source.type}, column {source.name!r}: use another"
        )


def _check_read_back(definition: TableDefinition) -> None:
    """Encode the definition, read it back with the code that readers use, and compare.

    A definition that passes the other rules but is not read back equal would make the table unreadable.
    """
    try:
        text = definition.to_json()
        found = TableDefinition.from_json(text)
        if found.to_json() != text or found.tracked_fields != definition.tracked_fields:
            raise _invalid("it would be read back as another definition: write its values as docs/format.md shows")
        for schema in definition.schemas:
            _ = schema.column_names  # raises if a path is ambiguous
        _check_entries(EntryCodec.of_definition(definition))
    except (RootlineError, ValueError, KeyError, TypeError, RecursionError, SchemaParseException) as error:
        reason = error.message if isinstance(error, RootlineError) else str(error)
        raise _invalid(f"it could not be read back ({reason:.300}): correct the named part, or omit it") from error


def _check_entries(codec: EntryCodec) -> None:
    """Check that the codec can be rebuilt from its schema, and that an entry with all bounds is read back equal."""
    stated = EntryCodec.of_avro_schema(codec.schema_json)
    if stated != codec:
        raise ValueError("the schema of its entries is read back as another one")
    statistics = {field.tracked_id: _statistics_of(field) for field in codec.tracked}
    numbers = VersionInfo(Status.ADDED, 1, 1, 1)
    entry = ContentEntry(ContentType.DATA, "data/x", FileFormat.PARQUET, numbers, 0, 1, content_stats=statistics)
    encoded = encode_version_info(numbers) + codec.encode_tail(entry)
    found, _, end = stated.decode_row(encoded)
    if end != len(encoded) or dict(found.content_stats) != statistics:
        raise ValueError("an entry is read back as another one")


def _statistics_of(field: TrackedField) -> FieldStatistics:
    bound = _bound_of(field.type)
    return FieldStatistics(bound, bound, None if bound is None else True, 1, 0, 0, 1, 1)


def _bound_of(of_type: PrimitiveType) -> Bound | None:
    match of_type:
        case BooleanType():
            return True
        case StringType():
            return "a"
        case BinaryType():
            return b"a"
        case UUIDType():
            return bytes(16)
        case FixedType():
            return bytes(len(of_type)) if len(of_type) <= _BOUND_BYTES_MAX else None
        case DecimalType():
            return Decimal(10**of_type.precision - 1).scaleb(-of_type.scale, _ALL_DIGITS)
        case FloatType() | DoubleType():
            return 0.5
    return None if kind_of(of_type) == COUNTS_ONLY else 1


def _unique(what: str, values: Iterable[object]) -> None:
    seen: set[object] = set()
    for value in values:
        if value in seen:
            raise _invalid(f"{what} {value!r} occurs twice: keep one")
        seen.add(value)


def _invalid(reason: str) -> Invalid:
    return Invalid("definition-invalid", f"definition: {reason}")


_SHOWN_CHARS_MAX: Final = 80
NESTED_DEFAULT: Final = (
    "other engines cannot read a table in which a struct, list or map has a default: omit it, or give the fields "
    "of a struct defaults instead"
)
"""The reason for refusing a default of a struct, list or map, as the end of an error message."""


def check_added(before: TableDefinition | None, after: TableDefinition) -> None:
    """Check what `after` adds to `before`, the definition that it follows.

    Raises:
        Invalid: `property-invalid`; `definition-invalid`, naming the field.

    """
    check_set({} if before is None else before.properties, after.properties)
    known = () if before is None else before.schemas
    known_fields = [field for schema in known for _, field in fields_of(schema)]
    names = {(field.field_id, field.name) for field in known_fields}
    may_differ_in_case = usable(after.properties, CASE_PROPERTY) == "true"
    for schema in after.schemas[len(known) :]:
        fault = name_fault(schema, names, may_differ_in_case=may_differ_in_case) or _fault_of_fields(
            schema, known_fields
        )
        if fault is not None:
            raise Invalid("definition-invalid", f"definition: schema {schema.schema_id}: {fault}")
    if before is None and after.last_column_id > MAX_COLUMN_ID:
        raise Invalid(
            "definition-invalid",
            f"definition: last-column-id is {after.last_column_id}, more than {MAX_COLUMN_ID}: set it to the greatest "
            "id in use",
        )


def _fault_of_fields(schema: Schema, known: Sequence[NestedField]) -> str | None:
    fixed = {field.field_id for field in known if isinstance(field.field_type, FixedType)}
    defaults = {default for field in known for default in _nested_defaults(field)}
    for path, field in fields_of(schema):
        of_type = field.field_type
        if isinstance(of_type, FixedType) and of_type.root > FIXED_BYTES_MAX and field.field_id not in fixed:
            return (
                f"field {path!r} is of type {of_type}, and even a null value takes as many bytes of memory: give it a "
                f"length up to {FIXED_BYTES_MAX}, or make it binary"
            )
        for default in _nested_defaults(field):
            if default not in defaults:
                return f"field {path!r} has {default[1]} {default[2]:.{_SHOWN_CHARS_MAX}}, and {NESTED_DEFAULT}"
    return None


def _nested_defaults(field: NestedField) -> list[tuple[int, str, str]]:
    """The defaults of a struct, list or map, as (field id, kind, value)."""
    if isinstance(field.field_type, PrimitiveType):
        return []
    kinds = (("initial-default", field.initial_default), ("write-default", field.write_default))
    return [(field.field_id, kind, str(value)) for kind, value in kinds if value is not None]
