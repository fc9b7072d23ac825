"""Conversion of deletes that engines would misread into deletes that they read correctly.

Owns: for V2, a position delete file for each vector. For V3, copies of Puffin files: their footers have absolute file
names, and there are gaps between vectors, because some engines misread adjacent ones. For both, one vector or position
delete file with all deleted rows of a data file to which equality deletes apply. Does not own: the choice of these rows
(`row_deletes`, `data_file_reader`), the names of stored conversions (`export_keys`), the entries' manifests
(`manifest_writer`).
Invariants: the same inputs give the same object name, and the name contains everything that a manifest entry needs, so
a stored conversion is neither read nor rewritten. A converted delete removes exactly the rows that a scan omits. The
columns of a position delete file carry the reserved ids and are required, its rows are sorted by path and position, and
no row occurs twice.

Source: the Iceberg specification, "Position Delete Files".
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from rootline.catalog.export_keys import NOTHING, Converted, FormatVersion, KnownDeletes, folder_of, hash_of, name_of
from rootline.ports.object_store import ObjectStore, PutStatus
from rootline.schemas.bytes.vector_codec import PUFFIN_MAGIC as MAGIC
from rootline.schemas.bytes.vector_codec import VectorBlob, encode_puffin, spread_offset, spread_puffin
from rootline.schemas.content_entry import (
    ContentEntry,
    ContentType,
    DeletionVector,
    FileFormat,
    Status,
    VersionInfo,
)
from rootline.schemas.errors import Corrupt, Unavailable
from rootline.schemas.field_ids import DELETE_FILE_PATH, DELETE_FILE_POS
from rootline.schemas.identifiers import SnapshotId, TableName
from rootline.schemas.object_keys import is_absolute, key_of, table_prefix
from rootline.schemas.table_definition import NAME_MAPPING_PROPERTY, TableDefinition
from rootline.storage.metadata.object_reader import vector_in
from rootline.storage.rows.arrow_types import FIELD_ID_KEY
from rootline.storage.rows.data_file_formats import refuse_unreadable
from rootline.storage.rows.data_file_reader import RowsWanted, read_rows
from rootline.storage.rows.metadata_columns import DELETED, POS, metadata_field
from rootline.storage.rows.row_deletes import DeletesOfScan, RowDeletes
from rootline.storage.stored_objects import plain_task_group, read_stored
from rootline.tree.proof.file_proof import partition_statistics
from rootline.tree.scan.file_task import FileTask
from rootline.tree.scan.scan_plan import ScanPlan

ROW_GROUP_ROWS: Final = 1_048_576
_PATHS: Final = pa.dictionary(pa.int32(), pa.string())
"""The type in memory, so that the path is stored once. The file's column has strings."""
_SCHEMA: Final = pa.schema(
    [
        pa.field("file_path", _PATHS, nullable=False, metadata={FIELD_ID_KEY: str(DELETE_FILE_PATH).encode()}),
        pa.field("pos", pa.int64(), nullable=False, metadata={FIELD_ID_KEY: str(DELETE_FILE_POS).encode()}),
    ]
)


def encode_position_deletes(path: str, positions: BitMap64) -> bytes:
    """A position delete file for the rows `positions`, at least one, of the data file `path`."""
    numbers = np.asarray(positions.to_array(), dtype=np.int64)  # ascending
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        _SCHEMA,
        compression="zstd",
        use_dictionary=["file_path"],
        write_statistics=True,
        write_page_checksum=True,
        store_schema=False,
    ) as writer:
        for start in range(0, len(numbers), ROW_GROUP_ROWS):
            part = numbers[start : start + ROW_GROUP_ROWS]
            paths = pa.DictionaryArray.from_arrays(np.zeros(len(part), dtype=np.int32), pa.array([path], pa.string()))
            writer.write_table(pa.Table.from_arrays([paths, pa.array(part)], schema=_SCHEMA), ROW_GROUP_ROWS)
    body: bytes = sink.getvalue().to_pybytes()
    return body


T = TypeVar("T")
R = TypeVar("R")
FILES_AT_ONCE: Final = 4
"""The maximum of data files in memory, with their deletes."""
PUFFINS_AT_ONCE: Final = 8
PUTS_AT_ONCE: Final = 16


def files_to_merge(plan: ScanPlan, format_version: FormatVersion) -> list[FileTask]:
    """The data files whose deletes cannot be exported unchanged.

    These are files to which equality deletes apply. In V3, which allows one delete per file, they also include files
    with a vector and another delete.
    """
    return [task for task in plan.tasks() if task.deletes.equality or _has_too_many(task, format_version)]


def _has_too_many(task: FileTask, format_version: FormatVersion) -> bool:
    if format_version is FormatVersion.V2 or not task.vectors:
        return False
    return len(task.vectors) > 1 or bool(task.deletes.positions)


class ConvertedDeletes:
    """Converts the deletes of one version of a table for one format.

    Args:
        store: the store of the table.
        table: its name.
        definition: the definition of that version.
        format_version: the format of the export.
        absolute: converts locations to the absolute ones that engines use.
        known: conversions that are already stored. New ones are added.
    """

    def __init__(
        self,
        store: ObjectStore,
        table: TableName,
        definition: TableDefinition,
        format_version: FormatVersion,
        absolute: Callable[[str], str],
        known: KnownDeletes,
    ) -> None:
        self._store = store
        self._table = table
        self._definition = definition
        self._format_version = format_version
        self._absolute = absolute
        self._known = known
        self._base = absolute("")
        self._puts = asyncio.Semaphore(PUTS_AT_ONCE)
        fields = (metadata_field(POS, definition), metadata_field(DELETED, definition))
        self._wanted = RowsWanted(definition, tuple(field for field in fields if field is not None))

    async def vectors(self, entries: Sequence[ContentEntry]) -> list[ContentEntry]:
        """The replacement of each entry, in their order. Only vectors change.

        V2: a position delete file. V3: the same vector in a copy of its Puffin file, if `needs_copy`.

        Raises:
            Corrupt: `object-missing`, `vector-corrupt`.
            Invalid: `file-unreadable`.
            Unavailable: `store-unavailable`.
        """
        of_file: dict[tuple[str, bool], list[int]] = {}
        found = list(entries)
        for index, entry in enumerate(entries):
            if self._is_converted(entry):
                of_file.setdefault((entry.location, is_absolute(entry.referenced_file or "")), []).append(index)

        async def convert(indexes: list[int]) -> None:
            vectors = [entries[index] for index in indexes]
            made = self._positions_of if self._format_version is FormatVersion.V2 else self._copied
            async with self._known.lock_of(vectors[0].location):
                converted = await made(vectors)
            for index, entry in zip(indexes, converted, strict=True):
                found[index] = entry

        await each(of_file.values(), convert, PUFFINS_AT_ONCE)
        return found

    async def merged(self, tasks: Sequence[FileTask], snapshot_id: SnapshotId) -> list[ContentEntry]:
        """One delete for each data file with dead rows, containing all of them, in the tasks' order.

        It is ADDED if snapshot `snapshot_id`, which is exported, added one of the deletes that it replaces.

        Reads the equality columns of files whose conversion is not stored yet, a few files at a time.

        Raises:
            Corrupt: an object is missing or damaged.
            Invalid: `file-unreadable`, `equality-delete-unread`.
            Unavailable: `store-unavailable`.
        """
        made: dict[int, ContentEntry | None] = {}
        missing: list[tuple[int, FileTask, str]] = []
        for index, task in enumerate(tasks):
            digest = self._digest_of(task)
            known = self._known.find(digest)
            if known is None:
                missing.append((index, task, digest))
            else:
                made[index] = self._merged_entry(task, known, snapshot_id)
        if missing:
            deletes = DeletesOfScan(self._store, self._table, self._definition)

            async def convert(item: tuple[int, FileTask, str]) -> None:
                index, task, digest = item
                dead = await self._dead_rows(task, deletes)
                stored = await self._store_rows(digest, task.location, dead)
                made[index] = self._merged_entry(task, stored, snapshot_id)

            try:
                await each(missing, convert, FILES_AT_ONCE)
            finally:
                await deletes.close()
        return [entry for index in range(len(tasks)) if (entry := made[index]) is not None]

    # vectors

    def _is_converted(self, entry: ContentEntry) -> bool:
        if entry.content_type is not ContentType.POSITION_DELETE or entry.deletion_vector is None:
            return False
        return self._format_version is FormatVersion.V2 or needs_copy(entry)

    async def _positions_of(self, vectors: Sequence[ContentEntry]) -> list[ContentEntry]:
        """Convert the vectors of one Puffin file, which is read only if a position delete file is missing."""
        digests = [self._digest_of_vector(entry) for entry in vectors]
        stored = {digest: known for digest in digests if (known := self._known.find(digest)) is not None}
        missing = [pair for pair in zip(vectors, digests, strict=True) if pair[1] not in stored]
        if missing:
            body = await self._puffin(vectors[0])

            async def convert(pair: tuple[ContentEntry, str]) -> None:
                entry, digest = pair
                stored[digest] = await self._store_rows(digest, entry.referenced_file or "", vector_in(body, entry))

            await each(missing, convert, PUTS_AT_ONCE)
        return [
            replace(
                entry,
                location=stored[digest].location,
                file_format=FileFormat.PARQUET,
                file_size_in_bytes=stored[digest].numbers[1],
                deletion_vector=None,
            )
            for entry, digest in zip(vectors, digests, strict=True)
        ]

    def _digest_of_vector(self, entry: ContentEntry) -> str:
        place = entry.deletion_vector
        offset = None if place is None else place.offset
        return hash_of(["positions", self._base, entry.location, offset, entry.referenced_file])

    async def _copied(self, vectors: Sequence[ContentEntry]) -> list[ContentEntry]:
        """The vectors of one Puffin file, in its copy for engines.

        If the entries name their data files by absolute locations, the copy's footer keeps the original names.
        """
        first = vectors[0]
        names = str if is_absolute(first.referenced_file or "") else self._engine_name
        digest = hash_of(["spread", self._base, first.location, int(names is str)])
        stored = self._known.find(digest)
        if stored is None:
            body = await self._puffin(first)
            for entry in vectors:
                vector_in(body, entry)  # checks that it matches its entry
            made = await asyncio.to_thread(spread_puffin, body, names, name=first.location)
            stored = await self._put(digest, (len(made),), "puffin", made)
        (size,) = stored.numbers
        return [
            replace(entry, location=stored.location, file_size_in_bytes=size, deletion_vector=_spread(entry))
            for entry in vectors
        ]

    def _engine_name(self, name: str) -> str:
        """The absolute location of a data file that a footer names by relative location, or by a URL in this table."""
        if not is_absolute(name):
            return self._absolute(name)
        _, found, location = name.rpartition(f"/{table_prefix(self._table)}")
        return self._absolute(location) if found else name

    async def _puffin(self, entry: ContentEntry) -> bytes:
        length = entry.file_size_in_bytes
        return await read_stored(self._store, self._table, entry.location, code="vector-corrupt", length=length)

    # merged

    def _digest_of(self, task: FileTask) -> str:
        inputs: list[str | int | None] = ["merged", self._base, task.location, task.record_count]
        for vector in task.vectors:
            place = vector.deletion_vector
            inputs += ["vector", vector.location, None if place is None else place.offset]
        for entry in sorted(task.deletes.positions, key=_location):
            inputs += ["positions", entry.location]
        for entry in sorted(task.deletes.equality, key=_location):
            inputs += ["equality", entry.location, *sorted(entry.equality_ids or ())]
        if task.deletes.equality:
            inputs.append(self._definition.properties.get(NAME_MAPPING_PROPERTY))
        return hash_of(inputs)

    async def _dead_rows(self, task: FileTask, deletes: DeletesOfScan) -> BitMap64:
        entry = task.data
        found = await deletes.of_task(task)
        if found.keys:
            refuse_unreadable(entry)
            length = entry.file_size_in_bytes
            body = await read_stored(self._store, self._table, entry.location, code="data-file-corrupt", length=length)
            return await asyncio.to_thread(_dead_rows_of, body, entry, self._wanted, found)
        positions = found.positions or BitMap64()
        if positions and positions.max() >= entry.record_count:
            reason = f"it deletes row {positions.max()}, but the data file has {entry.record_count} rows"
            raise Corrupt("vector-corrupt", f"{entry.location}: {reason}")
        return positions

    async def _store_rows(self, digest: str, location: str, dead: BitMap64) -> Converted:
        if not dead:
            return await self._put(digest, (0,), NOTHING, b"")
        path = self._absolute(location)
        if self._format_version is FormatVersion.V2:
            body = await asyncio.to_thread(encode_position_deletes, path, dead)
            return await self._put(digest, (len(dead), len(body)), "parquet", body)
        puffin = await asyncio.to_thread(encode_puffin, [VectorBlob(path, dead)])
        (place,) = puffin.places
        return await self._put(digest, (len(dead), len(puffin.body), place.size), "puffin", puffin.body)

    def _merged_entry(self, task: FileTask, stored: Converted, snapshot_id: SnapshotId) -> ContentEntry | None:
        if stored.kind == NOTHING:
            return None
        data, is_vector = task.data, self._format_version is FormatVersion.V3
        spec_ids = self._definition.spec_by_id(data.partition_spec_id).expr_ids
        return ContentEntry(
            content_type=ContentType.POSITION_DELETE,
            location=stored.location,
            file_format=FileFormat.PUFFIN if is_vector else FileFormat.PARQUET,
            version_info=_info_of(task, snapshot_id),
            partition_spec_id=data.partition_spec_id,
            record_count=stored.numbers[0],
            file_size_in_bytes=stored.numbers[1],
            deletion_vector=DeletionVector(len(MAGIC), stored.numbers[2]) if is_vector else None,
            referenced_file=data.location,
            content_stats=partition_statistics(data.content_stats, spec_ids),
        )

    async def _put(self, digest: str, numbers: tuple[int, ...], kind: str, body: bytes) -> Converted:
        """Store an object. An existing object is correct, because its name is computed from all its inputs."""
        name = name_of(digest, numbers, kind, self._known.salt)
        key = key_of(self._table, folder_of(self._format_version) + name)
        async with self._puts:
            reply = await self._store.put_if_absent(key, body)
        if reply.answer not in (PutStatus.CREATED, PutStatus.EXISTS) and await self._store.get(key) is None:
            raise Unavailable("store-unavailable", f"{key}: the store did not confirm the export: {reply.detail}")
        self._known.add(name)
        location = folder_of(self._format_version) + name
        self._known.used.add(location)
        return Converted(location, kind, numbers)


def needs_copy(entry: ContentEntry) -> bool:
    """Whether engines would misread the vector of `entry` at its current place.

    PyIceberg 0.12 finds it by the data file's absolute name in the footer, but Rootline's footers contain relative
    locations. DuckDB 1.5 confuses adjacent vectors. So only the first vector of a file may stay, and the others are
    read from the copy.
    """
    place = entry.deletion_vector
    has_relative_name = not is_absolute(entry.location) and not is_absolute(entry.referenced_file or "")
    return has_relative_name or place is None or place.offset != len(MAGIC)


def _spread(entry: ContentEntry) -> DeletionVector | None:
    place = entry.deletion_vector
    return None if place is None else replace(place, offset=spread_offset(place.offset or 0))


def _location(entry: ContentEntry) -> str:
    return entry.location


def _info_of(task: FileTask, snapshot_id: SnapshotId) -> VersionInfo:
    """The version info of a merged delete in snapshot `snapshot_id`.

    It has the data sequence number of the newest delete that it replaces, so that it applies to the data file. The rest
    is from the delete that was added last. A restore adds deletes with older data sequence numbers.
    """
    infos = [entry.version_info for entry in (*task.vectors, *task.deletes.positions, *task.deletes.equality)]
    number = max(info.sequence_number or 0 for info in infos)
    last = max(infos, key=lambda info: (info.file_sequence_number or 0, info.status is Status.ADDED))
    is_added = last.status is Status.ADDED and last.snapshot_id == snapshot_id
    status = Status.ADDED if is_added else Status.EXISTING
    return VersionInfo(status, last.snapshot_id, number, last.file_sequence_number)


def _dead_rows_of(body: bytes, entry: ContentEntry, wanted: RowsWanted, deletes: RowDeletes) -> BitMap64:
    dead = BitMap64()
    for batch in read_rows(body, entry, wanted, deletes, None):
        dead.update(pc.filter(batch.column(0), batch.column(1)).to_pylist())
    return dead


async def each(items: Iterable[T], work: Callable[[T], Awaitable[None]], at_once: int) -> None:
    """Run `work` on every item, `at_once` at a time. The first failure stops the rest and is raised unchanged."""
    waiting = iter(items)

    async def worker() -> None:
        for item in waiting:
            await work(item)

    async with plain_task_group() as group:
        for _ in range(at_once):
            group.create_task(worker())
