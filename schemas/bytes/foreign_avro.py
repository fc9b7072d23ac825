"""Avro files of other writers, block by block, and Iceberg's manifests and lists in them as records by field id.

Owns: head and blocks, each codec's decompression, the limits of a file, values by field id in stored form. Does not
own: the meaning of fields (`manifest_codec`), rows of data files (`data_file_formats`), Rootline's own files
(`avro_encoding`), which are read more strictly.
Invariants: every limit of `AvroLimits` is checked before the memory is taken, whatever the file states. A file's
records have no more values than its bytes can need. No logical type is converted, so every date and timestamp that can
be stored can be read. Fields are found by id, never by name. The exceptions of libraries on hostile bytes are in
`BROKEN`, and hostile manifests raise `Corrupt` only.

Theory. A small Avro file may contain very many values, for three reasons: compression, values that take no bytes, and
values that take a byte of the file and a hundred bytes of memory.

* A null takes no bytes. A record of nulls takes none either, so a schema of 40 lines can state 2^40 values for each
  record, and an array can state any number of such elements. So values are weighed against bytes: a value counts 1, and
  each byte that it must take counts -16, in manifests -2. A sum above 0 is called an excess. The element type of an
  array or map may not have one. The records of a block may have an excess of a million together (decision 0108).
* A pair of numbers takes two bytes, and as a `dict` 232. So the values of a manifest are counted while it is read,
  up to 256 for each stored byte, and a million in any file. Thousands of files with the same counts of 1,000 columns
  take 200 in zstd, other honest files 20. Values are in memory before they are counted, so a block is read in portions
  of no more bytes than values remain, or 4 MiB.

Source: the Avro 1.12 specification, "Object Container Files", the Iceberg specification, "Manifests", "Manifest Lists"
and Appendix A (Avro).
"""

from __future__ import annotations

import bz2
import io
import json
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException

from rootline.schemas.bytes.avro_encoding import Unreadable, read_bytes, read_fixed, read_long, read_string
from rootline.schemas.errors import Corrupt

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
_MAGIC: Final = b"Obj\x01"
_SYNC_BYTES: Final = 16
_KEYS_MAX: Final = 1 << 16
_NESTING_MAX: Final = 400
"""Levels of brackets in a schema. A nested column takes five or six."""
_CHUNK_BYTES: Final = 1 << 20
_PORTION_BYTES: Final = 4 << 20
_XZ_MEMORY_BYTES: Final = 128 << 20
_SNAPPY_TIMES: Final = 22  # three bytes repeat 64
_CRC_BYTES: Final = 4
_EXCESS_MAX: Final = 1 << 20
_LEAST_BYTES: Final = {"null": 0, "float": 4, "double": 8}
_VALUES_LEAST: Final = 1 << 20
_PRIMITIVE: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


@dataclass(frozen=True, slots=True)
class AvroLimits:
    """The most that is read of a file, each checked before its memory is taken.

    * `object_bytes`: the stored file. `head_bytes`: its metadata, which contains the table's schema.
    * `schema_bytes`: the schema of its records, and other metadata that is parsed.
    * `plain_bytes`: all blocks, decompressed. `block_bytes`, `record_bytes`: one of them, decompressed.
    * `records`, `values`: in all blocks together. A value is a field or an element.
    * `values_of_stored_byte`: the lower limit of values for small files. `values_of_byte`: values for each byte of an
      element.
    """

    object_bytes: int
    head_bytes: int
    schema_bytes: int
    plain_bytes: int
    block_bytes: int
    record_bytes: int
    records: int
    values: int
    values_of_stored_byte: int = 256
    values_of_byte: int = 2

    def after(self, file: AvroFile) -> AvroLimits:
        """The limits for the next file, if these are the limits of several files together."""
        records, values = self.records - len(file.records), self.values - file.values
        return replace(self, plain_bytes=self.plain_bytes - file.plain_bytes, records=records, values=values)


MANIFEST_LIMITS: Final = AvroLimits(
    object_bytes=512 << 20,
    head_bytes=16 << 20,
    schema_bytes=1 << 20,
    plain_bytes=512 << 20,
    block_bytes=256 << 20,
    record_bytes=8 << 20,
    records=5_000_000,
    values=1 << 26,
)
"""For manifests and lists of a table that is or was adopted. An honest table does not meet them.

* Iceberg's writers make manifests of 8 MB, or some 40 MB decompressed, with blocks of 16 to 64 KB. Some make a block of
  100 entries or of all entries.
* An entry with all statistics of 10,000 columns takes 0.6 MB, and their schema in the metadata 2 MB. The schema of the
  entries takes 8 KB, and 150 bytes for each partition field.
* A list of 1,000,000 manifests takes 250 MB and has 30,000,000 values. Honest values take six to eight bytes each.
* An adoption has 5,000,000 entries or fewer.
"""
_UNLIMITED: Final = sys.maxsize
DATA_FILE_LIMITS: Final = AvroLimits(
    object_bytes=_UNLIMITED,
    head_bytes=_UNLIMITED,
    schema_bytes=_UNLIMITED,
    plain_bytes=_UNLIMITED,
    block_bytes=256 << 20,
    record_bytes=_UNLIMITED,
    records=_UNLIMITED,
    values=_UNLIMITED,
    values_of_stored_byte=_UNLIMITED,
    values_of_byte=16,
)
"""For files of rows, which are read a block at a time. Writers end one after 16 to 64 KB, or with the row that exceeds
that.
"""


_SMALLER: Final = "rewrite the manifests into smaller ones, with the engine that wrote them"


class _TooLarge(ValueError):
    """A file exceeds one of its limits."""


@dataclass(slots=True)
class _Rest:
    """The rest of a file's limits while the file is read."""

    plain_bytes: int
    records: int
    values: int
    _all: AvroLimits

    @staticmethod
    def of(limits: AvroLimits, stored_bytes: int) -> _Rest:
        """The limits for a file of `stored_bytes`."""
        values = min(limits.values, _VALUES_LEAST + limits.values_of_stored_byte * stored_bytes)
        return _Rest(limits.plain_bytes, limits.records, values, limits)

    @property
    def portion_bytes(self) -> int:
        """The most bytes of records that may be in memory before their values are counted."""
        return min(self._all.record_bytes, max(_PORTION_BYTES, self.values))

    def unpacked(self, unpack: Callable[[bytes, int], bytes], packed: bytes) -> bytes:
        """Decompress a block."""
        most = min(self.plain_bytes, self._all.block_bytes)
        data = unpack(packed, most)
        if len(data) > self._all.block_bytes:
            raise _TooLarge(f"a block decompresses to more than {self._all.block_bytes} bytes")
        if len(data) > most:
            raise _TooLarge(f"its blocks decompress to more than {self._all.plain_bytes} bytes")
        self.plain_bytes -= len(data)
        return data

    def take_records(self, count: int) -> None:
        """Count the records that a block states."""
        self.records -= count
        if self.records < 0:
            raise _TooLarge(f"its blocks state more than {self._all.records} records")

    def take_values(self, count: int) -> None:
        """Count values that were read."""
        self.values -= count
        if self.values < 0:
            raise _TooLarge("it has more values than are read of a file of its size")


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
    _limits: AvroLimits

    @staticmethod
    def of(body: bytes, limits: AvroLimits = DATA_FILE_LIMITS) -> ForeignAvro:
        """The file in `body`. Raises one of `BROKEN`."""
        if len(body) > limits.object_bytes:
            raise _TooLarge(f"it has {len(body)} bytes, {limits.object_bytes} are allowed")
        metadata, start = _head_of(body, limits.head_bytes)
        schema = json.loads(parsable(metadata["avro.schema"], limits))
        plain = fastavro.parse_schema(_without_logical_types(schema))
        excess = _excess_of(plain, {}, limits.values_of_byte)
        return ForeignAvro(metadata, schema, plain, excess, body, start, limits)

    @property
    def count(self) -> int:
        """The number of records that its blocks state. No block is decompressed. Raises one of `BROKEN`."""
        return sum(count for count, _ in self._packed())

    def rest(self) -> _Rest:
        """The limits for its blocks."""
        return _Rest.of(self._limits, len(self._body))

    def blocks(self, rest: _Rest | None = None) -> Iterator[list[Any]]:
        """The records of each block, or of a part of a large block. Raises one of `BROKEN`.

        `rest`: the limits, whose values the caller counts.
        """
        rest = rest or self.rest()
        unpack = _CODECS.get(self.metadata.get("avro.codec", "null"))
        if unpack is None:
            raise ValueError(f"its codec {self.metadata['avro.codec'][:40]!r} is not read")
        for count, packed in self._packed():
            data = rest.unpacked(unpack, packed)
            if count > len(data):  # a stated count alone would yield any number of records
                raise ValueError(f"a block states {count} records in {len(data)} bytes")
            rest.take_records(count)
            if count * self._excess > _EXCESS_MAX:
                raise ValueError("its records have more values than its bytes justify")
            stream = io.BytesIO(data)
            if len(data) <= rest.portion_bytes:
                yield [self._record(stream) for _ in range(count)]
            else:
                for _ in range(count):
                    self._check_next(stream, rest.portion_bytes)
                    yield [self._record(stream)]
            if stream.read(1):
                raise ValueError("bytes follow the records of a block")

    def _record(self, stream: io.BytesIO, projected: Any = None) -> Any:
        return fastavro.schemaless_reader(stream, self._plain, projected)

    def _check_next(self, stream: io.BytesIO, bytes_max: int) -> None:
        """Measure the next record without reading its values."""
        start = stream.tell()
        self._record(stream, {"type": "record", "name": self._plain["name"], "fields": []})
        if stream.tell() - start > bytes_max:
            raise _TooLarge(f"a record has {stream.tell() - start} bytes, {bytes_max} are allowed here")
        stream.seek(start)

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


def _head_of(body: bytes, bytes_max: int) -> tuple[dict[str, str], int]:
    """The metadata of a file, except values that are not UTF-8, and the position of its first block."""
    if body[: len(_MAGIC)] != _MAGIC:
        raise ValueError("it does not begin as an Avro file does")
    found: dict[str, str] = {}
    count, at = read_long(body, len(_MAGIC))
    while count:
        if count < 0:  # the length of the pairs follows
            count, (_, at) = -count, read_long(body, at)
        for _ in range(count):
            key, at = read_string(body, at)
            value, at = read_bytes(body, at)
            if at > bytes_max or len(found) > _KEYS_MAX:
                raise _TooLarge(f"its metadata has more than {_KEYS_MAX} keys, or more than {bytes_max} bytes")
            with suppress(UnicodeDecodeError):
                found[key] = value.decode()
        count, at = read_long(body, at)
    return found, read_fixed(body, at, _SYNC_BYTES)[1]


def parsable(text: str, limits: AvroLimits) -> str:
    """Text of metadata that may be parsed. Parsed, it takes 30 times its bytes. Raises one of `BROKEN`."""
    if len(text) > limits.schema_bytes:
        raise _TooLarge(f"a schema or spec in its metadata has {len(text)} bytes, {limits.schema_bytes} are allowed")
    return text


def _without_logical_types(schema: Any, depth: int = 0) -> Any:
    if depth > _NESTING_MAX:
        raise _TooLarge(f"its schema has more than {_NESTING_MAX} levels of nesting")
    if isinstance(schema, dict):
        return {key: _without_logical_types(value, depth + 1) for key, value in schema.items() if key != "logicalType"}
    return [_without_logical_types(item, depth + 1) for item in schema] if isinstance(schema, list) else schema


def _excess_of(schema: Any, known: dict[str, int | None], of_byte: int) -> int:
    """The excess of one value of this type (see Theory), if a byte justifies `of_byte` values. Raises `ValueError` if
    the elements of an array or map have an excess.
    """
    if isinstance(schema, list):
        return max((_excess_of(choice, known, of_byte) for choice in schema), default=0) - of_byte
    if isinstance(schema, str):
        if schema in known:
            held = known[schema]
            if held is None:
                raise ValueError(f"its type {schema[:40]} is part of itself")
            return held
        return 1 - of_byte * _LEAST_BYTES.get(schema, 1)
    kind = schema["type"]
    if kind in ("array", "map"):
        of_key = 0 if kind == "array" else 1 - of_byte
        if of_key + _excess_of(schema["items" if kind == "array" else "values"], known, of_byte) > 0:
            raise ValueError(f"the elements of one of its {kind}s have more values than its bytes justify")
        return 1 - of_byte
    if kind == "fixed":
        found = 1 - of_byte * int(schema["size"])
    elif kind in ("record", "error"):
        known[schema["name"]] = None
        found = 1 + sum(_excess_of(field["type"], known, of_byte) for field in schema["fields"])
    else:
        found = _excess_of(kind, known, of_byte)
    if "name" in schema:
        known[schema["name"]] = found
    return found


def _deflated(packed: bytes, bytes_max: int) -> bytes:
    return zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, bytes_max + 1)


def _bzip2(packed: bytes, bytes_max: int) -> bytes:
    return bz2.BZ2File(io.BytesIO(packed)).read(bytes_max + 1)


def _xz(packed: bytes, bytes_max: int) -> bytes:
    return lzma.LZMADecompressor(memlimit=_XZ_MEMORY_BYTES).decompress(packed, bytes_max + 1)


def _null(packed: bytes, bytes_max: int) -> bytes:
    return packed[: bytes_max + 1]


def _snappy(packed: bytes, bytes_max: int) -> bytes:
    """Decompress a Snappy block, which begins with its decompressed length and ends with a checksum."""
    size = shift = 0
    for byte in packed[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > bytes_max:
        raise _TooLarge(f"a block decompresses to {size} bytes, {bytes_max} are allowed")
    if size > _SNAPPY_TIMES * len(packed):
        raise ValueError(f"a block of {len(packed)} bytes states {size} bytes")
    found: bytes = pa.Codec("snappy").decompress(packed[:-_CRC_BYTES], size, asbytes=True)
    return found


def _zstandard(packed: bytes, bytes_max: int) -> bytes:
    """Decompress a zstd block that does not state its decompressed length. Java writers make such blocks."""
    found = bytearray()
    with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
        while len(found) <= bytes_max and (chunk := stream.read(_CHUNK_BYTES)):
            found += chunk
    return bytes(found)


_CODECS: Final[Mapping[str, Callable[[bytes, int], bytes]]] = {
    "null": _null,
    "deflate": _deflated,
    "bzip2": _bzip2,
    "xz": _xz,
    "snappy": _snappy,
    "zstandard": _zstandard,
}


Record = Mapping[int, Any]
"""Field id → value, without fields that have no id. Nested records have this form too."""

_MAP: Final = "map"
_Convert = Callable[[Any], Any]
_Take = Callable[[int], None]
"""Counts values that a converter was given."""


@dataclass(frozen=True, slots=True)
class AvroFile:
    """The file's metadata (without values that are not UTF-8), and its records.

    `kinds`: field id → Avro type, of the records' fields. `plain_bytes`: of its blocks, decompressed. `values`: in its
    records.
    """

    metadata: Mapping[str, str]
    kinds: Mapping[int, str]
    records: tuple[Record, ...]
    plain_bytes: int
    values: int


def read_avro(body: bytes, *, name: str, limits: AvroLimits = MANIFEST_LIMITS) -> AvroFile:
    """Every record of an Avro file.

    Args:
        body: the whole object.
        name: its name in errors.
        limits: the most that is read of it.

    Raises:
        Corrupt: `leaf-corrupt`, not an Avro file of records with field ids, or one that exceeds `limits`.
    """
    try:
        file = ForeignAvro.of(body, limits)
        rest, whole = file.rest(), file.rest()
        convert = _record_of(file.schema, {}, rest.take_values)
        found: list[Record] = []
        for records in file.blocks(rest):
            found += map(convert, records)
        kinds = {int(at["field-id"]): _kind_of(at["type"]) for at in file.schema["fields"] if "field-id" in at}
    except _TooLarge as error:
        raise Corrupt("leaf-corrupt", f"{name}: {error}: {_SMALLER}") from error
    except BROKEN as error:
        raise Corrupt("leaf-corrupt", f"{name}: not a readable Avro file: {error!s:.200}") from error
    used = whole.plain_bytes - rest.plain_bytes, whole.values - rest.values
    return AvroFile(file.metadata, kinds, tuple(found), *used)


def _kind_of(schema: Any) -> str:
    """The name of a type, without null and logical types."""
    if isinstance(schema, list):
        kinds = [_kind_of(choice) for choice in schema if choice != "null"]
        return kinds[0] if len(kinds) == 1 else "union"
    return schema if isinstance(schema, str) else _kind_of(schema["type"])


def _converter(schema: Any, named: dict[str, _Convert], take: _Take) -> _Convert:
    """A function that converts a value of this schema to the form keyed by field ids."""
    if isinstance(schema, list):
        choices = [_converter(item, named, take) for item in schema if item != "null"]
        return _optional(choices[0]) if len(choices) == 1 else _counted(take)
    if isinstance(schema, str):
        return _unchanged if schema in _PRIMITIVE else named.get(schema) or _counted(take)
    kind = schema["type"]
    if kind == "record":
        return _record_of(schema, named, take)
    if kind == "array":
        return _list_of(schema, named, take)
    if isinstance(kind, dict | list):
        return _converter(kind, named, take)
    return _unchanged if kind in _PRIMITIVE or kind == "fixed" else _counted(take)


def _record_of(schema: Mapping[str, Any], named: dict[str, _Convert], take: _Take) -> _Convert:
    members: list[tuple[str, int, _Convert]] = []

    def convert(value: Mapping[str, Any]) -> Record:
        take(1 + len(members))
        return {field_id: member(value[name]) for name, field_id, member in members}

    named[schema["name"]] = convert
    for field in schema["fields"]:
        member = _converter(field["type"], named, take)
        if "field-id" in field:
            members.append((field["name"], int(field["field-id"]), member))
    return convert


def _list_of(schema: Mapping[str, Any], named: dict[str, _Convert], take: _Take) -> _Convert:
    """A converter for an array, which may be a map's pairs."""
    items = schema["items"]
    item, is_map = _converter(items, named, take), schema.get("logicalType") == _MAP
    members = items.get("fields", ()) if isinstance(items, dict) else [{"type": items}]
    is_flat = all(isinstance(member["type"], str) and member["type"] in _PRIMITIVE for member in members)

    def convert(values: list[Any]) -> Any:
        take(2 * len(values) if is_flat or not is_map else _values_in(values))
        return _map_of_pairs(values) if is_map else [item(value) for value in values]

    return convert


def _optional(member: _Convert) -> _Convert:
    """A converter for null and one other type, as in Iceberg's optional fields."""
    return lambda value: None if value is None else member(value)


def _counted(take: _Take) -> _Convert:
    """A converter for types that no field of a manifest has. Values do not change."""

    def convert(value: Any) -> Any:
        take(_values_in(value))
        return value

    return convert


def _values_in(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(_values_in, value.values()))
    return 1 + sum(map(_values_in, value)) if isinstance(value, list) else 1


def _map_of_pairs(pairs: list[Mapping[str, Any]]) -> dict[Any, Any]:
    return {pair["key"]: pair["value"] for pair in pairs}


def _unchanged(value: Any) -> Any:
    return value
