"""Rules for the names, defaults and properties that a change adds to a table, so that every engine can use them.

Owns: the rules that older tables may break.
Does not own: the rules for every table (`definition_rules`), the step between two schemas (`rootline.tree.evolution`).
Invariants: Only additions are checked, so a table that breaks a rule can still be altered, restored and replaced.
Clients call the same functions before they publish.

Source: docs/decisions/0010, 0115 and the Iceberg specification, "Default values".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.types import FixedType, NestedField, PrimitiveType

from rootline.schemas.errors import Invalid
from rootline.schemas.field_ids import MAX_COLUMN_ID
from rootline.schemas.schema_rules import FIXED_BYTES_MAX, fields_of, name_fault
from rootline.schemas.table_definition import TableDefinition
from rootline.schemas.table_properties import CASE_PROPERTY, check_set, usable

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
