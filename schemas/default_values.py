"""Which field's default in a schema's JSON cannot be read, in words of our own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pyiceberg.types import NestedField, PrimitiveType, TimestampNanoType, TimestamptzNanoType

_KINDS: Final = ("initial-default", "write-default")
_SHOWN_CHARS_MAX: Final = 80


def unreadable_default(schema: dict[str, Any]) -> str | None:
    """The first default of `schema` that the model cannot read, as a sentence; `None` when it is something else."""
    for name, field in _fields_of(schema, ""):
        for kind in _KINDS:
            if field.get(kind) is None:
                continue
            shown = f"field {name!r} has {kind} {field[kind]!r:.{_SHOWN_CHARS_MAX}}"
            of_type = _primitive_of(field.get("type"))
            if of_type is None or isinstance(of_type, TimestampNanoType | TimestamptzNanoType):
                what = field["type"].get("type") if isinstance(field.get("type"), dict) else field.get("type")
                return f"{shown}: a default of a {what} cannot be kept; leave it out"
            if not _is_readable(of_type, kind, field[kind]):
                return f"{shown}, which is no {field['type']}"
    return None


def _primitive_of(text: object) -> PrimitiveType | None:
    try:
        found = NestedField.model_validate({"id": 1, "name": "x", "type": text}).field_type
    except Exception:  # the model's own errors are of several kinds: of a decimal of 99 digits it is no ValueError
        return None
    return found if isinstance(found, PrimitiveType) else None


def _is_readable(of_type: PrimitiveType, kind: str, value: object) -> bool:
    try:
        NestedField.model_validate({"id": 1, "name": "x", "type": of_type, kind: value})
    except Exception:  # what the parser of a default raises differs by type: ValueError, ArithmeticError, TypeError
        return False
    return True


def _fields_of(found: object, prefix: str) -> Iterator[tuple[str, dict[str, Any]]]:
    pending = [(prefix, found)]
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
