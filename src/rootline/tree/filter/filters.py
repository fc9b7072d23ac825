"""Row filters: text or a pyiceberg expression, bound to the field ids of a schema.

Owns: resolving names to columns, and turning each test into a bound condition.
Does not own: the grammar (`filter_syntax`), the conversion of literals (`filter_values`), the evaluation on files
(`prune`) and rows (`column_predicates`).
Invariants: Values are physical (see `rootline.schemas.content_entry`) and exact. There is no NOT in a bound condition.
A null satisfies IS NULL only, as in SQL. Names are case-sensitive.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

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
from pyiceberg.expressions.literals import Literal
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, NestedField, PrimitiveType, StringType, StructType

from rootline.schemas.content_entry import Bound
from rootline.schemas.errors import Invalid
from rootline.tree.filter.column_pairs import column_pair
from rootline.tree.filter.conditions import (
    ALWAYS,
    NEGATED,
    NEVER,
    AllOf,
    AnyOf,
    ColumnPair,
    Condition,
    Operator,
    Predicate,
    all_of,
    any_of,
    predicates_of,
    tests_of,
)
from rootline.tree.filter.filter_syntax import Joined, Name, NamePair, Negation, Tree, marked, read_filter
from rootline.tree.filter.filter_values import Above, Below, Between, exact_value


@dataclass(frozen=True, slots=True)
class BoundFilter:
    """A filter bound to field ids. `text` is its form in error messages and plans."""

    condition: Condition
    text: str

    @property
    def is_always_true(self) -> bool:
        """Whether every row satisfies the filter, whatever its values."""
        return self.condition == ALWAYS

    @property
    def field_ids(self) -> frozenset[int]:
        """The columns that the filter reads."""
        found: set[int] = set()
        for test in tests_of(self.condition):
            found |= {test.field_id} if isinstance(test, Predicate) else {test.left_id, test.right_id}
        return frozenset(found)


_NAME_CHARS_MAX: Final = 1_000
EVERY_ROW: Final = BoundFilter(ALWAYS, "true")


def bind_filter(where: str | BooleanExpression | BoundFilter | None, schema: Schema) -> BoundFilter:
    """Bind `where` to `schema`. `None` selects every row, and a bound filter is returned unchanged.

    Raises:
        Invalid: `filter-invalid`, the filter cannot be parsed, names an unknown column, or compares a column with a
            literal of another type.
    """
    if where is None:
        return EVERY_ROW
    if isinstance(where, BoundFilter):
        return where
    if isinstance(where, str):
        return BoundFilter(_bound_tree(read_filter(where), schema, where, negated=False), where)
    try:
        return BoundFilter(_bound(where, schema, negated=False), str(where))
    except RecursionError as error:
        raise Invalid("filter-invalid", "the filter is nested too deeply") from error


def _bound_tree(tree: Tree, schema: Schema, text: str, *, negated: bool) -> Condition:
    if isinstance(tree, Negation):
        return _bound_tree(tree.inner, schema, text, negated=not negated)
    if isinstance(tree, Joined):
        parts = tuple(_bound_tree(part, schema, text, negated=negated) for part in tree.parts)
        return all_of(parts) if tree.is_all != negated else any_of(parts)
    operator = NEGATED[tree.operator] if negated else tree.operator
    if isinstance(tree, NamePair):
        return column_pair(_named(tree.left, schema, text), operator, _named(tree.right, schema, text))
    field, literals = _named(tree.column, schema, text), [value.literal for value in tree.values]
    return _test(operator, field, ".".join(tree.column.parts), literals)


def _named(name: Name, schema: Schema, text: str) -> NestedField:
    try:
        return _at_path(name.parts, schema)
    except Invalid as error:
        raise Invalid(error.code, f"{error.message}; {marked(text, name.at, name.end)}") from None


def _at_path(parts: Sequence[str], schema: Schema) -> NestedField:
    fields: Iterable[NestedField] = schema.fields
    name = ".".join(parts)
    if len(name) > _NAME_CHARS_MAX:
        name = f"{name[:_NAME_CHARS_MAX]}…"
    found: NestedField | None = None
    for at, part in enumerate(parts):
        found = next((field for field in fields if field.name == part), None)
        if found is None:
            break
        kind = found.field_type
        if at + 1 < len(parts) and not isinstance(kind, StructType) and not isinstance(kind, PrimitiveType):
            raise Invalid("filter-invalid", f"column {name!r} lies inside a list or map and cannot be filtered on")
        fields = kind.fields if isinstance(kind, StructType) else ()
    if found is None:
        found = next((field for field in schema.fields if field.name == name), None)
    return found if found is not None else _unknown(name, schema)


def _unknown(name: str, schema: Schema) -> NestedField:
    if name.lower() in ("null", "nan"):
        raise Invalid("filter-invalid", f"no value equals {name.upper()}: write IS {name.upper()}")
    known = [schema.find_column_name(field_id) or "" for field_id in sorted(_reachable(schema.as_struct()))]
    alike = [other for other in known if other.lower() == name.lower()]
    if alike:
        raise Invalid("filter-invalid", f"there is no column {name!r}, but {alike[0]!r}: names are case-sensitive")
    shown = ", ".join(column.name for column in schema.fields[:40])
    missing = f"there is no column {name!r}; the table has {shown}"
    raise Invalid("filter-invalid", f"{missing} (write a string in single quotes)")


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
    raise Invalid("filter-invalid", f"{expression!r:.200} cannot be used as a filter")


_OPERATORS: Final[dict[type[BooleanExpression], Operator]] = {
    EqualTo: Operator.EQ,
    NotEqualTo: Operator.NE,
    LessThan: Operator.LT,
    LessThanOrEqual: Operator.LE,
    GreaterThan: Operator.GT,
    GreaterThanOrEqual: Operator.GE,
    StartsWith: Operator.STARTS_WITH,
    NotStartsWith: Operator.NOT_STARTS_WITH,
    In: Operator.IN,
    NotIn: Operator.NOT_IN,
    IsNull: Operator.IS_NULL,
    NotNull: Operator.NOT_NULL,
    IsNaN: Operator.IS_NAN,
    NotNaN: Operator.NOT_NAN,
}


_OF_TEXT: Final = (Operator.STARTS_WITH, Operator.NOT_STARTS_WITH, Operator.LIKE, Operator.NOT_LIKE)


def _bound_predicate(predicate: BooleanExpression, schema: Schema) -> Condition:
    term, operator = getattr(predicate, "term", None), _OPERATORS.get(type(predicate))
    if not isinstance(term, Reference) or operator is None:
        raise Invalid("filter-invalid", f"{predicate}: only a column can be compared, not an expression over one")
    literals: Iterable[Literal[Any]] = ()
    if isinstance(predicate, LiteralPredicate):
        literals = (predicate.literal,)
    elif isinstance(predicate, SetPredicate):
        literals = predicate.literals
    return _test(operator, _column(term.name, schema), term.name, literals)


def _column(name: str, schema: Schema) -> NestedField:
    try:
        field = schema.find_field(name)
    except ValueError:
        return _unknown(name, schema)
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


def _test(operator: Operator, field: NestedField, name: str, literals: Iterable[Literal[Any]]) -> Condition:
    kind = field.field_type
    if operator in (Operator.IS_NULL, Operator.NOT_NULL):
        return Predicate(field.field_id, operator)
    if operator in (Operator.IS_NAN, Operator.NOT_NAN):
        if not isinstance(kind, FloatType | DoubleType):
            raise Invalid("filter-invalid", f"column {name} is a {kind}, which has no NaN")
        return Predicate(field.field_id, operator)
    if not isinstance(kind, PrimitiveType):
        raise Invalid("filter-invalid", f"column {name} is a {kind}; only IS NULL and IS NOT NULL can test it")
    if operator in _OF_TEXT and kind != StringType():
        raise Invalid("filter-invalid", f"column {name} is a {kind}; LIKE works on strings")
    found = [exact_value(literal, kind, column=name) for literal in literals]
    if operator not in (Operator.IN, Operator.NOT_IN):
        return _comparison(operator, field, found[0])
    values = tuple(sorted({value for value in found if not isinstance(value, Above | Below | Between)}, key=_order))
    if len(values) == 1:
        return Predicate(field.field_id, Operator.EQ if operator is Operator.IN else Operator.NE, values)
    if values:
        return Predicate(field.field_id, operator, values)
    return NEVER if operator is Operator.IN else _not_null(field)


def _order(value: Bound) -> Any:
    return value  # all values of a column have one type, which the union `Bound` does not express


def _not_null(field: NestedField) -> Predicate:
    return Predicate(field.field_id, Operator.NOT_NULL)


def _comparison(operator: Operator, field: NestedField, value: Bound | Above | Below | Between) -> Condition:
    """The condition for one literal.

    A literal that the column's type cannot represent still orders its values: for integers `x < 60.5` is `x <= 60`.
    """
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


__all__ = [
    "ALWAYS",
    "EVERY_ROW",
    "NEVER",
    "AllOf",
    "AnyOf",
    "BoundFilter",
    "ColumnPair",
    "Condition",
    "Operator",
    "Predicate",
    "all_of",
    "any_of",
    "bind_filter",
    "predicates_of",
    "tests_of",
]
