"""Rows of a Parquet file, row group by row group, and where the bytes of its columns are.

Owns: opening it, decoding, the places of column chunks. Does not own: what the columns mean (`row_projection`), which
row groups are read (`row_groups`), fetching (`stored_rows`).
Invariants: an encrypted file is refused by name; pages' checksums are compared where there are any; a fault of the disk
is no fault of the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from rootline.schemas.bytes.parquet_footer import ColumnChunk, column_chunks
from rootline.schemas.errors import Corrupt, Invalid, RootlineError, Unavailable
from rootline.storage.rows.held_parts import ByteRange, CachedParts

BATCH_ROWS: Final = 65_536
_LARGE_BATCH_BYTES: Final = 16 * 1024 * 1024
_LARGE_BATCH_ROWS: Final = 131_072
_SMALL_BATCH_ROWS: Final = 1_024
_ENCRYPTED_MAGIC: Final = b"PARE"
_END_BYTES: Final = 8
_PADDING_BYTES: Final = 100
"""Arrow reads so much more of files by old writers, whose dictionaries' headers are not counted."""


@dataclass(frozen=True, slots=True)
class Portion:
    """What is decoded at once: row groups as a whole if they are at most so large, else smaller batches of them."""

    rows_max: int
    bytes_max: int


STREAMED: Final = Portion(131_072, 32 * 1024 * 1024)
COLLECTED: Final = Portion(1_048_576, 128 * 1024 * 1024)
"""For rows that stay in memory anyway."""

Source: TypeAlias = bytes | pa.Buffer | pa.NativeFile | CachedParts
"""A whole file in memory, one that Arrow reads itself, or parts of one."""


def open_parquet(source: Source, name: str) -> pq.ParquetFile:
    """The Parquet file in `source`.

    Raises:
        Invalid: `file-unreadable`, it is none, or is encrypted.
        Unavailable: `store-unavailable`, the disk failed.

    """
    file = _seekable(source)
    try:
        file.seek(max(0, file.size() - len(_ENCRYPTED_MAGIC)))
        if file.read(len(_ENCRYPTED_MAGIC)) == _ENCRYPTED_MAGIC:
            raise Invalid("file-unreadable", f"{name}: encrypted files are not read")
        return pq.ParquetFile(file, page_checksum_verification=True, pre_buffer=False)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        fault = Invalid("file-unreadable", f"{name}: is not a Parquet file: {error}")
        raise _of_disk(error, name) or fault from error


def _seekable(source: Source) -> pa.NativeFile | CachedParts:
    return source if isinstance(source, pa.NativeFile | CachedParts) else pa.BufferReader(source)


@dataclass(frozen=True)
class ParquetRows:
    """Rows of a Parquet file; `name` is what errors call it. `source` is needed for `chunks` and `ranges` only."""

    file: pq.ParquetFile
    name: str
    source: Source | None = None

    @cached_property
    def chunks(self) -> list[list[ColumnChunk]]:
        """The column chunks of each row group, as the footer says. Raises `Corrupt` (`data-file-corrupt`)."""
        metadata = self.file.metadata
        assert self.source is not None, "the bytes of the footer are read again"
        file = _seekable(self.source)
        try:
            file.seek(file.size() - _END_BYTES)
            length = int.from_bytes(file.read(4), "little")
            file.seek(max(0, file.size() - _END_BYTES - length))
            found = column_chunks(file.read(length))
            if [len(group) for group in found] != [metadata.num_columns] * metadata.num_row_groups:
                raise ValueError("its row groups have other numbers of columns")
        except (ValueError, OSError) as error:
            fault = Corrupt("data-file-corrupt", f"{self.name}: its footer cannot be read: {error}")
            raise _of_disk(error, self.name) or fault from error
        return found

    @property
    def row_count(self) -> int:
        """As the footer says."""
        count: int = self.file.metadata.num_rows
        return count

    @property
    def schema(self) -> pa.Schema:
        """Columns with their field ids."""
        return self.file.schema_arrow

    @property
    def group_rows(self) -> list[int]:
        """The rows of each row group, as the footer says."""
        metadata = self.file.metadata
        return [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]

    def batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """As `OpenFile.batches`."""
        try:
            yield from self.file.iter_batches(batch_size=BATCH_ROWS, columns=columns)
        except (pa.ArrowException, OSError) as error:
            raise self._undecodable(error) from error

    def batches_of(
        self, groups: Sequence[int], columns: Sequence[str], at_once: Portion = STREAMED
    ) -> Iterator[pa.RecordBatch]:
        """The columns named so, at the top level, of the rows of these row groups in order. Raises as `batches`."""
        names = list(columns)
        try:
            rows, size = self._extent(groups, names)
            if rows <= at_once.rows_max and size <= at_once.bytes_max:
                yield from self.file.read_row_groups(list(groups), columns=names).to_batches()
                return
            fitting = _LARGE_BATCH_BYTES * rows // max(size, 1)
            batch_rows = max(_SMALL_BATCH_ROWS, min(at_once.rows_max, _LARGE_BATCH_ROWS, fitting))
            yield from self.file.iter_batches(batch_rows, row_groups=list(groups), columns=names)
        except (pa.ArrowException, OSError) as error:
            raise self._undecodable(error) from error

    def ranges(self, groups: Sequence[int], columns: Sequence[str], length: int) -> list[ByteRange]:
        """Where in the file, of `length` bytes, these columns of these row groups are.

        Raises:
            Corrupt: `data-file-corrupt`, outside of it.

        """
        leaves, found = self._leaves(columns), []
        for chunk in (self.chunks[number][at] for number in groups for at in leaves):
            start, end = chunk.start, chunk.start + chunk.size
            if not 0 <= start <= end <= length:
                reason = f"its footer says that bytes {start} to {end} of {length} are a column"
                raise Corrupt("data-file-corrupt", f"{self.name}: {reason}")
            found.append(ByteRange(start, min(end + _PADDING_BYTES, length)))
        return found

    def _leaves(self, columns: Sequence[str]) -> list[int]:
        """The numbers of the primitive columns in `columns`; perhaps some more, where names have dots."""
        schema, inner = self.file.metadata.schema, tuple(f"{name}." for name in columns)
        paths = (schema.column(at).path for at in range(len(schema)))
        return [at for at, path in enumerate(paths) if path in columns or path.startswith(inner)]

    def _extent(self, groups: Sequence[int], columns: Sequence[str]) -> tuple[int, int]:
        """How many rows, and about how many bytes decoded."""
        rows = size = 0
        for group in map(self.file.metadata.row_group, groups):
            rows += group.num_rows
            size += max(0, group.total_byte_size)
        return rows, size * len(columns) // max(1, len(self.schema))

    def _undecodable(self, error: Exception) -> RootlineError:
        fault = Corrupt("data-file-corrupt", f"{self.name}: cannot be decoded: {error}")
        return _of_disk(error, self.name) or fault


def _of_disk(error: Exception, name: str) -> Unavailable | None:
    """The error where the system call failed, and not what it read."""
    if isinstance(error, OSError) and error.errno is not None:
        return Unavailable("store-unavailable", f"{name}: {error.strerror or error}")
    return None
