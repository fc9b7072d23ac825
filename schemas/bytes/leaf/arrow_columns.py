"""Steps over Arrow columns that all readers of leaves take: one chunk of several, some of the columns that were read, a
mask for NumPy.

Owns: these steps. Does not own: what the columns mean (`leaf`, `leaf_schema`).
Invariants: nothing is decoded and no value is changed; values are copied only where a step says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
"""One flag an entry."""


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """The values of `column` as one array; copied only where there are several chunks. A filter may leave none."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def picked(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """The columns of `table` that `names` say, as Parquet's reader would have read them.

    A name is a column, or a member of structs by its path. Columns are in the order of their first names, members in
    that of the table. A name that the table lacks is left out.
    """
    wanted: dict[int, list[list[str]]] = {}
    for name in names:
        top, *path = name.split(".")
        index = table.schema.get_field_index(top)
        if index >= 0 and _leads(table.schema.field(index).type, path):
            wanted.setdefault(index, []).append(path)
    fields: list[pa.Field] = []
    columns: list[pa.ChunkedArray] = []
    for index, paths in wanted.items():
        field, column = table.schema.field(index), table.column(index)
        if all(paths):
            kept = _kept_type(field.type, paths)
            field = field.with_type(kept)
            column = pa.chunked_array([_kept_members(chunk, kept) for chunk in column.chunks], kept)
        fields.append(field)
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=pa.schema(fields)) if columns else table.select([])


def _leads(kind: pa.DataType, path: Sequence[str]) -> bool:
    """Whether there is a member at `path`."""
    for name in path:
        index = kind.get_field_index(name) if pa.types.is_struct(kind) else -1
        if index < 0:
            return False
        kind = kind.field(index).type
    return True


def _kept_type(kind: pa.StructType, paths: Sequence[Sequence[str]]) -> pa.StructType:
    """A struct of the members that `paths` lead to."""
    kept: list[pa.Field] = []
    for field in kind:
        below = [path[1:] for path in paths if path[0] == field.name]
        if below:
            kept.append(field if not all(below) else field.with_type(_kept_type(field.type, below)))
    return pa.struct(kept)


def _kept_members(column: pa.StructArray, kept: pa.StructType) -> pa.StructArray:
    if column.type == kept:
        return column
    children = [
        _kept_members(child, field.type) if pa.types.is_struct(field.type) else child
        for field in kept
        for child in [column.field(field.name)]
    ]
    mask = column.is_null() if column.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(kept), mask=mask)


def mask_of(flags: pa.Array) -> Mask:
    """Flags without nulls, for NumPy."""
    found: Mask = flags.to_numpy(zero_copy_only=False)
    return found
