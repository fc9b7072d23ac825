"""Avro files of Iceberg V1 to V3 (manifests and manifest lists) as records by field id.

Owns: values by field id, as they are stored: days, microseconds, bytes. Does not own: taking an Avro file apart, and
what it may take (`foreign_avro`), what the fields mean (`manifest_codec`, `manifest_list_codec`).
Invariants: fields are found by id, never by name; hostile bytes raise `Corrupt` only; no logical type is converted, so
every date and timestamp that can be stored can be read.

Source: the Iceberg specification, "Manifests", "Manifest Lists" and Appendix A (Avro).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rootline.schemas.bytes.iceberg.foreign_avro import BROKEN, ForeignAvro
from rootline.schemas.errors import Corrupt

Record = Mapping[int, Any]
"""Field id → value; what has no field id is left out. Records inside are records by field id as well."""

FILE_BYTES_MAX: Final = 512 << 20
"""Of all records of a file after decompression; Iceberg's writers make manifests of 8 MB."""
_MAP: Final = "map"
_Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class AvroFile:
    """The file's metadata (text that is not UTF-8 left out), the ids of its records' fields, and the records."""

    metadata: Mapping[str, str]
    field_ids: frozenset[int]
    records: tuple[Record, ...]


def read_avro(body: bytes, *, name: str) -> AvroFile:
    """Every record of an Avro file.

    Args:
        body: the whole object.
        name: what an error calls it.

    Raises:
        Corrupt: `leaf-corrupt`, not an Avro file of records with field ids.

    """
    try:
        file = ForeignAvro.of(body)
        convert = _record_of(file.schema, {})
        found: list[Record] = []
        for records in file.blocks(FILE_BYTES_MAX):
            found += map(convert, records)
        ids = frozenset(_ids_of(file.schema))
    except BROKEN as error:
        raise Corrupt("leaf-corrupt", f"{name}: not a readable Avro file: {error!s:.200}") from error
    return AvroFile(file.metadata, ids, tuple(found))


def _ids_of(schema: Mapping[str, Any]) -> list[int]:
    return [field["field-id"] for field in schema["fields"] if "field-id" in field]


def _converter(schema: Any, named: dict[str, _Convert]) -> _Convert:
    """What turns a value of this schema into one that is addressed by field ids."""
    if isinstance(schema, list):
        return _union_of([_converter(item, named) for item in schema if item != "null"])
    if isinstance(schema, str):
        return named.get(schema, _as_it_is)
    kind = schema["type"]
    if kind == "record":
        return _record_of(schema, named)
    if kind == "array":
        item = _converter(schema["items"], named)
        if schema.get("logicalType") == _MAP:
            return _map_of_pairs
        return lambda values: [item(value) for value in values]
    return _converter(kind, named) if isinstance(kind, dict | list) else _as_it_is


def _record_of(schema: Mapping[str, Any], named: dict[str, _Convert]) -> _Convert:
    members: list[tuple[str, int, _Convert]] = []

    def convert(value: Mapping[str, Any]) -> Record:
        return {field_id: member(value[name]) for name, field_id, member in members}

    named[schema["name"]] = convert
    for field in schema["fields"]:
        member = _converter(field["type"], named)
        if "field-id" in field:
            members.append((field["name"], int(field["field-id"]), member))
    return convert


def _union_of(choices: list[_Convert]) -> _Convert:
    """Of null and one other, as Iceberg's optional fields are."""
    if len(choices) != 1:
        return _as_it_is
    [member] = choices
    return lambda value: None if value is None else member(value)


def _map_of_pairs(pairs: list[Mapping[str, Any]]) -> dict[Any, Any]:
    return {pair["key"]: pair["value"] for pair in pairs}


def _as_it_is(value: Any) -> Any:
    return value
