"""Delete files in the store of a `StoredTable`, written as other writers write them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rootline.schemas.bytes.leaf_schema import physical_column
from rootline.schemas.content_entry import ContentEntry, ContentType, FieldStatistics, FileFormat, Status, VersionInfo
from rootline.schemas.object_keys import key_of
from rootline.storage.rows.arrow_types import FIELD_ID_KEY, arrow_schema_of, storage_of
from tests.storage.stored_tables import TABLE, StoredTable

POSITIONS = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={FIELD_ID_KEY: b"2147483546"}),
        pa.field("pos", pa.int64(), nullable=False, metadata={FIELD_ID_KEY: b"2147483545"}),
    ]
)


def parquet(rows: pa.Table, **options: int) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, **options)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def at(entry: ContentEntry, sequence_number: int) -> ContentEntry:
    return replace(entry, version_info=VersionInfo(Status.EXISTING, 7, sequence_number, sequence_number))


def equality_delete(
    table: StoredTable,
    rows: pa.Table,
    ids: Sequence[int],
    sequence_number: int,
    *,
    partition_of: ContentEntry | None = None,
    spec_id: int = 0,
    with_statistics: bool = True,
) -> ContentEntry:
    """An equality delete of `rows` (columns by the current schema's names, or with ids of their own).

    `partition_of`: a data file in whose partition it is.
    """
    schema = arrow_schema_of(table.definition.schema)
    if not any(field.metadata for field in rows.schema):
        rows = rows.cast(pa.schema([schema.field(name) for name in rows.schema.names]))
    body = parquet(rows)
    location = f"data/{next(table.ids)}-eq.parquet"
    table.store.place(key_of(TABLE, location), body)
    stats = {}
    if with_statistics:
        found = {int(rows.schema.field(n).metadata[FIELD_ID_KEY]): rows.column(n) for n in range(rows.num_columns)}
        stats = {field_id: statistics_of(found[field_id]) for field_id in ids if field_id in found}
    if partition_of is not None:
        spec_id = partition_of.partition_spec_id
        members = table.definition.spec_by_id(spec_id).expr_ids
        stats |= {member: partition_of.content_stats[member] for member in members}
    return ContentEntry(
        ContentType.EQUALITY_DELETE,
        location,
        FileFormat.PARQUET,
        VersionInfo(Status.EXISTING, 7, sequence_number, sequence_number),
        spec_id,
        rows.num_rows,
        len(body),
        equality_ids=tuple(ids),
        content_stats=stats,
    )


def statistics_of(column: pa.ChunkedArray) -> FieldStatistics:
    array = storage_of(column.combine_chunks())
    nans = pc.sum(pc.is_nan(array)).as_py() or 0 if pa.types.is_floating(array.type) else None
    real = array.filter(pc.invert(pc.is_nan(array))) if nans else array
    physical = [value for value in physical_column(real).to_pylist() if value is not None]
    return FieldStatistics(
        min(physical, default=None),
        max(physical, default=None),
        True,
        len(array),
        array.null_count,
        nans,
    )


def position_delete(
    table: StoredTable,
    deletes: Sequence[tuple[str, int]],
    like: ContentEntry,
    sequence_number: int,
    *,
    referenced_file: str | None = None,
    rows: pa.Array | None = None,
) -> ContentEntry:
    """A position delete file as V2 has them, in the partition of the data file `like`; `rows`: the deleted rows."""
    found = pa.table([[path for path, _ in deletes], [pos for _, pos in deletes]], schema=POSITIONS)
    if rows is not None:
        field = pa.field("row", rows.type, nullable=False, metadata={FIELD_ID_KEY: b"2147483544"})
        found = found.append_column(field, rows)
    body = parquet(found)
    location = f"data/{next(table.ids)}-pos.parquet"
    table.store.place(key_of(TABLE, location), body)
    members = table.definition.spec_by_id(like.partition_spec_id).expr_ids
    return ContentEntry(
        ContentType.POSITION_DELETE,
        location,
        FileFormat.PARQUET,
        VersionInfo(Status.EXISTING, 7, sequence_number, sequence_number),
        like.partition_spec_id,
        len(deletes),
        len(body),
        referenced_file=referenced_file,
        content_stats={member: like.content_stats[member] for member in members},
    )
