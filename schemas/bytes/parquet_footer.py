"""The column chunks of a Parquet file as its footer describes them: the place of their bytes, and their statistics.

Owns: the walk through the footer's Thrift (compact protocol), field ids that a writer could not write. Does not own:
rows and schema, which Arrow reads, the meaning of statistics (`parquet_file`).
Invariants: damaged or hostile bytes raise `ValueError` and nothing else. Arrow does not read these structs here,
because some hostile bytes make its reader of column chunks end the process.

Source: `parquet.thrift` of the Parquet format, and the Thrift compact protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeVar

T = TypeVar("T")
_DEPTH_MAX: Final = 32
_VARINT_BITS_MAX: Final = 70


class Physical(IntEnum):
    """The physical types of values, with Parquet's numbers."""

    BOOLEAN = 0
    INT32 = 1
    INT64 = 2
    INT96 = 3
    FLOAT = 4
    DOUBLE = 5
    BYTE_ARRAY = 6
    FIXED = 7


class Kind(IntEnum):
    """The types of values in the compact protocol, with Thrift's numbers."""

    TRUE = 1
    FALSE = 2
    BYTE = 3
    I16 = 4
    I32 = 5
    I64 = 6
    DOUBLE = 7
    BINARY = 8
    LIST = 9
    SET = 10
    MAP = 11
    STRUCT = 12


_INTEGERS: Final = frozenset((Kind.I16, Kind.I32, Kind.I64))
_FLAGS: Final = frozenset((Kind.TRUE, Kind.FALSE))


@dataclass(slots=True)
class ColumnChunk:
    """One primitive column of one row group.

    Offsets and sizes are in bytes. Bounds are in stored form, or `None` if unknown. `values` includes nulls, and counts
    an empty list as one. `text_bytes`: of all values of type `BYTE_ARRAY`, as often as they occur. `None`: unknown.
    """

    physical: int = -1
    codec: int = -1
    values: int = -1
    data_offset: int = -1
    dictionary_offset: int = 0
    size: int = -1
    text_bytes: int | None = None
    null_count: int | None = None
    lower: bytes | None = None
    upper: bytes | None = None

    @property
    def start(self) -> int:
        """The offset of its first page."""
        return self.dictionary_offset if 0 < self.dictionary_offset < self.data_offset else self.data_offset


def column_chunks(footer: bytes) -> list[list[ColumnChunk]]:
    """The column chunks of each row group, in the order of the file's primitive columns.

    Raises:
        ValueError: the footer cannot be read.

    """
    found: list[list[ColumnChunk]] = []
    try:
        reader = CompactReader(footer)
        for number, kind in reader.fields():
            if number == 4 and kind == Kind.LIST:
                found = reader.items(lambda: _row_group(reader))
            else:
                reader.skip(kind)
    except (IndexError, RecursionError) as error:
        raise ValueError(f"it ends early or is nested too deep ({type(error).__name__})") from error
    return found


def _row_group(reader: CompactReader) -> list[ColumnChunk]:
    found: list[ColumnChunk] = []
    for number, kind in reader.fields():
        if number == 1 and kind == Kind.LIST:
            found = reader.items(lambda: _column_chunk(reader))
        else:
            reader.skip(kind)
    return found


def _column_chunk(reader: CompactReader) -> ColumnChunk:
    found = ColumnChunk()
    for number, kind in reader.fields():
        if number == 3 and kind == Kind.STRUCT:
            _column_metadata(reader, found)
        else:
            reader.skip(kind)
    return found


def _column_metadata(reader: CompactReader, found: ColumnChunk) -> None:
    for number, kind in reader.fields():
        if number == 1 and kind == Kind.I32:
            found.physical = reader.integer()
        elif number == 4 and kind == Kind.I32:
            found.codec = reader.integer()
        elif number == 5 and kind == Kind.I64:
            found.values = reader.integer()
        elif number == 7 and kind == Kind.I64:
            found.size = reader.integer()
        elif number == 9 and kind == Kind.I64:
            found.data_offset = reader.integer()
        elif number == 11 and kind == Kind.I64:
            found.dictionary_offset = reader.integer()
        elif number == 12 and kind == Kind.STRUCT:
            _statistics(reader, found)
        elif number == 16 and kind == Kind.STRUCT:
            _sizes(reader, found)
        else:
            reader.skip(kind)


def _sizes(reader: CompactReader, found: ColumnChunk) -> None:
    for number, kind in reader.fields():
        if number == 1 and kind == Kind.I64:
            found.text_bytes = reader.integer()
        else:
            reader.skip(kind)


def _statistics(reader: CompactReader, found: ColumnChunk) -> None:
    """Read the statistics, without the bounds of old writers (fields 1 and 2), whose order was undefined."""
    for number, kind in reader.fields():
        if number == 3 and kind == Kind.I64:
            found.null_count = reader.integer()
        elif number == 5 and kind == Kind.BINARY:
            found.upper = reader.binary()
        elif number == 6 and kind == Kind.BINARY:
            found.lower = reader.binary()
        else:
            reader.skip(kind)


_FIELD_ID: Final = 9


def with_field_ids(footer: bytes, ids: Sequence[int | None]) -> bytes:
    """The footer with these field ids in the elements of its schema, in their order, the root first. `None`: no id.

    Raises:
        ValueError: the footer cannot be read, or it has other elements, or an element has another id.
    """
    made, copied = bytearray(), 0
    try:
        reader = CompactReader(footer)
        places: list[_IdPlace] = []
        for number, kind in reader.fields():
            if number == 2 and kind == Kind.LIST:
                places = reader.items(lambda: _IdPlace.of(reader))
            else:
                reader.skip(kind)
        if len(places) != len(ids):
            raise ValueError(f"its schema has {len(places)} elements, not {len(ids)}")
        for place, wanted in zip(places, ids, strict=True):
            if place.known not in (None, wanted):
                raise ValueError(f"an element has the field id {place.known}, not {wanted}")
            if place.known is None and wanted is not None:
                made += footer[copied : place.at] + place.header(wanted)
                made.append(place.following(footer[place.at]))
                copied = place.at + 1
    except (IndexError, RecursionError) as error:
        raise ValueError(f"it ends early or is nested too deep ({type(error).__name__})") from error
    return bytes(made + footer[copied:])


@dataclass(frozen=True, slots=True)
class _IdPlace:
    """The place of the field id in an element of the schema: behind its field `before`. `known`: its id."""

    at: int
    before: int
    known: int | None

    @staticmethod
    def of(reader: CompactReader) -> _IdPlace:
        at, before, known = reader.at, 0, None
        for number, kind in reader.fields():
            if number == _FIELD_ID and kind == Kind.I32:
                known = reader.integer()
            else:
                reader.skip(kind)
            if number < _FIELD_ID:
                at, before = reader.at, number
        return _IdPlace(at, before, known)

    def header(self, field_id: int) -> bytes:
        """The field with its header."""
        rest, found = field_id << 1, bytearray([(_FIELD_ID - self.before) << 4 | Kind.I32])
        while rest > 0x7F:
            found.append(rest & 0x7F | 0x80)
            rest >>= 7
        return bytes([*found, rest])

    def following(self, header: int) -> int:
        """The header of the next field, which states its distance from the field before it, or the end (0)."""
        step = header >> 4
        return (self.before + step - _FIELD_ID) << 4 | header & 15 if step else header


class CompactReader:
    """Reads values of the compact protocol in sequence. Raises `IndexError` at the end of the bytes."""

    def __init__(self, body: bytes, at: int = 0) -> None:
        self._body, self._at, self._depth = body, at, 0

    @property
    def at(self) -> int:
        """The offset of the next value."""
        return self._at

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield number and kind of each field of the struct at the current offset. The caller reads or skips each
        one.
        """
        number = 0
        while header := self._body[self._at]:
            self._at += 1
            step = header >> 4
            number = number + step if step else self.integer()
            yield number, header & 15
        self._at += 1

    def items(self, read: Callable[[], T]) -> list[T]:
        """Read a list of structs, each with `read`."""
        count, kind = self._list_header()
        if kind != Kind.STRUCT:
            raise ValueError("a list has elements of a type other than struct")
        return [read() for _ in range(count)]

    def integer(self) -> int:
        """Read a signed number of any width."""
        found = self.unsigned()
        return (found >> 1) ^ -(found & 1)

    def binary(self) -> bytes:
        """Read a byte string."""
        return self.take(self.unsigned())

    def take(self, length: int) -> bytes:
        """Read the next `length` bytes."""
        end = self._at + length
        if end > len(self._body):
            raise IndexError
        found = self._body[self._at : end]
        self._at = end
        return found

    def byte(self) -> int:
        """Read one byte."""
        found = self._body[self._at]
        self._at += 1
        return found

    def skip(self, kind: int) -> None:
        """Skip a field's value."""
        if kind in _INTEGERS:
            self.unsigned()
        elif kind not in _FLAGS:  # a flag is in its header
            self._skip_value(kind)

    def _skip_value(self, kind: int) -> None:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise ValueError("it is nested too deep")
        if kind in _INTEGERS:
            self.unsigned()
        elif kind == Kind.BINARY:
            self._pass_over(self.unsigned())
        elif kind == Kind.STRUCT:
            for _, inner in self.fields():
                self.skip(inner)
        elif kind in (Kind.LIST, Kind.SET):
            count, inner = self._list_header()
            for _ in range(count):
                self._skip_value(inner)
        elif kind == Kind.BYTE or kind in _FLAGS:
            self.byte()
        elif kind == Kind.DOUBLE:
            self._pass_over(8)
        elif kind == Kind.MAP:
            self._skip_map()
        else:
            raise ValueError(f"there is no type {kind}")
        self._depth -= 1

    def _pass_over(self, length: int) -> None:
        self._at += length
        if self._at > len(self._body):  # else a list could have any stated length
            raise IndexError

    def _skip_map(self) -> None:
        count = self.unsigned()
        kinds = self.byte() if count else 0
        for _ in range(count):
            self._skip_value(kinds >> 4)
            self._skip_value(kinds & 15)

    def _list_header(self) -> tuple[int, int]:
        header = self.byte()
        count = header >> 4
        return (self.unsigned() if count == 15 else count), header & 15

    def unsigned(self) -> int:
        """Read an unsigned number."""
        found = self._body[self._at]
        self._at += 1
        if found < 128:  # the common case
            return found
        found, shift = found & 127, 7
        while True:
            byte = self.byte()
            found |= (byte & 127) << shift
            if byte < 128:
                return found
            shift += 7
            if shift >= _VARINT_BITS_MAX:
                raise ValueError("a number is too long")
