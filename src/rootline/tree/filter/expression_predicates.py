"""Projections of column tests onto expressions that are not a plain partition transform.

Such expressions are `lower` and the bucket of several columns.

Owns: the projections onto these two functions.
Does not own: projections through partition transforms (`filter_projection`), the evaluation (`prune`).
Invariants: the same as in `filter_projection`.

Source: docs/decisions/0028.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from math import prod
from typing import Final

from rootline.schemas.bytes.transform_values import expression_value
from rootline.schemas.content_entry import Bound
from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import Expression, Function, TableDefinition
from rootline.tree.filter.conditions import Condition, Operator, Predicate

COMBINATIONS_MAX: Final = 256
"""The most combinations of allowed values to compute buckets for. With more, the filter does not prune by bucket."""

_EQUAL: Final = (Operator.EQ, Operator.IN)
_UNEQUAL: Final = (Operator.NE, Operator.NOT_IN)
_NULL_PREDICATES: Final = (Operator.IS_NULL, Operator.NOT_NULL)


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
    """The predicates on buckets of several columns that follow from the AND of `parts`.

    A bucket has one only if `parts` restrict every one of its columns by equality.
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
