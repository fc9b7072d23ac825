"""Projections: converting a test of a column to a test of an expression over it (a partition transform, `lower`, or the
bucket of several columns).

Owns: the inclusive and the strict projection.
Does not own: the transforms (`rootline.schemas.bytes.transform_values`), the evaluation (`pruning`).
Invariants:
* Inclusive: a row that satisfies the test satisfies the projection.
* Strict: a row that satisfies the projection and is not null satisfies the test.
* `None` means that the test has no useful projection.

pyiceberg's `Transform.project` is not used: it drops rows for NOT LIKE prefixes that are longer than the width of a
truncate transform, and refuses nanosecond timestamps.

Source: docs/decisions/0028.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from math import prod
from typing import Any, Final

from pyiceberg.transforms import BucketTransform, IdentityTransform, TimeTransform, Transform, TruncateTransform
from pyiceberg.types import PrimitiveType

from rootline.schemas.bytes.transform_values import expression_value, partition_value
from rootline.schemas.content_entry import Bound
from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import Expression, Function, TableDefinition
from rootline.tree.filter.conditions import Condition, Operator, Predicate

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
    """The value `step` after `value` for integer types, or `None` for other types."""
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


COMBINATIONS_MAX: Final = 256
"""The most combinations of allowed values to compute buckets for. With more, the filter does not prune by bucket."""

_EQUAL: Final = (Operator.EQ, Operator.IN)
_UNEQUAL: Final = (Operator.NE, Operator.NOT_IN)


def project_single(
    predicate: Predicate, expression: Expression, definition: TableDefinition, *, is_strict: bool
) -> Predicate | None:
    """The projection of one column test onto `expression`, or `None` if the test has none.

    An inclusive projection is implied by the test. A strict projection implies the test.
    """
    function = definition.function_of(expression)
    if function is Function.LOWER:
        return _of_lower(predicate, expression.expr_id, is_strict=is_strict)
    if function is Function.BUCKET_OF_SEVERAL:  # the bucket is null if any column is null
        certain = Operator.NOT_NULL if is_strict else Operator.IS_NULL
        return Predicate(expression.expr_id, certain) if predicate.operator is certain else None
    return None


def project_together(parts: Iterable[Condition], definition: TableDefinition) -> list[Predicate]:
    """The predicates on buckets of several columns that follow from the AND of `parts`. There is one for a bucket only
    if `parts` restrict each of its columns by equality.
    """
    allowed: dict[int, tuple[Bound, ...]] = {
        part.field_id: part.values for part in parts if isinstance(part, Predicate) and part.operator in _EQUAL
    }
    found = (_of_buckets(allowed, expression, definition) for expression in definition.expressions)
    return [predicate for predicate in found if predicate is not None]


def _of_lower(predicate: Predicate, expr_id: int, *, is_strict: bool) -> Predicate | None:
    if predicate.operator in _NULL_PREDICATES:
        return Predicate(expr_id, predicate.operator)
    if predicate.operator not in (_UNEQUAL if is_strict else _EQUAL):
        return None
    lowered: set[str] = set()
    for value in predicate.values:
        if not isinstance(value, str) or not value.isascii():  # libraries disagree on lower case beyond ASCII
            return None
        lowered.add(value.lower())
    return Predicate(expr_id, predicate.operator, tuple(sorted(lowered)))


def _of_buckets(
    allowed: Mapping[int, tuple[Bound, ...]], expression: Expression, definition: TableDefinition
) -> Predicate | None:
    if len(expression.source_ids) < 2 or any(source_id not in allowed for source_id in expression.source_ids):
        return None
    if definition.function_of(expression) is not Function.BUCKET_OF_SEVERAL:
        return None
    choices = [allowed[source_id] for source_id in expression.source_ids]
    if prod(len(values) for values in choices) > COMBINATIONS_MAX:
        return None
    types = [kind for kind in definition.source_types(expression) if kind is not None]
    try:
        buckets = {
            expression_value(expression.transform, expression.parsed, types, values) for values in product(*choices)
        }
    except (Invalid, ValueError, TypeError, ArithmeticError):
        return None  # a literal that the hash does not accept
    return Predicate(
        expression.expr_id, Operator.IN, tuple(sorted(value for value in buckets if isinstance(value, int)))
    )
