"""Spark's pushed filters as expressions of PyIceberg.

Owns: the translation. Does not own: evaluation (`rootline.tree.filter.filters`, `rootline.tree.filter.prune`).
Invariants: a row that satisfies a filter in Spark satisfies its translation, because other rows are never handed to
Spark; a filter without such a translation is left out, and costs only time, because Spark checks every filter again.
The two differ on NaN: in Spark it is greater than every number, here it satisfies no comparison.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from decimal import Decimal
from functools import reduce
from typing import Any, Final

from pyiceberg import expressions
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType
from pyspark.sql import datasource as spark

from rootline.schemas.errors import Invalid
from rootline.tree.filter.filters import bind_filter

_make: Final[Any] = expressions  # the constructors of its models name some fields differently
_COMPARISONS: Final[dict[type[spark.Filter], tuple[Any, Any]]] = {
    spark.EqualTo: (_make.EqualTo, _make.NotEqualTo),
    spark.GreaterThan: (_make.GreaterThan, _make.LessThanOrEqual),
    spark.GreaterThanOrEqual: (_make.GreaterThanOrEqual, _make.LessThan),
    spark.LessThan: (_make.LessThan, _make.GreaterThanOrEqual),
    spark.LessThanOrEqual: (_make.LessThanOrEqual, _make.GreaterThan),
}
"""Spark's filter → its translation, and the translation of its negation; both drop nulls, as SQL does."""


def translated(filters: Iterable[spark.Filter], schema: Schema) -> expressions.BooleanExpression | None:
    """The conjunction of those `filters` that can be translated for a table of `schema`; `None` when none can."""
    parts = [part for part in (_bindable(condition, schema) for condition in filters) if part is not None]
    return reduce(_make.And, parts) if parts else None


def _bindable(condition: spark.Filter, schema: Schema) -> Any:
    is_negated = isinstance(condition, spark.Not)
    inner = condition.child if isinstance(condition, spark.Not) else condition
    if isinstance(inner, spark.Not) or any("." in part for part in getattr(inner, "attribute", ())):
        return None  # a dot in a name cannot be told from a path
    expression = _translate(inner, schema, is_negated)
    if expression is not None:
        try:
            bind_filter(expression, schema)
        except Invalid:
            return None
    return expression


def _translate(condition: Any, schema: Schema, is_negated: bool) -> Any:
    column = ".".join(condition.attribute)
    match condition:
        case spark.IsNull():
            return (_make.NotNull if is_negated else _make.IsNull)(column)
        case spark.IsNotNull():
            return (_make.IsNull if is_negated else _make.NotNull)(column)
        case spark.In(value=values):
            literals = [_literal(value) for value in values]
            if not literals or None in literals:
                return None
            return (_make.NotIn if is_negated else _make.In)(column, literals)
        case spark.StringStartsWith(value=prefix):
            return (_make.NotStartsWith if is_negated else _make.StartsWith)(column, prefix)
        case spark.EqualNullSafe(value=None):
            return (_make.NotNull if is_negated else _make.IsNull)(column)
        case spark.EqualNullSafe(value=value):
            literal = _literal(value)
            if literal is None:
                return None
            if is_negated:
                return _make.Or(_make.NotEqualTo(column, literal), _make.IsNull(column))
            return _make.EqualTo(column, literal)
    if type(condition) not in _COMPARISONS:
        return None
    return _comparison(_COMPARISONS[type(condition)][is_negated], column, _literal(condition.value), schema)


def _comparison(make: Any, column: str, literal: Any, schema: Schema) -> Any:
    if literal is None:
        return None
    expression = make(column, literal)
    if make in (_make.GreaterThan, _make.GreaterThanOrEqual) and _may_hold_nan(column, schema):
        return _make.Or(expression, _make.IsNaN(column))
    return expression


def _may_hold_nan(column: str, schema: Schema) -> bool:
    try:
        return isinstance(schema.find_field(column).field_type, FloatType | DoubleType)
    except ValueError:
        return False


def _literal(value: Any) -> Any:
    """A value that PyIceberg can bind to a column; `None` if there is none."""
    match value:
        case bool() | int() | str() | bytes() | Decimal():
            return value
        case float():
            return value if value == value else None
        case dt.date() | dt.time():  # a datetime is a date
            return value.isoformat()
    return None
