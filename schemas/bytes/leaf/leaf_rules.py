"""Which fields the entries of a leaf must have and must not have, over its columns.

Owns: the rules of shape for a whole leaf at once. Does not own: the same rules for one entry (`entry_rules`), the
leaf's schema (`leaf_schema`), what contradicts other entries or the root (`rootline.tree`, `rootline.storage`).
Invariants: says of a leaf what `entry_rules.shape_rules` says of its entries; a leaf that breaks one is neither written
nor read; statistics are not looked at.

Source: the Single File Commits proposal, "V4 content entry structure"; format page, "Root manifest".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from rootline.schemas.content_entry import ContentType, FileFormat, Status

RULED_COLUMNS: Final = (
    "content_type",
    "file_format",
    "version_info",
    "partition_spec_id",
    "record_count",
    "file_size_in_bytes",
    "deletion_vector",
    "sort_order_id",
    "referenced_file",
    "split_offsets",
    "equality_ids",
    "first_row_id",
)
"""What `column_violation` looks at; `location`, the largest column, is left to `entry_rules`."""

_READABLE: Final = (FileFormat.PARQUET.value, FileFormat.AVRO.value, FileFormat.ORC.value)
_FORMATS: Final = {
    ContentType.DATA: _READABLE,
    ContentType.POSITION_DELETE: (FileFormat.PUFFIN.value,),
    ContentType.EQUALITY_DELETE: _READABLE,
}
_NUMBERS: Final = ("snapshot_id", "sequence_number", "file_sequence_number")
_NULL_ON: Final = {
    ContentType.DATA: ("deletion_vector", "referenced_file", "equality_ids"),
    ContentType.POSITION_DELETE: ("sort_order_id", "equality_ids", "first_row_id"),
    ContentType.EQUALITY_DELETE: ("deletion_vector", "sort_order_id", "referenced_file", "first_row_id"),
}
_SET_ON: Final = {
    ContentType.DATA: ("file_size_in_bytes",),
    ContentType.POSITION_DELETE: ("file_size_in_bytes", "deletion_vector", "referenced_file"),
    ContentType.EQUALITY_DELETE: ("file_size_in_bytes", "equality_ids"),
}


def column_violation(table: pa.Table) -> str | None:
    """The first rule that some entry breaks, as a sentence; `table` has at least `RULED_COLUMNS`, whole structs."""
    types = table.column("content_type")
    found = pc.unique(types).to_pylist()
    for number in found:
        if number not in _FORMATS:
            return f"content_type {number} occurs in roots only"
        content_type = ContentType(number)
        rows = table if len(found) == 1 else table.filter(pc.equal(types, number))
        for sentence in _of_type(rows, content_type):
            return f"{content_type.name}: {sentence}"
    return next(_of_all(table), None)


def _of_type(rows: pa.Table, content_type: ContentType) -> Iterator[str]:
    for name in _SET_ON[content_type]:
        if rows.column(name).null_count:
            yield f"{name} is null"
    for name in _NULL_ON[content_type]:
        if rows.column(name).null_count != len(rows):
            yield f"{name} is set"
    for name in pc.unique(rows.column("file_format")).to_pylist():
        if name not in _FORMATS[content_type]:
            yield f"file_format {str(name)[:20]} does not go with it"
    if content_type is ContentType.POSITION_DELETE:
        yield from _vectors(rows)
    if content_type is ContentType.EQUALITY_DELETE and _any(pc.equal(pc.list_value_length(_ids(rows)), 0)):
        yield "equality_ids is empty"


def _vectors(rows: pa.Table) -> Iterator[str]:
    vector = rows.column("deletion_vector")
    offset, size, inline = (pc.struct_field(vector, name) for name in ("offset", "size_in_bytes", "inline_content"))
    if inline.null_count != len(rows):
        yield "the vector of a data file is inline"
    if offset.null_count or size.null_count:
        yield "a vector in a Puffin file lacks its offset or size"
    if _any(pc.less(offset, 0)) or _any(pc.less(size, 1)):
        yield "a vector's offset is negative or its size not positive"
    if _any(pc.less(rows.column("record_count"), 1)):
        yield "record_count, the vector's cardinality, is not positive"
    if _any(pc.equal(rows.column("referenced_file"), "")):
        yield "referenced_file is empty"


def _of_all(table: pa.Table) -> Iterator[str]:
    info = table.column("version_info")
    added = pc.equal(pc.struct_field(info, "status"), int(Status.ADDED))
    for name in _NUMBERS:
        column = pc.struct_field(info, name)
        if column.null_count and _any(pc.and_(pc.invert(added), pc.is_null(column))):
            yield f"{name} is null: only an ADDED entry of a leaf may inherit it"
        if _any(pc.less(column, 0)):
            yield f"{name} is negative"
    for name in ("partition_spec_id", "record_count", "file_size_in_bytes", "first_row_id"):
        if _any(pc.less(table.column(name), 0)):
            yield f"{name} is negative"
    offsets = table.column("split_offsets")
    if offsets.null_count != len(table) and _descend(offsets):
        yield "split_offsets do not ascend"


def _descend(offsets: pa.ChunkedArray) -> bool:
    """Whether the numbers of some list do not ascend."""
    values, parents = pc.list_flatten(offsets), pc.list_parent_indices(offsets)
    if len(values) < 2:
        return False
    values, parents = _one(values), _one(parents)
    same = pc.equal(parents.slice(1), parents.slice(0, len(parents) - 1))
    return _any(pc.and_(same, pc.less(values.slice(1), values.slice(0, len(values) - 1))))


def _ids(rows: pa.Table) -> pa.ChunkedArray:
    return rows.column("equality_ids")


def _any(flags: pa.Array | pa.ChunkedArray) -> bool:
    return bool(pc.any(flags).as_py())


def _one(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
