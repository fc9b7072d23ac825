"""Spark's pushed filters in PyIceberg's words.

Owns: the translation. Does not own: evaluation (`rootline.tree.filters`, `rootline.tree.prune`).
Invariants: what is translated means the same; what has no translation is left to Spark, which checks every row again
in any case.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from decimal import Decimal
from functools import reduce
from typing import Any, Final

from pyiceberg import expressions
from pyspark.sql import datasource as spark

_make: Final[Any] = expressions  # its models declare fields that their own constructors name otherwise


def translated(filters: Iterable[spark.Filter]) -> expressions.BooleanExpression | None:
    """The conjunction of those `filters` that can be translated; `None` when none can."""
    parts = [part for part in map(_translate, filters) if part is not None]
    return reduce(_make.And, parts) if parts else None


def _translate(condition: spark.Filter) -> Any:
    match condition:
        case spark.Not(child=child):
            inner = _translate(child)
            return None if inner is None else _make.Not(inner)
        case spark.IsNull(attribute=column):
            return _make.IsNull(_name(column))
        case spark.IsNotNull(attribute=column):
            return _make.NotNull(_name(column))
        case spark.In(attribute=column, value=values):
            literals = [_literal(value) for value in values]
            return _make.In(_name(column), literals) if literals and None not in literals else None
        case spark.StringStartsWith(attribute=column, value=value):
            return _make.StartsWith(_name(column), value)
    comparison = _COMPARISONS.get(type(condition))
    if comparison is None:
        return None
    literal = _literal(condition.value)  # type: ignore[attr-defined]
    return None if literal is None else comparison(_name(condition.attribute), literal)  # type: ignore[attr-defined]


_COMPARISONS: dict[type, Any] = {
    spark.EqualTo: _make.EqualTo,
    spark.GreaterThan: _make.GreaterThan,
    spark.GreaterThanOrEqual: _make.GreaterThanOrEqual,
    spark.LessThan: _make.LessThan,
    spark.LessThanOrEqual: _make.LessThanOrEqual,
}


def _name(column: tuple[str, ...]) -> str:
    return ".".join(column)


def _literal(value: Any) -> Any:
    """A value that PyIceberg can bind to a column; `None` when it has no form for it."""
    match value:
        case bool() | int() | str() | Decimal():
            return value
        case float():
            return value if value == value else None  # NaN compares otherwise in Spark than in statistics
        case dt.datetime():
            return value.isoformat()
        case dt.date():
            return value.isoformat()
    return None
