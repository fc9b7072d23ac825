"""Residuals: the part of a filter that statistics of a file do not decide, so its rows must be tested.

Owns: removing the tests that a file's statistics and partition values decide.
Does not own: the projections (`prune`), evaluating the residual on rows (`column_predicates`).
Invariants: A row of the file satisfies the residual if and only if it satisfies the filter. `None` means that every
row does.

Source: the Iceberg specification, "Scan Planning" (strict projection, residual predicates).
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
)

from rootline.schemas.content_entry import Bound, ContentEntry
from rootline.tree.filter.conditions import (
    ALWAYS,
    NEVER,
    AllOf,
    AnyOf,
    ColumnPair,
    Condition,
    Operator,
    Predicate,
    all_of,
    any_of,
)
from rootline.tree.filter.filters import BoundFilter
from rootline.tree.filter.prune import PruningFilter

_EPOCH: Final = dt.datetime(1970, 1, 1)
_MICROSECONDS: Final = (TimestampType, TimestamptzType)
_NANOSECONDS: Final = (TimestampNanoType, TimestamptzNanoType)
_VALUES_SHOWN: Final = 50
_PLAIN: Final = re.compile(r"[^\W\d][\w$]*(?:\.[^\W\d][\w$]*)*\Z")
_ZONED: Final = (TimestamptzType, TimestamptzNanoType)


def residual_of(pruning: PruningFilter, entry: ContentEntry) -> BoundFilter | None:
    """The residual of the filter for data file `entry`, or `None` if its statistics prove that every row matches."""
    rest = _simplified(pruning, pruning.bound.condition, entry)
    if rest == ALWAYS:
        return None
    if rest == pruning.bound.condition:
        return pruning.bound
    return BoundFilter(rest, text_of(rest, pruning.definition.schema))


def _simplified(pruning: PruningFilter, condition: Condition, entry: ContentEntry) -> Condition:
    if isinstance(condition, AllOf | AnyOf):
        parts = tuple(_simplified(pruning, part, entry) for part in condition.parts)
        return all_of(parts) if isinstance(condition, AllOf) else any_of(parts)
    may, must = pruning.checks_of(condition)
    members = pruning.members_of(entry.partition_spec_id)
    if must(entry.content_stats, entry.record_count, members):
        return ALWAYS
    return condition if may(entry.content_stats, entry.record_count, members) else NEVER


def text_of(condition: Condition, schema: Schema) -> str:
    """The condition in the syntax of filter text."""
    if isinstance(condition, Predicate):
        return _text_of_predicate(condition, schema)
    if isinstance(condition, ColumnPair):
        left, right = _name(condition.left_id, schema), _name(condition.right_id, schema)
        return f"{left} {condition.operator.value} {right}"
    is_all = isinstance(condition, AllOf)
    if not condition.parts:
        return "true" if is_all else "false"
    parts = (
        f"({text_of(part, schema)})" if isinstance(part, AllOf | AnyOf) else text_of(part, schema)
        for part in condition.parts
    )
    return (" and " if is_all else " or ").join(parts)


def _text_of_predicate(predicate: Predicate, schema: Schema) -> str:
    name = _name(predicate.field_id, schema)
    values = [_literal(value, predicate.field_id, schema) for value in predicate.values[:_VALUES_SHOWN]]
    if len(predicate.values) > _VALUES_SHOWN:
        values.append(f"… {len(predicate.values) - _VALUES_SHOWN} more")
    if not values:
        return f"{name} {predicate.operator.value}"
    if predicate.operator in (Operator.IN, Operator.NOT_IN):
        return f"{name} {predicate.operator.value} ({', '.join(values)})"
    return f"{name} {predicate.operator.value} {values[0]}"


def _name(field_id: int, schema: Schema) -> str:
    name = schema.find_column_name(field_id)
    if name is None:
        return f"column {field_id}"
    return name if _PLAIN.match(name) else '"' + name.replace('"', '""') + '"'


def _literal(value: Bound, field_id: int, schema: Schema) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, bool) or not isinstance(value, int):
        return str(value).lower() if isinstance(value, bool) else str(value)
    try:
        kind = schema.find_type(field_id)
        if isinstance(kind, DateType):
            return f"'{(_EPOCH + dt.timedelta(days=value)).date().isoformat()}'"
        if isinstance(kind, _MICROSECONDS + _NANOSECONDS):
            whole = value if isinstance(kind, _MICROSECONDS) else value // 1000
            zone = "+00:00" if isinstance(kind, _ZONED) else ""
            return f"'{(_EPOCH + dt.timedelta(microseconds=whole)).isoformat()}{zone}'"
    except (ValueError, OverflowError):  # a year beyond 9999, or a dropped column
        pass
    return str(value)
