"""A leaf that was adopted from an older format, in memory: what it may hold, ours may not (position delete files)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from rootline.schemas.bytes.leaf import Leaf, LeafContent
from rootline.schemas.bytes.leaf_schema import CONTENT_STATS, ROW_FIELDS, column_of_physical, leaf_schema
from rootline.schemas.content_entry import ContentEntry, FieldStatistics
from rootline.schemas.table_definition import TableDefinition


def adopted(entries: Sequence[ContentEntry], definition: TableDefinition, location: str, content: LeafContent) -> Leaf:
    tracked = sorted({tracked_id for entry in entries for tracked_id in entry.content_stats})
    schema = leaf_schema([definition.tracked_by_id[tracked_id] for tracked_id in tracked])
    columns = [_column([getattr(entry, field.name) for entry in entries], field) for field in ROW_FIELDS]
    if tracked:
        kind = schema.field(CONTENT_STATS).type
        found = [
            _column([entry.content_stats.get(tracked_id) for entry in entries], kind.field(at))
            for at, tracked_id in enumerate(tracked)
        ]
        columns.append(pa.StructArray.from_arrays(found, fields=list(kind)))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), sink)
    body = sink.getvalue()
    return Leaf(location, content, body, pq.read_metadata(pa.BufferReader(body)), body.size)


def _column(values: Sequence[object], field: pa.Field) -> pa.Array:
    if not pa.types.is_struct(field.type):
        return pa.array(values, field.type)
    empty = FieldStatistics()
    children = [
        column_of_physical([getattr(empty if v is None else v, child.name, None) for v in values], child.type)
        for child in field.type
    ]
    mask = pa.array([value is None for value in values])
    return pa.StructArray.from_arrays(children, fields=list(field.type), mask=mask)
