"""Row filters: text or a pyiceberg expression, bound to the field ids of a schema.

Owns: resolving names to columns, turning each test into a bound condition, and converting literals to exact physical
values.
Does not own: the grammar (`filter_syntax`), the evaluation on files (`pruning`) and rows (`conditions`).
Invariants:
* Values are physical (see `rootline.schemas.content_entry`). There is no NOT in a bound condition.
* A literal is never rounded, except to the floating-point precision of its column. A literal between two values of the
  type becomes `Between`. A literal outside the range of the type becomes `Above` or `Below`.
* A null satisfies IS NULL only, as in SQL. Names are case-sensitive.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation
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
from pyiceberg.expressions.literals import Literal, LongLiteral
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)

from rootline.schemas.content_entry import Bound
from rootline.schemas.errors import Invalid
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
    column_pair,
    predicates_of,
    tests_of,
)
from rootline.tree.filter.filter_syntax import Joined, Name, NamePair, Negation, Tree, marked, read_filter

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

_TIMESTAMPS: Final = (TimestampType, TimestamptzType, TimestampNanoType, TimestamptzNanoType)
_CALENDAR: Final = (DateType, TimeType, *_TIMESTAMPS)
_DATE_ONLY: Final = re.compile(r"\d{4}-\d{2}-\d{2}\Z")
_EXACT: Final = Context(prec=400)


@dataclass(frozen=True, slots=True)
class Above:
    """The literal is greater than every value of the type."""


@dataclass(frozen=True, slots=True)
class Below:
    """The literal is less than every value of the type."""


@dataclass(frozen=True, slots=True)
class Between:
    """The literal lies between two neighbouring values of the type."""

    below: Bound
    above: Bound


def exact_value(literal: Literal[Any], field_type: PrimitiveType, *, column: str) -> Bound | Above | Below | Between:
    """The physical value of `literal` for a column of `field_type`.

    Raises:
        Invalid: `filter-invalid`, the literal is of another kind; the message names `column`.

    """
    raw = literal.value
    if isinstance(literal, LongLiteral) and isinstance(field_type, _CALENDAR):
        # a number would count days or microseconds, never what a user means by 20240131
        example = "'12:30:00'" if isinstance(field_type, TimeType) else "'2024-01-31'"
        raise Invalid(
            "filter-invalid",
            f"column {column} is a {field_type}, and {raw} is a number: write a string, as in {example}",
        )
    if isinstance(raw, bool | int | float) and isinstance(field_type, StringType):
        raise Invalid(
            "filter-invalid", f"column {column} is a string, and {raw!r} is not: write it in single quotes, '{raw}'"
        )
    try:
        value = _converted(literal, raw, field_type)
    except (ValueError, TypeError, ArithmeticError, NotImplementedError) as error:
        raise Invalid("filter-invalid", f"column {column} is a {field_type}; {raw!r} does not fit: {error}") from error
    if value is None:
        raise Invalid("filter-invalid", f"column {column} is a {field_type}, and {raw!r} is not: write such a value")
    return value


def _converted(literal: Literal[Any], raw: Any, field_type: PrimitiveType) -> Bound | Above | Below | Between | None:
    if isinstance(field_type, IntegerType | LongType):
        bits = 31 if isinstance(field_type, IntegerType) else 63
        if type(raw) is int and -(2**bits) <= raw < 2**bits:
            return raw
        number = _number(raw)
        return None if number is None else _integer(number, bits)
    if isinstance(field_type, DecimalType):
        number = _number(raw)
        return None if number is None else _decimal(number, field_type)
    if isinstance(field_type, FloatType | DoubleType):
        number = _number(raw)
        return None if number is None else _float(float(number), field_type)
    if isinstance(field_type, _TIMESTAMPS):
        return _timestamp(literal, raw, field_type)
    if isinstance(field_type, FixedType):
        return raw if isinstance(raw, bytes) and len(raw) == len(field_type) else None
    if isinstance(field_type, BinaryType):
        return raw if isinstance(raw, bytes) else None
    converted = literal.to(field_type).value
    if isinstance(field_type, DateType) and not -(2**31) <= converted < 2**31:
        return Above() if converted > 0 else Below()
    return converted  # type: ignore[no-any-return]


def _number(raw: Any) -> Decimal | None:
    if isinstance(raw, bool) or not isinstance(raw, int | float | Decimal | str):
        return None
    try:
        return _EXACT.create_decimal(raw.strip() if isinstance(raw, str) else raw)
    except InvalidOperation:
        return None


def _integer(number: Decimal, bits: int) -> int | Above | Below | Between:
    if number.is_nan():
        raise ValueError("NaN is not an integer")
    if number >= 2**bits:
        return Above()
    if number < -(2**bits):
        return Below()
    floor = math.floor(number)
    if floor == number:
        return floor
    return Between(floor, floor + 1) if floor + 1 < 2**bits else Above()


def _decimal(number: Decimal, field_type: DecimalType) -> Decimal | Above | Below | Between:
    if number.is_nan():
        raise ValueError("NaN is not a decimal")
    greatest = Decimal((0, (9,) * field_type.precision, -field_type.scale))
    if number > greatest:
        return Above()
    if number < -greatest:
        return Below()
    step = Decimal((0, (1,), -field_type.scale))
    floor = number.quantize(step, rounding=ROUND_FLOOR, context=_EXACT)
    ceiling = number.quantize(step, rounding=ROUND_CEILING, context=_EXACT)
    return floor if floor == ceiling else Between(floor, ceiling)


def _float(number: float, field_type: PrimitiveType) -> float:
    if math.isnan(number):
        raise ValueError("compare with IS NAN")
    if isinstance(field_type, DoubleType):
        return number
    try:
        narrow: float = struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)
    return narrow


def _timestamp(literal: Literal[Any], raw: Any, field_type: PrimitiveType) -> int:
    has_zone = isinstance(field_type, TimestamptzType | TimestamptzNanoType)
    if isinstance(raw, str):
        text = raw.strip().replace(" ", "T", 1)
        if _DATE_ONLY.match(text):
            text += "T00:00:00"
        if has_zone and not re.search(r"(Z|[+-]\d{2}:\d{2})\Z", text):
            text += "+00:00"
        literal = type(literal)(re.sub(r"Z\Z", "+00:00", text))  # type: ignore[call-arg]
    micros: int = literal.to(TimestamptzType() if has_zone else TimestampType()).value
    return micros * 1000 if isinstance(field_type, TimestampNanoType | TimestamptzNanoType) else micros


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
        raise Invalid("filter-invalid", "the filter is nested too deeply: write it with fewer brackets") from error


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
            raise Invalid("filter-invalid", f"column {name!r} lies inside a list or map: filter by another column")
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
    raise Invalid("filter-invalid", f"{expression!r:.200} cannot be used as a filter: write the filter as text")


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
        raise Invalid("filter-invalid", f"column {name!r} lies inside a list or map: filter by another column")
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
