"""The table definition: schemas, expressions, partition specs, sort orders, properties.

Owns: the definition's value type, its JSON (`to_json`, `from_json`), the functions and result types of expressions,
the tracked fields and partition ids derived from it. Does not own: its location (`object_keys`), the values of
expressions (`transform_values`), its changes (`rootline.tree`).
Invariants: immutable once written. Column and expression ids share one space. A spec is a list of ids: a schema field,
meaning identity, or an expression. An unknown transform or expression is preserved, has no type and never prunes.

Source: the table-metadata JSON of the Iceberg specification and "Partition Transforms", the Single File Commits
proposal, "How do we remove partition tuple" and "Why and how do we address having a global field ID space",
docs/decisions/0028.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any, Final

import pydantic
from pyiceberg.exceptions import ValidationError
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform, UnknownTransform, parse_transform
from pyiceberg.types import IcebergType, IntegerType, ListType, MapType, PrimitiveType, StringType, StructType

from rootline.schemas.default_values import unreadable_default
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.field_ids import MAX_TRACKED_ID
from rootline.schemas.model_faults import fault_of_model

LOWER = "lower"


class Function(Enum):
    """The function of an expression."""

    TRANSFORM = "transform"
    """One of the specification's partition transforms, over one column."""
    BUCKET_OF_SEVERAL = "bucket of several columns"
    LOWER = "lower"
    """A text in lower case."""
    UNKNOWN = "unknown"


def function_of(text: str, transform: Transform[Any, Any], sources: Sequence[PrimitiveType | None]) -> Function:
    """The function `text`, parsed as `transform`, over columns of these types (`None`: no primitive column)."""
    known = [source for source in sources if source is not None]
    if not known or len(known) != len(sources):
        return Function.UNKNOWN
    if text == LOWER:
        return Function.LOWER if len(known) == 1 and isinstance(known[0], StringType) else Function.UNKNOWN
    if isinstance(transform, UnknownTransform) or not all(transform.can_transform(source) for source in known):
        return Function.UNKNOWN
    if len(known) == 1:
        return Function.TRANSFORM
    return Function.BUCKET_OF_SEVERAL if isinstance(transform, BucketTransform) else Function.UNKNOWN


def result_type_of(
    function: Function, transform: Transform[Any, Any], sources: Sequence[PrimitiveType | None]
) -> PrimitiveType | None:
    """The type of the function's values, or `None` if it has no values that can be stored."""
    if function is Function.LOWER:
        return StringType()
    if function is Function.BUCKET_OF_SEVERAL:
        return IntegerType()
    if function is Function.UNKNOWN or sources[0] is None:
        return None
    result = transform.result_type(sources[0])
    return result if isinstance(result, PrimitiveType) else None


NAME_MAPPING_PROPERTY: Final = "schema.name-mapping.default"
"""The property with the name mapping: field ids for data files that have none."""


def transform_of_text(text: str) -> Transform[Any, Any]:
    """The transform named `text`, or `UnknownTransform` if this version does not know it or cannot read it."""
    try:
        return parse_transform(text)
    except (ValueError, ValidationError):
        return UnknownTransform(text)


def first_expression_id(column_ids: Iterable[int], last_column_id: int) -> int:
    """The id of the next expression: after `last_column_id`, or a free one among the ids that may have statistics."""
    if last_column_id < MAX_TRACKED_ID:
        return last_column_id + 1
    return max((column_id for column_id in column_ids if column_id <= MAX_TRACKED_ID), default=0) + 1


@dataclass(frozen=True)
class Expression:
    """A derived column: `transform` over the columns `source_ids`, with a name and an id in the columns' space."""

    expr_id: int
    source_ids: tuple[int, ...]
    transform: str
    name: str
    partition_field_id: int | None = None

    @cached_property
    def parsed(self) -> Transform[Any, Any]:
        """The transform, or `UnknownTransform` if this version does not know it."""
        return transform_of_text(self.transform)


@dataclass(frozen=True)
class PartitionSpec:
    """Ids of schema fields (identity) or expressions, in order. Empty means unpartitioned.

    `field_ids`, `names`: the id and name of each member in the Iceberg table from which the spec was adopted, in the
    same order. Empty for our own specs.
    """

    spec_id: int
    expr_ids: tuple[int, ...] = ()
    field_ids: tuple[int, ...] = ()
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class SortField:
    """One field of a sort order, with the specification's own names."""

    source_id: int
    transform: str = "identity"
    direction: str = "asc"
    null_order: str = "nulls-first"

    @property
    def parsed(self) -> Transform[Any, Any]:
        """The transform, or `UnknownTransform` if this version does not know it."""
        return transform_of_text(self.transform)


@dataclass(frozen=True)
class SortOrder:
    """A sort order. Order 0 means unsorted."""

    order_id: int
    fields: tuple[SortField, ...] = ()


@dataclass(frozen=True)
class TrackedField:
    """A column or expression for which the entries of the table may have statistics."""

    tracked_id: int
    name: str
    type: PrimitiveType
    is_expression: bool = False


@dataclass(frozen=True)
class PastLayout:
    """An earlier layout of a table's statistics, when the table had only its first `schemas` schemas and its first
    `expressions` expressions.
    """

    schemas: int
    current_schema_id: int
    expressions: int


@dataclass(frozen=True)
class TableDefinition:
    """Everything about a table except its files. `last_column_id` covers columns and expressions.

    `past_layouts`: the columns that statistics had under earlier schemas. They decode the statistics of an intent whose
    writer does not know the newest schema yet.
    `oldest_schema_id`: the schema that the last replace of the table added, 0 without one. A row that was written under
    an earlier schema is older than the replace.
    """

    table_uuid: uuid.UUID
    schemas: tuple[Schema, ...]
    current_schema_id: int
    expressions: tuple[Expression, ...]
    partition_specs: tuple[PartitionSpec, ...]
    default_spec_id: int
    sort_orders: tuple[SortOrder, ...]
    default_sort_order_id: int
    last_column_id: int
    properties: Mapping[str, str]
    past_layouts: tuple[PastLayout, ...] = ()
    oldest_schema_id: int = 0

    @cached_property
    def schema(self) -> Schema:
        """The current schema."""
        return self.schema_by_id(self.current_schema_id)

    def schema_by_id(self, schema_id: int) -> Schema:
        """The schema with this id. Raises `Invalid` (`schema-unknown`) if the table never had it."""
        for schema in self.schemas:
            if schema.schema_id == schema_id:
                return schema
        known = [schema.schema_id for schema in self.schemas]
        raise Invalid("schema-unknown", f"schema id {schema_id} does not exist: name one of {known}")

    def spec_by_id(self, spec_id: int) -> PartitionSpec:
        """The spec with this id. Raises `Invalid` (`spec-unknown`) if the table never had it."""
        for spec in self.partition_specs:
            if spec.spec_id == spec_id:
                return spec
        known = [spec.spec_id for spec in self.partition_specs]
        raise Invalid("spec-unknown", f"partition spec id {spec_id} does not exist: name one of {known}")

    def reused_name(self, schema_id: int) -> str | None:
        """A name in an earlier schema that is another column's now, or `None`. Raises the error of `schema_by_id`."""
        then = _ids_by_path(self.schema_by_id(schema_id).as_struct())
        return next((path for path, found in then.items() if self._ids_by_path.get(path, found) != found), None)

    @cached_property
    def _ids_by_path(self) -> Mapping[str, int]:
        return _ids_by_path(self.schema.as_struct())

    @cached_property
    def expressions_by_id(self) -> Mapping[int, Expression]:
        """Expression id → expression."""
        return {expression.expr_id: expression for expression in self.expressions}

    @cached_property
    def default_sort_order(self) -> SortOrder | None:
        """The sort order of new files, or `None` if they are unsorted."""
        wanted = self.default_sort_order_id
        return next((order for order in self.sort_orders if order.order_id == wanted and order.fields), None)

    @cached_property
    def sort_order_ids(self) -> frozenset[int]:
        """The ids of the sort orders."""
        return frozenset(order.order_id for order in self.sort_orders)

    @cached_property
    def tracked_fields(self) -> tuple[TrackedField, ...]:
        """Columns (primitive, reachable through structs only, of every schema) and expressions, by id.

        The fields of all schemas are included, each with its newest type, so that statistics of a dropped column stay
        readable.
        """
        found: dict[int, TrackedField] = {}
        ordered = sorted(self.schemas, key=lambda schema: schema.schema_id == self.current_schema_id)
        for schema in ordered:
            for name, field_id, field_type in _primitives_of(schema.as_struct()):
                found[field_id] = TrackedField(field_id, name, field_type)
        for expression in self.expressions:
            result = self.result_type(expression)
            if result is not None:
                found[expression.expr_id] = TrackedField(expression.expr_id, expression.name, result, True)
        return tuple(found[field_id] for field_id in sorted(found))

    @cached_property
    def past_tracked_fields(self) -> tuple[tuple[TrackedField, ...], ...]:
        """Earlier values of `tracked_fields`, the oldest first."""
        return tuple(
            replace(
                self,
                schemas=self.schemas[: past.schemas],
                current_schema_id=past.current_schema_id,
                expressions=self.expressions[: past.expressions],
                past_layouts=(),
            ).tracked_fields
            for past in self.past_layouts
        )

    @cached_property
    def tracked_by_id(self) -> Mapping[int, TrackedField]:
        """Column or expression id → its tracked field, which has statistics."""
        return {field.tracked_id: field for field in self.tracked_fields}

    def result_type(self, expression: Expression) -> PrimitiveType | None:
        """The type of an expression's values, or `None` if this version cannot compute them."""
        return result_type_of(self.function_of(expression), expression.parsed, self.source_types(expression))

    def function_of(self, expression: Expression) -> Function:
        """The function of an expression."""
        return function_of(expression.transform, expression.parsed, self.source_types(expression))

    def source_types(self, expression: Expression) -> tuple[PrimitiveType | None, ...]:
        """The newest types of an expression's columns. `None` for a column that no schema has."""
        return tuple(map(self._newest_types.get, expression.source_ids))

    @cached_property
    def _newest_types(self) -> Mapping[int, PrimitiveType]:
        found: dict[int, PrimitiveType] = {}
        for schema in (self.schema, *reversed(self.schemas)):
            for _, found_id, field_type in _primitives_of(schema.as_struct()):
                found.setdefault(found_id, field_type)
        return found

    def transform_of(self, expr_id: int) -> tuple[int, Transform[Any, Any]]:
        """(first source column id, transform) of a spec's member: an expression, or a column by identity."""
        expression = self.expressions_by_id.get(expr_id)
        if expression is None:
            return expr_id, IdentityTransform()
        return expression.source_ids[0], expression.parsed

    def to_json(self) -> bytes:
        """The canonical JSON: sorted keys, no white space, UTF-8."""
        return json.dumps(self._as_json(), sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()

    def _as_json(self) -> dict[str, Any]:
        past = [[each.schemas, each.current_schema_id, each.expressions] for each in self.past_layouts]
        return {
            **({"past-layouts": past} if past else {}),
            **({"oldest-schema-id": self.oldest_schema_id} if self.oldest_schema_id else {}),
            "format-version": 4,
            "table-uuid": str(self.table_uuid),
            "last-column-id": self.last_column_id,
            "schemas": [json.loads(schema.model_dump_json()) for schema in self.schemas],
            "current-schema-id": self.current_schema_id,
            "expressions": [_expression_json(expression) for expression in self.expressions],
            "partition-specs": [
                {"spec-id": spec.spec_id, "fields": _members_json(spec)} for spec in self.partition_specs
            ],
            "default-spec-id": self.default_spec_id,
            "sort-orders": [
                {"order-id": order.order_id, "fields": [sort_field_json(field) for field in order.fields]}
                for order in self.sort_orders
            ],
            "default-sort-order-id": self.default_sort_order_id,
            "properties": dict(self.properties),
        }

    @staticmethod
    def from_json(text: bytes, *, name: str = "definition") -> TableDefinition:
        """The definition in `text`. `name`: its name in errors.

        Raises:
            Corrupt: `definition-unreadable`, the bytes are not a definition of this format.
        """
        try:
            body = json.loads(text)
            if not isinstance(body, dict):
                raise ValueError("it is not a JSON object")
            return _definition_from(body)
        except KeyError as error:
            raise Corrupt("definition-unreadable", f"{name}: not a table definition: {error} is missing") from error
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise Corrupt("definition-unreadable", f"{name}: not a table definition: {error}") from error


def _ids_by_path(of_type: IcebergType, prefix: str = "") -> dict[str, int]:
    """Path → field id, of all fields inside a type. Names are quoted in paths, because they may contain dots."""
    match of_type:
        case StructType():
            members = [(repr(field.name), field.field_id, field.field_type) for field in of_type.fields]
        case ListType():
            members = [("element", of_type.element_id, of_type.element_type)]
        case MapType():
            members = [
                ("key", of_type.key_id, of_type.key_type),
                ("value", of_type.value_id, of_type.value_type),
            ]
        case _:
            members = []
    found = {prefix + name: field_id for name, field_id, _ in members}
    for name, _, inner in members:
        found |= _ids_by_path(inner, f"{prefix}{name}.")
    return found


def _primitives_of(struct: StructType, prefix: str = "") -> list[tuple[str, int, PrimitiveType]]:
    found: list[tuple[str, int, PrimitiveType]] = []
    for field in struct.fields:
        if isinstance(field.field_type, StructType):
            found.extend(_primitives_of(field.field_type, f"{prefix}{field.name}."))
        elif isinstance(field.field_type, PrimitiveType) and field.field_id <= MAX_TRACKED_ID:
            found.append((f"{prefix}{field.name}", field.field_id, field.field_type))
    return found


def _expression_json(expression: Expression) -> dict[str, Any]:
    sources: dict[str, Any] = (
        {"source-id": expression.source_ids[0]}
        if len(expression.source_ids) == 1
        else {"source-ids": list(expression.source_ids)}
    )
    body: dict[str, Any] = {
        "expr-id": expression.expr_id,
        "expr": {**sources, "transform": expression.transform, "name": expression.name},
    }
    if expression.partition_field_id is not None:
        body["partition-field-id"] = expression.partition_field_id
    return body


def _members_json(spec: PartitionSpec) -> list[dict[str, Any]]:
    members: list[dict[str, Any]] = [{"expr-id": expr_id} for expr_id in spec.expr_ids]
    for key, values in (("partition-field-id", spec.field_ids), ("name", spec.names)):
        if values:
            for member, value in zip(members, values, strict=True):
                member[key] = value
    return members


def _spec_of(body: dict[str, Any]) -> PartitionSpec:
    members = body["fields"]
    kept = []
    for key in ("partition-field-id", "name"):
        values = tuple(member[key] for member in members if key in member)
        if len(values) not in (0, len(members)):
            raise ValueError(f"partition spec {body['spec-id']}: some of its members have a {key}, others none")
        kept.append(values)
    return PartitionSpec(body["spec-id"], tuple(member["expr-id"] for member in members), *kept)


def sort_field_json(field: SortField) -> dict[str, Any]:
    """A field of a sort order in Iceberg's JSON form."""
    return {
        "source-id": field.source_id,
        "transform": field.transform,
        "direction": field.direction,
        "null-order": field.null_order,
    }


def schema_of_json(body: dict[str, Any]) -> Schema:
    """The schema in a JSON object. Raises `ValueError`, naming the fault."""
    try:
        return Schema.model_validate(body)
    except Exception as error:  # the model does not catch errors of the parser of a default
        fault = unreadable_default(body)
        if fault is not None:
            raise ValueError(f"schema {body.get('schema-id')}: {fault}") from error
        reason = fault_of_model(error) if isinstance(error, pydantic.ValidationError) else str(error)
        raise ValueError(f"schema cannot be read: {reason}") from error


def _definition_from(body: dict[str, Any]) -> TableDefinition:
    if type(body["format-version"]) is not int or body["format-version"] != 4:
        raise ValueError(f"format-version {body['format-version']} is not 4: write the number 4")
    return TableDefinition(
        table_uuid=_uuid_of(body["table-uuid"]),
        schemas=tuple(schema_of_json(schema) for schema in body["schemas"]),
        current_schema_id=body["current-schema-id"],
        expressions=tuple(
            Expression(
                expr_id=item["expr-id"],
                source_ids=tuple(item["expr"].get("source-ids") or (item["expr"]["source-id"],)),
                transform=item["expr"]["transform"],
                name=item["expr"]["name"],
                partition_field_id=item.get("partition-field-id"),
            )
            for item in body["expressions"]
        ),
        partition_specs=tuple(_spec_of(spec) for spec in body["partition-specs"]),
        default_spec_id=body["default-spec-id"],
        sort_orders=tuple(
            SortOrder(
                order["order-id"],
                tuple(
                    SortField(field["source-id"], field["transform"], field["direction"], field["null-order"])
                    for field in order["fields"]
                ),
            )
            for order in body["sort-orders"]
        ),
        default_sort_order_id=body["default-sort-order-id"],
        last_column_id=body["last-column-id"],
        properties=body["properties"],
        past_layouts=tuple(PastLayout(*_counts(item)) for item in body.get("past-layouts", ())),
        oldest_schema_id=body.get("oldest-schema-id", 0),
    )


def _uuid_of(text: object) -> uuid.UUID:
    try:
        return uuid.UUID(str(text))
    except ValueError:
        raise ValueError(f"table-uuid {text!r:.60} is not a UUID") from None


def _counts(item: list[int]) -> tuple[int, int, int]:
    schemas, current, expressions = item
    if not all(type(number) is int and number >= 0 for number in item):
        raise ValueError(f"past-layouts: {item!r:.60} are not three numbers")
    return schemas, current, expressions
