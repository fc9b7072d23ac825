"""Whether stored files of rows are what their entries say: length, footer, and every row if asked.

Owns: these comparisons, how many files are looked at together. Does not own: which files a table names (`chain`),
reading formats (`rootline.storage.rows`).
Invariants: never raises for what a file holds: it becomes a finding that names the file; of a Parquet file only
the parts that are wanted are in memory; a file of another format is in memory whole, at most two at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.types import NestedField

from rootline.ports.object_store import ObjectParts, ObjectStore
from rootline.schemas.content_entry import ContentEntry, ContentType, FileFormat
from rootline.schemas.errors import Corrupt, Invalid, RootlineError
from rootline.schemas.identifiers import ObjectKey
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.check.column_facts import ColumnFacts
from rootline.storage.check.findings import CheckSummary, DataFiles, Fault, FindingBook
from rootline.storage.check.object_file import ObjectFile
from rootline.storage.few_at_once import gather_bounded
from rootline.storage.rows.data_file_formats import OpenFile, all_rows, open_data_file, refuse_unreadable
from rootline.storage.rows.field_matching import field_id_of, finder_for
from rootline.storage.rows.parquet_file import ParquetRows
from rootline.storage.rows.partition_constants import constants_of
from rootline.storage.rows.row_projection import RowProjection, initial_default
from rootline.storage.whole_objects import parts_of

FILES_TOGETHER: Final = 256
_LENGTHS_AT_ONCE: Final = 16
_OPEN_AT_ONCE: Final = 2
_BUFFER_BYTES: Final = 4_000_000
_LINEAGE_IDS_MIN: Final = 2_147_483_447  # reserved by Iceberg, known without a schema


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file with rows that some version names. `entry`: kept only where its content is looked at."""

    content_type: ContentType
    length: int | None
    entry: ContentEntry | None

    @staticmethod
    def of(entry: ContentEntry, closely: DataFiles) -> NamedFile:
        """What a check that looks so closely must know of it."""
        keeps_entry = closely in (DataFiles.FOOTERS, DataFiles.ALL)
        return NamedFile(entry.content_type, entry.file_size_in_bytes, entry if keeps_entry else None)


@dataclass(frozen=True, slots=True)
class DataFileCheck:
    """The files of one table. `definition`: the newest that could be read."""

    store: ObjectStore
    book: FindingBook
    summary: CheckSummary
    closely: DataFiles
    definition: TableDefinition | None

    async def files(self, wanted: Iterable[tuple[ObjectKey, NamedFile]]) -> None:
        """Look at these, a few at a time; ask for not more than `FILES_TOGETHER`."""
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
            held = "nothing" if found is None else f"{found} bytes"
            self.book.add(key, "length-wrong", f"the store holds {held}, its entry says {file.length} bytes")
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
        """On a thread, which asks the loop for parts."""
        try:
            opened = pq.ParquetFile(
                stored, buffer_size=_BUFFER_BYTES, pre_buffer=False, page_checksum_verification=True
            )
            held = opened.metadata.num_rows
            if held != entry.record_count:
                return [Fault("data-file-corrupt", f"holds {held} rows, its entry says {entry.record_count}")]
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
            return [Fault("object-missing", "it was there, and is not any more")]
        return await asyncio.to_thread(lambda: self._columns(entry, definition, open_data_file(found.body, entry)))

    def _columns(self, entry: ContentEntry, definition: TableDefinition, file: OpenFile) -> list[Fault]:
        """Whether the file's columns are the table's, and if all is wanted, its rows what its entry says."""
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
    """The columns that a file has, or a scan gives their defaults; an equality delete has no others than its keys."""
    keys = entry.equality_ids
    return [field for field in definition.schema.fields if keys is None or field.field_id in keys]


def _unknown_ids(schema: pa.Schema, definition: TableDefinition) -> Iterator[Fault]:
    """A column id that no schema of the table has will be another column's one day, whose rows this file then has."""
    known = {field_id for known in definition.schemas for field_id in known.field_ids}
    for at in range(len(schema.names)):
        field = schema.field(at)
        field_id = field_id_of(field)
        if field_id is not None and field_id not in known and field_id < _LINEAGE_IDS_MIN:
            yield Fault("data-file-mismatch", f"column {field.name!r} has field id {field_id}, which no schema has")


def _without_name(error: Invalid, entry: ContentEntry) -> str:
    return error.message.removeprefix(f"{entry.location}: ")
