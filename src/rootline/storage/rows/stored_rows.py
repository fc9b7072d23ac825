"""A data file in the store, opened with only the bytes that its reader needs.

Owns: the decision whether a file is read from the disk, whole, or in parts, and fetching the parts. Does not own:
formats (`data_file_formats`), the choice of columns and row groups (`data_file_reader`), the store's requests.
Invariants: a file of another length than its entry states is corrupt, however it is read. Of a file read in parts, only
the footer and the columns of the current and the next run are in memory. Every part is complete, or an error is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa

from rootline.ports.object_store import ObjectFiles, ObjectParts, ObjectStore
from rootline.schemas.content_entry import ContentEntry, FileFormat
from rootline.schemas.errors import Corrupt, Unavailable
from rootline.schemas.identifiers import ObjectKey, TableName
from rootline.storage.rows.data_file_formats import OpenFile, open_data_file, refuse_unreadable
from rootline.storage.rows.parquet_file import ByteRange, CachedPart, CachedParts, ParquetRows, Run, joined
from rootline.storage.stored_objects import gather_bounded, read_file, stored_key

_CODE: Final = "data-file-corrupt"
_FOOTER_BYTES: Final = 64 * 1024
"""The first read from the file's end. It contains the footer of most files, and Arrow reads the same length."""
_END_BYTES: Final = 8
_REQUESTS_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class PartReads:
    """The file lengths in bytes from which files are read in parts, for reads of all columns and of some."""

    every_column_bytes: int = 16 * 1024 * 1024
    some_columns_bytes: int = 256 * 1024


PART_READS: Final = PartReads()


@dataclass(frozen=True, slots=True)
class _Parts:
    """The source of the bytes of a file that is read in parts, and their cache."""

    store: ObjectParts
    key: ObjectKey
    cached: CachedParts
    length: int


@dataclass(frozen=True, slots=True)
class StoredRows:
    """An open file. Before a run is decoded, `fetch` its parts and `use` them."""

    file: OpenFile
    _parts: _Parts | None = None

    @property
    def needs_no_fetch(self) -> bool:
        """Whether no parts have to be fetched."""
        return self._parts is None

    def bytes_of(self, run: Run, names: Sequence[str]) -> int:
        """The stored size of the columns `names` of `run`. Raises `Corrupt` (`data-file-corrupt`)."""
        if self._parts is None or not isinstance(self.file, ParquetRows):
            return 0
        return sum(map(len, self.file.ranges(run.groups, names, self._parts.length)))

    async def fetch(self, run: Run, names: Sequence[str]) -> list[CachedPart]:
        """Fetch the parts that contain the columns `names` of `run`.

        Raises:
            Corrupt: `data-file-corrupt`, `object-missing`.
            Unavailable: `store-unavailable`.
        """
        parts = self._parts
        if parts is None or not isinstance(self.file, ParquetRows):
            return []
        wanted = self.file.ranges(run.groups, names, parts.length)
        asked = joined(one for one in wanted if not parts.cached.has(one))

        async def fetched(one: ByteRange) -> CachedPart:
            return CachedPart(one.start, await _whole_part(parts.store, parts.key, one))

        return await gather_bounded(asked, fetched, _REQUESTS_AT_ONCE)

    def use(self, parts: Sequence[CachedPart]) -> None:
        """Decode from these parts from now on."""
        if self._parts is not None:
            self._parts.cached.use(parts)


async def find_stored(
    store: ObjectStore, table: TableName, entry: ContentEntry, *, every_column: bool, reads: PartReads = PART_READS
) -> Callable[[], StoredRows]:
    """Return a function that opens the data file of `entry`, to be called on a thread.

    `every_column`: all columns of the file will be read.

    Raises, here or when called:
        Corrupt: `object-missing`; `data-file-corrupt`, its length or its number of rows differs from its entry.
        Invalid: `file-unreadable`.
        Unavailable: `store-unavailable`.
    """
    refuse_unreadable(entry)
    size = entry.file_size_in_bytes
    if entry.file_format is FileFormat.PARQUET and size is not None:
        key = stored_key(table, entry.location)
        if isinstance(store, ObjectFiles):
            path = await store.path_of(key)
            if path is None:
                raise _missing(key)
            return partial(_opened_on_disk, path, key, size, entry)
        least = reads.every_column_bytes if every_column else reads.some_columns_bytes
        if isinstance(store, ObjectParts) and size >= least:
            return await _found_in_parts(store, key, size, entry)
    body = await read_file(store, table, entry, code=_CODE)
    return lambda: StoredRows(open_data_file(body, entry))


def _opened_on_disk(path: str, key: ObjectKey, size: int, entry: ContentEntry) -> StoredRows:
    try:
        file = pa.OSFile(path)
    except FileNotFoundError:
        raise _missing(key) from None
    except OSError as error:
        raise Unavailable("store-unavailable", f"{path}: {error.strerror or error}") from error
    if file.size() != size:
        raise _of_other_length(key, f"{file.size()} bytes are stored", size)
    return StoredRows(open_data_file(file, entry))


async def _found_in_parts(
    store: ObjectParts, key: ObjectKey, size: int, entry: ContentEntry
) -> Callable[[], StoredRows]:
    start = max(0, size - _FOOTER_BYTES)
    tail = await store.part_of(key, start, size - start + 1)  # one byte more than expected
    if tail is None:
        raise _missing(key)
    if len(tail) != size - start:
        stored = await store.length_of(key)
        if stored != size:
            raise _of_other_length(key, f"{stored} bytes are stored", size)
        tail = await _whole_part(store, key, ByteRange(start, size))
    footer_bytes = int.from_bytes(tail[-_END_BYTES:-4], "little") + _END_BYTES
    if len(tail) < footer_bytes <= size:
        start = size - footer_bytes
        tail = await _whole_part(store, key, ByteRange(start, size))
    cached = CachedParts(size, CachedPart(start, tail))
    return lambda: StoredRows(open_data_file(cached, entry), _Parts(store, key, cached, size))


async def _whole_part(store: ObjectParts, key: ObjectKey, wanted: ByteRange) -> bytes:
    """The bytes of `wanted`. Raises `Corrupt` if the object ends before."""
    body = b""
    for _ in range(2):  # a truncated response looks like a short object
        found = await store.part_of(key, wanted.start, len(wanted))
        if found is None:
            raise _missing(key)
        if len(found) == len(wanted):
            return found
        body = found
    raise _of_other_length(key, f"it ends at byte {wanted.start + len(body)}", None)


def _missing(key: ObjectKey) -> Corrupt:
    return Corrupt("object-missing", f"{key}: the table names this object, but it does not exist")


def _of_other_length(key: ObjectKey, found: str, size: int | None) -> Corrupt:
    expected = "its footer names bytes after that" if size is None else f"its entry states {size}"
    return Corrupt(_CODE, f"{key}: {found}, {expected}")
