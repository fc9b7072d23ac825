"""Rows of an Avro data file.

Owns: blocks to Arrow columns, with the field ids that the file's schema carries. Does not own: taking the file apart
(`rootline.schemas.bytes.foreign_avro`), what the columns mean (`row_projection`), which files are Avro
(`data_file_formats`).
Invariants: values are taken as they are stored (days, microseconds, unscaled decimals), so nothing depends on what a
calendar of some library can hold; a column of a kind that is not read (a union of several types) is refused when it is
asked for, never read as absent.

Source: the Iceberg specification, Appendix A (Avro).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from rootline.schemas.bytes.foreign_avro import BROKEN, ForeignAvro
from rootline.schemas.errors import Corrupt, Invalid
from rootline.storage.rows.arrow_types import FIELD_ID_KEY

_PLAIN: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_LOGICAL: Final = {
    ("int", "date"): pa.date32(),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-micros"): pa.timestamp("us"),
    ("long", "timestamp-nanos"): pa.timestamp("ns"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}


@dataclass(frozen=True, slots=True)
class _Column:
    """A field of a record; `build` makes an array of its values; `None`: its kind is not read."""

    field: pa.Field
    build: Callable[[list[Any]], pa.Array] | None


@dataclass(frozen=True, slots=True)
class AvroRows:
    """An open Avro file; `name` is what errors call it."""

    file: ForeignAvro
    name: str
    columns: Mapping[str, _Column]
    row_count: int

    @staticmethod
    def of(body: bytes | pa.Buffer, name: str) -> AvroRows:
        """The file in `body`. Raises `Invalid` (`file-unreadable`) when it is no Avro file of records."""
        try:
            file = ForeignAvro.of(bytes(body))
            columns = {column.field.name: column for column in map(_column, file.schema["fields"])}
            return AvroRows(file, name, columns, file.count)
        except BROKEN as error:
            raise Invalid("file-unreadable", f"{name}: is not a readable Avro file: {error!s:.200}") from error

    @property
    def schema(self) -> pa.Schema:
        """Columns with their field ids."""
        return pa.schema([column.field for column in self.columns.values()])

    def batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """As `OpenFile.batches`, block by block; raises `Invalid` (`file-unreadable`) for kinds that are not read."""
        wanted = [self.columns[name] for name in columns]
        for column in wanted:
            if column.build is None:
                reason = "its kind of Avro value is not read"
                raise Invalid("file-unreadable", f"{self.name}: column {column.field.name}: {reason}")
        schema = pa.schema([column.field for column in wanted])
        try:
            for rows in self.file.blocks():
                arrays = [column.build([row[column.field.name] for row in rows]) for column in wanted if column.build]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        except BROKEN as error:
            raise Corrupt("data-file-corrupt", f"{self.name}: cannot be decoded: {error!s:.200}") from error


def _column(field: Mapping[str, Any]) -> _Column:
    metadata = {FIELD_ID_KEY: str(int(field["field-id"])).encode()} if "field-id" in field else None
    kind, is_optional = field["type"], False
    if isinstance(kind, list):
        is_optional, choices = "null" in kind, [choice for choice in kind if choice != "null"]
        kind = choices[0] if len(choices) == 1 else None
    arrow, build = _kind(kind)
    if build is None:
        return _Column(pa.field(field["name"], pa.null(), metadata=metadata), None)
    return _Column(pa.field(field["name"], arrow, nullable=is_optional, metadata=metadata), build)


def _kind(schema: Any) -> tuple[pa.DataType, Callable[[list[Any]], pa.Array] | None]:
    """The Arrow type of an Avro type, and what makes its arrays."""
    full = schema if isinstance(schema, dict) else {"type": schema}
    kind, logical = full.get("type"), full.get("logicalType")
    if kind == "record":
        return _struct([_column(field) for field in full["fields"]])
    if kind == "map":
        return _map(
            *(_column({"name": name, "type": of}) for name, of in (("key", "string"), ("value", full["values"])))
        )
    if kind == "array" and logical == "map":
        return _map(*map(_column, full["items"]["fields"]))
    if kind == "array":
        return _list(_column({"name": "element", "type": full["items"]} | _element_id(full)))
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return _decimal(int(full["precision"]), int(full.get("scale", 0)))
    if kind == "fixed":
        return _simple(pa.binary(int(full["size"])))
    if not isinstance(kind, str) or kind not in _PLAIN:
        return pa.null(), None
    known = _LOGICAL.get((kind, str(logical)))
    if known is not None:
        is_moment = pa.types.is_timestamp(known) and full.get("adjust-to-utc")
        return _stored_as(pa.timestamp(known.unit, "UTC") if is_moment else known, _PLAIN[kind])
    if logical not in (None, "uuid"):
        return pa.null(), None
    return _simple(_PLAIN[kind])


def _element_id(array: Mapping[str, Any]) -> dict[str, Any]:
    return {"field-id": array["element-id"]} if "element-id" in array else {}


def _simple(kind: pa.DataType) -> tuple[pa.DataType, Callable[[list[Any]], pa.Array]]:
    return kind, lambda values: pa.array(values, kind)


def _stored_as(kind: pa.DataType, plain: pa.DataType) -> tuple[pa.DataType, Callable[[list[Any]], pa.Array]]:
    return kind, lambda values: pa.array(values, plain).view(kind)


def _decimal(precision: int, scale: int) -> tuple[pa.DataType, Callable[[list[Any]], pa.Array]]:
    kind = pa.decimal128(precision, scale)

    def value(stored: bytes | None) -> Decimal | None:
        if stored is None:
            return None
        unscaled = int.from_bytes(stored, "big", signed=True)
        return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))

    return kind, lambda values: pa.array([value(stored) for stored in values], kind)


def _struct(members: Sequence[_Column]) -> tuple[pa.DataType, Callable[[list[Any]], pa.Array] | None]:
    if any(member.build is None for member in members):
        return pa.null(), None
    fields = [member.field.with_nullable(True) for member in members]

    def build(values: list[Any]) -> pa.Array:
        children = [
            member.build([None if value is None else value[member.field.name] for value in values])
            for member in members
            if member.build is not None
        ]
        return pa.StructArray.from_arrays(children, fields=fields, mask=pa.array([value is None for value in values]))

    return pa.struct(fields), build


def _map(key: _Column, value: _Column) -> tuple[pa.DataType, Callable[[list[Any]], pa.Array] | None]:
    """Of Avro maps, and of arrays of pairs, which Iceberg writes for keys that are no strings."""
    keys_of, values_of = key.build, value.build
    if keys_of is None or values_of is None:
        return pa.null(), None
    kind = pa.map_(key.field.type, value.field.type)

    def build(values: list[Any]) -> pa.Array:
        pairs = [
            list(held.items()) if isinstance(held, dict) else [(pair["key"], pair["value"]) for pair in held or ()]
            for held in values
        ]
        offsets = [0]
        for of_row in pairs:
            offsets.append(offsets[-1] + len(of_row))
        keys = keys_of([pair[0] for of_row in pairs for pair in of_row])
        items = values_of([pair[1] for of_row in pairs for pair in of_row])
        absent = pa.array([held is None for held in values])
        return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items, type=kind, mask=absent)

    return kind, build


def _list(element: _Column) -> tuple[pa.DataType, Callable[[list[Any]], pa.Array] | None]:
    inner = element.build
    if inner is None:
        return pa.null(), None
    kind = pa.list_(element.field.with_nullable(True))

    def build(values: list[Any]) -> pa.Array:
        offsets = [0]
        for value in values:
            offsets.append(offsets[-1] + len(value or ()))
        items = inner([item for value in values for item in value or ()])
        absent = pa.array([value is None for value in values])
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items, type=kind, mask=absent)

    return kind, build
