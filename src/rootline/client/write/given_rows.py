"""Rows that a user gives, in whichever form: Arrow, pandas, Polars, a list of dicts, a dict of columns.

Owns: which forms there are, and their way to Arrow. Does not own: what may become what in the table (`row_projection`),
data frames (`given_frames`).
Invariants: a value is never changed here; Python's own values become maps only where the table has a map, with exactly
the entries that they have; an error names the column, and the row and its value where one of them is at fault.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence, ValuesView
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType

from rootline.client import checks
from rootline.client.write.given_frames import (
    is_pandas_frame,
    is_polars_frame,
    is_series,
    pandas_columns,
    polars_series,
    polars_table,
)
from rootline.client.write.mixed_values import changed_value
from rootline.schemas.errors import Invalid
from rootline.storage.rows.arrow_types import arrow_type_of

_CODE: Final = "rows-invalid"
_FORMS: Final = "give an Arrow table, a data frame, a list of dicts, or a dict of columns"
_FAULTS: Final = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError, NotImplementedError)
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
        columns = {
            name: _arrow_column(name, column, wanted[name].field_type if name in wanted else None)
            for name, column in self._given.items()
        }
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
    return {checks.column_name(name, _CODE): [item.get(name) for item in items] for name in names}


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


def _arrow_column(name: str, column: _Column, wanted: IcebergType | None) -> pa.Array | pa.ChunkedArray:
    if isinstance(column, pa.Array | pa.ChunkedArray):
        return column
    if is_series(column, "polars"):
        return polars_series(column, name, _CODE)
    is_of_objects = str(getattr(column, "dtype", "")) == "object"
    if is_series(column, "pandas") and not (is_of_objects and _has_map(wanted)):
        try:
            return pa.array(column, from_pandas=True)
        except _FAULTS:
            return _of_values(name, _without_nan(column.tolist()), wanted)
    if is_series(column, "pandas"):
        return _of_values(name, _without_nan(column.tolist()), wanted)
    if isinstance(column, np.ndarray) and column.ndim == 1 and not is_of_objects:
        try:
            return pa.array(column)
        except _FAULTS as error:
            raise Invalid(_CODE, f"column {name}: NumPy's {column.dtype} has no Arrow type; convert it") from error
    return _of_values(name, list(column), wanted)


def _without_nan(values: list[Any]) -> list[Any]:
    """Pandas writes NaN, NaT and NA for a value that is missing."""
    return [
        None if value is not None and not isinstance(value, str) and _is_missing(value) else value for value in values
    ]


def _is_missing(value: Any) -> bool:
    return type(value).__name__ in ("NaTType", "NAType") or (isinstance(value, float) and value != value)


def _of_values(name: str, values: Sequence[Any], wanted: IcebergType | None) -> pa.Array:
    """An array of Python's values, laid out as `wanted` where that has a map in it."""
    if wanted is not None and _has_map(wanted):
        if isinstance(wanted, MapType):
            return _map_of_values(name, values, wanted)
        if isinstance(wanted, StructType):
            return _struct_of_values(name, values, wanted)
        if isinstance(wanted, ListType):
            return _list_of_values(name, values, wanted)
    try:
        found = pa.array(values)
    except _FAULTS as error:
        if isinstance(wanted, DecimalType):
            try:
                return pa.array(values, arrow_type_of(wanted))  # integers of any length, and both kinds of numbers
            except _FAULTS:
                pass
        raise _misfit(name, values, error) from error
    changed = changed_value(values, found.type)
    if changed is not None:
        raise Invalid(
            _CODE,
            f"column {name}: {changed!r:.80} would become another value, because the column has values of another kind "
            "or none of this one: times with and without a zone, dates and timestamps, truth values and numbers do not "
            "mix; convert them to one kind",
        )
    return found


def _map_of_values(name: str, values: Sequence[Any], wanted: MapType) -> pa.Array:
    offsets: list[int | None] = []
    keys: list[Any] = []
    items: list[Any] = []
    for at, value in enumerate(values):
        offsets.append(None if value is None else len(keys))
        if value is None:
            continue
        pairs = list(value.items()) if isinstance(value, Mapping) else value
        if not isinstance(pairs, list | tuple) or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
            raise _not_a(name, at, value, "a dict, or a list of pairs")
        for key, item in pairs:
            if key is None:
                raise Invalid(_CODE, f"column {name}: row {at} (the first is 0) has the key None; give it a name")
            keys.append(key)
            items.append(item)
    found_keys = _of_values(f"{name}.key", keys, wanted.key_type)
    found_items = _of_values(f"{name}.value", items, wanted.value_type)
    return pa.MapArray.from_arrays(pa.array([*offsets, len(keys)], pa.int32()), found_keys, found_items)


def _struct_of_values(name: str, values: Sequence[Any], wanted: StructType) -> pa.Array:
    kinds = {field.name: field.field_type for field in wanted.fields}
    names: dict[str, None] = {}
    for at, value in enumerate(values):
        if value is not None and not isinstance(value, Mapping):
            raise _not_a(name, at, value, "a dict")
        names.update(dict.fromkeys(value or ()))
    members = [
        _of_values(
            f"{name}.{member}", [None if value is None else value.get(member) for value in values], kinds.get(member)
        )
        for member in names
    ]
    missing = pa.array([value is None for value in values], pa.bool_())
    if not members:
        return pa.array([None if value is None else {} for value in values], pa.struct([]))
    return pa.StructArray.from_arrays(members, names=list(names), mask=missing)


def _list_of_values(name: str, values: Sequence[Any], wanted: ListType) -> pa.Array:
    offsets: list[int | None] = []
    elements: list[Any] = []
    for at, value in enumerate(values):
        offsets.append(None if value is None else len(elements))
        if value is not None:
            if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__iter__"):
                raise _not_a(name, at, value, "a list")
            elements.extend(value)
    found = _of_values(f"{name}.element", elements, wanted.element_type)
    return pa.ListArray.from_arrays(pa.array([*offsets, len(elements)], pa.int32()), found)


def _not_a(name: str, at: int, value: object, wanted: str) -> Invalid:
    return Invalid(_CODE, f"column {name}: row {at} (the first is 0) is {value!r:.80}, and not {wanted}; convert it")


def _misfit(name: str, values: Sequence[Any], error: Exception) -> Invalid:
    """Which value is the first that does not go with those before it."""
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            pa.array(values[:middle])
        except _FAULTS:
            high = middle
        else:
            low = middle
    reason = error.args[0] if error.args else error
    return Invalid(
        _CODE,
        f"column {name}: row {low} (the first is 0) is {values[low]!r:.80}, which is of another type than the rows "
        f"before it, or of none that Arrow has ({reason}); convert it",
    )


def _has_map(wanted: IcebergType | None) -> bool:
    if wanted is None or isinstance(wanted, PrimitiveType):
        return False
    if isinstance(wanted, StructType):
        return any(_has_map(field.field_type) for field in wanted.fields)
    return isinstance(wanted, MapType) or (isinstance(wanted, ListType) and _has_map(wanted.element_type))
