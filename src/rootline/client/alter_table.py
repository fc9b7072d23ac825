"""Changes of a table's definition: columns, defaults, partitioning, sort order and properties, committed together.

Owns: the steps that a user calls, planning them again after a concurrent change of the definition, checks of a column's
default. Does not own: the editing of a schema (PyIceberg's own editor), partition fields and sort orders
(`layout_terms`), the legality of a change (`rootline.tree.evolution`).
Invariants: a change is published only at the end of the `with` block, and only if the block raised no error and changes
the table. Two users who add a column at the same time both get theirs, with different ids. A default is stored exactly
as given, after rounding to 32 bits for a `float` column, or it is refused. Text is accepted for a value of another type
if it is a plain spelling of that value, as on a command line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal, InvalidOperation
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, cast

import pyarrow as pa
import pydantic
from pyiceberg.conversions import from_json
from pyiceberg.exceptions import ValidationError
from pyiceberg.schema import Schema
from pyiceberg.transforms import Transform
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from rootline.client import checks
from rootline.client.given_schema import given_schema
from rootline.client.layout_terms import Layout, PartitionTransform, SortBy, given_order, sort_fields
from rootline.client.planned_change import commit_planned
from rootline.client.session import Commit, Session, WriterStamp
from rootline.client.time_travel import read_head
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import Intent, IntentKind
from rootline.schemas.model_faults import fault_of_model
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.root_reader import read_definition
from rootline.tree.evolution.changes import (
    DefinitionChange,
    DefinitionChanges,
    RemoveProperties,
    SetProperties,
    order_changes,
    schema_changes,
    spec_changes,
)
from rootline.tree.evolution.evolution_rules import placed_fields
from rootline.tree.evolution.next_definition import evolved
from rootline.tree.proof.default_rules import default_fault
from rootline.tree.proof.definition_rules import NESTED_DEFAULT

if TYPE_CHECKING:
    from pyiceberg.table.update.schema import UpdateSchema

_CODE: Final = "evolution-illegal"
_ALL_DIGITS: Final = Context(prec=80)
"""Python's default decimal context has 28 digits, and a column has up to 38."""
_SPELLED: Final[dict[type[IcebergType], Callable[[Any, str], Any]]] = {
    IntegerType: lambda _, text: int(text),
    LongType: lambda _, text: int(text),
    FloatType: lambda _, text: float(text),
    DoubleType: lambda _, text: float(text),
    DateType: from_json,
    TimeType: from_json,
    TimestampType: from_json,
    TimestamptzType: from_json,
    UUIDType: from_json,
}
"""Types whose default may be given as text, in the specification's JSON spelling."""


def default_value(name: str, of_type: IcebergType, given: Any) -> Any:
    """The value of `given` as a default of a column of this type. `None` means no default.

    The default of a `float` column is rounded to 32 bits like its rows. It then does not change when the column becomes
    a `double`.

    Raises:
        Invalid: `evolution-illegal`, `given` is not a value of this type, or cannot be stored exactly;
            `definition-invalid`, the column is a struct, list or map.
    """
    if given is None:
        return None
    if not isinstance(of_type, PrimitiveType):
        raise Invalid("definition-invalid", f"column {name!r} has default {given!r:.80}, and {NESTED_DEFAULT}")
    value = _value(of_type, given)
    if isinstance(value, float) and not math.isfinite(value):
        raise Invalid(
            _CODE, f"column {name!r}: default {given!r:.80} is not finite, so it cannot be stored; give a finite number"
        )
    field = NestedField.model_construct(  # without validation, which would convert the value
        field_id=1, name=name, field_type=of_type, required=False, initial_default=value, write_default=None
    )
    fault = (
        f"has default {given!r:.80}, which is not a value of type {of_type}" if value is None else default_fault(field)
    )
    if fault is not None:
        raise Invalid(_CODE, f"column {name!r} {fault.replace('initial-default', 'default')}")
    if isinstance(of_type, FloatType):
        return pa.scalar(float(value), pa.float32()).as_py()
    return value


def _value(of_type: IcebergType, given: Any) -> Any:
    """`given` as a value of this type, or `None` for a text or number that cannot be converted. Values of other types
    are returned unchanged, and `default_fault` refuses them.
    """
    if isinstance(of_type, DecimalType) and isinstance(given, int | str | Decimal) and not isinstance(given, bool):
        return _decimal(of_type, given)
    read = _SPELLED.get(type(of_type)) if isinstance(given, str) else None
    if read is not None:
        try:
            return read(of_type, given)
        except (ValueError, TypeError, ArithmeticError):
            return None
    if isinstance(of_type, FloatType | DoubleType) and isinstance(given, int) and not isinstance(given, bool):
        return float(given) if abs(given) <= 2**53 else None
    return given


def _decimal(of_type: DecimalType, given: int | str | Decimal) -> Decimal | None:
    try:
        exact = Decimal(given)
        value = exact.quantize(Decimal(1).scaleb(-of_type.scale), context=_ALL_DIGITS)
    except (InvalidOperation, ValueError):
        return None
    return value if value == exact else None


ColumnPath = str | tuple[str, ...]
"""A column by name. A field of a struct is `struct.field`, or a tuple of names if a name contains a dot."""
_Step: TypeAlias = "Callable[[UpdateSchema], object]"
_LayoutStep = Callable[[Layout], Layout]
_UNSET: Final = object()


@dataclass(eq=False)
class TableChange:
    """Changes of one table's definition: `with table.alter() as change: change.add_column("gate", "string")`.

    Each step applies to the result of the steps before it. `commit` is the block's commit, or `None` before the end of
    the block and when nothing changed.
    """

    table: TableName
    publish: Callable[[TableChange], Commit | None]
    commit: Commit | None = None
    _steps: list[_Step | _LayoutOf] = field(default_factory=list)
    _properties: list[DefinitionChange] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and (self._steps or self._properties):
            self.commit = self.publish(self)

    def add_column(
        self, path: ColumnPath, field_type: Any, doc: str | None = None, *, required: bool = False, default: Any = None
    ) -> Self:
        """Add a column after the others. Existing rows read `default` for it, so a required column needs a default.

        Args:
            path: the column's name. `struct.field` adds a field to a struct.
            field_type: a type as in `create_table`: `"long"`, an Arrow or Iceberg type, `{"x": "double"}` for a struct.
            doc: a comment.
            required: whether every row must have a value.
            default: the value of existing rows, and of later rows written without the column. A struct, list or map has
                none, but the fields of a struct may.
        """
        _check_texts(doc, default)
        is_required = checks.truth(required, "required")
        found, never_null = _type_of(path, field_type)
        value = default_value(".".join(_path(path)), found, default)

        def step(editor: UpdateSchema) -> None:
            must = is_required or never_null
            editor.add_column(_path(path), found, doc=doc, required=must, default_value=value)

        return self._then(step)

    def drop_column(self, path: ColumnPath) -> Self:
        """Drop a column. Its values stay in the files, and its id is never used again."""
        return self._then(lambda editor: editor.delete_column(_path(path)))

    def rename_column(self, path: ColumnPath, name: str) -> Self:
        """Rename a column. Files do not change, because they identify columns by id."""
        checked = checks.column_name(name, "definition-invalid")
        return self._then(lambda editor: editor.rename_column(_path(path), checked))

    def update_column(
        self,
        path: ColumnPath,
        field_type: Any = None,
        doc: str | None = None,
        *,
        required: bool | None = None,
        default: Any = _UNSET,
    ) -> Self:
        """Change a column: a wider type (int to long, float to double, more digits), a comment, another write default.

        `required=False` lets it be null. `default` is for rows written later. Existing rows keep theirs.
        """
        _check_texts(doc, default)
        if required is not None:
            checks.truth(required, "required")
        found = None if field_type is None else _type_of(path, field_type)[0]

        def step(editor: UpdateSchema) -> None:
            editor.update_column(_path(path), field_type=found, required=required, doc=doc)
            if default is not _UNSET:
                name = ".".join(_path(path))
                of_type = editor._schema.find_field(name).field_type if found is None else found
                editor.set_default_value(_path(path), default_value(name, of_type, default))

        return self._then(step)

    def move_column(
        self,
        path: ColumnPath,
        *,
        first: bool = False,
        before: ColumnPath | None = None,
        after: ColumnPath | None = None,
    ) -> Self:
        """Move a column to the front, or beside another of the same struct: one of `first`, `before`, `after`."""
        if (first is True) + (before is not None) + (after is not None) != 1:
            raise Invalid("definition-invalid", f"move_column {path!r}: give one of first=True, before=, after=")
        if first:
            return self._then(lambda editor: editor.move_first(_path(path)))
        if before is not None:
            return self._then(lambda editor: editor.move_before(_path(path), _path(before)))
        assert after is not None
        return self._then(lambda editor: editor.move_after(_path(path), _path(after)))

    def set_identifier_fields(self, *paths: str) -> Self:
        """Set the columns that identify a row. They must be required. Without arguments, no column identifies a row."""
        names = checks.texts(paths, "paths")
        return self._then(lambda editor: editor.set_identifier_fields(*names))

    def union_by_name(self, schema: Any) -> Self:
        """Add the columns of `schema` that the table lacks, and widen those that have a wider type in `schema`."""
        wanted = given_schema(schema)
        return self._then(lambda editor: editor.union_by_name(wanted))

    def add_partition_field(
        self, column: str, transform: PartitionTransform | None = None, name: str | None = None
    ) -> Self:
        """Partition files written later by one more value. Existing files keep their partitioning.

        Args:
            column: a column, or without `transform`, a term as in `create_table`: `month(ts)`, `bucket(8, id)`.
            transform: `"identity"`, `"bucket[8]"`, `"truncate[4]"`, `"year"`, `"month"`, `"day"`, `"hour"`, or a
                transform of PyIceberg.
            name: the field's name. By default it is made from the column and the transform.
        """
        checks.text(column, "column")
        if name is not None:
            checks.column_name(name, "definition-invalid")
        if transform is not None and not isinstance(transform, str | Transform):
            raise Invalid("definition-invalid", f"transform {transform!r:.60}: write it as 'bucket[8]' or 'day'")
        return self._then_layout(lambda layout: layout.with_field(column, transform, name))

    def drop_partition_field(self, name: str) -> Self:
        """Partition files written later without this field. `name` is its name, or a term such as `month(ts)`."""
        checks.text(name, "name")
        return self._then_layout(lambda layout: layout.without_field(name))

    def rename_partition_field(self, name: str, new_name: str) -> Self:
        """Rename a partition field."""
        checks.text(name, "name")
        checked = checks.column_name(new_name, "definition-invalid")
        return self._then_layout(lambda layout: layout.with_name(name, checked))

    def set_sort_order(self, sort_by: SortBy) -> Self:
        """Sort the rows of files written later, with terms as in `create_table`. An empty list stops sorting."""
        given = given_order(sort_by)
        return self._then_layout(lambda layout: replace(layout, order=sort_fields(given, layout.schema)))

    def set_properties(self, properties: Mapping[str, str] | None = None, **more: str) -> Self:
        """Set table properties. Names and values are text."""
        if properties is not None and not isinstance(properties, Mapping):
            raise Invalid("definition-invalid", f"properties is a {type(properties).__name__}: give a dict of texts")
        updates = {**(properties or {}), **more}
        for name, value in updates.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise Invalid("definition-invalid", f"property {name!r}: {value!r:.60} is not text; give it as text")
        self._properties.append(SetProperties(checks.table_properties(updates)))
        return self

    def remove_properties(self, *names: str) -> Self:
        """Remove table properties. A name that is not set is ignored."""
        self._properties.append(RemoveProperties(checks.texts(names, "names")))
        return self

    def changes_of(self, definition: TableDefinition, digest: bytes) -> DefinitionChanges | None:
        """The changes that these steps make to `definition`, or `None` if they change nothing.

        Raises:
            Invalid: `definition-invalid` or `evolution-illegal`, naming the column; `property-invalid`.
        """
        changes = self._changes_of(definition, digest)
        if not changes.changes:
            return None
        wire = DefinitionChanges.from_json(changes.to_json())
        after = evolved(definition, wire)
        return None if after is definition else changes

    def _changes_of(self, definition: TableDefinition, digest: bytes) -> DefinitionChanges:
        before = Layout.of(definition)
        after = self._edited(before)
        made: list[DefinitionChange] = []
        if any(not isinstance(step, _LayoutOf) for step in self._steps):
            made += schema_changes(after.schema)
        if after.spec != before.spec:
            made += spec_changes(after.spec)
        if after.order != before.order:
            made += order_changes(after.order)
        return DefinitionChanges(digest if made else None, (*made, *self._properties))

    def _edited(self, before: Layout) -> Layout:
        from pyiceberg.table.update.schema import UpdateSchema  # slow to import, and few programs alter

        layout, last_id = before, before.definition.last_column_id
        for step in self._steps:
            if isinstance(step, _LayoutOf):
                layout = step.after(layout)
                continue
            editor = UpdateSchema(cast("Any", _Edited(_Metadata(layout.schema, last_id))))
            try:
                step(editor)
                layout = replace(layout, schema=editor._apply())
            except pydantic.ValidationError as error:
                raise self._illegal(fault_of_model(error)) from error
            except (ValueError, ValidationError, TypeError) as error:
                raise self._illegal(str(error)) from error
            last_id = max(last_id, layout.schema.highest_field_id)
        if not layout.schema.fields:
            raise Invalid("definition-invalid", f"{self.table}: a table needs at least one column; keep one")
        for placed in placed_fields(layout.schema).values():
            if isinstance(placed.field.field_type, StructType) and not placed.field.field_type.fields:
                reason = "a struct without members cannot be stored; keep one, or drop the struct"
                raise Invalid("definition-invalid", f"{self.table}: column {placed.name}: {reason}")
        return layout

    def _illegal(self, reason: str) -> Invalid:
        return Invalid("evolution-illegal", f"{self.table}: {reason}: correct the step, or leave it out")

    def _then_layout(self, step: _LayoutStep) -> Self:
        self._steps.append(_LayoutOf(step))
        return self

    def _then(self, step: _Step) -> Self:
        self._steps.append(step)
        return self


@dataclass(frozen=True, slots=True)
class _LayoutOf:
    """A step that changes the spec or the sort order."""

    after: _LayoutStep


@dataclass(frozen=True, slots=True)
class _Metadata:
    """The part of a table's metadata that PyIceberg's editor reads. Partition specs are checked by this project's own
    rules.
    """

    of: Schema
    last_column_id: int
    partition_specs: tuple[()] = ()

    def schema(self) -> Schema:
        return self.of

    @property
    def schemas(self) -> tuple[Schema, ...]:
        return (self.of,)


@dataclass(frozen=True, slots=True)
class _Edited:
    table_metadata: _Metadata


def union_changes(
    table: TableName, schema: Schema, definition: TableDefinition, digest: bytes
) -> DefinitionChanges | None:
    """The changes that add the columns of `schema` to `definition` and widen existing ones, or `None` if there are
    none.

    Raises:
        Invalid: `evolution-illegal`, `definition-invalid`, naming the column.
    """

    def unpublished(_: TableChange) -> None:
        return None

    return TableChange(table, unpublished).union_by_name(schema).changes_of(definition, digest)


async def commit_change(
    session: Session, stamp: WriterStamp, change: TableChange, *, timeout_s: float
) -> Commit | None:
    """Commit `change` on the current definition. If another change wins, plan it again on the next definition.

    Raises:
        Invalid: a column does not exist, a step is illegal, or other changes keep winning (`definition-changed`).
        OutcomeUnknown: `verdict-timeout`.
    """

    async def plan() -> Intent | None:
        head = (await read_head(session.store, change.table)).header
        changes = change.changes_of(await read_definition(session.store, head), head.definition.digest)
        if changes is None:
            return None
        return Intent(
            intent_id=session.environment.fresh_id(),
            table=change.table,
            table_uuid=head.table_uuid,
            kind=IntentKind.ALTER,
            definition=changes.to_json(),
        )

    return await commit_planned(session, stamp, plan, timeout_s=timeout_s)


def _path(path: ColumnPath) -> tuple[str, ...]:
    parts = tuple(path.split(".")) if isinstance(path, str) else path
    if not isinstance(parts, tuple) or not parts or not all(isinstance(part, str) and part for part in parts):
        raise Invalid("definition-invalid", f"column {path!r:.80}: write its name, or a tuple of names")
    for part in parts:
        checks.column_name(part, "definition-invalid")
    return parts


def _check_texts(doc: str | None, default: Any) -> None:
    """Check that a comment and a default that are texts can be encoded as UTF-8."""
    for name, value in (("doc", doc), ("default", default)):
        if isinstance(value, str):
            checks.text(value, name)


def _type_of(path: ColumnPath, given: Any) -> tuple[IcebergType, bool]:
    name = ".".join(_path(path))
    [found] = given_schema({name: given}).fields
    return found.field_type, found.required
