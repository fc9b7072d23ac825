"""Avro files of other writers, block by block, and Iceberg's manifests and lists in them as records by field id.

Owns: head and blocks, each codec's decompression, the limits of a block, values by field id in stored form. Does not
own: the meaning of fields (`manifest_codec`), rows of data files (`data_file_formats`), Rootline's own files
(`avro_encoding`), which are read more strictly.
Invariants: no block is decompressed beyond `BLOCK_BYTES_MAX`. A file's records have no more values than its bytes can
need. No logical type is converted, so every date and timestamp that can be stored can be read. Fields are found by id,
never by name. The exceptions of libraries on hostile bytes are in `BROKEN`, and hostile manifests raise `Corrupt`
only.

Theory. A small Avro file may contain very many values, for two reasons: compression, and values that take no bytes. A
null takes no bytes. A record of nulls takes none either, so a schema of 40 lines can state 2^40 values for each record,
and an array can state any number of such elements. So values are weighed against bytes: a value counts 1, and each byte
that it must take counts -16. A sum above 0 is called an excess. The element type of an array or map may not have one.
The records of a block may have an excess of a million together (decision 0108).

Source: the Avro 1.12 specification, "Object Container Files", the Iceberg specification, "Manifests", "Manifest Lists"
and Appendix A (Avro).
"""

from __future__ import annotations

import bz2
import io
import json
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException

from rootline.schemas.bytes.avro_encoding import Unreadable, read_bytes, read_fixed, read_long
from rootline.schemas.errors import Corrupt

BLOCK_BYTES_MAX: Final = 256 << 20
"""The most decompressed bytes of a block. Writers end one after 16 to 64 KB, or with the row that exceeds that."""
BROKEN: Final = (
    ValueError,
    LookupError,
    TypeError,
    EOFError,
    OSError,
    RecursionError,
    AttributeError,
    ArithmeticError,
    MemoryError,
    StopIteration,
    Unreadable,
    SchemaParseException,
    pa.ArrowException,
    zlib.error,
    lzma.LZMAError,
)
_SYNC_BYTES: Final = 16
_CHUNK_BYTES: Final = 1 << 20
_XZ_MEMORY_BYTES: Final = 128 << 20
_SNAPPY_TIMES: Final = 22  # three bytes repeat 64
_CRC_BYTES: Final = 4
_VALUES_OF_BYTE: Final = 16
_EXCESS_MAX: Final = 1 << 20
_LEAST_BYTES: Final = {"null": 0, "float": 4, "double": 8}


@dataclass(frozen=True, slots=True)
class ForeignAvro:
    """An Avro file whose header was read.

    `metadata`: the header's metadata, except values that are not UTF-8. `schema`: the schema of its records, in stored
    form.
    """

    metadata: Mapping[str, str]
    schema: Any
    _plain: Any
    _excess: int
    _body: bytes
    _start: int

    @staticmethod
    def of(body: bytes) -> ForeignAvro:
        """The file in `body`. Raises one of `BROKEN`."""
        source = io.BytesIO(body)
        metadata = dict(fastavro.block_reader(source).metadata)
        schema = json.loads(metadata["avro.schema"])
        plain = fastavro.parse_schema(_without_logical_types(schema))
        return ForeignAvro(metadata, schema, plain, _excess_of(plain, {}), body, source.tell())

    @property
    def count(self) -> int:
        """The number of records that its blocks state. No block is decompressed. Raises one of `BROKEN`."""
        return sum(count for count, _ in self._packed())

    def blocks(self, bytes_max: int | None = None) -> Iterator[list[Any]]:
        """The records of each block, up to `bytes_max` decompressed bytes together. Raises one of `BROKEN`."""
        unpack = _CODECS.get(self.metadata.get("avro.codec", "null"))
        if unpack is None:
            raise ValueError(f"its codec {self.metadata['avro.codec'][:40]!r} is not read")
        taken = 0
        for count, packed in self._packed():
            data = unpack(packed)
            taken += len(data)
            if bytes_max is not None and taken > bytes_max:
                raise ValueError(f"its blocks take more than {bytes_max} bytes")
            if len(data) > BLOCK_BYTES_MAX:
                raise ValueError(f"a block takes more than {BLOCK_BYTES_MAX} bytes")
            if count > len(data):  # a stated count alone would yield any number of records
                raise ValueError(f"a block states {count} records in {len(data)} bytes")
            if count * self._excess > _EXCESS_MAX:
                raise ValueError("its records have more values than its bytes justify")
            stream = io.BytesIO(data)
            records: list[Any] = [fastavro.schemaless_reader(stream, self._plain, None) for _ in range(count)]
            if stream.read(1):
                raise ValueError("bytes follow the records of a block")
            yield records

    def _packed(self) -> Iterator[tuple[int, bytes]]:
        """Number of records and stored bytes of each block."""
        sync, at = self._body[self._start - _SYNC_BYTES : self._start], self._start
        while at < len(self._body):
            count, at = read_long(self._body, at)
            packed, at = read_bytes(self._body, at)
            found, at = read_fixed(self._body, at, _SYNC_BYTES)
            if count < 0 or found != sync:
                raise ValueError("a block does not end with the file's marker, or states less than no records")
            yield count, packed


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {key: _without_logical_types(value) for key, value in schema.items() if key != "logicalType"}
    return [_without_logical_types(item) for item in schema] if isinstance(schema, list) else schema


def _excess_of(schema: Any, known: dict[str, int | None]) -> int:
    """The excess of one value of this type (see Theory). Raises `ValueError` if the elements of an array or map have an
    excess.
    """
    if isinstance(schema, list):
        return max((_excess_of(choice, known) for choice in schema), default=0) - _VALUES_OF_BYTE
    if isinstance(schema, str):
        if schema in known:
            held = known[schema]
            if held is None:
                raise ValueError(f"its type {schema[:40]} is part of itself")
            return held
        return 1 - _VALUES_OF_BYTE * _LEAST_BYTES.get(schema, 1)
    kind = schema["type"]
    if kind in ("array", "map"):
        of_key = 0 if kind == "array" else 1 - _VALUES_OF_BYTE
        if of_key + _excess_of(schema["items" if kind == "array" else "values"], known) > 0:
            raise ValueError(f"the elements of one of its {kind}s have more values than its bytes justify")
        return 1 - _VALUES_OF_BYTE
    if kind == "fixed":
        found = 1 - _VALUES_OF_BYTE * int(schema["size"])
    elif kind in ("record", "error"):
        known[schema["name"]] = None
        found = 1 + sum(_excess_of(field["type"], known) for field in schema["fields"])
    else:
        found = _excess_of(kind, known)
    if "name" in schema:
        known[schema["name"]] = found
    return found


def _deflated(packed: bytes) -> bytes:
    return zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, BLOCK_BYTES_MAX + 1)


def _bzip2(packed: bytes) -> bytes:
    return bz2.BZ2File(io.BytesIO(packed)).read(BLOCK_BYTES_MAX + 1)


def _xz(packed: bytes) -> bytes:
    return lzma.LZMADecompressor(memlimit=_XZ_MEMORY_BYTES).decompress(packed, BLOCK_BYTES_MAX + 1)


def _snappy(packed: bytes) -> bytes:
    """Decompress a Snappy block, which begins with its decompressed length and ends with a checksum."""
    size = shift = 0
    for byte in packed[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > BLOCK_BYTES_MAX or size > _SNAPPY_TIMES * len(packed):
        raise ValueError(f"a block of {len(packed)} bytes states {size} bytes")
    found: bytes = pa.Codec("snappy").decompress(packed[:-_CRC_BYTES], size, asbytes=True)
    return found


def _zstandard(packed: bytes) -> bytes:
    """Decompress a zstd block that does not state its decompressed length. Java writers make such blocks."""
    found = bytearray()
    with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
        while len(found) <= BLOCK_BYTES_MAX and (chunk := stream.read(_CHUNK_BYTES)):
            found += chunk
    return bytes(found)


_CODECS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "null": bytes,
    "deflate": _deflated,
    "bzip2": _bzip2,
    "xz": _xz,
    "snappy": _snappy,
    "zstandard": _zstandard,
}


Record = Mapping[int, Any]
"""Field id → value, without fields that have no id. Nested records have this form too."""

FILE_BYTES_MAX: Final = 512 << 20
"""The most decompressed bytes of all records in a file. Iceberg's writers make manifests of 8 MB."""
_MAP: Final = "map"
_Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class AvroFile:
    """The file's metadata (without values that are not UTF-8), the ids of its records' fields, and the records."""

    metadata: Mapping[str, str]
    field_ids: frozenset[int]
    records: tuple[Record, ...]


def read_avro(body: bytes, *, name: str) -> AvroFile:
    """Every record of an Avro file.

    Args:
        body: the whole object.
        name: its name in errors.

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
    """A function that converts a value of this schema to the form keyed by field ids."""
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
    """A converter for null and one other type, as in Iceberg's optional fields."""
    if len(choices) != 1:
        return _as_it_is
    [member] = choices
    return lambda value: None if value is None else member(value)


def _map_of_pairs(pairs: list[Mapping[str, Any]]) -> dict[Any, Any]:
    return {pair["key"]: pair["value"] for pair in pairs}


def _as_it_is(value: Any) -> Any:
    return value
