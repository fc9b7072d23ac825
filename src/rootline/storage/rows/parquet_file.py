"""Rows of a Parquet file: parts of it in memory, its row groups, and their choice by a filter.

Owns: opening and decoding, the places of column chunks, joining neighbouring ranges into one request, a file with only
some parts in memory, statistics of row groups in the form of entries, runs of row groups. Does not own: the meaning of
columns (`row_projection`), statistics against a filter (`rootline.tree.filter.pruning`), fetching (`stored_rows`).
Invariants: an encrypted file is refused by name. Checksums of pages are compared if there are any. A fault of the disk
is not reported as a fault of the file. Bytes that are not in memory are an error, never zeros. A row group is skipped
only if no row of it can match. A bound whose order in Parquet may differ from the table's (decimals, bytes, uuids,
other units) is unknown. All rows of the file are in row groups, or it is corrupt. Batches have about 16 MiB in memory,
however small the file is.
"""

from __future__ import annotations

import contextlib
import io
import json
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.types import (
    DateType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)

from rootline.schemas.bytes.parquet_footer import ColumnChunk, column_chunks
from rootline.schemas.content_entry import Bound, FieldStatistics
from rootline.schemas.errors import Corrupt, Invalid, RootlineError, Unavailable
from rootline.tree.filter.filters import BoundFilter
from rootline.tree.filter.pruning import PruningFilter

Flags: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
HOLE_BYTES_MAX: Final = 128 * 1024
"""The maximum gap between two ranges that are read with one request, because another request costs more."""
JOINED_BYTES_MAX: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, order=True)
class ByteRange:
    """The bytes from `start` up to, but not including, `end`."""

    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class CachedPart:
    """The bytes of an object from `start` on."""

    start: int
    body: bytes | bytearray

    @property
    def end(self) -> int:
        """The end of the part."""
        return self.start + len(self.body)


def joined(
    ranges: Iterable[ByteRange], *, hole_bytes_max: int = HOLE_BYTES_MAX, joined_bytes_max: int = JOINED_BYTES_MAX
) -> list[ByteRange]:
    """Join neighbouring ranges into fewer, ascending ones to request. Each of `ranges` is part of one of them."""
    found: list[ByteRange] = []
    for one in sorted(ranges):
        last = found[-1] if found else None
        if last is not None and one.end <= last.end:
            continue
        if last is not None and one.start - last.end <= hole_bytes_max and one.end - last.start <= joined_bytes_max:
            found[-1] = ByteRange(last.start, one.end)
        else:
            found.append(one)
    return found


class SeekableBytes(io.RawIOBase):
    """The position in a file object of `length` bytes, for a subclass that reads."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self._length, self._at = length, 0

    def readable(self) -> bool:
        """Always true."""
        return True

    def seekable(self) -> bool:
        """Always true."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the position, with the arguments of `io.RawIOBase.seek`."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._length}[whence]
        self._at = max(0, start + offset)
        return self._at

    def tell(self) -> int:
        """The position of the next read."""
        return self._at

    def size(self) -> int:
        """The object's length."""
        return self._length

    def _length_of(self, size: int | None) -> int:
        """The length of the next read, for which `size` bytes are requested, or all of them."""
        rest = max(0, self._length - self._at)
        return rest if size is None or size < 0 else min(size, rest)


class CachedParts(SeekableBytes):
    """A file object of `length` bytes. The `tail` is always in memory, and other parts are set by `use`."""

    def __init__(self, length: int, tail: CachedPart) -> None:
        super().__init__(length)
        self._tail = tail
        self.use(())

    def use(self, parts: Sequence[CachedPart]) -> None:
        """Read from these parts instead of the previous ones. They may overlap."""
        self._parts = sorted(parts, key=lambda part: part.start)
        self._starts = [part.start for part in self._parts]

    def has(self, wanted: ByteRange) -> bool:
        """Whether the tail contains these bytes."""
        return self._tail.start <= wanted.start and wanted.end <= self._tail.end

    def read(self, size: int | None = -1) -> bytes:
        """The next bytes. Raises `OSError` for bytes that are not in memory."""
        return bytes(self.read_buffer(size))

    def read_buffer(self, size: int | None = -1) -> memoryview:
        """The next bytes without a copy, as Arrow reads them."""
        wanted = self._length_of(size)
        end = self._at + wanted
        number = bisect_right(self._starts, self._at)
        for part in (*reversed(self._parts[max(0, number - _OVERLAPPING_MAX) : number]), self._tail):
            if part.start <= self._at and end <= part.end:
                found = memoryview(part.body)[self._at - part.start : end - part.start]
                self._at = end
                return found
        if not wanted:
            return memoryview(b"")
        raise OSError(f"bytes {self._at} to {end} lie outside the columns that the footer names")


BATCH_ROWS: Final = 65_536
PAGE_ROWS: Final = 20_000
"""Writers of Parquet begin a page after so many rows, or earlier."""
DECODED_ROWS: Final = 6 * PAGE_ROWS
"""The rows that are decoded at a time. Arrow copies a batch twice if its end is inside a page."""
_LARGE_BATCH_BYTES: Final = 16 * 1024 * 1024
_BATCH_BYTES_MAX: Final = 20 * 1024 * 1024
"""A batch may exceed the expected size by so much before the next ones have fewer rows."""
_FIRST_ROWS: Final = 128
_GROWTH: Final = 16
_UNKNOWN_ROWS_MAX: Final = 16_384
"""The rows of a batch if the footer does not state their size, because they may be far larger than the last ones."""
_ENCRYPTED_MAGIC: Final = b"PARE"
_END_BYTES: Final = 8
_OFFSET_BYTES: Final = 4
_WIDTHS: Final = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8, "FIXED_LEN_BYTE_ARRAY": 16}
"""The least bytes of a value in memory, by its physical type."""
_OVERLAPPING_MAX: Final = 4
"""The parts that may begin before a byte and contain it: of two fetches, each with padding."""
_PADDING_BYTES: Final = 100
"""Arrow reads this much more of files by old writers, which do not count the headers of dictionaries."""


@dataclass(frozen=True, slots=True)
class Portion:
    """The unit of decoding. A row group up to this size is decoded at once, a larger one in batches."""

    rows_max: int
    bytes_max: int


STREAMED: Final = Portion(131_072, 32 * 1024 * 1024)
COLLECTED: Final = Portion(1_048_576, 128 * 1024 * 1024)
"""For rows that are all kept in memory."""

Source: TypeAlias = bytes | pa.Buffer | pa.NativeFile | CachedParts
"""A whole file in memory, a file that Arrow reads itself, or parts of a file."""


def open_parquet(source: Source, name: str) -> pq.ParquetFile:
    """The Parquet file in `source`.

    Raises:
        Invalid: `file-unreadable`, it is not a Parquet file, or is encrypted.
        Unavailable: `store-unavailable`, the disk failed.
    """
    file = _seekable(source)
    try:
        file.seek(max(0, file.size() - len(_ENCRYPTED_MAGIC)))
        if file.read(len(_ENCRYPTED_MAGIC)) == _ENCRYPTED_MAGIC:
            raise Invalid("file-unreadable", f"{name}: encrypted files are not supported")
        return pq.ParquetFile(file, page_checksum_verification=True, pre_buffer=False)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        fault = Invalid("file-unreadable", f"{name}: is not a Parquet file: {error}")
        raise _of_disk(error, name) or fault from error


def _seekable(source: Source) -> pa.NativeFile | CachedParts:
    return source if isinstance(source, pa.NativeFile | CachedParts) else pa.BufferReader(source)


def batches_by_size(
    file: pq.ParquetFile,
    columns: Sequence[str] | None = None,
    made: Callable[[pa.RecordBatch], pa.RecordBatch] = lambda batch: batch,
    *,
    groups: Sequence[int] | None = None,
    first_rows: int = _FIRST_ROWS,
    rows_max: int = _UNKNOWN_ROWS_MAX,
) -> Iterator[pa.RecordBatch]:
    """Yield rows, after `made`, in batches of about 16 MiB in memory. Raises the errors of Arrow and of `made`.

    The encoded size does not limit the size in memory: a dictionary has each text once, and the rows may have it many
    times. So each batch has the rows that would have fitted by the size of the last one.
    """
    every = list(range(file.num_row_groups) if groups is None else groups)
    # rows of another row group may be far larger, so each begins with few if their size is unknown
    for part in [every] if first_rows == rows_max else [[group] for group in every]:
        batches, rows = file.iter_batches(first_rows, row_groups=part, columns=columns), first_rows
        while True:
            file.reader.set_batch_size(rows)  # before each batch, because two iterations of one file share it
            batch = next(batches, None)
            if batch is None:
                break
            batch = made(batch)
            yield batch
            fitting = _BATCH_BYTES_MAX * batch.num_rows // max(1, batch.nbytes)
            rows = _of_whole_pages(min(fitting, _GROWTH * batch.num_rows, rows_max))


def _of_whole_pages(rows: int) -> int:
    return max(1, rows - rows % (PAGE_ROWS if rows >= PAGE_ROWS else 1))


@dataclass(frozen=True)
class ParquetRows:
    """Rows of a Parquet file. `name` is its name in errors. Only `chunks` and `ranges` need `source`."""

    file: pq.ParquetFile
    name: str
    source: Source | None = None

    @cached_property
    def chunks(self) -> list[list[ColumnChunk]]:
        """The column chunks of each row group in the footer. Raises `Corrupt` (`data-file-corrupt`)."""
        metadata = self.file.metadata
        assert self.source is not None, "the bytes of the footer are re-read"
        file = _seekable(self.source)
        try:
            file.seek(file.size() - _END_BYTES)
            length = int.from_bytes(file.read(4), "little")
            file.seek(max(0, file.size() - _END_BYTES - length))
            found = column_chunks(file.read(length))
            if [len(group) for group in found] != [metadata.num_columns] * metadata.num_row_groups:
                raise ValueError("its row groups have a different number of columns")
        except (ValueError, OSError) as error:
            fault = Corrupt("data-file-corrupt", f"{self.name}: its footer cannot be read: {error}")
            raise _of_disk(error, self.name) or fault from error
        return found

    @property
    def row_count(self) -> int:
        """The number of rows in the footer."""
        count: int = self.file.metadata.num_rows
        return count

    @property
    def schema(self) -> pa.Schema:
        """Columns with their field ids."""
        return self.file.schema_arrow

    @property
    def group_rows(self) -> list[int]:
        """The number of rows of each row group in the footer."""
        metadata = self.file.metadata
        return [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]

    def batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """The rows of `columns`, in the batches of `batches_of`."""
        return self.batches_of(range(self.file.metadata.num_row_groups), columns)

    def batches_of(
        self, groups: Sequence[int], columns: Sequence[str], at_once: Portion = STREAMED
    ) -> Iterator[pa.RecordBatch]:
        """Yield the top-level columns of these names, for the rows of these groups.

        Raises:
            Corrupt: `data-file-corrupt`.
            Unavailable: `store-unavailable`, the disk failed.
        """
        names = list(columns)
        try:
            rows, size = self._extent(groups, names)
            if size is not None and rows <= at_once.rows_max and size <= at_once.bytes_max:
                yield from self.file.read_row_groups(list(groups), columns=names).to_batches()
                return
            first, most = _FIRST_ROWS, _UNKNOWN_ROWS_MAX
            if size is not None:
                first = most = _of_whole_pages(min(DECODED_ROWS, _LARGE_BATCH_BYTES * rows // max(size, 1)))
            yield from batches_by_size(self.file, names, groups=list(groups), first_rows=first, rows_max=most)
        except (pa.ArrowException, OSError) as error:
            raise self._undecodable(error) from error

    def with_rows(self, groups: Sequence[int], columns: Sequence[str], chosen: Flags) -> ParquetRows | None:
        """These columns of these groups, of which only pages with chosen rows are decoded. Other rows have any values.

        `chosen`: flags of the rows of the groups. `None` if the pages cannot be found.
        """
        from rootline.schemas.bytes.parquet_pages import FlatColumn, with_needed_pages

        schema, leaves, parts, start = self.file.metadata.schema, self._leaves(columns), [], 0
        chosen_rows = np.flatnonzero(chosen)
        try:
            assert self.source is not None, "pages are re-read"
            file = _seekable(self.source)
            for number in groups:
                rows = self.group_rows[number]
                for at, place in zip(leaves, self.ranges([number], columns, file.size()), strict=True):
                    file.seek(place.start)
                    stored: bytes = file.read(len(place))
                    body: bytes | bytearray = stored
                    chunk, layout = self.chunks[number][at], schema.column(at)
                    is_flat = layout.path in columns and not layout.max_repetition_level
                    if is_flat and layout.max_definition_level <= 1 and chunk.values == rows:
                        column = FlatColumn(chunk.physical, layout.length, layout.max_definition_level == 1)
                        with contextlib.suppress(ValueError):  # then all of its pages are decoded
                            body = with_needed_pages(stored, rows, column, partial(_has_any, chosen_rows - start))
                    parts.append(CachedPart(place.start, body))
                start += rows
            source = CachedParts(file.size(), CachedPart(file.size(), b""))
            source.use(parts)
            opened = pq.ParquetFile(
                source, metadata=self.file.metadata, page_checksum_verification=True, pre_buffer=False
            )
        except (OSError, pa.ArrowException, Corrupt):  # the decoding of all pages names the fault
            return None
        return ParquetRows(opened, self.name, self.source)

    def ranges(self, groups: Sequence[int], columns: Sequence[str], length: int) -> list[ByteRange]:
        """The byte ranges of these columns of these row groups, in a file of `length` bytes.

        Raises:
            Corrupt: `data-file-corrupt`, a range is outside of the file.
        """
        leaves, found = self._leaves(columns), []
        for chunk in (self.chunks[number][at] for number in groups for at in leaves):
            start, end = chunk.start, chunk.start + chunk.size
            if not 0 <= start <= end <= length:
                reason = f"its footer places a column at bytes {start} to {end}, the file has {length}"
                raise Corrupt("data-file-corrupt", f"{self.name}: {reason}")
            found.append(ByteRange(start, min(end + _PADDING_BYTES, length)))
        return found

    def _leaves(self, columns: Sequence[str]) -> list[int]:
        """The numbers of the primitive columns inside `columns`. If names contain dots, some others may be included."""
        schema, inner = self.file.metadata.schema, tuple(f"{name}." for name in columns)
        paths = (schema.column(at).path for at in range(len(schema)))
        return [at for at, path in enumerate(paths) if path in columns or path.startswith(inner)]

    def _extent(self, groups: Sequence[int], columns: Sequence[str]) -> tuple[int, int | None]:
        """(the number of rows, the most bytes in memory, approximately) of these columns and row groups.

        The bytes are `None` if unknown, because writers need not state the size of texts.
        """
        rows, leaves = sum(self.group_rows[number] for number in groups), self._leaves(columns)
        layouts = [self.file.metadata.schema.column(at) for at in leaves]
        widths = [(width := _WIDTHS.get(layout.physical_type)) and max(width, layout.length) for layout in layouts]
        if not any(layout.max_repetition_level for layout in layouts):
            if None not in widths:
                return rows, rows * sum(width or 0 for width in widths)
            longest = sum(max(0, self.file.metadata.row_group(number).total_byte_size) for number in groups)
            if rows * longest <= _LARGE_BATCH_BYTES:  # no text is longer, so the footer need not be read for a few rows
                return rows, rows * longest
        if self.source is None:
            return rows, None
        size = 0
        with contextlib.suppress(Corrupt):  # then decoding names the fault
            for group in map(self.chunks.__getitem__, groups):
                for chunk, width in zip(map(group.__getitem__, leaves), widths, strict=True):
                    if width is None and chunk.text_bytes is None:
                        return rows, None
                    size += max(0, chunk.values) * (width or _OFFSET_BYTES) + max(0, chunk.text_bytes or 0)
            return rows, size
        return rows, None

    def _undecodable(self, error: Exception) -> RootlineError:
        fault = Corrupt("data-file-corrupt", f"{self.name}: cannot be decoded: {error}")
        return _of_disk(error, self.name) or fault


def _has_any(rows: np.ndarray[Any, np.dtype[np.intp]], start: int, end: int) -> bool:
    """Whether one of the ascending `rows` is from `start` up to `end`."""
    at = np.searchsorted(rows, start)
    return bool(at < len(rows) and rows[at] < end)


def _of_disk(error: Exception, name: str) -> Unavailable | None:
    """The error to raise if the disk failed, `None` if the file itself is at fault."""
    if isinstance(error, OSError) and error.errno is not None:
        return Unavailable("store-unavailable", f"{name}: {error.strerror or error}")
    return None


BoundOf = Callable[[bytes], Bound]
_INTEGERS: Final = ("INT32", "INT64")
_MICROSECONDS: Final = (TimestampType, TimestamptzType)
_NANOSECONDS: Final = (TimestampNanoType, TimestamptzNanoType)


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive row groups. Together they have `rows` rows, the first of which is row `start` of the file."""

    start: int
    rows: int
    groups: tuple[int, ...] = ()


def runs_of(file: ParquetRows, *, rows_min: int = 1, may_match: Callable[[int], bool] | None = None) -> Iterator[Run]:
    """Yield the row groups that `may_match`, as runs of at least `rows_min` rows if row groups are neighbours.

    Raises:
        Corrupt: `data-file-corrupt`, their rows do not add up to the file's number.
    """
    counts = file.group_rows
    if sum(counts) != file.row_count or min(counts, default=0) < 0:
        reason = f"{sum(counts)} rows can be read, its footer states {file.row_count}"
        raise Corrupt("data-file-corrupt", f"{file.name}: {reason}")
    start, pending = 0, Run(0, 0)
    for number, rows in enumerate(counts):
        is_wanted = rows > 0 and (may_match is None or may_match(number))
        if is_wanted:
            pending = Run(
                start if not pending.groups else pending.start, pending.rows + rows, (*pending.groups, number)
            )
        if pending.groups and (not is_wanted or pending.rows >= rows_min):
            yield pending
            pending = Run(0, 0)
        start += rows
    if pending.groups:
        yield pending


def group_check(
    file: ParquetRows, residual: BoundFilter, pruning: PruningFilter, place_of: Callable[[NestedField], int | None]
) -> Callable[[int], bool]:
    """A function that returns whether rows of a row group may match `residual`. `pruning` is made of `residual`.

    Only top-level columns count. Columns that the file lacks are unknown.
    """
    schema, counts, chunks = file.file.metadata.schema, file.group_rows, file.chunks
    leaves: dict[int, tuple[int, BoundOf | None]] = {}
    for field in pruning.definition.schema.fields:
        place = place_of(field) if field.field_id in residual.field_ids and field.field_type.is_primitive else None
        if place is not None and (at := _leaf_of(schema, file.schema.field(place).name)) is not None:
            leaves[field.field_id] = at, _bound_of(schema.column(at), field.field_type)

    def check(number: int) -> bool:
        stats = {
            field_id: _statistics(chunks[number][at], bound_of, counts[number])
            for field_id, (at, bound_of) in leaves.items()
        }
        return pruning.may(stats, None, ())

    return check


def _leaf_of(schema: pq.ParquetSchema, name: str) -> int | None:
    found = [at for at in range(len(schema)) if schema.column(at).path == name]
    return found[0] if len(found) == 1 else None  # a dot in a name can make two paths equal


def _statistics(chunk: ColumnChunk, bound_of: BoundOf | None, rows: int) -> FieldStatistics:
    nulls = chunk.null_count if chunk.null_count is not None and 0 <= chunk.null_count <= rows else None
    unbounded = FieldStatistics(value_count=rows, null_value_count=nulls)
    if bound_of is None or chunk.lower is None or chunk.upper is None:
        return unbounded
    try:
        lower, upper = bound_of(chunk.lower), bound_of(chunk.upper)
    except (struct.error, UnicodeDecodeError):
        return unbounded
    if not lower <= upper:  # type: ignore[operator]  # or one of them is NaN
        return unbounded
    return FieldStatistics(lower, upper, value_count=rows, null_value_count=nulls)


def _bound_of(column: pq.ColumnSchema, kind: IcebergType) -> BoundOf | None:
    """A function that decodes bounds for the table's type `kind`, or `None` if Parquet may order values differently."""
    physical, logical = column.physical_type, json.loads(column.logical_type.to_json())
    name, unit, read = logical.get("Type"), logical.get("timeUnit"), _READ.get(physical)
    if isinstance(kind, IntegerType | LongType):
        is_alike = physical in _INTEGERS and (name == "None" or (name == "Int" and logical.get("isSigned") is True))
    elif isinstance(kind, FloatType | DoubleType):
        is_alike = physical in ("FLOAT", "DOUBLE") and name == "None"
    elif isinstance(kind, StringType):
        is_alike = physical == "BYTE_ARRAY" and name == "String"
    elif isinstance(kind, DateType):
        is_alike = physical == "INT32" and name == "Date"
    elif isinstance(kind, TimeType):
        is_alike = physical == "INT64" and name == "Time" and unit == "microseconds"
    elif isinstance(kind, _MICROSECONDS + _NANOSECONDS):
        wanted = "microseconds" if isinstance(kind, _MICROSECONDS) else "nanoseconds"
        is_alike = physical == "INT64" and name == "Timestamp" and unit == wanted
    else:
        is_alike = False
    return read if is_alike else None


def _number(layout: str) -> BoundOf:
    form = struct.Struct(layout)
    return lambda body: _only(form.unpack(body))


def _only(values: tuple[Any, ...]) -> int | float:
    found: int | float = values[0]
    return found


_READ: Final[dict[str, BoundOf]] = {
    "INT32": _number("<i"),
    "INT64": _number("<q"),
    "FLOAT": _number("<f"),
    "DOUBLE": _number("<d"),
    "BYTE_ARRAY": lambda body: body.decode(),
}
