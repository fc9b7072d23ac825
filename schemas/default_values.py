"""Defaults in a schema's JSON that PyIceberg's model cannot represent: those of structs, lists and maps, and unreadable
ones.

Owns: the form of a nested default (of a struct, list or map) in memory, the message about an unreadable default. Does
not own: the check that a default is a value of its type (`rootline.tree.proof.default_rules`), its value in rows
(`rootline.storage.rows.arrow_types`).
Invariants: a nested default is stored as the text of its JSON single-value form, with sorted keys, because the model
stores no dictionaries or lists. It is written as JSON, not as text.

Source: Appendix D of the Iceberg specification, "JSON single-value serialization".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyiceberg.conversions import from_json, to_json
from pyiceberg.types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
    TimestampNanoType,
    TimestamptzNanoType,
)

_KINDS: Final = ("initial-default", "write-default")
_SHOWN_CHARS_MAX: Final = 80


def nested_default(of_type: IcebergType, value: object) -> str:
    """The stored form of a struct's, list's or map's default, from its JSON form or its stored form.

    Raises:
        ValueError: it is not JSON of an object or an array.
    """
    found = json.loads(value) if isinstance(value, str) else value
    if not isinstance(found, list if isinstance(of_type, ListType) else dict):
        raise ValueError(f"{value!r:.{_SHOWN_CHARS_MAX}} is no {of_type}")
    return json.dumps(found, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def renumbered_default(of_type: IcebergType, kept: str, became: Mapping[int, int]) -> str:
    """The default for the same type with other field ids. `became`: old id → new id."""
    return nested_default(of_type, _renumbered(of_type, json.loads(kept), became))


def _renumbered(of_type: IcebergType, value: Any, became: Mapping[int, int]) -> Any:
    if value is None:
        return None
    match of_type:
        case StructType():
            members = {str(member.field_id): member for member in of_type.fields}
            return {
                str(became[members[key].field_id]): _renumbered(members[key].field_type, value[key], became)
                for key in value
                if key in members
            }
        case ListType():
            return [_renumbered(of_type.element_type, item, became) for item in value]
        case MapType():
            keys = [_renumbered(of_type.key_type, key, became) for key in value["keys"]]
            return {"keys": keys, "values": [_renumbered(of_type.value_type, item, became) for item in value["values"]]}
    return value


def _json_of(_: IcebergType, kept: str) -> Any:
    return json.loads(kept)


for _nested in (StructType, ListType, MapType):
    from_json.register(_nested, nested_default)  # type: ignore[arg-type]
    to_json.register(_nested, _json_of)


def unreadable_default(schema: dict[str, Any]) -> str | None:
    """The first default in `schema` that the model cannot read, as a sentence, or `None` if all are readable."""
    for name, field in json_fields(schema):
        for kind in _KINDS:
            if field.get(kind) is None:
                continue
            shown = f"field {name!r} has {kind} {field[kind]!r:.{_SHOWN_CHARS_MAX}}"
            of_type = _type_of(field.get("type"))
            if of_type is None or isinstance(of_type, TimestampNanoType | TimestamptzNanoType):
                what = field["type"].get("type") if isinstance(field.get("type"), dict) else field.get("type")
                return f"{shown}: a default of type {what} cannot be stored; omit it"
            if not _is_readable(of_type, kind, field[kind]):
                return f"{shown}, which is not of type {of_type}"
    return None


def _type_of(found: object) -> IcebergType | None:
    try:
        return NestedField.model_validate({"id": 1, "name": "x", "type": found}).field_type
    except Exception:  # the model raises different types of errors, for a decimal of 99 digits not a ValueError
        return None


def _is_readable(of_type: IcebergType, kind: str, value: object) -> bool:
    try:
        NestedField.model_validate({"id": 1, "name": "x", "type": of_type, kind: value})
    except Exception:  # the parser of a default raises ValueError, ArithmeticError or TypeError, depending on the type
        return False
    return True


def json_fields(schema: object) -> Iterator[tuple[str, dict[str, Any]]]:
    """(path, JSON object) of every field of a schema's JSON, at every depth. Other content is ignored."""
    pending: list[tuple[str, object]] = [("", schema)]
    while pending:
        above, body = pending.pop()
        if not isinstance(body, dict):
            continue
        fields = body.get("fields")
        for field in fields if isinstance(fields, list) else ():
            if isinstance(field, dict):
                name = f"{above}{field.get('name')}"
                yield name, field
                pending.append((f"{name}.", field.get("type")))
        pending.extend((f"{above}{key}.", body[key]) for key in ("element", "key", "value") if key in body)
