"""Scans whose parts of Parquet files Arrow fetches: two prototypes beside our own ranged reads, and their files.

Owns: the prototypes, the files, one scan by any way. Does not own: the scan (`scan_executor`), what is measured
(`parts_through_arrow`, `parts_in_trouble`).
Invariants: all ways read the same objects of one S3 server.
"""

from __future__ import annotations

import asyncio
import io
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from rootline.adapters.s3_object_store import S3ObjectStore
from rootline.client.create_drop import build_definition
from rootline.client.data_file_writer import write_files
from rootline.schemas.content_entry import ContentEntry, ContentType, FileFormat, Status, VersionInfo
from rootline.schemas.identifiers import ObjectKey, TableName
from rootline.schemas.object_keys import is_absolute, key_of
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.rows import scan_executor
from rootline.storage.rows.data_file_formats import refuse_unreadable
from rootline.storage.rows.data_file_reader import FileReading, RowsWanted, output_schema
from rootline.storage.rows.parquet_file import STREAMED, ParquetRows, Portion
from rootline.storage.rows.scan_executor import OpenedFile
from rootline.storage.rows.stored_rows import PART_READS, StoredRows
from rootline.storage.stored_objects import stored_key
from rootline.tree.filter.filters import BoundFilter
from rootline.tree.filter.prune import PruningFilter
from rootline.tree.scan.file_task import FileTask
from tests.services.s3_service import S3Service

TABLE: Final = TableName("demo.wide")
_COLUMNS: Final = 20
Find = Callable[[scan_executor._FilesOfScan, FileTask], Any]


@dataclass(frozen=True, slots=True)
class Lake:
    """Files of twenty columns: few large ones (two row groups each), and many small ones (one each)."""

    definition: TableDefinition
    prefix: str
    large: tuple[ContentEntry, ...]
    small: tuple[ContentEntry, ...]


@dataclass(frozen=True, slots=True)
class Scan:
    """One scan path; `files` is an attribute of `Lake`."""

    name: str
    files: str
    columns: tuple[str, ...] | None
    where: str | None = None
    is_streamed: bool = False


_SCATTERED: Final = ("c1", "c4", "c7", "c10", "c13", "c16")
SCANS: Final = (
    Scan("large files, one column of twenty", "large", ("c7",)),
    Scan("large files, six scattered columns", "large", _SCATTERED),
    Scan("large files, every column", "large", None),
    Scan("large files, a filter that leaves one row group", "large", ("c7",), "c0 < 1000"),
    Scan("large files, every column, as a stream", "large", None, is_streamed=True),
    Scan("small files, one column of twenty", "small", ("c7",)),
    Scan("small files, six scattered columns", "small", _SCATTERED),
)


class ArrowS3Files(scan_executor._FilesOfScan):
    """Prototype A: `pyarrow.fs` opens the object with credentials of its own, and Arrow's reader fetches."""

    async def find(self, task: FileTask) -> Callable[[], OpenedFile]:
        entry, residual = task.data, task.residual
        refuse_unreadable(entry)
        found = await self.deletes.of_task(task)
        pruning = None if residual is None else self._pruning_of(residual)
        store = self.store
        assert isinstance(store, S3ObjectStore)
        system, key = arrow_system(store), stored_key(self.table, entry.location)
        place = store._absolute.place_of(key) if is_absolute(key) else f"{store._bucket}/{store._prefix}{key}"

        def opened() -> OpenedFile:
            file = system.open_input_file(place)  # a HEAD
            size = file.size()
            assert size == entry.file_size_in_bytes
            tail = _tail_of(file, size)
            # the metadata is read from memory, or Arrow asks for the same bytes again
            metadata = pq.read_metadata(pa.BufferReader(b"PAR1" + tail))
            rows = pq.ParquetFile(file, metadata=metadata, pre_buffer=True, page_checksum_verification=True)
            stored = StoredRows(ParquetRows(rows, entry.location, pa.BufferReader(tail)))
            return OpenedFile(stored, self._reading(stored, entry, found, residual, pruning))

        return opened

    def _reading(
        self,
        stored: StoredRows,
        entry: ContentEntry,
        found: Any,
        residual: BoundFilter | None,
        pruning: PruningFilter | None,
    ) -> FileReading:
        handed = self.pace.handed_rows_max
        return FileReading.of(stored.file, entry, self.wanted, found, residual, pruning, handed)


class DatasetFiles(ArrowS3Files):
    """Prototype A with the dataset's reader, which takes the file's length and says how reads are joined."""

    async def find(self, task: FileTask) -> Callable[[], OpenedFile]:
        entry, residual = task.data, task.residual
        refuse_unreadable(entry)
        found = await self.deletes.of_task(task)
        pruning = None if residual is None else self._pruning_of(residual)
        store, key, size = self.store, stored_key(self.table, entry.location), entry.file_size_in_bytes
        assert isinstance(store, S3ObjectStore)
        assert size is not None
        system = arrow_system(store)
        # the dataset shows no footer, and our pruning reads one
        tail = None if residual is None else await store.part_of(key, max(0, size - 65_536), 65_536)

        def opened() -> OpenedFile:
            place = f"{store._bucket}/{store._prefix}{key}"
            fragment = ds.ParquetFileFormat().make_fragment(place, system, file_size=size)
            rows = DatasetRows(
                _Footer(fragment.metadata, fragment.physical_schema),
                entry.location,
                pa.BufferReader(tail or b""),
                fragment,
            )
            stored = StoredRows(rows)
            return OpenedFile(stored, self._reading(stored, entry, found, residual, pruning))

        return opened


@dataclass(frozen=True, slots=True)
class _Footer:
    """What `ParquetRows` asks of a file besides its rows."""

    metadata: pq.FileMetaData
    schema_arrow: pa.Schema


@dataclass(frozen=True)
class DatasetRows(ParquetRows):
    """Rows of a fragment of a dataset."""

    fragment: Any = None

    def batches_of(
        self, groups: Sequence[int], columns: Sequence[str], at_once: Portion = STREAMED
    ) -> Iterator[pa.RecordBatch]:
        joined = pa.CacheOptions(hole_size_limit=131_072, range_size_limit=16 * 1024 * 1024, lazy=False)
        options = ds.ParquetFragmentScanOptions(cache_options=joined, page_checksum_verification=True)
        part = self.fragment.subset(row_group_ids=list(groups))
        schema = pa.schema([self.schema.field(name) for name in columns])
        size = min(at_once.rows_max, 131_072)
        for batch in part.to_batches(columns=list(columns), batch_size=size, fragment_scan_options=options):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)


class OwnStoreFiles(ArrowS3Files):
    """Prototype B: Arrow's reader fetches through a Python file over our own store, from Arrow's threads."""

    async def find(self, task: FileTask) -> Callable[[], OpenedFile]:
        entry, residual = task.data, task.residual
        refuse_unreadable(entry)
        found = await self.deletes.of_task(task)
        pruning = None if residual is None else self._pruning_of(residual)
        store, key, size = self.store, stored_key(self.table, entry.location), entry.file_size_in_bytes
        assert isinstance(store, S3ObjectStore)
        assert size is not None
        start = max(0, size - 65_536)
        tail = await store.part_of(key, start, size - start + 1)
        assert tail is not None
        assert len(tail) == size - start
        file = StoreFile(store, key, size, start, tail, asyncio.get_running_loop())

        def opened() -> OpenedFile:
            rows = pq.ParquetFile(file, pre_buffer=True, page_checksum_verification=True)
            stored = StoredRows(ParquetRows(rows, entry.location, pa.BufferReader(tail)))
            return OpenedFile(stored, self._reading(stored, entry, found, residual, pruning))

        return opened


class StoreFile(io.RawIOBase):
    """An object as a file; a read waits for the event loop, on whichever thread Arrow reads."""

    def __init__(
        self, store: S3ObjectStore, key: ObjectKey, size: int, start: int, tail: bytes, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__()
        self._store, self._key, self._size, self._start, self._tail, self._loop = store, key, size, start, tail, loop
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence] + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def size(self) -> int:
        return self._size

    def read(self, size: int | None = -1) -> bytes:
        left = self._size - self._at
        wanted = left if size is None or size < 0 else min(size, left)
        at, self._at = self._at, self._at + wanted
        if at >= self._start:
            return self._tail[at - self._start : at - self._start + wanted]
        found = asyncio.run_coroutine_threadsafe(self._store.part_of(self._key, at, wanted), self._loop).result()
        assert found is not None
        return found


WAYS: Final[dict[str, type[scan_executor._FilesOfScan]]] = {
    "ours": scan_executor._FilesOfScan,
    "arrow": ArrowS3Files,
    "arrow's dataset": DatasetFiles,
    "arrow over our store": OwnStoreFiles,
}
systems: dict[str, Any] = {}


def arrow_system(store: S3ObjectStore) -> Any:
    """The file system for the settings of a store; what it has no place for is in the decision's table."""
    from pyarrow import fs

    settings = store._settings
    endpoint = urlsplit(settings.endpoint or "")
    if settings.endpoint not in systems:
        systems[settings.endpoint or ""] = fs.S3FileSystem(
            access_key=settings.access_key_id,
            secret_key=settings.secret(),
            region=settings.region,
            scheme=endpoint.scheme,
            endpoint_override=endpoint.netloc,
            connect_timeout=settings.connect_timeout_s,
            request_timeout=settings.read_timeout_s,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=1),
        )
    return systems[settings.endpoint or ""]


def _tail_of(file: Any, size: int) -> bytes:
    file.seek(max(0, size - 65_536))
    tail: bytes = file.read()
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if length > len(tail):
        file.seek(size - length)
        tail = file.read()
    return tail


async def made(service: S3Service) -> Lake:
    """The lake, stored."""
    draw = np.random.default_rng(7)
    schema = pa.schema([(f"c{at}", pa.int64()) for at in range(_COLUMNS)])
    definition = build_definition(schema, table_uuid=uuid.UUID(int=16))
    store = service.store("parts")

    async def files(count: int, rows: int, group_rows: int) -> tuple[ContentEntry, ...]:
        found = []
        for number in range(count):
            columns = {f"c{at}": draw.integers(0, 1 << 40, rows) for at in range(_COLUMNS)}
            columns["c0"] = np.arange(number * rows, (number + 1) * rows)
            (written,) = write_files(pa.table(columns), definition, iter(uuid.uuid4, None))
            body = io.BytesIO()
            table = pq.read_table(pa.BufferReader(written.body))
            pq.write_table(
                table, body, row_group_size=group_rows, compression="zstd", use_dictionary=False,
                write_page_checksum=True, store_schema=False,
            )  # fmt: skip
            location = written.data_file.location
            await store.put_if_absent(key_of(TABLE, location), body.getvalue())
            info = VersionInfo(Status.EXISTING, 1, 1, 1)
            size = len(body.getvalue())
            found.append(ContentEntry(ContentType.DATA, location, FileFormat.PARQUET, info, 0, rows, size))
        return tuple(found)

    lake = Lake(definition, "parts", await files(4, 200_000, 100_000), await files(16, 10_000, 10_000))
    await store.close()
    return lake


async def scanned(way: str, store: S3ObjectStore, lake: Lake, scan: Scan) -> tuple[pa.Table | int, float]:
    """The rows, or their number of a stream; and the seconds until the first batch."""
    wanted = RowsWanted.of(lake.definition, scan.columns)
    residual = None if scan.where is None else PruningFilter.of(scan.where, lake.definition).bound
    tasks = [FileTask(entry, residual=residual) for entry in getattr(lake, scan.files)]
    pace = scan_executor._STREAM if scan.is_streamed else scan_executor._WHOLE
    files = WAYS[way](store, TABLE, wanted, pace, PART_READS)
    ahead = scan_executor.LOOK_AHEAD if scan.is_streamed else max(scan_executor.LOOK_AHEAD, scan_executor._DECODERS)
    batches, first_s, rows, began = [], 0.0, 0, time.perf_counter()
    async for batch in scan_executor._batches(files, tasks, ahead, None):
        first_s = first_s or time.perf_counter() - began
        rows += batch.num_rows
        if not scan.is_streamed:
            batches.append(batch)
    return (rows if scan.is_streamed else pa.Table.from_batches(batches, output_schema(wanted))), first_s
