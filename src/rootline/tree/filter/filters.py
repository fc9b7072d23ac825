"""Row filters: text or a pyiceberg expression, bound to the field ids of a schema.

Owns: the bound form of a filter. Does not own: how literals become values (`filter_values`), what a filter says about
a file (`prune`) or about rows (`rootline.storage.rows.scan_executor`).
Invariants: values are physical (see `rootline.schemas.statistics`) and exact; no NOT is left; null satisfies no test
but IS NULL, as in SQL.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from pyiceberg.exceptions import ValidationError
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    LiteralPredicate,
    Not,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Or,
    Reference,
    SetPredicate,
    StartsWith,
    UnboundPredicate,
)
from pyiceberg.expressions.parser import parse
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, NestedField, PrimitiveType, StringType, StructType
from pyparsing import ParseBaseException

from rootline.schemas.errors import Invalid
from rootline.schemas.statistics import Bound
from rootline.tree.filter.filter_values import Above, Below, Between, exact_value

MAX_FILTER_CHARS: Final = 65_536
MAX_FILTER_DEPTH: Final = 64


class Operator(Enum):
    """What a test asks of one column."""

    EQ = "="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    IN = "in"
    NOT_IN = "not in"
    STARTS_WITH = "starts with"
    NOT_STARTS_WITH = "not starts with"
    IS_NULL = "is null"
    NOT_NULL = "is not null"
    IS_NAN = "is nan"
    NOT_NAN = "is not nan"


@dataclass(frozen=True, slots=True)
class Predicate:
    """One column against its values: none for null and NaN tests, one for comparisons, some for IN (ascending)."""

    __test__ = False  # not a test case, whatever pytest thinks of the name

    field_id: int
    operator: Operator
    values: tuple[Bound, ...] = ()


@dataclass(frozen=True, slots=True)
class AllOf:
    """AND; without parts it is true."""

    parts: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class AnyOf:
    """OR; without parts it is false."""

    parts: tuple[Condition, ...] = ()


Condition = Predicate | AllOf | AnyOf
ALWAYS: Final = AllOf()
NEVER: Final = AnyOf()


@dataclass(frozen=True, slots=True)
class BoundFilter:
    """A filter whose columns are field ids; `text` is how an error or a plan shows it."""

    condition: Condition
    text: str

    @property
    def is_always_true(self) -> bool:
        """Whether every row satisfies it, no matter what is in the row."""
        return self.condition == ALWAYS

    @property
    def field_ids(self) -> frozenset[int]:
        """The columns that the filter reads."""
        return frozenset(predicate.field_id for predicate in predicates_of(self.condition))


EVERY_ROW: Final = BoundFilter(ALWAYS, "true")


def predicates_of(condition: Condition) -> Iterator[Predicate]:
    """Every test of a condition, from left to right."""
    if isinstance(condition, Predicate):
        yield condition
    else:
        for part in condition.parts:
            yield from predicates_of(part)


def bind_filter(where: str | BooleanExpression | BoundFilter | None, schema: Schema) -> BoundFilter:
    """`where` bound to `schema`; `None` means every row, a bound filter stays as it is.

    Raises:
        Invalid: `filter-invalid`, it cannot be parsed, names an unknown column or compares with another type.

    """
    if where is None:
        return EVERY_ROW
    if isinstance(where, BoundFilter):
        return where
    expression, text = (_parsed(where), where) if isinstance(where, str) else (where, str(where))
    try:
        return BoundFilter(_bound(expression, schema, negated=False), text)
    except RecursionError as error:
        raise Invalid("filter-invalid", "the filter is nested too deeply") from error


def _parsed(text: str) -> BooleanExpression:
    if len(text) > MAX_FILTER_CHARS:
        raise Invalid("filter-invalid", f"the filter has {len(text)} characters; at most {MAX_FILTER_CHARS} are read")
    depth = deepest = 0
    for char in text:
        depth += (char == "(") - (char == ")")
        deepest = max(deepest, depth)
    if deepest > MAX_FILTER_DEPTH:
        raise Invalid("filter-invalid", f"the filter nests {deepest} parentheses; at most {MAX_FILTER_DEPTH} are read")
    try:
        return parse(text)
    except ParseBaseException as error:
        here = f"{_short(text)} cannot be read from character {error.loc + 1} on"
        raise Invalid("filter-invalid", f"{here}; write it as in \"dep_delay > 60 and carrier = 'UA'\"") from error
    except (ValueError, TypeError, RecursionError, ValidationError) as error:
        raise Invalid("filter-invalid", f"{_short(text)}: {error}") from error


def _short(text: str) -> str:
    return repr(text if len(text) <= 200 else text[:200] + "…")


def _bound(expression: BooleanExpression, schema: Schema, *, negated: bool) -> Condition:
    if isinstance(expression, AlwaysTrue | AlwaysFalse):
        return ALWAYS if isinstance(expression, AlwaysTrue) != negated else NEVER
    if isinstance(expression, Not):
        return _bound(expression.child, schema, negated=not negated)
    if isinstance(expression, And | Or):
        parts = tuple(_bound(part, schema, negated=negated) for part in (expression.left, expression.right))
        return all_of(parts) if isinstance(expression, And) != negated else any_of(parts)
    if isinstance(expression, UnboundPredicate):
        return _bound_predicate(~expression if negated else expression, schema)
    raise Invalid("filter-invalid", f"{expression} cannot be used as a filter")


def all_of(parts: tuple[Condition, ...]) -> Condition:
    """AND of `parts`, flattened."""
    flat = [inner for part in parts for inner in (part.parts if isinstance(part, AllOf) else (part,))]
    if NEVER in flat:
        return NEVER
    return flat[0] if len(flat) == 1 else AllOf(tuple(flat))


def any_of(parts: tuple[Condition, ...]) -> Condition:
    """OR of `parts`, flattened."""
    flat = [inner for part in parts for inner in (part.parts if isinstance(part, AnyOf) else (part,))]
    if ALWAYS in flat:
        return ALWAYS
    return flat[0] if len(flat) == 1 else AnyOf(tuple(flat))


_COMPARISONS: Final[dict[type[LiteralPredicate], Operator]] = {
    EqualTo: Operator.EQ,
    NotEqualTo: Operator.NE,
    LessThan: Operator.LT,
    LessThanOrEqual: Operator.LE,
    GreaterThan: Operator.GT,
    GreaterThanOrEqual: Operator.GE,
    StartsWith: Operator.STARTS_WITH,
    NotStartsWith: Operator.NOT_STARTS_WITH,
}
_UNARY: Final[dict[type[BooleanExpression], Operator]] = {
    IsNull: Operator.IS_NULL,
    NotNull: Operator.NOT_NULL,
    IsNaN: Operator.IS_NAN,
    NotNaN: Operator.NOT_NAN,
}


def _bound_predicate(predicate: BooleanExpression, schema: Schema) -> Condition:
    term = getattr(predicate, "term", None)
    if not isinstance(term, Reference):
        raise Invalid("filter-invalid", f"{predicate}: only a column can be compared, not an expression over one")
    field, name = _column(term.name, schema), term.name
    unary = _UNARY.get(type(predicate))
    if unary is not None:
        return _unary_test(unary, field, name)
    if not isinstance(field.field_type, PrimitiveType):
        raise Invalid("filter-invalid", f"column {name} is a {field.field_type}; only IS NULL can be asked of it")
    if isinstance(predicate, LiteralPredicate):
        operator = _COMPARISONS[type(predicate)]
        if operator in (Operator.STARTS_WITH, Operator.NOT_STARTS_WITH) and field.field_type != StringType():
            raise Invalid("filter-invalid", f"column {name} is a {field.field_type}; LIKE works on strings")
        return _comparison(operator, field, exact_value(predicate.literal, field.field_type, column=name))
    if isinstance(predicate, SetPredicate):
        found = [exact_value(literal, field.field_type, column=name) for literal in predicate.literals]
        values = tuple(sorted({value for value in found if not isinstance(value, Above | Below | Between)}, key=_order))
        if isinstance(predicate, In):
            return Predicate(field.field_id, Operator.IN, values) if values else NEVER
        if isinstance(predicate, NotIn):
            return Predicate(field.field_id, Operator.NOT_IN, values) if values else _not_null(field)
    raise Invalid("filter-invalid", f"{predicate} cannot be used as a filter")


def _order(value: Bound) -> Any:
    return value  # values of one column are of one type, which the union does not say


def _column(name: str, schema: Schema) -> NestedField:
    try:
        field = schema.find_field(name)
    except ValueError as error:
        known = ", ".join(column.name for column in schema.fields[:40])
        raise Invalid("filter-invalid", f"there is no column {name!r}; the table has {known}") from error
    if field.field_id not in _reachable(schema.as_struct()):
        raise Invalid("filter-invalid", f"column {name!r} lies inside a list or map and cannot be filtered on")
    return field


def _reachable(struct: StructType) -> set[int]:
    found: set[int] = set()
    for field in struct.fields:
        found.add(field.field_id)
        if isinstance(field.field_type, StructType):
            found |= _reachable(field.field_type)
    return found


def _not_null(field: NestedField) -> Predicate:
    return Predicate(field.field_id, Operator.NOT_NULL)


def _unary_test(operator: Operator, field: NestedField, name: str) -> Condition:
    if operator in (Operator.IS_NAN, Operator.NOT_NAN) and not isinstance(field.field_type, FloatType | DoubleType):
        raise Invalid("filter-invalid", f"column {name} is a {field.field_type}, which has no NaN")
    return Predicate(field.field_id, operator)


def _comparison(operator: Operator, field: NestedField, value: Bound | Above | Below | Between) -> Condition:
    """A literal that no value of the column can equal still orders them: `x < 60.5` is `x <= 60` for integers."""
    if isinstance(value, Above | Below | Between):
        if operator in (Operator.EQ, Operator.STARTS_WITH):
            return NEVER
        if operator in (Operator.NE, Operator.NOT_STARTS_WITH):
            return _not_null(field)
        is_less = operator in (Operator.LT, Operator.LE)
        if isinstance(value, Between):
            return (
                Predicate(field.field_id, Operator.LE, (value.below,))
                if is_less
                else Predicate(field.field_id, Operator.GE, (value.above,))
            )
        return _not_null(field) if is_less == isinstance(value, Above) else NEVER
    return Predicate(field.field_id, operator, (value,))
