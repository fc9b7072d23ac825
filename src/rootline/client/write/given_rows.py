"""Rows that a user gives, in whichever form: Arrow, pandas, Polars, a list of dicts, a dict of columns.

Owns: which forms there are, and their way to Arrow. Does not own: what may become what in the table (`row_projection`),
data frames (`given_frames`), Python's own values (`given_values`).
Invariants: a value that has a type of its own is never changed here; an error names the column, and the row and its
value where one of them is at fault; a field that a dict lacks is told from one that is `None`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence, ValuesView
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from rootline.client import checks
from rootline.client.write.given_frames import (
    is_pandas_frame,
    is_polars_frame,
    is_series,
    pandas_columns,
    polars_series,
    polars_table,
)
from rootline.client.write.given_values import CODE as _CODE
from rootline.client.write.given_values import FAULTS as _FAULTS
from rootline.client.write.given_values import LACKING, is_laid_out, values_of
from rootline.schemas.errors import Invalid

_FORMS: Final = "give an Arrow table, a data frame, a list of dicts, or a dict of columns"
_Column = Any
"""What a user gives as a column: an Arrow array, a series, a NumPy array, or a sequence of Python's values."""


@dataclass(frozen=True, slots=True)
class GivenRows:
    """Rows that were told apart, and are not yet of any table."""

    num_rows: int
    _given: pa.Table | Mapping[str, _Column]

    @staticmethod
    def of(data: Any) -> GivenRows:
        """Raises `Invalid` (`rows-invalid`): `data` holds no rows, or its columns differ in length."""
        found = _told_apart(data)
        if isinstance(found, pa.Table):
            return GivenRows(found.num_rows, found)
        lengths = {name: len(column) for name, column in found.items()}
        if len(set(lengths.values())) > 1:
            shown = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise Invalid(_CODE, f"the columns differ in length: {shown:.200}; give every row a value, or None")
        return GivenRows(max(lengths.values(), default=0), found)

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return self._given.column_names if isinstance(self._given, pa.Table) else list(self._given)

    @property
    def columns_of_values(self) -> frozenset[str]:
        """Columns of Python's own values: how wide their types are follows from nothing that the user said."""
        if isinstance(self._given, pa.Table):
            return frozenset()
        return frozenset(name for name, column in self._given.items() if not _has_a_type(column))

    @property
    def own_columns(self) -> pa.Schema:
        """The columns that the rows have by themselves. Raises `Invalid` (`rows-invalid`)."""
        return self.for_schema(Schema()).schema

    def for_schema(self, schema: Schema) -> pa.Table:
        """The rows as Arrow, for a table of `schema`. Raises `Invalid` (`rows-invalid`)."""
        if isinstance(self._given, pa.Table):
            return self._given
        wanted: dict[str, NestedField] = {field.name: field for field in schema.fields}
        columns = {name: _arrow_column(name, column, wanted.get(name)) for name, column in self._given.items()}
        return pa.table(columns)


def _told_apart(data: Any) -> pa.Table | Mapping[str, _Column]:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if is_pandas_frame(data):
        return pandas_columns(data, _CODE)
    if is_polars_frame(data):
        return polars_table(data, _CODE)
    if isinstance(data, Mapping):
        return {checks.column_name(name, _CODE): _checked_column(name, column) for name, column in data.items()}
    if isinstance(data, list | tuple | Iterator):
        return _of_items(list(data))
    try:
        if hasattr(data, "__arrow_c_stream__") and not _is_any_series(data):
            return pa.table(data)
        if hasattr(data, "to_arrow") and not _is_any_series(data):
            return _told_apart(data.to_arrow())
    except _FAULTS as error:
        raise Invalid(_CODE, f"a {type(data).__name__} cannot be read as rows: {error}; {_FORMS}") from error
    raise Invalid(_CODE, f"a {type(data).__name__} holds no rows; {_FORMS}")


def _of_items(items: list[Any]) -> pa.Table | Mapping[str, _Column]:
    if items and all(isinstance(item, pa.RecordBatch | pa.Table) for item in items):
        try:
            return pa.concat_tables([item if isinstance(item, pa.Table) else pa.table(item) for item in items])
        except pa.ArrowException as error:
            raise Invalid(_CODE, f"the batches differ in their columns: {error}; give batches of one schema") from error
    names: dict[str, None] = {}
    for at, item in enumerate(items):
        if not isinstance(item, Mapping):
            reason = f"row {at} (the first is 0) is a {type(item).__name__}, not a dict"
            raise Invalid(_CODE, f"{reason}; {_FORMS}")
        names.update(dict.fromkeys(item))
    if items and not names:
        raise Invalid(_CODE, "the rows have no columns; give dicts of names and values")
    return {checks.column_name(name, _CODE): [item.get(name, LACKING) for item in items] for name in names}


def _checked_column(name: str, column: Any) -> _Column:
    is_array = isinstance(column, np.ndarray) and column.ndim > 0
    is_ordered = isinstance(column, Sequence | ValuesView | deque) and not isinstance(column, str | bytes)
    if not (is_array or is_ordered or _is_any_series(column)):
        reason = f"column {name}: a {type(column).__name__} is no column; give a list with a value for each row"
        raise Invalid(_CODE, reason)
    return column


def _has_a_type(column: _Column) -> bool:
    if isinstance(column, pa.Array | pa.ChunkedArray) or is_series(column, "polars"):
        return True
    return str(getattr(column, "dtype", "")) not in ("", "object")


def _is_any_series(value: object) -> bool:
    return is_series(value, "pandas") or is_series(value, "polars") or isinstance(value, pa.Array | pa.ChunkedArray)


def _arrow_column(name: str, column: _Column, wanted: NestedField | None) -> pa.Array | pa.ChunkedArray:
    if isinstance(column, pa.Array | pa.ChunkedArray):
        return column
    if is_series(column, "polars"):
        return polars_series(column, name, _CODE)
    is_of_objects = str(getattr(column, "dtype", "")) == "object"
    if is_series(column, "pandas") and not (is_of_objects and is_laid_out(wanted)):
        try:
            return pa.array(column, from_pandas=True)
        except _FAULTS:
            return values_of(name, _without_nan(column.tolist()), wanted)
    if is_series(column, "pandas"):
        return values_of(name, _without_nan(column.tolist()), wanted)
    if isinstance(column, np.ndarray) and column.ndim == 1 and not is_of_objects:
        try:
            return pa.array(column)
        except _FAULTS as error:
            raise Invalid(_CODE, f"column {name}: NumPy's {column.dtype} has no Arrow type; convert it") from error
    return values_of(name, list(column), wanted)


def _without_nan(values: list[Any]) -> list[Any]:
    """Pandas writes NaN, NaT and NA for a value that is missing."""
    return [
        None if value is not None and not isinstance(value, str) and _is_missing(value) else value for value in values
    ]


def _is_missing(value: Any) -> bool:
    return type(value).__name__ in ("NaTType", "NAType") or (isinstance(value, float) and value != value)
