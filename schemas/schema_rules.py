"""The rules for one schema, of a table or of a view.

Owns: the walk over its fields, ids and names that are distinct, names that other engines can distinguish, and a strict
reading of its JSON. Does not own: the types and defaults that a table can have
(`rootline.tree.proof.definition_rules`), changes from one schema to the next (`rootline.tree.evolution`).
Invariants: pure. Each fault is a sentence that names the field and ends with the next step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType

from rootline.schemas.default_values import json_fields
from rootline.schemas.field_ids import MAX_COLUMN_ID
from rootline.schemas.table_definition import schema_of_json

NESTING_MAX: Final = 64
FIXED_BYTES_MAX: Final = 65_536
"""The longest new `fixed` column. Readers allocate the whole length for each of its values, including nulls."""
RESERVED_NAMES: Final = frozenset(
    {"_deleted", "_file", "_last_updated_sequence_number", "_partition", "_pos", "_row_id", "_spec_id"}
)
"""Metadata columns, which every table has. Engines refuse a table with a column of such a name."""
_NAME_CHARS_MAX: Final = 1_000
_SHOWN_CHARS_MAX: Final = 80
_KINDS: Final = (("id", int, "a whole number"), ("name", str, "a text"), ("required", bool, "true or false"))
_INTEGERS: Final = ("int", "long")
_NUMBERS: Final = ("float", "double")
_TEXTS: Final = ("string", "date", "time", "timestamp", "timestamptz", "uuid", "binary", "decimal", "fixed")

KnownNames = Collection[tuple[int, str]]
"""Ids and names of fields that a table already has."""


def fields_of(schema: Schema) -> Iterator[tuple[str, NestedField]]:
    """(path, field) of every field at every depth. Raises `ValueError` if the nesting is deeper than `NESTING_MAX`
    levels.
    """
    for _, members in _levels(schema):
        yield from members


def schema_fault(schema: Schema, *, least_id: int = 1) -> str | None:
    """The message about the first duplicate id or name, or the first id outside the valid range. `None` without a
    fault.
    """
    paths: dict[int, str] = {}
    for prefix, members in _levels(schema):
        names: set[str] = set()
        for path, field in members:
            if not least_id <= field.field_id <= MAX_COLUMN_ID:
                return f"field {path!r} has id {field.field_id}, outside {least_id}..{MAX_COLUMN_ID}: choose another"
            other = paths.setdefault(field.field_id, path)
            if other is not path:
                return f"fields {other!r} and {path!r} have id {field.field_id}: give one of them another id"
            if field.name in names:
                where = f" in {prefix[:-1]!r}" if prefix else ""
                return f"name {field.name!r} occurs twice{where}: rename one of the fields"
            names.add(field.name)
    return None


def name_fault(schema: Schema, known: KnownNames, *, may_differ_in_case: bool) -> str | None:
    """The message about the first name that engines could not use, or `None`. Names in `known` are not checked, because
    the table already has them.
    """
    for prefix, members in _levels(schema):
        by_lower: dict[str, tuple[str, bool]] = {}
        for path, field in members:
            is_new = (field.field_id, field.name) not in known
            fault = _fault_of_name(path, field.name, is_top=not prefix) if is_new else None
            if fault is not None:
                return fault
            other, other_is_new = by_lower.setdefault(field.name.lower(), (path, is_new))
            if other != path and (is_new or other_is_new) and not may_differ_in_case:
                return (
                    f"names {other!r} and {path!r} differ only in case, and most engines cannot tell them apart: "
                    "rename one of them, or set table property rootline.names.case-sensitive to true"
                )
    return None


def given_fault(body: object) -> str | None:
    """The first value in a schema's JSON that PyIceberg would read as a different value.

    PyIceberg's models accept "no" for false, "7" for 7, and a number for a timestamp. A writer's schema with such a
    value is refused. Stored schemas need no check, because Rootline wrote them.
    """
    if not isinstance(body, dict):
        return "a schema must be an object with `fields`"
    ids = body.get("identifier-field-ids")
    if ids is not None and not (isinstance(ids, list) and all(type(each) is int for each in ids)):
        return f"identifier-field-ids is {ids!r:.{_SHOWN_CHARS_MAX}}: give a list of field ids"
    if ids is not None and len(set(ids)) < len(ids):
        return f"identifier-field-ids is {ids!r:.{_SHOWN_CHARS_MAX}}: give each id once"
    for name, field in json_fields(body):
        for key, kind, said in _KINDS:
            if key in field and type(field[key]) is not kind:
                return f"field {name!r} has {key} {field[key]!r:.{_SHOWN_CHARS_MAX}}: give {said}"
        for key in ("initial-default", "write-default"):
            fault = _fault_of_default(field.get("type"), field.get(key))
            if fault is not None:
                shown = f"field {name!r} has {key} {field[key]!r:.{_SHOWN_CHARS_MAX}}"
                return f"{shown}, which is not of type {field['type']}: {fault}"
    return None


def given_schema_of_json(body: Any) -> Schema:
    """The schema in a writer's JSON. Raises `ValueError`, naming the fault."""
    fault = given_fault(body)
    if fault is not None:
        raise ValueError(fault)
    return schema_of_json(body)


def _levels(schema: Schema) -> Iterator[tuple[str, list[tuple[str, NestedField]]]]:
    """Yield (path with a dot at the end, members) of each struct, list and map. The schema's own path is empty."""
    pending: list[tuple[str, IcebergType, int]] = [("", schema.as_struct(), 0)]
    while pending:
        prefix, found, depth = pending.pop()
        if depth > NESTING_MAX:
            raise ValueError(f"more than {NESTING_MAX} levels of nesting: flatten the type")
        children: tuple[NestedField, ...] = ()
        match found:
            case StructType():
                children = found.fields
            case ListType():
                children = (found.element_field,)
            case MapType():
                children = (found.key_field, found.value_field)
        members = [(f"{prefix}{field.name}", field) for field in children]
        yield prefix, members
        for path, field in members:
            if not isinstance(field.field_type, PrimitiveType):
                pending.append((f"{path}.", field.field_type, depth + 1))


def _fault_of_name(path: str, name: str, *, is_top: bool) -> str | None:
    if not name:
        return f"field {path!r} has an empty name: give it one"
    if len(name) > _NAME_CHARS_MAX:
        return f"field {name[:40]!r}… has a name of {len(name)} characters: give one of {_NAME_CHARS_MAX} or fewer"
    if is_top and name.lower() in RESERVED_NAMES:
        return f"column {name!r} has the name of a column that every table has: choose another name"
    return None


def _fault_of_default(of_type: Any, value: object) -> str | None:
    if value is None or not isinstance(of_type, str):
        return None
    word = of_type.partition("(")[0].partition("[")[0].strip()
    if word == "boolean" and not isinstance(value, bool):
        return "write true or false"
    if word in _INTEGERS and type(value) is not int:
        return "write a whole number"
    if word in _NUMBERS and (isinstance(value, bool) or not isinstance(value, int | float)):
        return "write a number"
    if word in _TEXTS and not isinstance(value, str):
        return "write a text, in the JSON single-value form of the specification"
    return None
