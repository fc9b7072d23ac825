"""Which data files Spark's own Parquet reader may read instead of ours.

Owns: what a file must be like for that, and finding out by its footer. Does not own: planning
(`rootline.client.planned_files`), reading (`table_frame` hands the files over).
Invariants: a file is handed over only where Spark's reader is sure to show the same rows: nothing in it is deleted, and
its own footer has every wanted column just as the table has it, by name, id and type; a doubt costs time, never rows.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.types import DoubleType, FloatType, NestedField, StructType

from rootline.client.session import Session
from rootline.ports.object_store import ObjectFiles
from rootline.schemas.content_entry import FileFormat
from rootline.schemas.identifiers import TableName
from rootline.storage.rows.arrow_types import arrow_field_of
from rootline.storage.stored_objects import gather_bounded, stored_key
from rootline.tree.scan.file_task import FileTask

FILES_MAX: Final = 10_000
"""Spark's driver looks at each file that it is given; above so many ours starts sooner, which packs them itself."""
_FOOTERS_AT_ONCE: Final = 8
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
    """A file to hand over; `may_hold_nan`: Spark's Parquet filters do not count on NaN, which no bounds tell of."""

    path: str
    may_hold_nan: bool


async def files_to_hand_over(
    session: Session, table: TableName, tasks: Sequence[FileTask], fields: Sequence[NestedField]
) -> list[ParquetFile | None]:
    """For each of `tasks` the file that Spark's Parquet reader may read of it, `None` where ours must."""
    store, columns = session.store, pa.schema([arrow_field_of(field) for field in fields])
    nothing: list[ParquetFile | None] = [None] * len(tasks)
    if not isinstance(store, ObjectFiles) or not fields or not all(_is_shown_alike(field.type) for field in columns):
        return nothing
    if len(tasks) > FILES_MAX:
        return nothing
    wanted, floats = bytes_of(columns), tuple(_floats_in(fields))

    async def looked_at(task: FileTask) -> ParquetFile | None:
        if task.vectors or task.deletes:
            return None
        entry = task.data
        if entry.file_format is not FileFormat.PARQUET or entry.key_metadata is not None:
            return None
        path = await store.path_of(stored_key(table, entry.location))
        if path is None or not is_plain(path):
            return None
        if not await asyncio.to_thread(is_as_wanted, path, entry.file_size_in_bytes, entry.record_count, wanted):
            return None
        known = (entry.content_stats.get(field_id) for field_id in floats)
        return ParquetFile(path, any(one is None or one.nan_value_count != 0 for one in known))

    return await gather_bounded(tasks, looked_at, _FOOTERS_AT_ONCE)


def is_plain(path: str) -> bool:
    """Whether Spark takes `path` as it is: not as a pattern, nor as a hidden file, which it would leave out.

    Nor with `..`, which Spark takes away together with the folder before it, even if that is a link to elsewhere.
    """
    parts = Path(path).parts
    return _PLAIN_PATH.fullmatch(path) is not None and ".." not in parts and not parts[-1].startswith(_HIDDEN)


def _is_shown_alike(kind: pa.DataType) -> bool:
    """Whether Spark's Parquet reader shows a value of this type as our reader does."""
    if pa.types.is_struct(kind):
        return kind.num_fields > 0 and all(_is_shown_alike(kind.field(at).type) for at in range(kind.num_fields))
    if pa.types.is_list(kind):
        return _is_shown_alike(kind.value_type)
    if pa.types.is_map(kind):
        return _is_shown_alike(kind.key_type) and _is_shown_alike(kind.item_type)
    return is_scalar(kind)


def bytes_of(columns: pa.Schema) -> bytes:
    """What `is_as_wanted` compares with."""
    found: bytes = columns.serialize().to_pybytes()
    return found


def is_scalar(kind: pa.DataType) -> bool:
    """Whether it is a type of single values that Spark reads and writes as we do."""
    return kind in _SCALARS or bool(pa.types.is_decimal128(kind))


def _floats_in(fields: Sequence[NestedField]) -> Iterator[int]:
    """The columns, in structs too, that may hold NaN and that Spark may filter on."""
    for field in fields:
        if isinstance(field.field_type, FloatType | DoubleType):
            yield field.field_id
        elif isinstance(field.field_type, StructType):
            yield from _floats_in(field.field_type.fields)


def is_as_wanted(path: str, size: int | None, rows: int, wanted: bytes) -> bool:
    """Whether a file has just these columns (an Arrow schema's bytes), by name, id and type, and so many rows."""
    try:
        status = Path(path).stat()
    except OSError:
        return False  # our reader says what is wrong
    if size is not None and status.st_size != size:
        return False
    return _has_columns(path, status.st_mtime_ns, status.st_size, rows, wanted)


@functools.lru_cache(maxsize=4 * FILES_MAX)
def _has_columns(path: str, _modified_ns: int, _size: int, rows: int, wanted: bytes) -> bool:
    try:
        with pq.ParquetFile(path) as file:
            stored, row_count, columns = file.schema_arrow, file.metadata.num_rows, file.schema
            kinds = {columns.column(at).physical_type for at in range(len(columns))}
    except (OSError, pa.ArrowException):
        return False
    names = [name.lower() for name in stored.names]
    if row_count != rows or "INT96" in kinds or len(set(names)) != len(names) or not _has_true_times(stored):
        return False
    return all(_is_stored(field, stored) for field in pa.ipc.read_schema(pa.py_buffer(wanted)))


def _is_stored(field: pa.Field, stored: pa.Schema) -> bool:
    at = stored.get_field_index(field.name)
    return at >= 0 and _is_alike(field, stored.field(at).with_nullable(field.nullable))


def _is_alike(wanted: pa.Field, stored: pa.Field) -> bool:
    """Whether the two have equal names, ids and types; what a map calls its pairs means nothing."""
    kind, other = wanted.type, stored.type
    if wanted.name != stored.name or wanted.nullable != stored.nullable or wanted.metadata != stored.metadata:
        return False
    if pa.types.is_map(kind) and pa.types.is_map(other):
        return _is_alike(kind.key_field, other.key_field) and _is_alike(kind.item_field, other.item_field)
    if pa.types.is_list(kind) and pa.types.is_list(other):
        return _is_alike(kind.value_field, other.value_field)
    if pa.types.is_struct(kind) and pa.types.is_struct(other) and kind.num_fields == other.num_fields:
        return all(_is_alike(kind.field(at), other.field(at)) for at in range(kind.num_fields))
    return bool(kind == other)


def _has_true_times(stored: pa.Schema) -> bool:
    """Whether Spark takes days and moments as they are: what old versions of it wrote it moves to another calendar."""
    about = stored.metadata or {}
    version = about.get(_SPARK_VERSION, b"3").split(b".")[0]
    return not any(key in about for key in _LEGACY_TIMES) and version.isdigit() and int(version) >= 3
