"""The check of stored data files and delete files against their entries: length, footer, and on request every row.

Owns: these comparisons, nulls and bounds of columns included, reading an object as a file on a thread, the number of
files read at the same time. Does not own: the files that a table names (`chain`), reading formats
(`rootline.storage.rows`).
Invariants: the content of a file never raises an error: a fault becomes a finding that names the file. Only the wanted
parts of a Parquet file are in memory. A file of another format is in memory whole, at most two of them at the same
time. Only top-level columns whose stored type is the table's are compared with their bounds, because other bounds may
have been promoted since. A bound may be wider than the values, never narrower. NaN is never compared. Every wait has a
deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.types import NestedField, PrimitiveType

from rootline.ports.object_store import ObjectParts, ObjectStore
from rootline.schemas.content_entry import ContentEntry, ContentType, FieldStatistics, FileFormat
from rootline.schemas.errors import Corrupt, Invalid, RootlineError, Unavailable
from rootline.schemas.identifiers import ObjectKey
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.check.findings import CheckSummary, DataFiles, Fault, FindingBook
from rootline.storage.rows.arrow_types import arrow_type_of, storage_of
from rootline.storage.rows.data_file_formats import OpenFile, all_rows, open_data_file, refuse_unreadable
from rootline.storage.rows.metadata_columns import constants_of
from rootline.storage.rows.parquet_file import ParquetRows, SeekableBytes
from rootline.storage.rows.row_projection import RowProjection, field_id_of, finder_for, initial_default
from rootline.storage.stored_objects import gather_bounded, parts_of

_WAIT_S: Final = 300.0


class ObjectFile(SeekableBytes):
    """A file object that reads `length` bytes of `key` in parts.

    `failed`: the error of a failed read, which Arrow may have replaced by another one.
    """

    def __init__(self, parts: ObjectParts, key: ObjectKey, length: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(length)
        self._parts, self._key, self._loop = parts, key, loop
        self.failed: RootlineError | None = None

    def read(self, size: int | None = -1) -> bytes:
        """The next part, shorter only at the end. Raises the errors of the store."""
        wanted = self._length_of(size)
        if not wanted:
            return b""
        asked = asyncio.run_coroutine_threadsafe(self._parts.part_of(self._key, self._at, wanted), self._loop)
        try:
            found = asked.result(_WAIT_S)
        except RootlineError as error:
            self.failed = error
            raise
        except TimeoutError:
            asked.cancel()
            self.failed = Unavailable(
                "store-unavailable", f"{self._key}: the store did not respond within {_WAIT_S:.0f} s"
            )
            raise self.failed from None
        body = found or b""
        self._at += len(body)
        return body


STATISTICS_WRONG: Final = "statistics-wrong"


@dataclass(slots=True)
class _Column:
    name: str
    stated: FieldStatistics
    nulls: int = 0
    least: Any = None
    greatest: Any = None


@dataclass(slots=True)
class ColumnFacts:
    """Nulls and bounds of one file's columns. Add all batches, then get the faults."""

    _columns: list[_Column]

    @staticmethod
    def of(
        schema: pa.Schema, definition: TableDefinition, fields: Sequence[NestedField], entry: ContentEntry
    ) -> ColumnFacts:
        """The facts for those of `fields` that the file contains and that have statistics in `entry`."""
        find = finder_for(schema, definition.properties)(list(schema))
        found = []
        for field in fields:
            at, kind = find(field), field.field_type
            if at is None or not isinstance(kind, PrimitiveType) or schema.field(at).type != arrow_type_of(kind):
                continue
            try:
                stated = entry.content_stats.get(field.field_id)
            except Corrupt:  # already reported as an invalid entry
                continue
            if stated is not None:
                found.append(_Column(schema.field(at).name, stated))
        return ColumnFacts(found)

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the next rows."""
        for column in self._columns:
            values = storage_of(batch.column(column.name))
            column.nulls += values.null_count
            least, greatest = _extremes(values)
            if least is not None and (column.least is None or least < column.least):
                column.least = least
            if greatest is not None and (column.greatest is None or greatest > column.greatest):
                column.greatest = greatest

    def faults(self) -> Iterator[Fault]:
        """Yield the differences between the entry and the rows."""
        for column in self._columns:
            stated = column.stated
            if stated.null_value_count is not None and stated.null_value_count != column.nulls:
                reason = f"has {column.nulls} nulls, its entry states {stated.null_value_count}"
                yield Fault(STATISTICS_WRONG, f"column {column.name!r} {reason}")
            lower: Any = stated.lower_bound
            upper: Any = stated.upper_bound
            if lower is not None and column.least is not None and column.least < lower:
                yield Fault(
                    STATISTICS_WRONG, f"column {column.name!r} contains {column.least!r}, its lower bound is {lower!r}"
                )
            if upper is not None and column.greatest is not None and column.greatest > upper:
                yield Fault(
                    STATISTICS_WRONG,
                    f"column {column.name!r} contains {column.greatest!r}, its upper bound is {upper!r}",
                )


def _extremes(values: pa.Array) -> tuple[Any, Any]:
    if values.null_count == len(values):
        return None, None
    try:
        found = pc.min_max(values)
    except pa.ArrowNotImplementedError:
        return None, None
    return _physical(found["min"]), _physical(found["max"])


def _physical(scalar: pa.Scalar) -> Any:
    value = scalar.value if pa.types.is_temporal(scalar.type) else scalar.as_py()
    return None if value != value else value


FILES_TOGETHER: Final = 256
_LENGTHS_AT_ONCE: Final = 16
_OPEN_AT_ONCE: Final = 2
_BUFFER_BYTES: Final = 4_000_000
_LINEAGE_IDS_MIN: Final = 2_147_483_447  # reserved by Iceberg, known without a schema


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A data file or delete file that some version names. `entry` is kept only if the file's content is checked."""

    content_type: ContentType
    length: int | None
    entry: ContentEntry | None

    @staticmethod
    def of(entry: ContentEntry, closely: DataFiles) -> NamedFile:
        """The facts of `entry` that a check of this depth needs."""
        keeps_entry = closely in (DataFiles.FOOTERS, DataFiles.ALL)
        return NamedFile(entry.content_type, entry.file_size_in_bytes, entry if keeps_entry else None)


@dataclass(frozen=True, slots=True)
class DataFileCheck:
    """The check of one table's files. `definition` is the table's newest definition that could be read."""

    store: ObjectStore
    book: FindingBook
    summary: CheckSummary
    closely: DataFiles
    definition: TableDefinition | None

    async def files(self, wanted: Iterable[tuple[ObjectKey, NamedFile]]) -> None:
        """Check up to `FILES_TOGETHER` files, a few at the same time."""
        parts = parts_of(self.store)
        there = await gather_bounded(wanted, lambda item: self._length(parts, *item), _LENGTHS_AT_ONCE)
        if self.closely is not DataFiles.SIZES:
            await gather_bounded([one for one in there if one is not None], self._open, _OPEN_AT_ONCE)

    async def _length(
        self, parts: ObjectParts, key: ObjectKey, file: NamedFile
    ) -> tuple[ObjectKey, NamedFile, int] | None:
        self.summary.data_files_measured += 1
        try:
            found = await parts.length_of(key)
        except Invalid as error:
            self.book.add_error(key, error)
            return None
        if found is None or (file.length is not None and found != file.length):
            stored = "nothing" if found is None else f"{found} bytes"
            self.book.add(key, "length-wrong", f"the store has {stored}, its entry states {file.length} bytes")
            return None
        return key, file, found

    async def _open(self, item: tuple[ObjectKey, NamedFile, int]) -> None:
        key, file, length = item
        entry = file.entry
        if entry is None or self.definition is None:
            return
        try:
            refuse_unreadable(entry)
        except Invalid:
            self.summary.data_files_unread += 1
            return
        try:
            if entry.file_format is FileFormat.PARQUET:
                loop = asyncio.get_running_loop()
                stored = ObjectFile(parts_of(self.store), key, length, loop)
                faults = await asyncio.to_thread(self._parquet, entry, self.definition, stored)
            elif self.closely is DataFiles.ALL:
                faults = await self._whole(key, entry, self.definition)
            else:
                self.summary.data_files_unread += 1
                return
        except Corrupt as error:
            self.book.add_error(key, error)
            return
        except Invalid as error:
            self.book.add(key, "data-file-mismatch", _without_name(error, entry))
            return
        self.summary.data_files_opened += 1
        for fault in faults:
            self.book.add(key, fault.code, fault.reason)

    def _parquet(self, entry: ContentEntry, definition: TableDefinition, stored: ObjectFile) -> list[Fault]:
        """Check a Parquet file. Runs on a thread, which reads parts through the loop."""
        try:
            opened = pq.ParquetFile(
                stored, buffer_size=_BUFFER_BYTES, pre_buffer=False, page_checksum_verification=True
            )
            rows = opened.metadata.num_rows
            if rows != entry.record_count:
                return [Fault("data-file-corrupt", f"has {rows} rows, its entry states {entry.record_count}")]
            return self._columns(entry, definition, ParquetRows(opened, entry.location))
        except RootlineError as error:
            if stored.failed is not None:
                raise stored.failed from error
            raise
        except (pa.ArrowException, OSError) as error:
            if stored.failed is not None:
                raise stored.failed from error
            return [Fault("data-file-corrupt", f"is not a Parquet file: {error}")]

    async def _whole(self, key: ObjectKey, entry: ContentEntry, definition: TableDefinition) -> list[Fault]:
        found = await self.store.get(key)
        if found is None:
            return [Fault("object-missing", "it was deleted during the check")]
        return await asyncio.to_thread(lambda: self._columns(entry, definition, open_data_file(found.body, entry)))

    def _columns(self, entry: ContentEntry, definition: TableDefinition, file: OpenFile) -> list[Fault]:
        """Check the file's columns against the table's, and for `DataFiles.ALL` the file's rows against its entry."""
        faults = list(_unknown_ids(file.schema, definition))
        fields = _fields_of(entry, definition)
        find = finder_for(file.schema, definition.properties)
        constants = constants_of(entry, definition)
        projection = RowProjection(find, initial_default, "data-file-mismatch", entry.location, constants)
        if self.closely is not DataFiles.ALL:
            projection.columns(pa.RecordBatch.from_pylist([], schema=file.schema), fields)
            return faults
        facts = ColumnFacts.of(file.schema, definition, fields, entry)
        for batch in all_rows(file, entry, fields, find(list(file.schema))):
            projection.columns(batch, fields)
            facts.add(batch)
            self.summary.rows_read += batch.num_rows
        return [*faults, *facts.faults()]


def _fields_of(entry: ContentEntry, definition: TableDefinition) -> Sequence[NestedField]:
    """The columns that a scan reads from the file. An equality delete file has only its key columns."""
    keys = entry.equality_ids
    return [field for field in definition.schema.fields if keys is None or field.field_id in keys]


def _unknown_ids(schema: pa.Schema, definition: TableDefinition) -> Iterator[Fault]:
    """Yield columns whose field id is in no schema of the table: a later column may get this id, and would read these
    values.
    """
    known = {field_id for known in definition.schemas for field_id in known.field_ids}
    for at in range(len(schema.names)):
        field = schema.field(at)
        field_id = field_id_of(field)
        if field_id is not None and field_id not in known and field_id < _LINEAGE_IDS_MIN:
            yield Fault("data-file-mismatch", f"column {field.name!r} has field id {field_id}, which no schema has")


def _without_name(error: Invalid, entry: ContentEntry) -> str:
    return error.message.removeprefix(f"{entry.location}: ")
