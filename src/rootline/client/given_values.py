"""Conversion of Python values to an Arrow array for a column of the table.

Owns: the layout of values for a table's maps, missing fields of a row or struct, types that Python lacks (32-bit
floats, ISO 8601 texts as dates and times), and the refusal of values of mixed types. Does not own: the forms of rows
(`given_rows`), the casts that a table accepts (`row_projection`).
Invariants: a value changes only by rounding Python's numbers for a `float` column. A missing field gets the write
default of its column, and a field that is `None` is null. A map has exactly the entries of its dict. An error names the
column, and the row and its value if one of them is at fault.
"""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    DateType,
    DecimalType,
    FloatType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from rootline.schemas.errors import Invalid
from rootline.storage.rows.arrow_types import arrow_type_of, may_cast
from rootline.storage.rows.row_projection import RowProjection, find_by_name, write_default

CODE: Final = "rows-invalid"
FAULTS: Final = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError, NotImplementedError)
_DEPTH_MAX: Final = 100
_CONTAINERS: Final = (Mapping, list, tuple, set, frozenset, deque)
_TEMPORAL: Final[dict[type[IcebergType], str]] = {
    DateType: "2024-01-31",
    TimeType: "13:45:00.5",
    TimestampType: "2024-01-31T13:45:00, without an offset",
    TimestampNanoType: "2024-01-31T13:45:00, without an offset",
    TimestamptzType: "2024-01-31T13:45:00+01:00, with its offset or Z",
    TimestamptzNanoType: "2024-01-31T13:45:00+01:00, with its offset or Z",
}
"""Types that accept a text in ISO 8601, with an example."""


class Lacking(Enum):
    """The marker of a missing field in a row or struct. `None` means null instead."""

    FIELD = "lacking"


LACKING: Final = Lacking.FIELD


def has_lacking(values: Sequence[Any]) -> bool:
    """Whether some rows lack the column."""
    return any(value is LACKING for value in values)


def is_laid_out(field: NestedField | None) -> bool:
    """Whether this module converts the Python values of a column: Arrow cannot distinguish a dict for a map from a dict
    for a struct, and makes no UUIDs in structs and lists.
    """
    return field is not None and (_is_unknown_inside(field.field_type) or _has_default(field.field_type))


def values_of(name: str, values: Sequence[Any], field: NestedField | None, *, are_rows: bool = True) -> pa.Array:
    """An array of `values` for the column `field`, with its write default in place of missing values.

    Args:
        name: the column's name, for messages.
        values: one value a row, or `LACKING`.
        field: the table's column, or `None` if it has no such column.
        are_rows: whether the index of a value is the number of its row.

    Raises:
        Invalid: `rows-invalid`, naming the column, and the value whose type differs from the others.
    """
    wanted = None if field is None else field.field_type
    if not has_lacking(values):
        return _of_values(name, values, wanted, are_rows=are_rows)
    places = [at for at, value in enumerate(values) if value is LACKING]
    array = _of_values(name, [None if value is LACKING else value for value in values], wanted, are_rows=are_rows)
    if field is None or field.write_default is None:
        return array
    projection = RowProjection(find_by_name, write_default, CODE, "rows", accepts=may_cast)
    try:
        typed = projection.as_values(array, field.field_type, name, 0 if are_rows else None)
    except Invalid:
        return array  # a value does not fit: the projection of all rows refuses it, unless the column is widened
    default = projection.default_value(field, name)
    order = np.arange(len(values), dtype=np.int64)
    order[places] = len(values)
    return pa.concat_arrays([typed, default]).take(pa.array(order))


def _of_values(name: str, values: Sequence[Any], wanted: IcebergType | None, *, are_rows: bool = True) -> pa.Array:
    """An array of Python's values. They are converted to `wanted` here if that type contains a map, a UUID or a
    default, and by Arrow otherwise.
    """
    _refuse_depth(name, values)
    match wanted:
        case MapType():
            return _map_of_values(name, values, wanted)
        case StructType() if _is_unknown_inside(wanted) or (_has_default(wanted) and _are(values, Mapping)):
            return _struct_of_values(name, values, wanted, are_rows)
        case ListType() if _is_unknown_inside(wanted) or (_has_default(wanted) and _are(values, list | tuple)):
            return _list_of_values(name, values, wanted)
    try:
        found = pa.array(values)
    except FAULTS as error:
        if isinstance(wanted, DecimalType):
            try:
                return pa.array(values, arrow_type_of(wanted))  # integers of any length, and both kinds of numbers
            except FAULTS:
                pass
        raise _misfit(name, values, error) from error
    changed = changed_value(values, found.type)
    if changed is not None:
        raise Invalid(
            CODE,
            f"column {name}: {changed!r:.80} would be changed, because Arrow's type of the column does not fit it. "
            "Times with and without a zone, dates and timestamps, booleans and numbers must not be mixed, and Arrow "
            "has no time of day with a zone: convert the values to one kind",
        )
    return found if wanted is None or isinstance(found, pa.ChunkedArray) else _converted(found, wanted, name, are_rows)


def _are(values: Sequence[Any], kind: Any) -> bool:
    return all(value is None or isinstance(value, kind) for value in values)


def _refuse_depth(name: str, values: Sequence[Any]) -> None:
    """Limit the nesting: Arrow recurses into values until the process runs out of stack."""
    level: Sequence[Any] = values
    for _ in range(_DEPTH_MAX):
        if not any(issubclass(kind, _CONTAINERS) for kind in _kinds(level)):
            return
        inner: dict[int, Any] = {}
        for value in level:
            if isinstance(value, _CONTAINERS):
                parts = list(value.values()) if isinstance(value, Mapping) else value
                if any(issubclass(kind, _CONTAINERS) for kind in _kinds(parts)):
                    inner.update((id(part), part) for part in parts)
        level = list(inner.values())
    raise Invalid(CODE, f"column {name}: a value contains itself, or nests more than {_DEPTH_MAX} deep; flatten it")


def _converted(array: pa.Array, wanted: IcebergType, name: str, are_rows: bool) -> pa.Array:
    """The array with Python's numbers as 32-bit floats, and texts as dates and times, if the table has these types."""
    types, kind = pa.types, array.type
    if isinstance(wanted, FloatType) and types.is_float64(kind):
        return _rounded(array)
    if type(wanted) in _TEMPORAL and types.is_string(kind):
        return _parsed(array, wanted, name, are_rows)
    if isinstance(wanted, StructType) and types.is_struct(kind):
        known = {field.name: field.field_type for field in wanted.fields}
        names, given = [field.name for field in kind], array.flatten()  # a member is null if its struct is null
        members = [
            _converted(member, known[part], f"{name}.{part}", are_rows) if part in known else member
            for part, member in zip(names, given, strict=True)
        ]
        if all(map(_is, members, given)):
            return array
        return pa.StructArray.from_arrays(members, names=names, mask=array.is_null())
    if isinstance(wanted, ListType) and types.is_list(kind):
        elements = _converted(array.values, wanted.element_type, f"{name}.element", False)
        if elements is array.values or elements.type == kind.value_type:
            return array
        offsets = pa.array(array.offsets.to_numpy(zero_copy_only=False), pa.int32())  # a mask needs a separate buffer
        return pa.ListArray.from_arrays(offsets, elements, mask=array.is_null())
    return array


def _is(one: object, other: object) -> bool:
    return one is other


def _rounded(array: pa.Array) -> pa.Array:
    cast = array.cast(pa.float32())
    has_overflow = pc.any(pc.and_(pc.is_inf(cast), pc.invert(pc.is_inf(array)))).as_py()
    return array if has_overflow else cast


def _parsed(array: pa.Array, wanted: IcebergType, name: str, are_rows: bool) -> pa.Array:
    arrow_type = arrow_type_of(wanted)

    def parse(texts: pa.Array) -> pa.Array:
        if not pa.types.is_time(arrow_type):
            return texts.cast(arrow_type)
        moments = pc.binary_join_element_wise("1970-01-01T", texts, "")
        return moments.cast(pa.timestamp("us")).cast(arrow_type)

    try:
        return parse(array)
    except pa.ArrowInvalid as error:
        at = _first_fault(len(array), lambda count: parse(array.slice(0, count)))
        where = f"row {at} (the first is 0)" if are_rows else "a value"
        reason = f"column {name} is a {wanted}, and {where} is {array[at].as_py()!r:.80}, which cannot be parsed"
        raise Invalid(CODE, f"{reason}; write it in ISO 8601, as in {_TEMPORAL[type(wanted)]}") from error


def _first_fault(count: int, build: Callable[[int], object]) -> int:
    """The index of the first of `count` values that makes `build` fail. `build(n)` builds the first `n` values."""
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        try:
            build(middle)
        except FAULTS:
            high = middle
        else:
            low = middle
    return low


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
                raise Invalid(CODE, f"column {name}: row {at} (the first is 0) has the key None; give it a name")
            keys.append(key)
            items.append(item)
    found_keys = _of_values(f"{name}.key", keys, wanted.key_type, are_rows=False)
    found_items = _of_values(f"{name}.value", items, wanted.value_type, are_rows=False)
    return pa.MapArray.from_arrays(pa.array([*offsets, len(keys)], pa.int32()), found_keys, found_items)


def _struct_of_values(name: str, values: Sequence[Any], wanted: StructType, are_rows: bool) -> pa.Array:
    fields = {field.name: field for field in wanted.fields}
    names: dict[str, None] = {}
    for at, value in enumerate(values):
        if value is not None and not isinstance(value, Mapping):
            raise _not_a(name, at, value, "a dict")
        names.update(dict.fromkeys(value or ()))
    members = [
        values_of(
            f"{name}.{member}",
            [None if value is None else value.get(member, LACKING) for value in values],
            fields.get(member),
            are_rows=are_rows,
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
    found = _of_values(f"{name}.element", elements, wanted.element_type, are_rows=False)
    return pa.ListArray.from_arrays(pa.array([*offsets, len(elements)], pa.int32()), found)


def _not_a(name: str, at: int, value: object, wanted: str) -> Invalid:
    return Invalid(CODE, f"column {name}: row {at} (the first is 0) is {value!r:.80}, and not {wanted}; convert it")


def _misfit(name: str, values: Sequence[Any], error: Exception) -> Invalid:
    """The error that names the first value whose type differs from those before it."""
    low = _first_fault(len(values), lambda count: pa.array(values[:count]))
    if isinstance(error, UnicodeError):
        half = f"column {name}: row {low} (the first is 0) is {values[low]!r:.80}, which contains a lone surrogate"
        return Invalid(CODE, f"{half}; correct the text")
    reason = error.args[0] if error.args else error
    return Invalid(
        CODE,
        f"column {name}: row {low} (the first is 0) is {values[low]!r:.80}, whose type differs from the rows "
        f"before it, or is unknown to Arrow ({reason}); convert it",
    )


def _is_unknown_inside(wanted: IcebergType) -> bool:
    """Whether Arrow cannot make such values inside of others: maps from dicts, and UUIDs."""
    match wanted:
        case StructType():
            return any(_is_unknown_inside(field.field_type) for field in wanted.fields)
        case ListType():
            return _is_unknown_inside(wanted.element_type)
    return isinstance(wanted, MapType | UUIDType)


def _has_default(wanted: IcebergType) -> bool:
    """Whether `wanted` contains a struct with a member that has a write default."""
    match wanted:
        case StructType():
            return any(field.write_default is not None or _has_default(field.field_type) for field in wanted.fields)
        case ListType():
            return _has_default(wanted.element_type)
    return False


def changed_value(values: Sequence[Any], arrow_type: pa.DataType) -> Any:
    """A value that Arrow would change when it builds `pa.array(values)` of this type, or `None` if there is none."""
    types = pa.types
    if types.is_timestamp(arrow_type):
        return _other_zone(values)
    if types.is_time(arrow_type):
        return next((value for value in values if isinstance(value, dt.time) and value.tzinfo is not None), None)
    if types.is_date(arrow_type):
        return next((value for value in values if isinstance(value, dt.datetime)), None)
    if types.is_floating(arrow_type):
        return next((value for value in values if isinstance(value, bool)), None) if bool in _kinds(values) else None
    if types.is_struct(arrow_type):
        structs = [value for value in values if isinstance(value, Mapping)]
        parts: Iterable[tuple[list[Any], pa.DataType]] = (
            ([value.get(field.name) for value in structs], field.type) for field in arrow_type
        )
        return next((found for part in parts if (found := changed_value(*part)) is not None), None)
    if types.is_list(arrow_type):
        return changed_value(_elements(values), arrow_type.value_type)
    return None


def _kinds(values: Iterable[Any]) -> set[type]:
    return set(map(type, values))


def _elements(values: Sequence[Any]) -> list[Any]:
    return list(chain.from_iterable(value for value in values if isinstance(value, list | tuple | set | frozenset)))


def _other_zone(values: Sequence[Any]) -> Any:
    first: dt.datetime | None = None
    for value in values:
        if isinstance(value, dt.datetime) and value == value:  # NaT differs from itself
            if first is None:
                first = value
            elif (value.tzinfo is None) != (first.tzinfo is None):
                return value
    return None
