"""Partitions as the filter that an overwrite is held against.

Owns: that text. Does not own: the grammar (`rootline.tree.filter`), which partitions there are (`replaced_rows`).
Invariants: every row of the partitions matches; where a transform or a type cannot be said, the filter says less, and
more changes by others are conflicts.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any, Final

from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    YearTransform,
)
from pyiceberg.types import (
    BooleanType,
    DateType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from rootline.schemas.content_entry import Bound
from rootline.schemas.table_definition import PartitionSpec, TableDefinition
from rootline.tree.rules.isolation_rules import FILTER_CHARS_MAX
from rootline.tree.scan.partition_tuple import PartitionTuple

PARTITIONS_MAX: Final = 500
"""More of them make a filter that takes the coordinator longer than the conflicts that it avoids."""
_EPOCH: Final = dt.datetime(1970, 1, 1)


def filter_of_partitions(
    definition: TableDefinition, spec: PartitionSpec, partitions: Iterable[PartitionTuple]
) -> str | None:
    """A filter that all rows of `partitions` match; `None`: nothing less than every row can be said."""
    found: set[str] = set()
    for values in partitions:
        said = [_said(definition, member, value) for member, value in zip(spec.expr_ids, values, strict=True)]
        known = [text for text in said if text is not None]
        if not known or len(found) >= PARTITIONS_MAX:
            return None
        found.add(" and ".join(known))
    text = " or ".join(f"({each})" for each in sorted(found))
    return text if text and len(text) <= FILTER_CHARS_MAX else None


def _said(definition: TableDefinition, member: int, value: Bound | None) -> str | None:
    source_id, transform = definition.transform_of(member)
    expression = definition.expressions_by_id.get(member)
    if expression is not None and len(expression.source_ids) != 1:
        return None
    column = _column(definition.schema, source_id)
    if column is None:
        return None
    name, kind = column
    if isinstance(transform, IdentityTransform):
        literal = "null" if value is None else _literal(value, kind)
        return None if literal is None else f"{name} {'is' if value is None else '='} {literal}"
    bounds = None if value is None or type(value) is not int else _range(transform, value, kind)
    return None if bounds is None else f"{name} >= '{bounds[0]}' and {name} < '{bounds[1]}'"


def _column(schema: Schema, field_id: int) -> tuple[str, IcebergType] | None:
    field = next((field for field in schema.fields if field.field_id == field_id), None)
    return None if field is None else ('"' + field.name.replace('"', '""') + '"', field.field_type)


def _literal(value: Any, kind: IcebergType) -> str | None:
    if isinstance(kind, BooleanType):
        return "true" if value else "false"
    if isinstance(kind, IntegerType | LongType):
        return str(value)
    if isinstance(kind, StringType):
        return "'" + str(value).replace("'", "''") + "'"
    if isinstance(kind, DateType):
        day = _start(DayTransform(), value)
        return None if day is None else f"'{day.date().isoformat()}'"
    return None


def _range(transform: Transform[Any, Any], value: int, kind: IcebergType) -> tuple[str, str] | None:
    """The first moment of a year, month, day or hour, and the first after it."""
    if not isinstance(kind, DateType | TimestampType | TimestamptzType):
        return None
    starts = [_start(transform, each) for each in (value, value + 1)]
    if None in starts:
        return None
    is_date = isinstance(kind, DateType)
    low, high = ((start.date() if is_date else start).isoformat() for start in starts if start is not None)
    return low, high


def _start(transform: Transform[Any, Any], value: int) -> dt.datetime | None:
    try:
        if isinstance(transform, YearTransform):
            return _EPOCH.replace(year=1970 + value)
        if isinstance(transform, MonthTransform):
            return _EPOCH.replace(year=1970 + value // 12, month=1 + value % 12)
        if isinstance(transform, DayTransform):
            return _EPOCH + dt.timedelta(days=value)
        if isinstance(transform, HourTransform):
            return _EPOCH + dt.timedelta(hours=value)
    except (OverflowError, ValueError):
        return None
    return None
