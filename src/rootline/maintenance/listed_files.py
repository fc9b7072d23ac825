"""Files given one by one, as the columns that leaves are made from.

Owns: the columns of a list of files, and the bounds of generic statistics read column by column. Does not own: the
leaf's own columns and order (`file_leaves`), what one bound means (`generic_statistics`), the rules for statistics.
Invariants: one-sided. Where there are columns, each file says in them what it says by itself; where there are none,
the files are to be read one by one, which may well succeed, and knows what is wrong with them otherwise.

Theory. Read value by value, the statistics of a file with twenty columns take a hundred times as long as its row in a
leaf. Most bounds are numbers of a fixed length or text, in just the bytes that Arrow has for them: then a column of
them needs no loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DecimalType,
    FixedType,
    StringType,
    UUIDType,
)

from rootline.schemas.bytes.leaf_schema import (
    CONTENT_STATS,
    COUNT_FIELDS,
    ROW_FIELDS,
    arrow_type_of_bound,
    column_of_physical,
)
from rootline.schemas.bytes.single_values import bound_of
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import DataFile
from rootline.schemas.table_definition import TableDefinition, TrackedField

_OF_FILE: Final = (
    "location",
    "file_format",
    "record_count",
    "file_size_in_bytes",
    "sort_order_id",
    "key_metadata",
    "split_offsets",
)
_TYPES: Final = {field.name: field.type for field in ROW_FIELDS}
_BOUNDS: Final = ("lower_bound", "lower_value", "upper_bound", "upper_value")
_MEMBERS: Final = (*_BOUNDS, *(name for name, _, _ in COUNT_FIELDS))
_MEMBERS_OF: Final = itemgetter(*_MEMBERS)
_NOTHING: Final = (None,) * len(_MEMBERS)
"""Of a column that a file says nothing of."""
_AS_WRITTEN: Final = (StringType, BinaryType, FixedType, UUIDType)
_VALUE_BY_VALUE: Final = (BooleanType, DecimalType)


def columns_of(files: Sequence[DataFile], definition: TableDefinition) -> pa.Table | None:
    """`files`, of one partition spec, as `leaf_columns` takes them; `None`: they are to be read one by one."""
    if any(file.content_stats is not None for file in files):
        return None
    try:
        told = list(map(vars, files))
        columns = {name: pa.array([file[name] for file in told], _TYPES[name]) for name in _OF_FILE}
        statistics = _statistics(files, definition)
    except (Invalid, pa.ArrowException, LookupError, OverflowError, TypeError, ValueError):
        return None
    return pa.table(columns if statistics is None else {**columns, CONTENT_STATS: statistics})


def _statistics(files: Sequence[DataFile], definition: TableDefinition) -> pa.StructArray | None:
    told: dict[int, list[tuple[Any, ...]]] = {}
    for ordinal, file in enumerate(files):
        for item in file.statistics:
            said = vars(item)  # a model's own attributes take four times as long
            column = told.get(said["field_id"])
            if column is None:
                column = told[said["field_id"]] = []
            if len(column) != ordinal:
                if len(column) > ordinal:
                    raise Invalid("statistics-invalid", f"{file.location}: statistics of id {item.field_id} twice")
                column += [_NOTHING] * (ordinal - len(column))
            column.append(_MEMBERS_OF(said))
    if not told:
        return None
    ids = sorted(told)
    children = []
    for tracked_id in ids:
        column = told.pop(tracked_id)
        column += [_NOTHING] * (len(files) - len(column))
        children.append(_of_column(column, definition.tracked_by_id[tracked_id]))
    return pa.StructArray.from_arrays(children, names=[f"_{tracked_id}" for tracked_id in ids])


def _of_column(told: Sequence[tuple[Any, ...]], tracked: TrackedField) -> pa.StructArray:
    values = {name: [members[at] for members in told] for at, name in enumerate(_MEMBERS)}
    columns: dict[str, pa.Array] = {}
    if arrow_type_of_bound(tracked.type) is not None:
        for side in ("lower", "upper"):
            columns[f"{side}_bound"] = _bounds(tracked, side, values[f"{side}_bound"], values[f"{side}_value"])
    elif any(value is not None for name in _BOUNDS for value in values[name]):
        raise Invalid("statistics-invalid", f"{tracked.name} is of a type that has no bounds")
    for name, _, kind in COUNT_FIELDS:
        columns[name] = pa.array(values[name], kind)
    absent = pa.array([members is _NOTHING for members in told])
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns), mask=absent)


def _bounds(tracked: TrackedField, side: str, binary: Sequence[bytes | None], values: Sequence[Any]) -> pa.Array:
    kind: pa.DataType = arrow_type_of_bound(tracked.type)
    if isinstance(tracked.type, _VALUE_BY_VALUE) or any(value is not None for value in values):
        bounds = [bound_of(tracked, side, *each) for each in zip(binary, values, strict=True)]
        return column_of_physical(bounds, kind)
    if isinstance(tracked.type, _AS_WRITTEN):
        return pa.array(binary, pa.binary()).cast(kind)
    # numbers are little-endian in Iceberg's form, and in Arrow's wherever Arrow runs
    return pa.array(binary, pa.binary(kind.bit_width // 8)).view(kind)


__all__ = ["columns_of"]
