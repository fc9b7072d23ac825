"""The memory that reading a leaf's columns takes, computed from its page headers before any page is decoded.

Owns: the walk over page headers, and the limits for leaves that a writer stored. Does not own: leaves that a root
already names, which are read whatever they take (`leaf_codec`), the footer's Thrift (`parquet_footer`).
Invariants: a leaf that passes the check takes no more memory than the limits, whatever the footer and the page headers
state. Each chunk's pages have as many values as the chunk states, and a flat column no more than the leaf has entries.
Only dictionaries and pages of delta-encoded text are decompressed, each within its limit. Any bytes either pass or
raise `ValueError`.

Theory. A small Parquet file may take much memory, for three reasons: compression, values that refer to a dictionary,
and values that repeat the beginning of the one before. A page's header states its size before compression, which is the
most that Arrow's reader takes for it. Values that are stored plainly take that size. Dictionary-encoded values take
their number times the longest value of the dictionary, which is read only if the dictionary's own size is not
conclusive. Delta-encoded text, in which writers of Java and Rust store paths, also takes the repeated beginnings. The
sum of their lengths is in the page. Numbers take their width times the number of entries, however few bytes store them
(decision 0108).

Source: `parquet.thrift` of the Parquet format.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from rootline.schemas.bytes.parquet_footer import ColumnChunk, CompactReader, Kind, Physical, column_chunks
from rootline.schemas.intent_rules import DEFAULT_LIMITS

TEXT_BYTES_MAX: Final = 512 << 20
"""Limit of all text and bytes in the entries together. Lower for few entries."""
_TEXT_BYTES_LEAST: Final = 1 << 20
_TEXT_BYTES_OF_ENTRY: Final = 64 << 10
_TEXT_BYTES_EACH: Final = 64
_ELEMENTS_MAX: Final = 1 << 20
_ELEMENTS_OF_ENTRY: Final = 1024
"""Limit of list elements for each entry. A file has a split offset for each of its row groups."""
NUMBERS_BYTES_MAX: Final = 256 << 20
_NUMBERS_BYTES_EACH: Final = 1024
"""Additional limit for each byte of the file. A wide table has many columns, each of which has bytes in the footer."""
_SLACK_BYTES: Final = 64 << 20
LOCATION_BYTES_MAX: Final = 4 * DEFAULT_LIMITS.max_location_chars
_LOCATIONS: Final = ("location", "referenced_file")
_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_PLAIN, _PLAIN_DICTIONARY, _DELTA_LENGTH, _DELTA_BYTES, _RLE_DICTIONARY = 0, 2, 6, 7, 8
_CODECS: Final = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
_LENGTH_BYTES: Final = 4
_BITS_MAX: Final = 64
_MINIBLOCK_MAX: Final = 1024
"""Limit of values in a miniblock. Writers use 32 or 64."""


@dataclass(slots=True)
class _Page:
    """A page, as its header describes it. `start` and `end`: offsets of its bytes. `values`: including nulls. Sizes
    in bytes.
    """

    kind: int = -1
    plain_size: int = -1
    stored_size: int = -1
    values: int = 0
    encoding: int = -1
    start: int = 0
    level_bytes: int = 0
    is_compressed: bool = True

    @property
    def end(self) -> int:
        return self.start + self.stored_size


def check_leaf_cost(body: bytes, footer: bytes, schema: pa.Schema, entries: int) -> None:
    """Check that the leaf may be decoded. `schema` and `entries`: as Arrow reads them from the footer.

    Raises:
        ValueError: it would take more than the limits, or its pages differ from the footer.
    """
    columns = list(_primitive(schema))
    groups = column_chunks(footer)
    text = numbers = pages = elements = 0
    seen = [0] * len(columns)
    for group in groups:
        if len(group) != len(columns):
            raise ValueError(f"a row group has {len(group)} columns, its schema has {len(columns)}")
        for index, (chunk, (name, kind, is_list, is_optional)) in enumerate(zip(group, columns, strict=True)):
            held = list(_pages(body, chunk))
            pages += sum(page.plain_size for page in held)
            seen[index] += chunk.values
            if is_list:
                elements += chunk.values
            elif seen[index] > entries:
                raise ValueError(f"column {name} has more values than the leaf has entries")
            if chunk.physical == Physical.BYTE_ARRAY:
                text += _text_bytes(body, chunk, held, name, has_levels=None if is_list else is_optional)
            else:
                numbers += chunk.values * _width(kind)
    text_max = _TEXT_BYTES_LEAST + _TEXT_BYTES_OF_ENTRY * entries + _TEXT_BYTES_EACH * len(body)
    if elements > _ELEMENTS_MAX + _ELEMENTS_OF_ENTRY * entries:
        raise ValueError(f"its lists have {elements} elements, which is more than {entries} files can need")
    for what, size, limit in (
        ("text", text, min(TEXT_BYTES_MAX, text_max)),
        ("numbers", numbers, NUMBERS_BYTES_MAX + _NUMBERS_BYTES_EACH * len(body)),
        ("pages", pages, text + 2 * numbers + _SLACK_BYTES),
    ):
        if size > limit:
            raise ValueError(f"its {what} would take {size} bytes in memory, {limit} are allowed for {len(body)} bytes")


def _primitive(schema: pa.Schema) -> Iterator[tuple[str, pa.DataType, bool, bool]]:
    """For each primitive column: its name, its type, whether it is an element of a list, and whether it may be
    absent.
    """
    for field in schema:
        yield from _below(field.name, field.type, is_list=False, is_optional=field.nullable)


def _below(
    name: str, kind: pa.DataType, *, is_list: bool, is_optional: bool
) -> Iterator[tuple[str, pa.DataType, bool, bool]]:
    if pa.types.is_struct(kind):
        for child in kind:
            optional = is_optional or child.nullable
            yield from _below(f"{name}.{child.name}", child.type, is_list=is_list, is_optional=optional)
    elif pa.types.is_list(kind):
        yield from _below(name, kind.value_type, is_list=True, is_optional=True)
    else:
        yield name, kind, is_list, is_optional


def _width(kind: pa.DataType) -> int:
    return 1 if pa.types.is_boolean(kind) else max(1, kind.bit_width // 8)


def _pages(body: bytes, chunk: ColumnChunk) -> Iterator[_Page]:
    """Yield the pages of a column chunk. Raises `ValueError` if their number of values is not the one that the chunk
    states.
    """
    at, end, left = chunk.start, chunk.start + chunk.size, chunk.values
    if not 0 <= at <= end <= len(body) or left < 0:
        raise ValueError("a column chunk is not inside the file")
    while left > 0:
        page = _page_at(body, at)
        if page.plain_size < 0 or page.stored_size < 0 or page.values < 0 or page.end > end:
            raise ValueError("a page is not inside its column chunk")
        if page.kind in (_DATA, _DATA_V2):
            left -= page.values
        yield page
        at = page.end
    if left:
        raise ValueError("the pages of a column chunk have more or fewer values than the footer states")


def _page_at(body: bytes, at: int) -> _Page:
    page = _Page()
    reader = CompactReader(body, at)
    try:
        for number, kind in reader.fields():
            if kind == Kind.I32 and number == 1:
                page.kind = reader.integer()
            elif kind == Kind.I32 and number == 2:
                page.plain_size = reader.integer()
            elif kind == Kind.I32 and number == 3:
                page.stored_size = reader.integer()
            elif kind == Kind.STRUCT and number in (5, 7, 8):
                _values(reader, page, encoding_at=4 if number == 8 else 2)
            else:
                reader.skip(kind)
    except (IndexError, RecursionError) as error:
        raise ValueError(f"a page's header ends early or is nested too deep ({type(error).__name__})") from error
    page.start = reader.at
    return page


def _values(reader: CompactReader, page: _Page, *, encoding_at: int) -> None:
    for number, kind in reader.fields():
        if kind == Kind.I32 and number == 1:
            page.values = reader.integer()
        elif kind == Kind.I32 and number == encoding_at:
            page.encoding = reader.integer()
        elif kind == Kind.I32 and encoding_at == 4 and number in (5, 6):
            page.level_bytes += reader.integer()
        elif kind in (Kind.TRUE, Kind.FALSE) and encoding_at == 4 and number == 7:
            page.is_compressed = kind == Kind.TRUE
        else:
            reader.skip(kind)


def _text_bytes(body: bytes, chunk: ColumnChunk, pages: list[_Page], name: str, *, has_levels: bool | None) -> int:
    """The most bytes that the values of a chunk take.

    `has_levels`: whether the chunk's pages begin with definition levels. `None` for the elements of a list.
    """
    size = 0
    longest: int | None = None
    dictionary = next((page for page in pages if page.kind == _DICTIONARY), None)
    for page in pages:
        if page.kind == _DICTIONARY:
            continue
        if page.encoding in (_PLAIN, _DELTA_LENGTH):
            size += page.plain_size
        elif page.encoding in (_PLAIN_DICTIONARY, _RLE_DICTIONARY) and dictionary is not None:
            most = dictionary.plain_size if longest is None else longest
            if longest is None and most * page.values > page.plain_size + _length_limit(name):
                longest = most = _longest(body, chunk, dictionary, name)
            size += most * page.values
        elif page.encoding == _DELTA_BYTES and has_levels is not None:
            size += _repeated_bytes(body, chunk, page, has_levels=has_levels)
        else:
            size += page.plain_size * page.values
    return size


def _repeated_bytes(body: bytes, chunk: ColumnChunk, page: _Page, *, has_levels: bool) -> int:
    """The most bytes of delta-encoded values: the stored bytes, and the lengths of the repeated beginnings."""
    most = page.plain_size * page.values
    if most <= _TEXT_BYTES_LEAST or page.plain_size > _SLACK_BYTES:
        return most
    stored, levels = body[page.start : page.end], page.level_bytes if page.kind == _DATA_V2 else 0
    if not 0 <= levels <= min(len(stored), page.plain_size):
        raise ValueError("the levels of a page are not inside it")
    stored = stored[levels:]
    if chunk.codec != 0 and page.is_compressed:
        if chunk.codec not in _CODECS:
            return most
        stored = pa.Codec(_CODECS[chunk.codec]).decompress(stored, page.plain_size - levels, asbytes=True)
    if page.kind == _DATA and has_levels:
        stored = stored[_LENGTH_BYTES + int.from_bytes(stored[:_LENGTH_BYTES], "little") :]
    try:
        return len(stored) + _sum_of_lengths(CompactReader(stored, 0), page.values)
    except IndexError as error:
        raise ValueError("a page ends early") from error


def _sum_of_lengths(reader: CompactReader, most: int) -> int:
    """Decode lengths in Parquet's DELTA_BINARY_PACKED, and add them. Raises `ValueError` for a negative length."""
    per_block, miniblocks, count, value = reader.unsigned(), reader.unsigned(), reader.unsigned(), reader.integer()
    width = per_block // miniblocks if miniblocks else 0
    if count > most or not 0 < width <= _MINIBLOCK_MAX or width % 8:
        raise ValueError("a page has lengths that no writer makes")
    total, left = value if count else 0, count - 1
    while left > 0:
        least, widths = reader.integer(), reader.take(miniblocks)
        for bits in widths:
            if left <= 0:
                break
            if bits > _BITS_MAX:
                raise ValueError("a page has lengths that no writer makes")
            packed, mask = int.from_bytes(reader.take(width * bits // 8), "little"), (1 << bits) - 1
            for _ in range(min(width, left)):
                value += least + (packed & mask)
                packed >>= bits
                if value < 0:
                    raise ValueError("a page has a length below 0")
                total += value
            left -= width
    return total


def _length_limit(name: str) -> int:
    """The size of a chunk's text, in bytes, up to which its dictionary is not read."""
    return LOCATION_BYTES_MAX if name in _LOCATIONS else 1 << 20


def _longest(body: bytes, chunk: ColumnChunk, dictionary: _Page, name: str) -> int:
    """The length of the longest value in a dictionary, in bytes."""
    if dictionary.plain_size > _SLACK_BYTES:
        raise ValueError(f"column {name} has a dictionary of {dictionary.plain_size} bytes, {_SLACK_BYTES} are allowed")
    stored = body[dictionary.start : dictionary.end]
    if chunk.codec in _CODECS:
        stored = pa.Codec(_CODECS[chunk.codec]).decompress(stored, dictionary.plain_size, asbytes=True)
    elif chunk.codec != 0:
        return dictionary.plain_size
    longest = at = 0
    while at < len(stored):
        length = int.from_bytes(stored[at : at + _LENGTH_BYTES], "little")
        longest, at = max(longest, length), at + _LENGTH_BYTES + length
    if name in _LOCATIONS and longest > LOCATION_BYTES_MAX:
        raise ValueError(f"column {name} has a value of {longest} bytes, {LOCATION_BYTES_MAX} are allowed")
    return longest
