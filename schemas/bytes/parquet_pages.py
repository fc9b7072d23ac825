"""Column chunks of a Parquet file in which the pages that a reader does not need are empty.

Owns: the walk through the headers of pages, empty pages. Does not own: the place of a chunk (`parquet_footer`), the
choice of rows, decoding.
Theory: Arrow decodes row groups whole. It cannot skip pages, and most files have no index of pages. An empty page of
nulls has 30 bytes for any number of values, and is decoded fast. So Arrow gets chunks with empty pages, under the
file's own footer.
Invariants: a chunk keeps its number of values, so that rows keep their numbers. Its needed pages are unchanged, with
their checksums. Damaged or hostile bytes raise `ValueError` and nothing else.

Source: `parquet.thrift` of the Parquet format, and the Thrift compact protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rootline.schemas.bytes.parquet_footer import CompactReader, Kind, Physical

_DICTIONARY: Final = 2
_DATA_V2: Final = 3
_DATA_HEADERS: Final = (5, 8)
"""The fields with the header of a data page, of the first and second form. Both state the number of values first."""
_BITS: Final = {
    Physical.BOOLEAN: 1,
    Physical.INT32: 32,
    Physical.INT64: 64,
    Physical.INT96: 96,
    Physical.FLOAT: 32,
    Physical.DOUBLE: 64,
    Physical.BYTE_ARRAY: 32,  # a length of 0
}


@dataclass(frozen=True, slots=True)
class FlatColumn:
    """A primitive column that is neither in a list nor in a map. `length`: the bytes of a value of fixed length."""

    physical: int
    length: int
    is_optional: bool

    def empty_page(self, values: int, bytes_max: int) -> bytes:
        """A page with `values` nulls, or zeros if the column is required. Raises `ValueError` if it would be larger."""
        bits = self.length * 8 if self.physical == Physical.FIXED else _BITS[Physical(self.physical)]
        levels = _unsigned(values << 1) + b"\0" if self.is_optional else b""
        nulls, zeros = (values, 0) if self.is_optional else (0, -(-values * bits // 8))
        size = len(levels) + zeros
        page = _integers(_DATA_V2, size, size) + bytes([5 << 4 | Kind.STRUCT])
        header = _integers(values, nulls, values, 0, len(levels), 0) + bytes([1 << 4 | Kind.FALSE])  # not compressed
        if len(page) + len(header) + 2 + size > bytes_max:
            raise ValueError("its pages are very small")
        return page + header + b"\0\0" + levels + bytes(zeros)


def with_needed_pages(
    chunk: bytes, values: int, column: FlatColumn, is_needed: Callable[[int, int], bool]
) -> bytearray:
    """The pages of `chunk`, with empty pages if no row is needed, then zeros up to the same size.

    `is_needed(start, end)`: whether rows of the chunk from `start` up to `end` are needed.

    Raises:
        ValueError: the headers cannot be read, or the result would be larger.
    """
    made = bytearray(len(chunk))  # the system provides the zeros, so that no time is spent on them
    end = at = seen = emptied = 0

    def add(body: bytes) -> None:
        nonlocal end
        if end + len(body) > len(made):
            raise ValueError("its pages overlap")
        made[end : end + len(body)] = body
        end += len(body)

    try:
        while is_needed(seen, values):
            page = _Page.of(chunk, at)
            if page.values > values - seen:
                raise ValueError("its pages have more values than it states")
            if page.values and not is_needed(seen, seen + page.values):
                emptied += page.values
            else:
                if emptied:
                    add(column.empty_page(emptied, len(made) - end))
                    emptied = 0
                add(chunk[at : page.end])
            at, seen = page.end, seen + page.values
    except (IndexError, RecursionError) as error:
        raise ValueError(f"its pages cannot be read ({type(error).__name__})") from error
    if seen < values:
        add(column.empty_page(values - seen, len(made) - end))
    return made


@dataclass(frozen=True, slots=True)
class _Page:
    """The end of a page, and its number of values. A dictionary has none."""

    end: int
    values: int

    @staticmethod
    def of(chunk: bytes, at: int) -> _Page:
        reader = CompactReader(chunk, at)
        kind = size = values = -1
        for number, type_ in reader.fields():
            if number == 1 and type_ == Kind.I32:
                kind = reader.integer()
            elif number == 3 and type_ == Kind.I32:
                size = reader.integer()
            elif number in _DATA_HEADERS and type_ == Kind.STRUCT:
                values = _first_integer(reader)
            else:
                reader.skip(type_)
        end = reader.at + size
        if kind == _DICTIONARY:
            values = 0
        if size < 0 or values < 0 or end > len(chunk):
            raise ValueError("a page has no size or no number of values, or ends behind its chunk")
        return _Page(end, values)


def _first_integer(reader: CompactReader) -> int:
    found = -1
    for number, kind in reader.fields():
        if number == 1 and kind == Kind.I32:
            found = reader.integer()
        else:
            reader.skip(kind)
    return found


def _integers(*values: int) -> bytes:
    """Consecutive fields of 32 bits, each with its header."""
    return b"".join(bytes([1 << 4 | Kind.I32]) + _unsigned(value << 1) for value in values)


def _unsigned(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])
