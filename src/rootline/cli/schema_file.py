"""`--schema FILE`: a table's columns as JSON.

Owns: the two forms, and the names of types in the simple one. Does not own: ids, partitioning (`definition_builder`).
Invariants: the simple form needs no ids and has no nesting; for nested columns there is Iceberg's own schema JSON.

Simple form: `{"carrier": "string not null", "flight": "int", "time_hour": "timestamptz"}`. Types are Iceberg's names,
or Arrow's for the same thing (`int32`, `int64`, `float64`, `utf8`, `bool`, `timestamp[us]`, `timestamp[us, tz=UTC]`).
Iceberg's form: `{"type": "struct", "fields": [{"id": 1, "name": "carrier", "type": "string", "required": true}, …]}`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from rootline.schemas.errors import Invalid

_ARROW_NAMES: Final = {
    "bool": "boolean",
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "uint8": "int",
    "uint16": "int",
    "uint32": "long",
    "int64": "long",
    "float32": "float",
    "float64": "double",
    "utf8": "string",
    "large_string": "string",
    "large_binary": "binary",
    "date32": "date",
    "time64[us]": "time",
    "timestamp[us]": "timestamp",
    "timestamp[ns]": "timestamp_ns",
    "timestamp[us, tz=utc]": "timestamptz",
    "timestamp[ns, tz=utc]": "timestamptz_ns",
}
_NOT_NULL: Final = " not null"


def read_schema(path: Path) -> Schema:
    """The schema in the file at `path`.

    Raises:
        Invalid: `definition-invalid`, it has neither form, or a type has an unknown name.
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
    return Schema(*(_column(path, at, name, kind) for at, (name, kind) in enumerate(body.items(), start=1)))


def _iceberg(body: dict[str, Any], path: Path) -> Schema:
    try:
        return Schema.model_validate({"type": "struct", "schema-id": 0, **body})
    except (ValidationError, ValueError) as error:
        reason = _first_fault(error) if isinstance(error, ValidationError) else error
        raise Invalid("definition-invalid", f"{path}: is not an Iceberg schema: {reason}") from error


def _first_fault(error: ValidationError) -> str:
    fault = error.errors(include_input=False, include_url=False)[0]
    return ".".join(map(str, fault["loc"])) + f": {fault['msg']}"


def _column(path: Path, field_id: int, name: str, kind: object) -> NestedField:
    if not isinstance(kind, str):
        raise Invalid(
            "definition-invalid", f"{path}: column {name!r}: a type is a text; nested columns need Iceberg's form"
        )
    text = " ".join(kind.lower().split())
    required = text.endswith(_NOT_NULL)
    text = text.removesuffix(_NOT_NULL)
    try:
        return NestedField.model_validate(
            {"id": field_id, "name": name, "type": _ARROW_NAMES.get(text, text), "required": required}
        )
    except (ValidationError, ValueError, TypeError) as error:
        raise Invalid(
            "definition-invalid",
            f"{path}: column {name!r}: there is no type {kind!r}; write string, long, double, timestamptz, …",
        ) from error
