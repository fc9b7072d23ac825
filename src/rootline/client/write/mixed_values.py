"""Finds Python values that Arrow puts into one column only by changing them.

Owns: these pairs of kinds: times with a zone and without, dates and timestamps, truth values and numbers. Does not own:
what else has no common type (`given_rows`), casts (`rootline.storage.rows.exact_cast`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa


def changed_value(values: Sequence[Any], arrow_type: pa.DataType) -> Any:
    """A value that `pa.array(values)`, which is of `arrow_type`, does not have as it was; `None`: there is none."""
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
        held = [value for value in values if isinstance(value, Mapping)]
        parts: Iterable[tuple[list[Any], pa.DataType]] = (
            ([value.get(field.name) for value in held], field.type) for field in arrow_type
        )
        return next((found for part in parts if (found := changed_value(*part)) is not None), None)
    if types.is_list(arrow_type):
        return changed_value(_elements(values), arrow_type.value_type)
    return None


def _kinds(values: Sequence[Any]) -> set[type]:
    return set(map(type, values))


def _elements(values: Sequence[Any]) -> list[Any]:
    return list(chain.from_iterable(value for value in values if isinstance(value, list | tuple | set | frozenset)))


def _other_zone(values: Sequence[Any]) -> Any:
    first: dt.datetime | None = None
    for value in values:
        if isinstance(value, dt.datetime) and value == value:  # NaT is none
            if first is None:
                first = value
            elif (value.tzinfo is None) != (first.tzinfo is None):
                return value
    return None
