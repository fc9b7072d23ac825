"""`--schema FILE`: a table's columns as JSON.

Owns: the two forms. Does not own: the words for types (`type_words`), partitioning (`definition_builder`).
Invariants: the simple form needs no ids and has no structs; for those there is Iceberg's own schema JSON.

Simple form: `{"carrier": "string not null", "flight": "int", "time_hour": "timestamptz"}`. Types are Iceberg's names,
or Arrow's for the same thing (`int32`, `int64`, `float64`, `utf8`, `bool`, `timestamp[us]`, `timestamp[us, tz=UTC]`);
`list<T>` and `map<K, V>` are of such types.
Iceberg's form: `{"type": "struct", "fields": [{"id": 1, "name": "carrier", "type": "string", "required": true}, …]}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from rootline.client.write.type_words import type_of_words
from rootline.schemas.errors import Invalid


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
    inner = count(len(body) + 1)
    return Schema(*(_column(path, at, name, kind, inner) for at, (name, kind) in enumerate(body.items(), start=1)))


def _iceberg(body: dict[str, Any], path: Path) -> Schema:
    try:
        return Schema.model_validate({"type": "struct", "schema-id": 0, **body})
    except (ValidationError, ValueError) as error:
        reason = _first_fault(error) if isinstance(error, ValidationError) else error
        raise Invalid("definition-invalid", f"{path}: is not an Iceberg schema: {reason}") from error


def _first_fault(error: ValidationError) -> str:
    fault = error.errors(include_input=False, include_url=False)[0]
    return ".".join(map(str, fault["loc"])) + f": {fault['msg']}"


def _column(path: Path, field_id: int, name: str, kind: object, ids: Iterator[int]) -> NestedField:
    if not isinstance(kind, str):
        raise Invalid(
            "definition-invalid", f"{path}: column {name!r}: a type is a text; nested columns need Iceberg's form"
        )
    try:
        found, required = type_of_words(kind, ids)
    except ValueError as error:
        raise Invalid(
            "definition-invalid",
            f"{path}: column {name!r}: there is no type {kind!r}; write string, long, double, timestamptz, …",
        ) from error
    return NestedField(field_id, name, found, required=required)
