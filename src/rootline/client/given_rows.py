"""Rows that a user passes, in every accepted form: Arrow's PyCapsule interface, pandas, a list of dicts, a dict of
columns.

Owns: the forms, and their conversion to Arrow. Does not own: the casts that a table accepts (`row_projection`),
Python's own values (`given_values`), schemas (`given_schema`).
Invariants: a typed value is never changed here. An error names the column, and the row and its value if one of them is
at fault. A key that a dict lacks is distinguished from a key with `None`. No library of data frames is imported here,
so types of pandas and Polars are recognized by the name of their module.

Theory. Any object with `__arrow_c_stream__` or `__arrow_c_array__` is read through it, without code for its library:
Arrow itself, Polars, DuckDB, this library's scans. Two libraries need special code.

* pandas: its capsules turn an unnamed index into columns, turn names that are not text into text, turn dicts into
  structs that have every key (so a map gets entries that no row has), and fail on an object column without naming the
  row. A series of pandas 2 has no capsule. So a frame is read as a dict of series.
* Polars: its capsules contain the addresses of Python objects for a column of objects, and wide integers in a format
  that Arrow refuses without naming the column.
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
from rootline.client.given_values import CODE as _CODE
from rootline.client.given_values import FAULTS as _FAULTS
from rootline.client.given_values import LACKING, has_lacking, is_laid_out, values_of
from rootline.schemas.errors import Invalid

_FORMS: Final = "give an Arrow table, a data frame, a list of dicts, or a dict of columns"
_Column = Any
"""A column in a user's form: an Arrow array, a pandas series, a NumPy array, or a sequence of Python's values."""


@dataclass(frozen=True, slots=True)
class GivenRows:
    """Rows of a known form, not yet converted for a table."""

    num_rows: int
    _given: pa.Table | Mapping[str, _Column]

    @staticmethod
    def of(data: Any) -> GivenRows:
        """The rows in `data`. Raises `Invalid` (`rows-invalid`): it has no rows, or its columns differ in length."""
        found = _by_form(data)
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
        """The names of columns of plain Python values: the user did not choose the width of their types."""
        if isinstance(self._given, pa.Table):
            return frozenset()
        return frozenset(name for name, column in self._given.items() if not _has_a_type(column))

    @property
    def lacking(self) -> dict[str, np.ndarray[Any, np.dtype[np.bool_]]]:
        """Flags of the rows that lack a column, for each column that only some of the dicts have."""
        if isinstance(self._given, pa.Table):
            return {}
        lists = {name: column for name, column in self._given.items() if isinstance(column, list)}
        return {
            name: np.array([value is LACKING for value in values], dtype=np.bool_)
            for name, values in lists.items()
            if has_lacking(values)
        }

    @property
    def own_columns(self) -> pa.Schema:
        """The columns of the rows, without a table's schema. Raises `Invalid` (`rows-invalid`)."""
        return self.for_schema(Schema()).schema

    def for_schema(self, schema: Schema) -> pa.Table:
        """The rows as Arrow, for a table of `schema`. Raises `Invalid` (`rows-invalid`)."""
        if isinstance(self._given, pa.Table):
            return self._given
        wanted: dict[str, NestedField] = {field.name: field for field in schema.fields}
        columns = {name: _arrow_column(name, column, wanted.get(name)) for name, column in self._given.items()}
        return pa.table(columns)


def _by_form(data: Any) -> pa.Table | Mapping[str, _Column]:
    if is_pandas_frame(data):
        return pandas_columns(data, _CODE)
    if is_lazy(data):
        return _by_form(data.collect())
    if _has_rows_in_capsule(data):
        return _table_of_capsule(data)
    if isinstance(data, Mapping):
        return {checks.column_name(name, _CODE): _checked_column(name, column) for name, column in data.items()}
    if isinstance(data, list | tuple | Iterator):
        return _of_items(list(data))
    if hasattr(data, "to_arrow") and not _has_capsule(data):
        try:
            found = data.to_arrow()
        except _FAULTS as error:
            raise _unreadable(data, error) from error
        return _by_form(found)
    raise Invalid(_CODE, f"a {type(data).__name__} contains no rows; {_FORMS}")


def _unreadable(data: object, error: Exception) -> Invalid:
    return Invalid(_CODE, f"a {type(data).__name__} cannot be read as rows: {error}; {_FORMS}")


def _of_items(items: list[Any]) -> pa.Table | Mapping[str, _Column]:
    if items and all(_has_rows_in_capsule(item) and not is_pandas_frame(item) for item in items):
        try:
            return pa.concat_tables([_table_of_capsule(item) for item in items])
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
    if _is_pandas_series(column):
        return column
    if _has_capsule(column) and not _has_columns(column):
        return _array_of_capsule(name, column)
    is_array = isinstance(column, np.ndarray) and column.ndim > 0
    is_ordered = isinstance(column, Sequence | ValuesView | deque) and not isinstance(column, str | bytes)
    if not (is_array or is_ordered):
        reason = f"column {name}: a {type(column).__name__} is not a column; give a list with a value for each row"
        raise Invalid(_CODE, reason)
    return column


def _has_a_type(column: _Column) -> bool:
    return isinstance(column, pa.Array | pa.ChunkedArray) or str(getattr(column, "dtype", "")) not in ("", "object")


def _arrow_column(name: str, column: _Column, wanted: NestedField | None) -> pa.Array | pa.ChunkedArray:
    if isinstance(column, pa.Array | pa.ChunkedArray):
        return column
    is_of_objects = str(getattr(column, "dtype", "")) == "object"
    if _is_pandas_series(column) and not (is_of_objects and is_laid_out(wanted)):
        try:
            return pa.array(column, from_pandas=True)
        except _FAULTS:
            return values_of(name, _without_nan(column.tolist()), wanted)
    if _is_pandas_series(column):
        return values_of(name, _without_nan(column.tolist()), wanted)
    if isinstance(column, np.ndarray) and column.ndim == 1 and not is_of_objects:
        try:
            return pa.array(column)
        except _FAULTS as error:
            raise Invalid(_CODE, f"column {name}: NumPy's {column.dtype} has no Arrow type. Convert it") from error
    return values_of(name, list(column), wanted)


def _has_capsule(value: object) -> bool:
    return hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__")


def _has_rows_in_capsule(value: object) -> bool:
    """Whether `value` exports rows through Arrow's PyCapsule interface. Known types of a single column do not."""
    is_column = isinstance(value, pa.Array | pa.ChunkedArray) or _is_named(value, "polars", "Series")
    return _has_capsule(value) and not is_column


def _has_columns(value: object) -> bool:
    return hasattr(value, "columns") or isinstance(value, pa.RecordBatchReader)


def _table_of_capsule(data: Any) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatchReader):
        return data.read_all()  # a capsule would replace the error that the reader's source raises
    check_polars(data, _CODE)
    try:
        table = pa.table(data)
        table.validate()  # Polars before 2 exports some slices of structs with a member that is too short
    except _FAULTS as error:
        raise _unreadable(data, error) from error
    return table


def _array_of_capsule(name: str, column: Any) -> pa.Array | pa.ChunkedArray:
    if isinstance(column, pa.Array | pa.ChunkedArray):
        return column
    if _is_named(column, "polars", "Series"):
        check_polars(column.to_frame(name), _CODE)
    try:
        array = pa.chunked_array(column) if hasattr(column, "__arrow_c_stream__") else pa.array(column)
        array.validate()
    except _FAULTS as error:
        raise Invalid(
            _CODE, f"column {name}: a {type(column).__name__} cannot be read as Arrow: {error}; cast it first"
        ) from error
    return array


def check_polars(frame: Any, code: str) -> None:
    """Refuse columns of a Polars frame that Arrow cannot represent. Raises `Invalid` (`code`), naming the column."""
    if not _is_named(frame, "polars", "DataFrame"):
        return
    kinds, empty = frame.schema, frame.head(0)
    for name in [name for name, kind in kinds.items() if "Object" in str(kind)] or _not_exported(empty):
        raise Invalid(code, f"column {name} is a Polars {kinds[name]}, which Arrow does not have; cast it first")


def _not_exported(frame: Any) -> list[str]:
    """The columns of a Polars frame that make its capsule unreadable."""
    try:
        pa.table(frame)
    except pa.ArrowException:
        columns = frame.columns
        return columns if len(columns) == 1 else [name for name in columns if _not_exported(frame.select(name))]
    return []


def is_pandas_frame(value: object) -> bool:
    """Whether `value` is a `pandas.DataFrame`."""
    return _is_named(value, "pandas", "DataFrame")


def pandas_columns(frame: Any, code: str) -> dict[str, Any]:
    """Name → series. Named levels of the index are first. `code` is the error's code.

    Raises:
        Invalid: two columns share a name, or a name is not text.
    """
    named = [level for level, name in enumerate(frame.index.names) if name is not None]
    if named:
        try:
            frame = frame.reset_index(level=named)
        except ValueError as error:
            reason = f"the data frame's index cannot become a column: {error}; rename one of the two"
            raise Invalid(code, reason) from error
    columns: dict[str, Any] = {}
    for at, name in enumerate(frame.columns):
        if not isinstance(name, str):
            raise Invalid(code, f"the data frame's column {name!r} has a name that is not text; rename it")
        if name in columns:
            raise Invalid(code, f"the data frame has column {name!r} more than once; rename one of them")
        columns[checks.column_name(name, code)] = frame.iloc[:, at]
    return columns


def _is_pandas_series(value: object) -> bool:
    return _is_named(value, "pandas", "Series") or _is_named(value, "pandas", "Index")


def is_lazy(value: object) -> bool:
    """Whether `value` is a `polars.LazyFrame`, which exports no Arrow data before it is collected."""
    return _is_named(value, "polars", "LazyFrame")


def _is_named(value: object, library: str, name: str) -> bool:
    return any(kind.__name__ == name and kind.__module__.partition(".")[0] == library for kind in type(value).__mro__)


def _without_nan(values: list[Any]) -> list[Any]:
    """The values of a pandas object column, with `None` for its missing values NaN, NaT and NA."""
    return [
        None if value is not None and not isinstance(value, str) and _is_missing(value) else value for value in values
    ]


def _is_missing(value: Any) -> bool:
    return type(value).__name__ in ("NaTType", "NAType") or (isinstance(value, float) and value != value)
