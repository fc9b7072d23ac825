"""Leaves of new files, made from columns: a writer with many files publishes them instead of the files.

Owns: the columns that a list of files may have, their order, and the cut into leaves. Does not own: the leaf's bytes
(`leaf_codec`), storing them (the client), what the coordinator makes of them (`rootline.tree.rules.writer_leaves`).
Invariants: entries say nothing that the commit gives: they are ADDED without numbers and row ids; no loop over files;
the order prunes: by partition values, then by the lower bounds of the sort order.

Source: format page, "Leaf manifest".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from rootline.maintenance.clustering import sort_ids
from rootline.schemas.bytes.leaf_schema import CONTENT_STATS, ROW_FIELDS, leaf_schema, physical_column
from rootline.schemas.content_entry import ContentType, FileFormat, Status
from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import TableDefinition, TrackedField

_REQUIRED: Final = ("location", "record_count", "file_size_in_bytes")
_OPTIONAL: Final = ("file_format", "sort_order_id", "key_metadata", "split_offsets", CONTENT_STATS)
_TYPES: Final = {field.name: field for field in ROW_FIELDS}
LEAF_ENTRIES: Final = 50_000
"""About how many files go into one leaf."""


def leaf_columns(files: pa.Table, definition: TableDefinition, spec_id: int) -> pa.Table:
    """A list of data files of one spec as the columns of a leaf.

    Args:
        files: `location`, `record_count`, `file_size_in_bytes`; if need be `file_format`, `sort_order_id`,
            `key_metadata`, `split_offsets`, and `content_stats`, a struct of a struct `_<id>` for each column or
            expression, with any of the members that the format page names (`lower_bound`, `upper_bound`, …).
        definition: of the table.
        spec_id: of all the files.

    Raises:
        Invalid: `rows-invalid`, a column is missing, unknown, or of a type that does not fit.

    """
    for name in _REQUIRED:
        if name not in files.column_names:
            raise Invalid("rows-invalid", f"the list of files has no column {name!r}; every file needs it")
    for name in files.column_names:
        if name not in _REQUIRED and name not in _OPTIONAL:
            raise Invalid(
                "rows-invalid", f"the list of files has a column {name!r}, which files do not have; leave it out"
            )
    files = files.combine_chunks()
    tracked = _tracked_in(files, definition)
    schema = leaf_schema(tracked)
    given = {
        "content_type": pa.repeat(pa.scalar(int(ContentType.DATA), pa.int32()), len(files)),
        "file_format": pa.repeat(pa.scalar(FileFormat.PARQUET.value), len(files)),
        "version_info": _version_info(len(files), schema.field("version_info").type),
        "partition_spec_id": pa.repeat(pa.scalar(spec_id, pa.int32()), len(files)),
    }
    for name in files.column_names:
        if name != CONTENT_STATS:
            given[name] = _cast(_one(files.column(name)), _TYPES[name].type, name)
    arrays = [given.get(field.name, pa.nulls(len(files), field.type)) for field in ROW_FIELDS]
    if tracked:
        arrays.append(_statistics(_one(files.column(CONTENT_STATS)), tracked, schema.field(CONTENT_STATS).type))
    return pa.Table.from_arrays(arrays, schema=schema)


def clustered(table: pa.Table, definition: TableDefinition, spec_id: int) -> pa.Table:
    """Leaf columns in an order that lets aggregates prune; unchanged when no bounds tell one."""
    held = (
        {field.name for field in table.schema.field(CONTENT_STATS).type} if CONTENT_STATS in table.schema.names else ()
    )
    keys: dict[str, pa.Array] = {}
    for tracked_id in sort_ids(definition, spec_id):
        if f"_{tracked_id}" in held:
            bounds = pc.struct_field(_one(table.column(CONTENT_STATS)), [f"_{tracked_id}", "lower_bound"])
            keys[str(tracked_id)] = physical_column(bounds)
    if not keys:
        return table
    keys["location"] = _one(table.column("location"))
    order = pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys])
    in_order = pa.array(range(len(order)), order.type)
    return table if order.equals(in_order) else table.take(order)


def cut_evenly(table: pa.Table, entries_max: int = LEAF_ENTRIES) -> Iterator[pa.Table]:
    """Runs of at most `entries_max` entries, of even size."""
    pieces = -(-len(table) // entries_max)
    for piece in range(pieces):
        start, end = (len(table) * at // pieces for at in (piece, piece + 1))
        yield table.slice(start, end - start)


def _tracked_in(files: pa.Table, definition: TableDefinition) -> list[TrackedField]:
    if CONTENT_STATS not in files.column_names:
        return []
    kind = files.schema.field(CONTENT_STATS).type
    if not pa.types.is_struct(kind):
        raise Invalid("rows-invalid", f"{CONTENT_STATS} is not a struct of one struct for each column")
    known = {f"_{tracked_id}": field for tracked_id, field in definition.tracked_by_id.items()}
    names = [field.name for field in kind]
    for name in names:
        if name not in known or names.count(name) > 1:
            raise Invalid("rows-invalid", f"{CONTENT_STATS}.{name}: the table has no such column, or it occurs twice")
    return sorted((known[name] for name in names), key=lambda field: field.tracked_id)


def _statistics(given: pa.StructArray, tracked: list[TrackedField], kind: pa.StructType) -> pa.StructArray:
    columns = {field.name: column for field, column in zip(given.type, given.flatten(), strict=True)}
    children = [
        _statistics_of(columns[f"_{field.tracked_id}"], kind.field(f"_{field.tracked_id}")) for field in tracked
    ]
    return pa.StructArray.from_arrays(children, fields=list(kind))


def _statistics_of(given: pa.Array, wanted: pa.Field) -> pa.StructArray:
    if not pa.types.is_struct(given.type):
        raise Invalid("rows-invalid", f"{CONTENT_STATS}.{wanted.name} is not a struct")
    members = {field.name: child for field, child in zip(given.type, given.flatten(), strict=True)}
    expected = [field.name for field in wanted.type]
    for name in members:
        if name not in expected:
            raise Invalid(
                "rows-invalid", f"{CONTENT_STATS}.{wanted.name} has no member {name!r}: {', '.join(expected)}"
            )
    children = [
        _cast(members[field.name], field.type, f"{CONTENT_STATS}.{wanted.name}.{field.name}")
        if field.name in members
        else pa.nulls(len(given), field.type)
        for field in wanted.type
    ]
    absent = given.is_null() if given.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(wanted.type), mask=absent)


def _version_info(length: int, kind: pa.StructType) -> pa.StructArray:
    status = pa.repeat(pa.scalar(int(Status.ADDED), pa.int32()), length)
    children = [status if field.name == "status" else pa.nulls(length, field.type) for field in kind]
    return pa.StructArray.from_arrays(children, fields=list(kind))


def _cast(column: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    if column.type == kind:
        return column
    try:
        return column.cast(kind)
    except (pa.ArrowException, ValueError) as error:
        raise Invalid("rows-invalid", f"{name} of the files cannot be {kind}: {error!s:.200}") from error


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
