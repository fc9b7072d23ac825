"""What the entries of a leaf inherit from its root row, over columns.

Owns: snapshot id, sequence numbers and row ids of entries that were written without. Does not own: the columns
(`leaf`), which row ids are free (`rootline.tree`).
Invariants: only an ADDED entry inherits numbers; row ids are a running counter over entries without one, DELETED ones
and manifest vectors ignored, so they never change; a value that an entry has itself is kept.

Source: format page, "Row ids" and "Leaf manifest".
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rootline.schemas.bytes.leaf.arrow_columns import one_chunk
from rootline.schemas.content_entry import ContentEntry, Status
from rootline.schemas.entry_rule_table import NUMBERS


class Inherited(NamedTuple):
    """What the entries of a leaf inherit from its root row; the same as long as the leaf is in the tree."""

    snapshot_id: int | None
    sequence_number: int | None
    file_sequence_number: int | None
    first_row_id: int | None


def inherited_from(row: ContentEntry) -> Inherited:
    """What entries inherit from the root row of their leaf."""
    info = row.version_info
    return Inherited(info.snapshot_id, info.sequence_number, info.file_sequence_number, row.first_row_id)


def inherited_rows(rows: pa.Table, inherited: Inherited) -> pa.Table:
    """`rows`, flat and one chunk a column, with what they inherit."""
    added: pa.Array | None = None
    for name in NUMBERS:
        column, value = rows.column(name), getattr(inherited, name)
        if value is None or not column.null_count:
            continue
        if added is None:
            added = pc.equal(rows.column("status"), int(Status.ADDED))
        inherits = pc.and_(added, pc.is_null(column))
        rows = _with(rows, name, pc.if_else(inherits, pa.scalar(value, pa.int64()), column))
    first = rows.column("first_row_id")
    if inherited.first_row_id is not None and first.null_count:
        counted = pc.and_(pc.is_null(first), pc.not_equal(rows.column("status"), int(Status.DELETED)))
        counts = pc.if_else(counted, rows.column("record_count"), 0)
        starts = pc.subtract(pc.add(pc.cumulative_sum(counts), inherited.first_row_id), counts)
        rows = _with(rows, "first_row_id", pc.if_else(counted, starts, first))
    return rows


def may_inherit(table: pa.Table) -> bool:
    """Whether a column of `table`, read from a leaf, lacks values that its entries may inherit."""
    for field in table.schema:
        column = table.column(field.name)
        if field.name == "first_row_id" and column.null_count:
            return True
        if field.name == "version_info":
            members = [pc.struct_field(column, child.name) for child in field.type if child.name in NUMBERS]
            if any(member.null_count for member in members):
                return True
    return False


def inherited_columns(table: pa.Table, rows: pa.Table) -> pa.Table:
    """`table`, read with or without all members of its structs, with the values of flat `rows`."""
    for index, field in enumerate(table.schema):
        if field.name == "version_info":
            children = [one_chunk(rows.column(child.name)) for child in field.type]
            table = table.set_column(index, field, pa.StructArray.from_arrays(children, fields=list(field.type)))
        elif field.name == "first_row_id":
            table = table.set_column(index, field, rows.column("first_row_id"))
    return table


def _with(rows: pa.Table, name: str, column: pa.ChunkedArray) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(name), name, column)
