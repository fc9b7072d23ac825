"""Projections of column tests onto partition transforms of the column (bucket, month, truncate, …).

Owns: the inclusive and the strict projection.
Does not own: the transforms (`rootline.schemas.bytes.transform_values`), the evaluation (`prune`).
Invariants:
* Inclusive: a row that satisfies the test satisfies the projection.
* Strict: a row that satisfies the projection and is not null satisfies the test.
* `None` means that the test has no useful projection.

pyiceberg's `Transform.project` is not used: it drops rows for NOT LIKE prefixes that are longer than the width of a
truncate transform, and refuses nanosecond timestamps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pyiceberg.transforms import BucketTransform, IdentityTransform, TimeTransform, Transform, TruncateTransform
from pyiceberg.types import PrimitiveType

from rootline.schemas.bytes.transform_values import partition_value
from rootline.schemas.content_entry import Bound
from rootline.schemas.errors import Invalid
from rootline.tree.filter.conditions import Operator, Predicate

_NULL_PREDICATES: Final = (Operator.IS_NULL, Operator.NOT_NULL)
_Apply = Callable[[Bound], Bound]


def project_inclusive(
    predicate: Predicate, transform: Transform[Any, Any], source_type: PrimitiveType, expr_id: int
) -> Predicate | None:
    """The test on expression `expr_id` that `predicate` implies."""
    return _project(predicate, transform, source_type, expr_id, _ordered_inclusive, (Operator.EQ, Operator.IN))


def project_strict(
    predicate: Predicate, transform: Transform[Any, Any], source_type: PrimitiveType, expr_id: int
) -> Predicate | None:
    """The test on expression `expr_id` that implies `predicate` for every row that is not null."""
    return _project(predicate, transform, source_type, expr_id, _ordered_strict, (Operator.NE, Operator.NOT_IN))


def _project(
    predicate: Predicate,
    transform: Transform[Any, Any],
    source_type: PrimitiveType,
    expr_id: int,
    ordered: Callable[[Predicate, int, int | None, _Apply], Predicate | None],
    of_bucket: tuple[Operator, Operator],
) -> Predicate | None:
    if isinstance(transform, IdentityTransform):
        return Predicate(expr_id, predicate.operator, predicate.values)
    if not isinstance(transform, BucketTransform | TruncateTransform | TimeTransform):
        return None  # void is null in every row, an unknown transform has no known values
    if predicate.operator in _NULL_PREDICATES:
        return Predicate(expr_id, predicate.operator)

    def apply(value: Bound) -> Bound:
        result = partition_value(transform, source_type, value)
        if result is None:
            raise ValueError(f"{transform} of {value!r} is null")
        return result

    try:
        if isinstance(transform, BucketTransform):
            if predicate.operator not in of_bucket:
                return None
            return Predicate(expr_id, predicate.operator, _applied(predicate.values, apply))
        width = transform.width if isinstance(transform, TruncateTransform) else None
        return ordered(predicate, expr_id, width, apply)
    except (Invalid, ValueError, TypeError, ArithmeticError):
        return None  # a literal out of the transform's range, or a transform that does not fit the type


def _applied(values: tuple[Bound, ...], apply: _Apply) -> tuple[Bound, ...]:
    found: set[Any] = {apply(value) for value in values}
    return tuple(sorted(found))


def _next(value: Bound, step: int) -> Bound | None:
    """The neighbouring value, for types that have one."""
    return value + step if isinstance(value, int) and not isinstance(value, bool) else None


def _ordered_inclusive(predicate: Predicate, expr_id: int, width: int | None, apply: _Apply) -> Predicate | None:
    operator, value = predicate.operator, predicate.values[0] if predicate.values else None
    if operator in (Operator.EQ, Operator.IN):
        return Predicate(expr_id, operator, _applied(predicate.values, apply))
    if operator in (Operator.LT, Operator.LE, Operator.GT, Operator.GE) and value is not None:
        is_less = operator in (Operator.LT, Operator.LE)
        neighbour = _next(value, -1 if is_less else 1) if operator in (Operator.LT, Operator.GT) else None
        bound = apply(value if neighbour is None else neighbour)
        return Predicate(expr_id, Operator.LE if is_less else Operator.GE, (bound,))
    if isinstance(value, str) and width is not None:
        if operator is Operator.STARTS_WITH:
            return (
                Predicate(expr_id, Operator.EQ, (value[:width],))
                if len(value) >= width
                else Predicate(expr_id, Operator.STARTS_WITH, (value,))
            )
        if operator is Operator.NOT_STARTS_WITH and len(value) <= width:
            return Predicate(expr_id, operator, (value,))
    return None


def _ordered_strict(predicate: Predicate, expr_id: int, width: int | None, apply: _Apply) -> Predicate | None:
    operator, value = predicate.operator, predicate.values[0] if predicate.values else None
    if operator in (Operator.NE, Operator.NOT_IN):
        return Predicate(expr_id, operator, _applied(predicate.values, apply))
    if operator in (Operator.LT, Operator.LE, Operator.GT, Operator.GE) and value is not None:
        is_less = operator in (Operator.LT, Operator.LE)
        neighbour = _next(value, 1 if is_less else -1) if operator in (Operator.LE, Operator.GE) else None
        bound = apply(value if neighbour is None else neighbour)
        return Predicate(expr_id, Operator.LT if is_less else Operator.GT, (bound,))
    if isinstance(value, str) and width is not None:
        if operator is Operator.STARTS_WITH and len(value) <= width:
            return Predicate(expr_id, operator, (value,))
        if operator is Operator.NOT_STARTS_WITH:
            return (
                Predicate(expr_id, operator, (value,))
                if len(value) <= width
                else Predicate(expr_id, Operator.NE, (value[:width],))
            )
    return None
