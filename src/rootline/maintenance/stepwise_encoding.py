"""Encode a large leaf in steps, for a thread that gives way in between.

Owns: the cut into steps, and joining what they made. Does not own: the leaf's bytes and rules (`leaf_codec`).
Invariants: the leaf is the one that `encode_leaf` makes, byte by byte; no call into Arrow holds the interpreter for
more than a millisecond or two.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

import pyarrow as pa

from rootline.schemas.bytes.leaf_codec import (
    EncodedLeaf,
    LeafContent,
    check_entries,
    encoded_rows,
    table_of,
    tracked_in,
)
from rootline.schemas.bytes.leaf_schema import CONTENT_STATS, ROW_FIELDS, leaf_schema
from rootline.schemas.bytes.root.statistics_codec import LazyStats
from rootline.schemas.content_entry import ContentEntry
from rootline.schemas.table_definition import TableDefinition

STEP_ENTRIES: Final = 1_024


def encode_in_steps(
    entries: Sequence[ContentEntry], definition: TableDefinition, *, leaf_uuid: UUID, content: LeafContent
) -> Generator[None, None, EncodedLeaf]:
    """The same leaf, byte by byte, with a pause for the caller after every thousand entries.

    What of their statistics is still bytes is decoded for the leaf only: those of a large leaf, decoded, take hundreds
    of megabytes, and half a second to free. Raises as `encode_leaf`.
    """
    check_entries(entries, content)
    tables: list[pa.Table] = []
    for start in range(0, len(entries), STEP_ENTRIES):
        some = [_read_once(entry) for entry in entries[start : start + STEP_ENTRIES]]
        tables.append(table_of(some, tracked_in(some, definition)))
        del some
        yield
    table = _joined(tables, definition)
    yield
    return encoded_rows(entries, table, leaf_uuid, content)


def _read_once(entry: ContentEntry) -> ContentEntry:
    stats = entry.content_stats
    return replace(entry, content_stats=stats.read_once()) if isinstance(stats, LazyStats) else entry


def _joined(tables: Sequence[pa.Table], definition: TableDefinition) -> pa.Table:
    """One table of all rows; a column of statistics that some tables lack is null there."""
    statistics = [_statistics_in(table) for table in tables]
    used = sorted({int(name[1:]) for found in statistics for name in found})
    tracked = [definition.tracked_by_id[tracked_id] for tracked_id in used]
    schema = leaf_schema(tracked)
    arrays = [pa.concat_arrays([_whole(table, field.name) for table in tables]) for field in ROW_FIELDS]
    if tracked:
        kind = schema.field(CONTENT_STATS).type
        children = [
            pa.concat_arrays(
                [
                    found[field.name] if field.name in found else pa.nulls(table.num_rows, field.type)
                    for table, found in zip(tables, statistics, strict=True)
                ]
            )
            for field in kind
        ]
        arrays.append(pa.StructArray.from_arrays(children, fields=list(kind)))
    return pa.Table.from_arrays(arrays, schema=schema)


def _statistics_in(table: pa.Table) -> dict[str, pa.Array]:
    if CONTENT_STATS not in table.column_names:
        return {}
    column = _whole(table, CONTENT_STATS)
    return dict(zip((field.name for field in column.type), column.flatten(), strict=True))


def _whole(table: pa.Table, name: str) -> pa.Array:
    return pa.concat_arrays(table.column(name).chunks)
