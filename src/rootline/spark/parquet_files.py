"""Chooses data files for Spark's own Parquet reader, and describes data files that its writer wrote.

Owns: the conditions for Spark's reader, checked by footer, the files in a written folder, describing each of them.
Does not own: planning (`planned_files`), the reads and writes themselves (`table_frame`, `parquet_append`), describing
one file (`data_file`).
Invariants: Spark's reader gets a file only if it certainly returns the same rows as Rootline's. So no row of the file
is deleted, and its footer has every wanted column with the table's name, id and type. A doubt costs time, never rows.
The statistics and the partition of a written file are computed from its rows, never from a footer. A file in a bucket
is copied to the disk for this, one at a time. A file that does not match the table is refused. A file has all field ids
of the specification, also inside lists and maps, where Spark writes none. It names the table's sort order only if its
rows are in it. A file is durable before its description is returned, because an intent may name it from then on. No two
files have the same name, because a sweep recognizes references by name.
"""

from __future__ import annotations

import asyncio
import functools
import os
import re
import struct
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, ListType, MapType, NestedField, StructType

from rootline.client.column_statistics import column_paths
from rootline.client.data_file import DataFile
from rootline.client.new_files import repeated
from rootline.client.partition_split import are_sorted
from rootline.client.session import Session, oldest_date
from rootline.ports.object_store import ObjectFiles, ObjectStore, ObjectUploads
from rootline.schemas import intent
from rootline.schemas.bytes.parquet_footer import with_field_ids
from rootline.schemas.content_entry import ContentEntry, FileFormat
from rootline.schemas.errors import Invalid, RootlineError, Unavailable
from rootline.schemas.identifiers import ObjectKey, TableName
from rootline.schemas.object_keys import is_absolute, key_of
from rootline.schemas.table_definition import SortOrder, TableDefinition
from rootline.spark.connection import guest_lake
from rootline.spark.daemon import classic_context, use_this_python
from rootline.spark.hadoop_bucket import (
    UploadedFile,
    completed_files,
    copy_file,
    final_location,
    is_in_bucket,
    remove_uploads,
    url_for_spark,
)
from rootline.spark.options import SourceOptions
from rootline.spark.rewrite_jobs import on_cluster
from rootline.storage.rows.arrow_types import arrow_field_of, arrow_schema_of
from rootline.storage.rows.parquet_file import ParquetRows, batches_by_size
from rootline.storage.rows.stored_rows import PartReads, find_stored
from rootline.storage.stored_objects import gather_bounded, parts_of, stored_key
from rootline.tree.scan.file_task import FileTask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES_MAX: Final = 10_000
"""Spark's driver checks each of its files. With more files our reader starts sooner, because it packs them itself."""
_FOOTERS_AT_ONCE: Final = 8
_FOOTERS_OF_BUCKET_AT_ONCE: Final = 32
_FOOTER_ALONE: Final = PartReads(0, 0)
_PLAIN_PATH: Final = re.compile(r"(?:/[A-Za-z0-9_.=+,@%~-]+)+")
_HIDDEN: Final = ("_", ".")
_SPARK_VERSION: Final = b"org.apache.spark.version"
_LEGACY_TIMES: Final = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_SCALARS: Final = frozenset(
    {
        pa.bool_(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.date32(),
        pa.timestamp("us"),
        pa.timestamp("us", "UTC"),
        pa.string(),
        pa.binary(),
    }
)


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """A file for Spark's reader. `path`: in a bucket the `s3a://` URL. `may_hold_nan`: its bounds ignore NaN, so
    Spark's Parquet filters must not use them.
    """

    path: str
    may_hold_nan: bool

    @property
    def url(self) -> str:
        """The file's URL for Spark."""
        return self.path if is_in_bucket(self.path) else f"file://{self.path}"


async def files_to_hand_over(
    session: Session, table: TableName, tasks: Sequence[FileTask], fields: Sequence[NestedField]
) -> list[ParquetFile | None]:
    """For each of `tasks` the file that Spark's Parquet reader may read, or `None` if our reader must."""
    store, columns = session.store, pa.schema([arrow_field_of(field) for field in fields])
    nothing: list[ParquetFile | None] = [None] * len(tasks)
    if not fields or len(tasks) > FILES_MAX or not all(_is_shown_alike(field.type) for field in columns):
        return nothing
    wanted, floats = bytes_of(columns), tuple(_floats_in(fields))

    async def looked_at(task: FileTask) -> ParquetFile | None:
        if task.vectors or task.deletes:
            return None
        entry = task.data
        if entry.file_format is not FileFormat.PARQUET or entry.key_metadata is not None:
            return None
        path = await _path_if_as_wanted(store, table, entry, wanted)
        if path is None:
            return None
        known = (entry.content_stats.get(field_id) for field_id in floats)
        return ParquetFile(path, any(one is None or one.nan_value_count != 0 for one in known))

    at_once = _FOOTERS_AT_ONCE if isinstance(store, ObjectFiles) else _FOOTERS_OF_BUCKET_AT_ONCE
    return await gather_bounded(tasks, looked_at, at_once)


async def _path_if_as_wanted(store: ObjectStore, table: TableName, entry: ContentEntry, wanted: bytes) -> str | None:
    """The path or `s3a://` URL of a file whose footer has the `wanted` columns. `None` for any other file."""
    key = stored_key(table, entry.location)
    if isinstance(store, ObjectFiles):
        path = await store.path_of(key)
        if path is None or not is_plain(path):
            return None
        size, rows = entry.file_size_in_bytes, entry.record_count
        return path if await asyncio.to_thread(is_as_wanted, path, size, rows, wanted) else None
    url = None if is_absolute(key) else place_for_spark(store, key)
    if url is None or entry.file_size_in_bytes is None:
        return None
    asked = (url, entry.file_size_in_bytes, entry.record_count, wanted)
    is_wanted = _known_in_buckets.get(asked)
    if is_wanted is None:
        try:
            opened = await find_stored(store, table, entry, every_column=False, reads=_FOOTER_ALONE)
            file = (await asyncio.to_thread(opened)).file
        except RootlineError:
            return None  # our reader reports the error
        if len(_known_in_buckets) >= 4 * FILES_MAX:
            _known_in_buckets.clear()
        is_wanted = isinstance(file, ParquetRows) and _fits(file.file, entry.record_count, wanted)
        _known_in_buckets[asked] = is_wanted
    return url if is_wanted else None


_known_in_buckets: Final[dict[tuple[str, int, int, bytes], bool]] = {}
"""Whether files match, by URL, size, rows and columns. An object of a URL never changes."""


def place_for_spark(store: ObjectStore, key: ObjectKey) -> str | None:
    """The path of a file or folder, or its `s3a://` URL. `None` if Spark would take the name differently."""
    if isinstance(store, ObjectFiles):
        path = store.place_of(key)
        return path if is_plain(path) else None
    if not isinstance(store, ObjectUploads):
        return None
    url = url_for_spark(store.url_of(key))
    return url if is_plain(url.removeprefix("s3a:/")) else None


def is_plain(path: str) -> bool:
    """Whether Spark takes `path` literally, and not as a pattern or as a hidden file, which it would skip.

    A path with `..` is not plain: Spark removes it with the folder before it, even if that is a link to another place.
    """
    parts = Path(path).parts
    return _PLAIN_PATH.fullmatch(path) is not None and ".." not in parts and not parts[-1].startswith(_HIDDEN)


def _is_shown_alike(kind: pa.DataType) -> bool:
    """Whether Spark's Parquet reader returns values of this type as our reader does."""
    if pa.types.is_struct(kind):
        return kind.num_fields > 0 and all(_is_shown_alike(kind.field(at).type) for at in range(kind.num_fields))
    if pa.types.is_list(kind):
        return _is_shown_alike(kind.value_type)
    if pa.types.is_map(kind):
        return _is_shown_alike(kind.key_type) and _is_shown_alike(kind.item_type)
    return is_scalar(kind)


def bytes_of(columns: pa.Schema) -> bytes:
    """The serialized schema for `is_as_wanted`."""
    found: bytes = columns.serialize().to_pybytes()
    return found


def is_scalar(kind: pa.DataType) -> bool:
    """Whether it is a type of single values that Spark reads and writes as we do."""
    return kind in _SCALARS or bool(pa.types.is_decimal128(kind))


def _floats_in(fields: Sequence[NestedField]) -> Iterator[int]:
    """The floating columns on which Spark may filter, also inside structs."""
    for field in fields:
        if isinstance(field.field_type, FloatType | DoubleType):
            yield field.field_id
        elif isinstance(field.field_type, StructType):
            yield from _floats_in(field.field_type.fields)


def is_as_wanted(path: str, size: int | None, rows: int, wanted: bytes) -> bool:
    """Whether a file has exactly these columns (an Arrow schema's bytes), by name, id and type, and this number of
    rows.
    """
    try:
        status = Path(path).stat()
    except OSError:
        return False  # our reader reports the error
    if size is not None and status.st_size != size:
        return False
    return _has_columns(path, status.st_mtime_ns, status.st_size, rows, wanted)


@functools.lru_cache(maxsize=4 * FILES_MAX)
def _has_columns(path: str, _modified_ns: int, _size: int, rows: int, wanted: bytes) -> bool:
    try:
        with pq.ParquetFile(path) as file:
            return _fits(file, rows, wanted)
    except (OSError, pa.ArrowException):
        return False


def _fits(file: pq.ParquetFile, rows: int, wanted: bytes) -> bool:
    stored, row_count, columns = file.schema_arrow, file.metadata.num_rows, file.schema
    kinds = {columns.column(at).physical_type for at in range(len(columns))}
    names = [name.lower() for name in stored.names]
    if row_count != rows or "INT96" in kinds or len(set(names)) != len(names) or not _has_true_times(stored):
        return False
    return all(_is_stored(field, stored) for field in pa.ipc.read_schema(pa.py_buffer(wanted)))


def _is_stored(field: pa.Field, stored: pa.Schema) -> bool:
    at = stored.get_field_index(field.name)
    return at >= 0 and _is_alike(field, stored.field(at))


def _is_alike(wanted: pa.Field, stored: pa.Field) -> bool:
    """Whether the two have equal names, ids and types. For Spark's reader, everything in a file may be null."""
    kind, other = wanted.type, stored.type
    if wanted.name != stored.name or wanted.metadata != stored.metadata:
        return False
    if pa.types.is_map(kind) and pa.types.is_map(other):
        return _is_alike(kind.key_field, other.key_field) and _is_alike(kind.item_field, other.item_field)
    if pa.types.is_list(kind) and pa.types.is_list(other):
        return _is_alike(kind.value_field, other.value_field)
    if pa.types.is_struct(kind) and pa.types.is_struct(other) and kind.num_fields == other.num_fields:
        return all(_is_alike(kind.field(at), other.field(at)) for at in range(kind.num_fields))
    return bool(kind == other)


def _has_true_times(stored: pa.Schema) -> bool:
    """Whether Spark reads the dates and timestamps of a file unchanged. It converts them to another calendar if an old
    version of Spark wrote the file.
    """
    about = stored.metadata or {}
    version = about.get(_SPARK_VERSION, b"3").split(b".")[0]
    return not any(key in about for key in _LEGACY_TIMES) and version.isdigit() and int(version) >= 3


_DRIVER_BYTES: Final = 512 * 1024 * 1024
"""Up to this many bytes are read on the driver, because a job would take longer to start."""
_DRIVER_BYTES_OF_BUCKET: Final = 64 * 1024 * 1024
_PART_BYTES: Final = 8 * 1024 * 1024
_PARTS_AT_ONCE: Final = 4
_DRIVER_THREADS: Final = 4
_FILES_OF_TASK: Final = 100
_FOOTER_END: Final = 8
_TASKS_OF_CORE: Final = 2
_CORES_OF_CLUSTER: Final = 8


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """Files with rows. `oldest_ms`: the time of the first write, in the store's milliseconds, or `None` if unknown."""

    files: tuple[intent.DataFile, ...] = ()
    oldest_ms: int | None = None

    @property
    def row_count(self) -> int:
        """The number of rows in all files."""
        return sum(file.record_count for file in self.files)


def written_files(
    spark: SparkSession, options: SourceOptions, definition: TableDefinition, place: str, path: str
) -> WrittenFiles:
    """The files that Spark wrote to `place`, a folder inside the table's folder, at the file path or URL `path`.

    Raises:
        Invalid: `rows-invalid`, the rows of a file do not fit the table.
        Unavailable: `store-unavailable`.
    """
    in_bucket = is_in_bucket(path)
    files = completed_files(options, place) if in_bucket else _files_in(place, path)
    if not files:
        return WrittenFiles()
    files.sort(key=attrgetter("location"))
    driver_bytes = _DRIVER_BYTES_OF_BUCKET if in_bucket else _DRIVER_BYTES
    count = min(len(files), _TASKS_OF_CORE * _cores(spark))
    count = max(count, -(-len(files) // _FILES_OF_TASK))
    described = partial(_described, options, definition.to_json(), [files[at::count] for at in range(count)])
    if sum(file.length for file in files) <= driver_bytes:
        with ThreadPoolExecutor(_DRIVER_THREADS) as threads:
            found = list(threads.map(described, range(count)))
    else:
        use_this_python(spark)
        found = on_cluster(spark, count, described)
    if in_bucket:
        remove_uploads(spark, path)
    shares = [share for share in found if share.files]
    return WrittenFiles(
        tuple(file for share in shares for file in share.files), oldest_date(share.oldest_ms for share in shares)
    )


def _files_in(place: str, path: str) -> list[UploadedFile]:
    found: list[Path] = []
    for folder, inner, names in os.walk(path):
        # tasks that lost still change their hidden folders
        inner[:] = [name for name in inner if not name.startswith(_HIDDEN)]
        found += [Path(folder, name) for name in names if name.endswith(".parquet") and not name.startswith(_HIDDEN)]
    paths = map(_renamed, found)
    return [UploadedFile(f"{place}/{file.relative_to(path).as_posix()}", file.stat().st_size) for file in paths]


def _cores(spark: SparkSession) -> int:
    context = classic_context(spark)
    return _CORES_OF_CLUSTER if context is None else int(context.defaultParallelism)


def _renamed(path: Path) -> Path:
    """Rename the file to a unique name. Spark uses one name for all files of a task, one in each partition's folder."""
    try:
        return path.rename(path.with_name(f"{uuid.uuid4()}.parquet"))
    except OSError as error:
        reason = f"{path}: cannot be renamed: {error.strerror or error}. Nothing was committed: run the write again"
        raise Unavailable("store-unavailable", reason) from error


def _described(
    options: SourceOptions, definition_json: bytes, shares: Sequence[Sequence[UploadedFile]], number: int
) -> WrittenFiles:
    definition = TableDefinition.from_json(definition_json)
    wanted = bytes_of(arrow_schema_of(definition.schema))
    ids, run = list(_element_ids(definition.schema.fields)), guest_lake(options).holder.run
    files: list[intent.DataFile] = []
    dates: list[int | None] = []
    with tempfile.TemporaryFile() as scratch:  # it has no name, so nothing remains after a task that Spark kills
        for written in shares[number]:
            location = written.location
            path = run(partial(_local, table=options.table, location=location, scratch=scratch))
            into = final_location(location)
            same = _write_ids(path, written.length, ids) if None in ids or into != location else 0
            try:
                file = _file(path, into, definition, wanted)
            except Invalid as error:
                message = f"{options.table}: nothing was committed: {error.message}"
                raise Invalid("rows-invalid", message) from error
            if file is not None:
                stored = partial(_stored, table=options.table, location=location, into=into, copy=scratch, same=same)
                files.append(file)
                dates.append(run(stored))
    return WrittenFiles(tuple(files), oldest_date(dates))


async def _local(session: Session, table: TableName, location: str, scratch: IO[bytes]) -> str:
    """The path of a file that Spark wrote, or the path of `scratch` with a copy of a file in a bucket."""
    store, key = session.store, key_of(table, location)
    if isinstance(store, ObjectFiles):
        path = await store.path_of(key)
    else:
        is_copied = await repeated(session, partial(_is_copied, store, key, scratch), f"{key}: not read")
        path = f"/dev/fd/{scratch.fileno()}" if is_copied else None
    if path is None:
        raise Invalid("file-missing", f"{key}: Spark wrote this file, but it does not exist: run the write again")
    return path


async def _stored(
    session: Session, table: TableName, location: str, into: str, copy: IO[bytes], same: int
) -> int | None:
    """Make a file durable, under its final name. Returns the time at which it was written."""
    store, key = session.store, key_of(table, into)
    if isinstance(store, ObjectFiles):
        await store.make_durable(key)
    elif into != location:
        await copy_file(session, table, location, into, copy, same)
    return await repeated(session, partial(store.stored_ms, key), f"{key}: its date was not read")


def _element_ids(fields: Sequence[NestedField]) -> Iterator[int | None]:
    """Yield the field ids of Parquet's elements for these columns. `None`: of the inner group of a list or map."""
    for field in fields:
        yield field.field_id
        match field.field_type:
            case StructType(fields=members):
                yield from _element_ids(members)
            case ListType(element_field=element):
                yield from (None, *_element_ids([element]))
            case MapType(key_field=key, value_field=value):
                yield from (None, *_element_ids([key, value]))


def lacks_ids(definition: TableDefinition) -> bool:
    """Whether Spark cannot write all field ids of the table. It writes none inside lists and maps."""
    return None in _element_ids(definition.schema.fields)


def _write_ids(path: str, size: int, ids: Sequence[int | None]) -> int:
    """Write a footer with the field ids that are missing in a file's own: those inside lists and maps, which Spark
    cannot write. Returns the number of bytes before the footer.

    It is written behind the first `size` bytes, which Spark wrote and which stay. So a task may repeat it after another
    one that was killed, or at the same time.

    Raises:
        Invalid: `file-unreadable`, the file is not a Parquet file with these columns.
        Unavailable: `store-unavailable`.
    """
    try:
        with Path(path).open("r+b") as file:
            file.seek(size - _FOOTER_END)
            length, magic = struct.unpack("<I4s", file.read(_FOOTER_END))
            start = file.seek(size - _FOOTER_END - length)
            footer = file.read(length)
            made = with_field_ids(footer, [None, *ids]) if None in ids else footer
            if made == footer:
                return start
            file.seek(size)
            file.write(made + struct.pack("<I4s", len(made), magic))
            return size
    except (ValueError, struct.error) as error:
        raise Invalid("file-unreadable", f"{path}: its footer cannot be used: {error}") from error
    except OSError as error:
        reason = f"{path}: cannot be changed: {error.strerror or error}. Nothing was committed: repeat the write"
        raise Unavailable("store-unavailable", reason) from error


async def _is_copied(store: ObjectStore, key: ObjectKey, into: IO[bytes]) -> bool:
    """Copy an object to a file of this machine, part by part. Returns whether it exists."""
    parts = parts_of(store)
    length = await parts.length_of(key)
    if length is None:
        return False
    into.truncate(0)

    async def copied(start: int) -> int:
        body = await parts.part_of(key, start, _PART_BYTES)
        return await asyncio.to_thread(os.pwrite, into.fileno(), body or b"", start)

    if sum(await gather_bounded(range(0, length, _PART_BYTES), copied, _PARTS_AT_ONCE)) != length:
        raise Unavailable("store-unavailable", f"{key}: a read ended early. Nothing was committed: repeat the write")
    return True


def _file(path: str, location: str, definition: TableDefinition, wanted: bytes) -> intent.DataFile | None:
    """The file at `path`, or `None` if it has no rows. Spark writes such a file for an empty DataFrame."""
    rows = pq.read_metadata(path).num_rows
    if rows == 0:
        return None
    if not is_as_wanted(path, None, rows, wanted):
        raise Invalid(
            "file-unreadable",
            f"{location}: the file that Spark wrote has other columns or types than the table; write with "
            'df.write.format("rootline"), and report this with the settings of the session',
        )
    file = DataFile.from_parquet(location, definition, source=path)
    order = definition.default_sort_order
    is_sorted = order is not None and _is_sorted(path, definition.schema, order)
    return file.model_copy(update={"sort_order_id": definition.default_sort_order_id}) if is_sorted else file


def _is_sorted(path: str, schema: Schema, order: SortOrder) -> bool:
    places = column_paths(schema)
    if any(field.source_id not in places for field in order.fields):
        return False
    tops = sorted({places[field.source_id].indices[0] for field in order.fields})
    own = Schema(*(schema.fields[at] for at in tops))
    names = [field.name for field in own.fields]
    with pq.ParquetFile(path) as file:
        pieces = (pa.Table.from_batches([batch]).select(names) for batch in batches_by_size(file, names))
        return are_sorted(pieces, order, column_paths(own))
