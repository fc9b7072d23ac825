"""A table definition in the form of Iceberg's table metadata, as far as other engines can read it.

Owns: schemas, partition specs, sort orders and properties of an export, and the refusal or omission of parts that a
format version lacks. Does not own: snapshots and the rest of the metadata (`table_metadata`), partition values
(`manifest_encoder`).
Invariants: pure and deterministic. The same source and transform have the same partition field id in every spec, and a
later omission changes no id. A member that engines cannot read is omitted from its spec, because partitions are only
used for pruning. An id of a spec or a sort order has the same meaning in every export of a table. A definition that
would make an engine misread the table is refused.

Theory. Engines read manifests by the specs of the metadata.json, and bind these to the current schema, or to that of
the snapshot. A spec of an absent column makes some of them fail. So a snapshot's manifests are written under the *form*
of their spec that contains only fields whose columns are in both schemas. A spec without one of its fields is another
spec, and has another id (decision 0036). This also holds if the table's snapshots from before its adoption have the
field that exported manifests omit. Sort orders are bound to no schema, and keep their fields.

Source: the Iceberg specification, "Schemas and Data Types", "Default values", "Partition Specs", "Sort Orders" and
Appendix C.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from pyiceberg.schema import Schema, make_compatible_name
from pyiceberg.transforms import Transform, UnknownTransform, parse_transform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeographyType,
    GeometryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from rootline.catalog.export_keys import FormatVersion
from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import (
    Function,
    PartitionSpec,
    SortField,
    SortOrder,
    TableDefinition,
    TrackedField,
)
from rootline.tree.evolution.specs_and_orders import FIRST_PARTITION_FIELD, partition_field_ids

__all__ = ["DEFAULTS", "ExportedDefinition", "ExportedField", "Meaning", "stated_specs"]

_UNSORTED: Final = 0
_NAMED_AS_COLUMN: Final = ("identity", "void")
"""Transforms whose partition field may have the same name as its column."""
DEFAULTS: Final = ("initial-default", "write-default")
_NOT_IN_TUPLES: Final = (
    FixedType, UUIDType, TimestampNanoType, TimestamptzNanoType, UnknownType, GeometryType, GeographyType,
)  # fmt: skip
"""Types of partition values that some engine misreads in manifests. Iceberg's Java cannot read fixed, and compares
the halves of UUIDs as signed numbers. PyIceberg cannot read nanoseconds. The others have no values."""
_V2_TYPES: Final = (
    BooleanType, IntegerType, LongType, FloatType, DoubleType, DecimalType, DateType, TimeType, TimestampType,
    TimestamptzType, StringType, UUIDType, FixedType, BinaryType,
)  # fmt: skip


_FIRST_FORM: Final = 1 << 30
"""The first id for a spec that lost fields and is equal to no spec of the table."""

Meaning = tuple[tuple[int, int, str], ...]
"""The meaning of a spec: field id, source id and transform of each field."""


@dataclass(frozen=True)
class ExportedField:
    """A member of a partition spec in the form for engines. `tracked_id`: the id of its values in Rootline's
    statistics.
    """

    field_id: int
    name: str
    source_id: int
    transform: str
    tracked_id: int
    result_type: PrimitiveType

    @property
    def avro_name(self) -> str:
        """The name, with only ASCII letters, digits and `_`: other characters crash DuckDB."""
        compatible = make_compatible_name(self.name)
        return "".join(letter if letter.isascii() else f"_x{ord(letter):X}" for letter in compatible)


@dataclass(frozen=True)
class _Member:
    """A member of a spec, whether engines can read it or not."""

    tracked_id: int
    source_ids: tuple[int, ...]
    transform: str


class ExportedDefinition:
    """The description of a table in an export, without its files. It depends only on the definition and the format.

    `read_by`: only for an older version in an export, the description of the newest version in it. Engines use that
    one for all snapshots.
    """

    def __init__(
        self, definition: TableDefinition, format_version: FormatVersion, read_by: ExportedDefinition | None = None
    ) -> None:
        self.definition = definition
        self.format_version = format_version
        self._readers = self if read_by is None else read_by

    @staticmethod
    def of(
        definition: TableDefinition, format_version: FormatVersion, read_by: ExportedDefinition | None = None
    ) -> ExportedDefinition:
        """The definition in the form of `format_version`. For `read_by` see the class.

        Raises:
            Invalid: `export-unsupported`, the format lacks a type or a default value of a column.
        """
        fault = _nested_default(definition.schema)
        if fault is not None:
            raise Invalid("export-unsupported", fault)
        if format_version is FormatVersion.V2:
            for schema in definition.schemas:
                for name, field in _fields_of(schema.as_struct()):
                    _check_v2(schema, name, field)
        return ExportedDefinition(definition, format_version, read_by)

    @cached_property
    def columns(self) -> tuple[TrackedField, ...]:
        """The columns whose statistics are in manifests, by id, without expressions."""
        return tuple(field for field in self.definition.tracked_fields if not field.is_expression)

    def fields(self, spec_id: int) -> tuple[ExportedField, ...]:
        """The members of a spec that engines can read, in the spec's order.

        Raises:
            Invalid: `spec-unknown`.

        """
        self.definition.spec_by_id(spec_id)
        return self._form(spec_id, self.definition.schema)

    def exported_spec_id(self, spec_id: int) -> int:
        """The id of the spec that has exactly these fields in the export. Raises `Invalid` (`spec-unknown`)."""
        return self._readers._id_of(spec_id, self.fields(spec_id))

    def schema_of_manifests(self, spec_id: int) -> Schema:
        """The schema stated in manifests of a spec: the first in which all columns have their current types.

        Columns that are added, dropped or renamed later do not change it, so no manifest is rewritten.
        """
        needed = {field.source_id for field in self.fields(spec_id)}
        for schema in self.definition.schemas:
            there = self._primitives[schema.schema_id]
            if needed <= there.keys() and all(self._has_type(field_id, kind) for field_id, kind in there.items()):
                return schema
        return self.definition.schema

    def schema_json(self, spec_id: int) -> dict[str, Any]:
        """The JSON of `schema_of_manifests`, as stated in manifests."""
        return self.stated_schema(self.schema_of_manifests(spec_id))

    def spec_json(self, spec_id: int) -> list[dict[str, Any]]:
        """The fields of a spec, as stated in manifests and metadata."""
        return _spec_json(self.fields(spec_id))

    def stated_fields(self, exported_spec_id: int) -> tuple[ExportedField, ...]:
        """The fields of a spec by the id that it has in exports. Raises `Invalid` (`spec-unknown`)."""
        schema_ids = [schema.schema_id for schema in self.definition.schemas]
        stated = self._stated_specs(schema_ids, has_history=True)
        if exported_spec_id not in stated:
            raise Invalid("spec-unknown", f"partition spec id {exported_spec_id}: name one of {[*stated]}")
        return stated[exported_spec_id]

    def can_state(self, schema_id: int) -> bool:
        """Whether engines can read snapshots of this schema. Exports of later versions omit the others."""
        return _nested_default(self.definition.schema_by_id(schema_id)) is None

    def sort_order_id(self, order_id: int | None) -> int | None:
        """The id of a data file's sort order in the export, or `None` if the order is not exported."""
        return order_id if order_id in self._orders else None

    def metadata(self, schema_ids: Iterable[int] = (), *, has_history: bool = False) -> dict[str, Any]:
        """The members of the table metadata that are computed from the definition.

        Args:
            schema_ids: the schemas of the snapshots in the metadata.
            has_history: whether it contains snapshots from before the table's adoption, whose manifests use the
                original specs.
        """
        definition = self.definition
        default_order = definition.default_sort_order_id
        return {
            "last-column-id": definition.last_column_id,
            "schemas": [self.stated_schema(schema) for schema in definition.schemas],
            "current-schema-id": definition.current_schema_id,
            "partition-specs": [
                {"spec-id": spec_id, "fields": _spec_json(fields)}
                for spec_id, fields in self._stated_specs(schema_ids, has_history=has_history).items()
            ],
            "default-spec-id": self.exported_spec_id(definition.default_spec_id),
            "last-partition-id": max(self._field_ids.values(), default=FIRST_PARTITION_FIELD - 1),
            "sort-orders": [
                {"order-id": order_id, "fields": [_sort_json(field) for field in fields]}
                for order_id, fields in self._orders.items()
            ],
            "default-sort-order-id": default_order if default_order in self._orders else _UNSORTED,
            "properties": dict(definition.properties),
        }

    def manifest_inputs(self, spec_id: int) -> bytes:
        """A digest of everything in the definition that manifests of a spec depend on. It is part of their names."""
        there = self._primitives[self.schema_of_manifests(spec_id).schema_id]
        later = [field for field in self.columns if field.tracked_id not in there]
        inputs = [
            int(self.format_version),
            self.schema_json(spec_id),
            self.exported_spec_id(spec_id),
            self.spec_json(spec_id),
            [(field.tracked_id, str(field.type)) for field in self.columns if field.tracked_id in there],
            [(field.tracked_id, str(field.result_type)) for field in self.fields(spec_id)],
            [_UNSORTED, *sorted(-order.order_id for order in self.definition.sort_orders if self._is_hidden(order))],
        ]
        widened = [(field.tracked_id, str(field.type)) for field in later if self._was_narrower(field)]
        if widened:  # manifests from before they were widened have different bounds
            inputs.append(widened)
        spelled = [field.avro_name for field in self.fields(spec_id) if not field.name.isascii()]
        if spelled:  # other releases spell these names differently
            inputs.append(spelled)
        return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).digest()

    @cached_property
    def _primitives(self) -> Mapping[int, Mapping[int, PrimitiveType]]:
        """Schema id → column id → type, of columns whose statistics are in manifests."""
        columns = {field.tracked_id for field in self.columns}
        found: dict[int, dict[int, PrimitiveType]] = {}
        for schema in self.definition.schemas:
            kinds = ((field.field_id, field.field_type) for _, field in _fields_of(schema.as_struct()))
            found[schema.schema_id] = {
                field_id: kind for field_id, kind in kinds if field_id in columns and isinstance(kind, PrimitiveType)
            }
        return found

    def _has_type(self, field_id: int, kind: PrimitiveType) -> bool:
        return self.definition.tracked_by_id[field_id].type == kind

    def _was_narrower(self, column: TrackedField) -> bool:
        kinds = (there.get(column.tracked_id) for there in self._primitives.values())
        return any(kind is not None and kind != column.type for kind in kinds)

    def stated_schema(self, schema: Schema) -> dict[str, Any]:
        """The JSON of a schema of the table, as stated in metadata."""
        body: dict[str, Any] = json.loads(schema.model_dump_json())
        stated: dict[str, Any] = _without_defaults(body, of_nested_only=self.format_version is not FormatVersion.V2)
        return stated

    @cached_property
    def _orders(self) -> Mapping[int, tuple[SortField, ...]]:
        """Sort orders by id, each cut before its first field that engines cannot read. Rows are sorted by the fields
        that remain.
        """
        orders = {order.order_id: tuple(self._sort_fields(order)) for order in self.definition.sort_orders}
        sorted_by = {order_id: fields for order_id, fields in orders.items() if fields and order_id != _UNSORTED}
        return {_UNSORTED: (), **sorted_by}

    def _is_hidden(self, order: SortOrder) -> bool:
        return order.order_id not in self._orders

    def _sort_fields(self, order: SortOrder) -> Iterator[SortField]:
        for field in order.fields:
            source = self._source_type(field.source_id)
            transform = _parsed(field.transform)
            if source is None or isinstance(transform, UnknownTransform) or not transform.can_transform(source):
                return
            yield field

    def _stated_specs(self, schema_ids: Iterable[int], *, has_history: bool) -> Mapping[int, tuple[ExportedField, ...]]:
        """Spec id → fields, for every partition spec that the metadata.json lists.

        These are the specs of the exported manifests. With `has_history`, the full specs of the table are included.
        """
        own = self.definition.current_schema_id
        found: dict[int, tuple[ExportedField, ...]] = {}
        for schema_id in dict.fromkeys((own, *schema_ids)):
            schema = self.definition.schema_by_id(schema_id)
            for spec_id, whole in self._whole_by_spec.items():
                form = self._form(spec_id, schema)
                found[self._id_of(spec_id, form)] = form
                if has_history:
                    found[spec_id] = whole
        return dict(sorted(found.items()))

    def _form(self, spec_id: int, schema: Schema) -> tuple[ExportedField, ...]:
        """The fields of a spec whose columns are in `schema`, and in the schema of the export's version."""
        there = schema.field_ids & self._readers.definition.schema.field_ids
        return tuple(field for field in self._fields_by_spec[spec_id] if field.source_id in there)

    def _id_of(self, spec_id: int, form: tuple[ExportedField, ...]) -> int:
        """The id of the table's spec with exactly these fields, or an unused id if there is no such spec."""
        key = _meaning(form)
        if key == _meaning(self._whole_by_spec[spec_id]):
            return spec_id
        if key in self._whole_specs:
            return self._whole_specs[key]
        digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()
        found = _FIRST_FORM + int(digest[:7], 16)
        while found in self._fields_by_spec:
            found += 1
        return found

    @cached_property
    def _whole_specs(self) -> Mapping[Meaning, int]:
        """The fields of a full spec, without names → the id of the first spec with these fields."""
        found: dict[Meaning, int] = {}
        for spec_id, whole in self._whole_by_spec.items():
            found.setdefault(_meaning(whole), spec_id)
        return found

    @cached_property
    def _fields_by_spec(self) -> dict[int, tuple[ExportedField, ...]]:
        """Spec id → all its members that engines can read, of current and dropped columns."""
        return {spec.spec_id: tuple(self._exported(spec)) for spec in self.definition.partition_specs}

    @cached_property
    def _whole_by_spec(self) -> Mapping[int, tuple[ExportedField, ...]]:
        """Spec id → all fields of the spec. An adopted spec also has fields of types that some engines misread, because
        its writer gave the id this meaning.
        """
        return self._fields_by_spec | {
            spec.spec_id: tuple(self._exported(spec, is_whole=True))
            for spec in self.definition.partition_specs
            if spec.field_ids
        }

    def _exported(self, spec: PartitionSpec, *, is_whole: bool = False) -> Iterator[ExportedField]:
        names: set[str] = set()
        field_ids: set[int] = set()
        for place, member in enumerate(_members_of(spec, self.definition)):
            tracked = self.definition.tracked_by_id.get(member.tracked_id)
            field_id = self._field_ids[spec.spec_id, place]
            if tracked is None or field_id in field_ids:
                continue
            if isinstance(tracked.type, _NOT_IN_TUPLES) and not is_whole:
                continue
            if not self._is_readable(member):
                continue
            name = self._name(member, spec.names[place] if spec.names else None, names)
            names.add(name)
            field_ids.add(field_id)
            yield ExportedField(field_id, name, member.source_ids[0], member.transform, member.tracked_id, tracked.type)

    def _is_readable(self, member: _Member) -> bool:
        """Whether the member is a known transform of one column. Other members break readers of the metadata."""
        if len(member.source_ids) != 1 or self._source_type(member.source_ids[0]) is None:
            return False
        expression = self.definition.expressions_by_id.get(member.tracked_id)
        return expression is None or self.definition.function_of(expression) is Function.TRANSFORM

    def _source_type(self, field_id: int) -> PrimitiveType | None:
        """The type of a partition or sort column, even if dropped. It is primitive, and inside structs only."""
        found = self.definition.tracked_by_id.get(field_id)
        return None if found is None or found.is_expression else found.type

    def _name(self, member: _Member, kept: str | None, taken: set[str]) -> str:
        """A name different from all earlier members and other columns: engines refuse a spec with a duplicate name."""
        expression = self.definition.expressions_by_id.get(member.tracked_id)
        column = self.definition.tracked_by_id[member.source_ids[0]].name
        name = kept or (column if expression is None else expression.name) or column
        allowed = (None, member.source_ids[0]) if member.transform in _NAMED_AS_COLUMN else (None,)
        while name in taken or self._column_ids.get(name) not in allowed:
            name = f"{name}_{member.transform.partition('[')[0]}"
        return name

    @cached_property
    def _column_ids(self) -> Mapping[str, int]:
        schema = self.definition.schema
        return {name: schema.find_field(name).field_id for name in schema.column_names}

    @cached_property
    def _field_ids(self) -> Mapping[tuple[int, int], int]:
        """(spec id, position of the member in it) → partition field id."""
        return partition_field_ids(self.definition)


def stated_specs(metadata: Mapping[str, Any]) -> frozenset[tuple[int, Meaning]]:
    """The specs of a metadata.json, each as its id and its `Meaning`."""
    found: list[tuple[int, Meaning]] = []
    for spec in metadata["partition-specs"]:
        fields = (
            (int(field["field-id"]), int(field["source-id"]), str(field["transform"])) for field in spec["fields"]
        )
        found.append((int(spec["spec-id"]), tuple(fields)))
    return frozenset(found)


def _meaning(fields: Iterable[ExportedField]) -> Meaning:
    return tuple((field.field_id, field.source_id, field.transform) for field in fields)


def _spec_json(fields: Iterable[ExportedField]) -> list[dict[str, Any]]:
    return [
        {"source-id": field.source_id, "field-id": field.field_id, "transform": field.transform, "name": field.name}
        for field in fields
    ]


def _members_of(spec: PartitionSpec, definition: TableDefinition) -> Iterator[_Member]:
    for tracked_id in spec.expr_ids:
        expression = definition.expressions_by_id.get(tracked_id)
        if expression is None:
            yield _Member(tracked_id, (tracked_id,), "identity")
        else:
            yield _Member(tracked_id, expression.source_ids, expression.transform)


def _parsed(transform: str) -> Transform[Any, Any]:
    try:
        return parse_transform(transform)
    except ValueError:
        return UnknownTransform(transform)


def _sort_json(field: SortField) -> dict[str, Any]:
    return {
        "transform": field.transform,
        "source-id": field.source_id,
        "direction": field.direction,
        "null-order": field.null_order,
    }


def _fields_of(kind: IcebergType, prefix: str = "") -> Iterator[tuple[str, NestedField]]:
    """Yield (full name, field) of every field, elements of lists and maps included."""
    fields: Sequence[NestedField] = ()
    if isinstance(kind, StructType):
        fields = kind.fields
    elif isinstance(kind, ListType):
        fields = (kind.element_field,)
    elif isinstance(kind, MapType):
        fields = (kind.key_field, kind.value_field)
    for field in fields:
        name = f"{prefix}{field.name}"
        yield name, field
        yield from _fields_of(field.field_type, f"{name}.")


def _check_v2(schema: Schema, name: str, field: NestedField) -> None:
    where = f"column {name!r} (id {field.field_id}) of schema {schema.schema_id}"
    if isinstance(field.field_type, PrimitiveType) and not isinstance(field.field_type, _V2_TYPES):
        raise Invalid(
            "export-unsupported",
            f"{where} is of type {field.field_type}, which format version 2 lacks: export it in format version 3",
        )
    if field.initial_default is not None:
        raise Invalid(
            "export-unsupported",
            f"{where} has the default value {field.initial_default!r:.80} in older files, where a reader of format "
            "version 2 would read null: export it in format version 3",
        )


def _nested_default(schema: Schema) -> str | None:
    """A message about a column with a default that engines cannot read in older files, or `None`."""
    for name, field in _fields_of(schema.as_struct()):
        if field.initial_default is not None and not isinstance(field.field_type, PrimitiveType):
            return (
                f"column {name!r} (id {field.field_id}) of schema {schema.schema_id} has the default value "
                f"{field.initial_default!r:.80} in older files, and no engine reads the default of a struct, list or "
                "map: add a column without one, overwrite the rows with its values, and drop this column"
            )
    return None


def _without_defaults(body: Any, *, of_nested_only: bool) -> Any:
    """Schema JSON without the defaults that engines cannot read.

    V2 has no defaults. In V3, engines cannot read defaults of structs, lists and maps. Tables with defaults that
    readers need were refused before.
    """
    if isinstance(body, list):
        return [_without_defaults(item, of_nested_only=of_nested_only) for item in body]
    if not isinstance(body, dict):
        return body
    is_omitted = not of_nested_only or isinstance(body.get("type"), dict)
    return {
        key: _without_defaults(value, of_nested_only=of_nested_only)
        for key, value in body.items()
        if not (is_omitted and key in DEFAULTS)
    }
