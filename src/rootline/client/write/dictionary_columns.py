"""Which columns of a Parquet file are worth a dictionary.

Owns: the choice, from a sample of the rows. Does not own: writing (`data_file_writer`).
Invariants: the same rows give the same choice; a column goes without only where nearly all sampled values differ:
Parquet's writer would give its dictionary up, after the work for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from rootline.storage.rows.arrow_types import storage_of

_STRETCHES: Final = 32
_STRETCH_ROWS: Final = 128
_DIFFERENT_SHARE: Final = 0.99
"""Of 4,096 values, when they come from 200,000 different ones; the writer ends a dictionary at a megabyte."""


def dictionary_columns(rows: pa.Table) -> list[str]:
    """Paths of the columns of `rows`, as Parquet names them, that are written with a dictionary."""
    sample = _sampled(rows)
    return [
        path
        for name, column in zip(rows.column_names, sample.columns, strict=True)
        if not _is_all_different(column)
        for path in _paths(name, column.type)
    ]


def _sampled(rows: pa.Table) -> pa.Table:
    """Stretches of rows from all over: neighbours that are alike, and values that come again later, both show."""
    if rows.num_rows <= _STRETCHES * _STRETCH_ROWS:
        return rows
    step = rows.num_rows // _STRETCHES
    return pa.concat_tables(rows.slice(at * step, _STRETCH_ROWS) for at in range(_STRETCHES))


def _is_all_different(column: pa.ChunkedArray) -> bool:
    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.chunked_array([storage_of(chunk) for chunk in column.chunks], column.type.storage_type)
    kind = column.type
    if pa.types.is_nested(kind) or pa.types.is_boolean(kind) or column.null_count == len(column):
        return False
    different: int = pc.count_distinct(column).as_py()
    return different > _DIFFERENT_SHARE * len(column)


def _paths(name: str, kind: pa.DataType) -> Iterator[str]:
    """The columns below one of the table, by the names that Parquet gives to lists and maps."""
    if pa.types.is_struct(kind):
        for at in range(kind.num_fields):
            yield from _paths(f"{name}.{kind.field(at).name}", kind.field(at).type)
    elif pa.types.is_map(kind):
        yield from _paths(f"{name}.key_value.key", kind.key_type)
        yield from _paths(f"{name}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind):
        yield from _paths(f"{name}.list.element", kind.value_type)
    else:
        yield name
